"""The whole way from a sitemap to the engines, against the sandbox over loopback, on both databases."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.announce.stage import StageMaker
from tidings.announce.execution.report import Report
from tidings.core.executions import AlreadyRunningError, ExecutionStatus
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault


async def test_every_page_is_announced_once_and_nothing_is_sent_twice(open_stage: StageMaker) -> None:
    """A10, A11, A18: what was accepted is in the ledger and is not due again."""
    stage = await open_stage(SandboxSite(pages=250, per_sitemap=100), engines=2)
    first = await stage.announce()
    second = await stage.announce()
    assert (first.status, first.total, first.new, first.submitted) == (ExecutionStatus.SUCCEEDED, 250, 250, 250)
    assert (second.status, second.total, second.new, second.cached) == (ExecutionStatus.SUCCEEDED, 250, 0, 250)
    for engine in stage.engines:
        assert dict(engine.accepted) == dict.fromkeys(stage.web.urls(), 1)


async def test_the_ledger_of_one_site_is_not_the_ledger_of_another(open_stage: StageMaker) -> None:
    """A10: a second site with the same pages announces all of them itself."""
    first = await open_stage(site_id="first")
    await first.announce()
    second = replace(first, site=await first.bench.store(replace(first.site, id="second")))
    report = await second.announce()
    assert (report.new, report.submitted) == (20, 20)
    assert dict(first.engines[0].accepted) == dict.fromkeys(first.web.urls(), 2)


async def test_every_execution_is_kept_with_times_counts_engines_and_errors(open_stage: StageMaker) -> None:
    """A37: the history, the newest first, as the report was."""
    stage = await open_stage(SandboxSite(pages=30, per_sitemap=10), engines=2)
    alpha, beta = stage.engines
    began = datetime.now(UTC).replace(microsecond=0)
    await stage.announce()
    stage.web.misbehave(Fault(status=404, path="/sitemaps/2.xml"))
    alpha.misbehave(Fault(status=422, matching="/0000031/"))
    stage.web.add(2)
    report = await stage.announce()
    newest, oldest = await stage.list_executions()
    assert (oldest.status, oldest.items_processed, oldest.result["total"]) == (ExecutionStatus.SUCCEEDED, 30, 30)
    assert began <= oldest.started_at <= (oldest.completed_at or began) <= newest.started_at
    assert newest.public_id == report.execution_id
    assert newest.completed_at is not None
    assert newest.result == report.to_json()
    counts = {name: newest.result[name] for name in ("status", "total", "new", "cached", "submitted", "failed")}
    assert counts == {"status": "partial", "total": 22, "new": 2, "cached": 20, "submitted": 2, "failed": 0}
    of_sitemap, of_engine = newest.result["errors"]
    assert "/sitemaps/2.xml" in of_sitemap
    assert of_engine.endswith(": 1 of 2 URLs failed: HTTP 422")
    numbers = {
        engine["engine"]: (engine["total"], engine["succeeded"], engine["failed"])
        for engine in newest.result["engines"]
    }
    assert numbers == {alpha.host: (2, 1, 1), beta.host: (2, 2, 0)}


async def test_only_one_of_two_executions_at_once_runs(open_stage: StageMaker) -> None:
    """A39: the other learns which one is running; nothing is sent twice."""
    stage = await open_stage()
    outcomes = await asyncio.gather(stage.announce(), stage.announce(), return_exceptions=True)
    [report] = [outcome for outcome in outcomes if isinstance(outcome, Report)]
    [refused] = [outcome for outcome in outcomes if isinstance(outcome, AlreadyRunningError)]
    assert refused.execution_id == report.execution_id
    assert dict(stage.engines[0].accepted) == dict.fromkeys(stage.web.urls(), 1)
    assert len(await stage.list_executions()) == 1


async def test_an_execution_is_refused_for_as_long_as_another_runs_and_no_longer(open_stage: StageMaker) -> None:
    """A39: refused in the middle of it, welcome right after it."""
    stage = await open_stage()
    refusals: list[AlreadyRunningError] = []

    async def try_another(_: object) -> None:
        with pytest.raises(AlreadyRunningError) as refused:
            await stage.announce()
        refusals.append(refused.value)

    stage.engines[0].on_request = try_another
    first = await stage.announce()
    assert [refused.execution_id for refused in refusals] == [first.execution_id]
    assert (await stage.announce()).status is ExecutionStatus.SUCCEEDED
