"""An execution that has to stop: in good order, with all it did saved, and the next one goes on from there."""

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import select

from tests.announce.bing_stage import MORNING
from tests.announce.stage import AdjustableClock, Events, Stage, StageMaker, list_sent
from tests.conftest import BenchMaker
from tests.fakes import StageClock
from tidings.announce.due.given_pages import GivenPages
from tidings.announce.site.site import SubmitMethod
from tidings.core.executions import ExecutionStatus
from tidings.core.net.pace import pace
from tidings.core.stop import Stop
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded

BUDGET = timedelta(minutes=5)
INTERRUPTED, SUCCEEDED = ExecutionStatus.INTERRUPTED, ExecutionStatus.SUCCEEDED


async def assert_the_next_execution_sends_just_the_rest(stage: Stage) -> None:
    taken = [set(engine.accepted) for engine in stage.engines]
    marks = [len(engine.requests) for engine in stage.engines]
    report = await stage.announce()
    assert report.status is SUCCEEDED
    for engine, before, mark in zip(stage.engines, taken, marks, strict=True):
        assert before.isdisjoint(list_sent(engine, since=mark))
        assert dict(engine.accepted) == dict.fromkeys(stage.web.urls(), 1)


@pytest.mark.thorough
@pytest.mark.parametrize("why", ["budget", "signal"])
async def test_a_stop_saves_what_was_done_and_the_next_execution_sends_just_the_rest(
    make_bench: BenchMaker, open_stage: StageMaker, why: str
) -> None:
    """A20, A37: `interrupted`, with a warning that suggests a more frequent schedule; nothing is sent twice or lost."""
    clock = AdjustableClock()
    web = SandboxSite(pages=40, per_sitemap=20)
    stage = await open_stage(web, engines=2, bench=make_bench(clock=clock), submit_method=SubmitMethod.GET)
    stop = Stop(clock=clock, budget=BUDGET)
    alpha, beta = stage.engines

    def end(_: Recorded) -> None:
        if len(alpha.requests) == 10 and why == "budget":
            clock.advance(BUDGET)
        elif len(alpha.requests) == 10:
            stop.request("SIGTERM")

    alpha.on_request = end
    report = await stage.announce(stop=stop)
    assert report.status is INTERRUPTED
    assert 0 < len(alpha.accepted) < 40
    # A37: the counts add up: each engine's part, and the pages as a whole.
    assert {line.succeeded + line.failed + line.left for line in report.engines.values()} == {report.new}
    assert (report.new + report.cached, report.submitted) == (report.total, len({*alpha.accepted, *beta.accepted}))
    [warning] = [warning for warning in report.warnings if "stopped early" in warning]
    assert ("SIGTERM" if why == "signal" else "budget of 5m") in warning
    assert "more often" in warning
    assert await stage.find_entered(list(web.urls())) == {*alpha.accepted, *beta.accepted}
    [execution] = await stage.list_executions()
    assert (execution.status, execution.items_processed) == (INTERRUPTED, len({*alpha.accepted, *beta.accepted}))
    await assert_the_next_execution_sends_just_the_rest(stage)


async def test_a_stop_while_a_list_is_read_ends_the_reading(open_stage: StageMaker) -> None:
    """A20, A36: a list on the command line may have any length, and its owner has it."""
    stage = await open_stage()
    stop, read, loop = stage.bench.make_stop(), 0, asyncio.get_running_loop()

    def list_urls() -> Iterator[str]:
        nonlocal read
        for read in range(1, 20_001):
            if read == 1_500:
                # The list is read in a thread.
                loop.call_soon_threadsafe(stop.request, "SIGTERM")
            yield f"{stage.web.origin}/page/{read}"

    pages = GivenPages(list_urls(), at=stage.bench.clock.now())
    report = await stage.bench.announcer.announce(stage.site, stop=stop, pages=pages)
    assert report.status is INTERRUPTED
    assert 1_500 <= read <= 4_000


async def test_a_stop_while_the_sitemap_is_read_loses_nothing(open_stage: StageMaker) -> None:
    """A20: it ends before the crawl does; what was not read is read next time."""
    stage = await open_stage(SandboxSite(pages=40, per_sitemap=10), engines=2)
    stop = stage.bench.make_stop()

    def end(recorded: Recorded) -> None:
        if recorded.path == "/sitemaps/3.xml":
            stop.request("SIGTERM")

    stage.web.on_request = end
    report = await stage.announce(stop=stop)
    assert report.status is INTERRUPTED
    stage.web.on_request = None
    await assert_the_next_execution_sends_just_the_rest(stage)


