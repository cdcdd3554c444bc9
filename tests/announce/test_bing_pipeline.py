"""Bing within an execution: after IndexNow, within its quota, and without harm to anything else."""

from tests.announce.bing_stage import open_bing_stage
from tests.conftest import BenchMaker
from tidings.announce.ledger.ledger import Channel
from tidings.core.executions import ExecutionStatus


async def test_what_is_due_goes_to_bing_after_indexnow(make_bench: BenchMaker) -> None:
    """A10, A26, A27: both channels get every page, each has its own ledger, and a second execution sends nothing."""
    async with open_bing_stage(make_bench, pages=20) as stage:
        report = await stage.announce()
        assert report.status is ExecutionStatus.SUCCEEDED
        assert report.ranked[Channel.BING].engine.succeeded == 20
        assert set(stage.bing.accepted) == set(stage.engine.accepted) == set(stage.web.urls())
        assert await stage.find_entered() == await stage.find_entered(Channel.INDEXNOW) == set(stage.web.urls())
        assert (await stage.read_quota()).used == stage.used_at_bing() == 20
        again = await stage.announce()
        assert again.status is ExecutionStatus.SUCCEEDED
        assert len(stage.batches()) == 1
