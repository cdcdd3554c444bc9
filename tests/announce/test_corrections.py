"""Undo a bad run, or have some pages sent again: what counts as announced is corrected, and the next execution does the
rest. On both databases, against the sandbox."""

from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from tests.announce.bing_stage import MORNING, BingStage, open_bing_stage
from tests.conftest import BenchMaker
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.ledger.corrections import forget_since, requeue
from tidings.announce.ledger.ledger import Channel
from tidings.core.executions import AlreadyRunningError, ExecutionStatus

HOUR = timedelta(hours=1)


async def forget(stage: BingStage, *, since: timedelta, channel: ChannelChoice = ChannelChoice.ALL) -> int:
    """Undo what was announced since so long after the stage was set up."""
    return await forget_since(
        stage.site,
        MORNING + since,
        channel=channel,
        database=stage.bench.database,
        executions=stage.bench.executions,
    )


async def send_again(stage: BingStage, *urls: str, channel: ChannelChoice = ChannelChoice.ALL) -> int:
    return await requeue(
        stage.site, urls, channel=channel, database=stage.bench.database, executions=stage.bench.executions
    )


async def count_entered(stage: BingStage) -> dict[Channel, int]:
    return {channel: len(await stage.find_entered(channel)) for channel in Channel}


@pytest.mark.parametrize(
    ("channel", "forgotten", "sent"),
    [
        (ChannelChoice.ALL, 40, {Channel.INDEXNOW: 40, Channel.BING: 40}),
        (ChannelChoice.INDEXNOW, 20, {Channel.INDEXNOW: 40, Channel.BING: 20}),
        (ChannelChoice.BING, 20, {Channel.INDEXNOW: 20, Channel.BING: 40}),
    ],
)
async def test_a_bad_execution_is_undone_on_the_channels_that_are_named(
    make_bench: BenchMaker, channel: ChannelChoice, forgotten: int, sent: dict[Channel, int]
) -> None:
    """A10, A36, A41: all of it is due again there, also from sitemap files that have not changed since."""
    async with open_bing_stage(make_bench) as stage:
        await stage.announce()
        stage.clock.advance(HOUR)
        assert await forget(stage, since=timedelta(0), channel=channel) == forgotten
        report = await stage.announce()
        accepted = {Channel.INDEXNOW: stage.engine.accepted.total(), Channel.BING: stage.bing.accepted.total()}
        assert report.files_unchanged == 0
        assert accepted == sent
        none = {Channel.BAIDU: 0, Channel.GOOGLE: 0}
        assert await count_entered(stage) == {Channel.INDEXNOW: 20, Channel.BING: 20, **none}


async def test_what_was_announced_before_that_time_stays(make_bench: BenchMaker) -> None:
    """A36: only the bad execution is undone, to the millisecond; undoing it again finds nothing."""
    async with open_bing_stage(make_bench) as stage:
        await stage.announce()
        stage.clock.advance(HOUR)
        stage.web.change_many([1, 2, 3])
        await stage.announce()
        forgotten = [
            await forget(stage, since=since, channel=ChannelChoice.INDEXNOW) for since in (2 * HOUR, HOUR, HOUR)
        ]
        kept = await stage.find_entered(Channel.INDEXNOW)
        assert forgotten == [0, 3, 0]
        assert set(stage.web.urls()) - kept == {stage.web.url(number) for number in (1, 2, 3)}
        await stage.announce()
        assert sorted(stage.engine.accepted.values()) == [1] * 17 + [3] * 3


async def test_single_pages_are_sent_again_and_no_others(make_bench: BenchMaker) -> None:
    """A36: those that are named; what is foreign, unknown or no URL changes nothing and is not counted."""
    async with open_bing_stage(make_bench) as stage:
        await stage.announce()
        own = [stage.web.url(4), f" {stage.web.url(5)}\n", stage.web.url(4)]
        others = ["https://other.example/page", f"{stage.web.origin}/unlisted", "no URL", ""]
        counts = [await send_again(stage, *own, *others), await send_again(stage, *others)]
        await stage.announce()
        twice = {url for url, times in stage.engine.accepted.items() if times == 2}
        assert counts == [4, 0]
        assert twice == {url for url, times in stage.bing.accepted.items() if times == 2}
        assert twice == {stage.web.url(4), stage.web.url(5)}
        assert set(stage.engine.accepted.values()) == {1, 2}


async def test_single_pages_can_be_sent_again_on_one_channel(make_bench: BenchMaker) -> None:
    """A10, A36: the other channel's ledger is left alone."""
    async with open_bing_stage(make_bench) as stage:
        await stage.announce()
        assert await send_again(stage, stage.web.url(4), channel=ChannelChoice.BING) == 1
        await stage.announce()
        assert (stage.engine.accepted[stage.web.url(4)], stage.bing.accepted[stage.web.url(4)]) == (1, 2)


async def test_a_correction_stands_in_the_history(make_bench: BenchMaker) -> None:
    """A37: who looks for the reason of a second sending finds it."""
    async with open_bing_stage(make_bench) as stage:
        await stage.announce()
        await forget(stage, since=timedelta(0), channel=ChannelChoice.BING)
        await send_again(stage, stage.web.url(1), stage.web.url(2))
        requeued, forgotten, _ = await stage.list_executions()
        assert (requeued.status, forgotten.status) == (ExecutionStatus.SUCCEEDED, ExecutionStatus.SUCCEEDED)
        assert requeued.result == {"forgotten": 2, "urls": 2, "channel": "all"}
        assert forgotten.result == {"forgotten": 20, "since": "2025-01-15T10:30:00.000Z", "channel": "bing"}


async def test_nothing_is_corrected_while_the_site_runs(make_bench: BenchMaker) -> None:
    """A39: an execution remembers what it has seen; both at once would lose pages."""
    async with open_bing_stage(make_bench) as stage:
        await stage.announce()
        before = await count_entered(stage)
        running = await stage.bench.executions.acquire(stage.site.workflow_name, kind="announce")
        for refused in (forget(stage, since=timedelta(0)), send_again(stage, stage.web.url(1))):
            with pytest.raises(AlreadyRunningError) as caught:
                await refused
            assert caught.value.execution_id == running.public_id
        assert await count_entered(stage) == before


async def test_a_correction_that_breaks_changes_nothing_and_leaves_the_site_free(make_bench: BenchMaker) -> None:
    """A39, A41: all of it or nothing, on both channels."""
    async with open_bing_stage(make_bench) as stage:
        await stage.announce()
        before = await count_entered(stage)
        await _rename(stage, "sitemap_validators", to="away")
        with pytest.raises(SQLAlchemyError):
            await forget(stage, since=timedelta(0))
        await _rename(stage, "away", to="sitemap_validators")
        assert await count_entered(stage) == before
        assert len(await stage.list_executions()) == 1
        assert await forget(stage, since=timedelta(0)) == 40


async def _rename(stage: BingStage, table: str, *, to: str) -> None:
    async with stage.bench.database.write() as connection:
        await connection.execute(text(f"ALTER TABLE {table} RENAME TO {to}"))