@pytest.mark.thorough
@pytest.mark.one_database
async def test_many_short_executions_come_to_the_same_as_one_long(open_stage: StageMaker) -> None:
    """A20: each does a little, none does anything twice, and in the end everything is done."""
    stage = await open_stage(SandboxSite(pages=30, per_sitemap=10), engines=2, submit_method=SubmitMethod.GET)
    alpha, beta = stage.engines
    statuses = []
    for _ in range(30):
        stop = stage.bench.make_stop()
        limit = len(beta.requests) + 5

        def end(_: Recorded, stop: Stop = stop, limit: int = limit) -> None:
            if len(beta.requests) >= limit:
                stop.request("enough for now")

        beta.on_request = end
        statuses.append((await stage.announce(stop=stop)).status)
        if statuses[-1] is SUCCEEDED:
            break
    assert statuses[-1] is SUCCEEDED
    assert len(statuses) > 3
    assert dict(alpha.accepted) == dict(beta.accepted) == dict.fromkeys(stage.web.urls(), 1)


@pytest.mark.thorough
@pytest.mark.one_database
async def test_an_engine_that_hangs_does_not_hold_a_stop_beyond_the_grace(open_stage: StageMaker) -> None:
    """A20: requests under way get five seconds; what has no answer then is sent next time."""
    stage = await open_stage(engines=2)
    alpha, beta = stage.engines
    alpha.misbehave(Fault(FaultKind.HANG))
    stop = stage.bench.make_stop()
    running = asyncio.create_task(stage.announce(stop=stop))
    await asyncio.gather(alpha.wait_for_requests(1), beta.wait_for_requests(1))
    began = time.monotonic()
    stop.request("SIGTERM")
    report = await running
    assert time.monotonic() - began < 8
    assert (report.status, report.submitted) == (INTERRUPTED, 20)
    alpha.recover()
    await assert_the_next_execution_sends_just_the_rest(stage)


@pytest.mark.one_database
async def test_requests_under_way_at_a_stop_may_end_and_count(make_bench: BenchMaker, open_stage: StageMaker) -> None:
    """A20: the answer comes a little after the stop; it is entered and not sent again."""
    stage = await open_stage(bench=make_bench(max_concurrent_requests=1), submit_method=SubmitMethod.GET)
    engine = stage.engines[0]
    engine.misbehave(Fault(FaultKind.SLOW, latency=timedelta(milliseconds=200), times=1))
    stop = stage.bench.make_stop()
    engine.on_request = lambda _: stop.request("SIGTERM")
    report = await stage.announce(stop=stop)
    assert (report.status, report.submitted, len(engine.accepted)) == (INTERRUPTED, 1, 1)
    await assert_the_next_execution_sends_just_the_rest(stage)


@pytest.mark.one_database
async def test_a_wait_that_the_budget_does_not_allow_is_not_begun(
    make_bench: BenchMaker, open_stage: StageMaker
) -> None:
    """A20, A21: an engine that wants an hour's rest is left for next time at once; the other is done meanwhile."""
    stage = await open_stage(engines=2, bench=make_bench(retry_scale=1))
    alpha, beta = stage.engines
    alpha.misbehave(Fault(status=429, headers={"Retry-After": "3600"}))
    began = time.monotonic()
    report = await stage.announce(stop=stage.bench.make_stop(BUDGET))
    assert time.monotonic() - began < 10
    assert (report.status, len(alpha.requests), len(beta.accepted)) == (ExecutionStatus.PARTIAL, 1, 20)


async def test_a_cancelled_execution_is_interrupted_and_leaves_the_site_free(
    open_stage: StageMaker, events: Events
) -> None:
    """A20, A37: also without good order the history tells how it ended, and the next execution sends everything. The
    log has no traceback: a thousand of them would delay the end of a process."""
    stage = await open_stage(SandboxSite(pages=20, per_sitemap=None))
    engine = stage.engines[0]
    engine.misbehave(Fault(FaultKind.HANG))
    running = asyncio.create_task(stage.announce())
    await engine.wait_for_requests(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    [execution] = await stage.list_executions()
    assert (execution.status, execution.items_processed) == (INTERRUPTED, 0)
    assert [event["exc_info"] for event in events if event["event"] == "execution.broken"] == [False]
    engine.recover()
    await assert_the_next_execution_sends_just_the_rest(stage)


@pytest.mark.one_database
async def test_executions_with_a_short_budget_go_on_at_the_pace_that_was_set(
    make_bench: BenchMaker, open_stage: StageMaker
) -> None:
    """A17, A20: 10 s at one request a second are about ten URLs, in every execution: a stop leaves the next slot free,
    however many requests were still to come."""
    clock, second = StageClock(MORNING), timedelta(seconds=1)
    bench = make_bench(clock=clock, retry_scale=1, request_interval=second)
    stage = await open_stage(SandboxSite(pages=400, per_sitemap=None), bench=bench, submit_method=SubmitMethod.GET)
    engine, sent = stage.engines[0], 0
    for _ in range(3):
        report = await stage.announce(stop=Stop(clock=clock, budget=10 * second))
        assert report.status is INTERRUPTED
        assert 8 <= len(engine.requests) - sent <= 11
        sent = len(engine.requests)
        async with bench.database.read() as connection:
            next_at = (await connection.execute(select(pace.c.next_at))).scalar_one()
        assert next_at / 1_000_000 - clock.now().timestamp() <= 3
