"""Alerts of executions: each condition once when it begins and once when it is over, no matter what happens in between.
Through real executions, on both databases, to a sink that counts."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.announce.bing_stage import MORNING
from tests.announce.service_stage import ServiceStage, open_service
from tests.announce.stage import Events, pick_events, write_urlset
from tests.conftest import BenchMaker
from tests.fakes import StageClock
from tidings.announce.channels.protocols.bing import BING_KIND
from tidings.announce.execution.alerts import Finding, examine
from tidings.announce.execution.report import EngineReport, RankedReport, Report
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.site import Engine, parse_engine
from tidings.announce.site.table import Origin
from tidings.core.executions import ExecutionStatus
from tidings.core.secrets.secret import Secret
from tidings.sandbox.engines.indexnow import FORBIDDEN
from tidings.sandbox.wire.faults import Fault

pytestmark = pytest.mark.one_database

SITEMAP = "/sitemap.xml"
ENGINE = parse_engine("engine.example")
REFUSED = 422


@pytest.fixture
def clock() -> StageClock:
    return StageClock(MORNING)


def make_report(status: ExecutionStatus = ExecutionStatus.SUCCEEDED, *, total: int = 20) -> Report:
    """An execution that read its sitemap and had nothing to send."""
    return Report(site="shop", status=status, total=total, files=1)


def judge(report: Report, *, usual_total: int = 20) -> dict[str, bool]:
    """Which conditions are judged, and which of them hold."""
    findings: Iterator[Finding] = examine(report, usual_total=usual_total)
    return {finding.kind: finding.reason is not None for finding in findings}


@pytest.mark.parametrize(
    ("usual", "total", "shrank"),
    [(20, 20, False), (20, 10, False), (20, 9, True), (21, 10, True), (20, 0, True), (0, 0, False), (0, 20, False)],
)
def test_a_sitemap_has_shrunk_below_half_and_not_at_half(usual: int, total: int, shrank: bool) -> None:
    """A40: more than half of it is gone; zero URLs are called what it is, too."""
    judged = judge(make_report(total=total), usual_total=usual)
    assert judged == {"execution_failed": False, "no_urls": total == 0, "sitemap_shrank": shrank}


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(replace(make_report(total=0), files=0), id="no sitemap was read"),
        pytest.param(replace(make_report(total=0), errors=["a child failed"]), id="read in part"),
        pytest.param(replace(make_report(total=0), cut_short=True), id="cut short"),
    ],
)
def test_what_was_not_read_whole_says_nothing_of_its_size(report: Report) -> None:
    """A40: neither that it shrank nor that it is well again."""
    assert judge(report).keys() == {"execution_failed"}


@pytest.mark.parametrize(("failed", "many"), [(0, False), (10, False), (11, True), (100, True)])
@pytest.mark.parametrize("engine", [ENGINE, BING_KIND.engine], ids=str)
def test_more_than_a_tenth_failed_and_not_a_tenth(failed: int, many: bool, engine: Engine) -> None:
    """A24: of what was attempted at an engine, or at Bing, with reason, count and action."""
    line = EngineReport(engine, succeeded=100 - failed, failed=failed, reason="HTTP 422", advice="Look at it.")
    if engine == BING_KIND.engine:
        report = replace(make_report(), ranked={Channel.BING: RankedReport(engine=line)})
    else:
        report = replace(make_report(), engines={engine.endpoint: line})
    (found,) = (each for each in examine(report, usual_total=20) if each.kind == "many_failures")
    assert found.subject == f"shop at {engine}"
    assert found.reason == (f"{failed} of 100 URLs failed: HTTP 422" if many else None)
    assert (found.count, found.action) == (failed, "Look at it.")


def test_an_engine_that_was_not_asked_is_not_judged() -> None:
    """A24: nothing attempted says nothing, neither good nor bad."""
    report = replace(make_report(), engines={ENGINE.endpoint: EngineReport(ENGINE)})
    assert judge(report).keys() == {"execution_failed", "no_urls", "sitemap_shrank"}


def fail_at_engine(stage: ServiceStage) -> None:
    for number in (3, 7, 11):
        stage.engine.misbehave(Fault(status=REFUSED, matching=stage.web.url(number)))


@pytest.mark.thorough
async def test_many_failures_are_reported_once_and_resolved_once(
    make_bench: BenchMaker, clock: StageClock, events: Events
) -> None:
    """A24: an ERROR line each time it happens, an alert only the first time; then that it is over, once."""
    async with open_service(make_bench, clock=clock) as stage:
        subject = f"{stage.site.id} at {stage.engine.host}"
        reported = []
        for works in (False, False, True, True):
            stage.engine.recover()
            if not works:
                fail_at_engine(stage)
            await stage.run()
            reported.append(
                [event for event, *condition in await stage.list_notices() if condition == ["many_failures", subject]]
            )
        assert reported == [["alert.fired"]] * 2 + [["alert.fired", "alert.resolved"]] * 2
        assert len(pick_events(events, "execution.many_failures", log_level="error")) == 2
        assert len(pick_events(events, "alert", log_level="error", kind="many_failures")) == 1
        assert await stage.list_open() == set()


async def test_a_tenth_that_failed_is_no_alert(make_bench: BenchMaker, clock: StageClock) -> None:
    """A24: more than 10 %, not 10 %."""
    async with open_service(make_bench, clock=clock) as stage:
        for number in (3, 7):
            stage.engine.misbehave(Fault(status=REFUSED, matching=stage.web.url(number)))
        assert (await stage.run()).failed == 2
        assert await stage.list_notices() == []


@pytest.mark.thorough
async def test_a_failed_execution_is_reported_once_and_resolved_by_one_that_works(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A6: with the reason; twice in a row is one alert, and a second time after it was well is another."""
    async with open_service(make_bench, clock=clock) as stage:
        fired, resolved = ((event, "execution_failed", stage.site.id) for event in ("alert.fired", "alert.resolved"))
        reported = []
        for works in (True, False, False, True, True, False):
            stage.web.recover()
            if not works:
                stage.web.misbehave(Fault(status=404, path=SITEMAP))
            await stage.run()
            reported.append(len(await stage.list_notices()))
        assert reported == [0, 1, 1, 2, 2, 3]
        assert await stage.list_notices() == [fired, resolved, fired]
        (open_one,) = await stage.service.alerts.list_open()
        assert "404" in open_one.reason
        assert open_one.action


@pytest.mark.thorough
async def test_an_engine_that_refuses_the_key_is_reported_once_until_another_key_is_taken(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A22: the channel is marked broken, with an alert that says to rotate the key."""
    async with open_service(make_bench, clock=clock) as stage:
        subject = f"{stage.site.id} at {stage.engine.host}"
        stage.engine.misbehave(FORBIDDEN)
        for _ in range(2):
            await stage.run()
        broken = [reported for reported in await stage.list_notices() if reported[1] == "channel_broken"]
        (condition,) = (each for each in await stage.service.alerts.list_open() if each.kind == "channel_broken")
        assert broken == [("alert.fired", "channel_broken", subject)]
        assert "key" in condition.action
        stage.engine.recover()
        stage.web.key = "another-key-0123456789"
        stage = await stage.change(key=Secret(stage.web.key), key_location=stage.web.key_location)
        for _ in range(2):
            assert (await stage.run()).status is ExecutionStatus.SUCCEEDED
        reported = await stage.list_notices()
        assert reported.count(("alert.resolved", "channel_broken", subject)) == 1
        assert [event for event, *_ in reported].count("alert.fired") == [event for event, *_ in reported].count(
            "alert.resolved"
        )
        assert await stage.list_open() == set()


@pytest.mark.thorough
async def test_bing_switched_off_is_reported_once_until_it_takes_something(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A31: channel off with the reason shown, alert."""
    async with open_service(make_bench, clock=clock, quota=50) as stage:
        good = stage.site.bing
        stage = await stage.change(bing=BingSettings.make(enabled=True, key="wrong-key", daily_quota=50))
        for _ in range(2):
            await stage.run()
        subject = f"{stage.site.id} at {BING_KIND.engine}"
        assert ("channel_off", subject) in await stage.list_open()
        stage = await stage.change(bing=good)
        for _ in range(2):
            assert (await stage.run()).status is ExecutionStatus.SUCCEEDED
        reported = [each for each in await stage.list_notices() if each[1] == "channel_off"]
        assert reported == [("alert.fired", "channel_off", subject), ("alert.resolved", "channel_off", subject)]
        assert await stage.list_open() == set()


def list_pages(stage: ServiceStage, count: int) -> None:
    """From now on the sitemap has so many pages."""
    stage.web.serve(SITEMAP, write_urlset(stage.web.url(number + 1) for number in range(count)))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param([20, 10, 20], [], id="half of it"),
        pytest.param([20, 9, 9, 20], ["fired sitemap_shrank", "resolved sitemap_shrank"], id="less than half"),
        pytest.param(
            [20, 0, 0, 20],
            ["fired no_urls", "fired sitemap_shrank", "resolved no_urls", "resolved sitemap_shrank"],
            id="nothing",
        ),
        pytest.param([0, 0, 5], ["fired no_urls", "resolved no_urls"], id="never anything"),
        pytest.param(
            [20, 9, 0, 15],
            ["fired sitemap_shrank", "fired no_urls", "resolved no_urls", "resolved sitemap_shrank"],
            id="less and less",
        ),
    ],
)
async def test_a_sitemap_that_shrank_or_is_empty_is_reported_once_and_resolved_once(
    make_bench: BenchMaker, clock: StageClock, counts: list[int], expected: list[str]
) -> None:
    """A40: found zero URLs, or shrank by more than half."""
    async with open_service(make_bench, clock=clock) as stage:
        for count in counts:
            list_pages(stage, count)
            clock.advance(timedelta(days=1))
            assert (await stage.run()).total == count
        reported = [f"{event.removeprefix('alert.')} {kind}" for event, kind, _ in await stage.list_notices()]
        assert reported == expected


async def test_given_urls_say_nothing_of_the_sitemaps_size(make_bench: BenchMaker, clock: StageClock) -> None:
    """A36, A40: neither that it shrank when few are given, nor that it used to be large when many are."""
    async with open_service(make_bench, clock=clock) as stage:
        await stage.run()
        clock.advance(timedelta(hours=1))
        await stage.announce(stage.web.url(1))
        await stage.announce(*(f"{stage.web.origin}/unlisted/{number}" for number in range(100)))
        await stage.run()
        assert await stage.list_notices() == []


async def test_a_child_that_cannot_be_read_is_no_shrinking(make_bench: BenchMaker, clock: StageClock) -> None:
    """A6, A40: the execution is `partial` and names it; of the rest nothing can be said."""
    async with open_service(make_bench, clock=clock, pages=30) as stage:
        await stage.run()
        for number in (2, 3):
            stage.web.misbehave(Fault(status=404, path=f"/sitemaps/{number}.xml"))
        report = await stage.run()
        assert (report.status, report.total) == (ExecutionStatus.PARTIAL, 10)
        assert await stage.list_open() == set()


@pytest.mark.thorough
async def test_an_interrupted_execution_ends_nothing(make_bench: BenchMaker, clock: StageClock) -> None:
    """A20, A40: it has not seen enough to say that anything is well again."""
    async with open_service(make_bench, clock=clock) as stage:
        await stage.run()
        list_pages(stage, 0)
        await stage.run()
        stage.web.misbehave(Fault(status=404, path=SITEMAP))
        await stage.run()
        holding = await stage.list_open()
        reported = await stage.list_notices()
        stage.web.recover()
        list_pages(stage, 20)
        await stage.worker.end()
        started = await stage.service.trigger(stage.site)
        await stage.call(stopped=True, execution=started.execution.public_id)
        stage.worker.start()
        assert (await stage.finish(started)).status is ExecutionStatus.INTERRUPTED
        assert {kind for kind, _ in holding} == {"no_urls", "sitemap_shrank", "execution_failed"}
        assert await stage.list_open() == holding
        assert await stage.list_notices() == reported
        assert (await stage.run()).status is ExecutionStatus.SUCCEEDED
        assert await stage.list_open() == set()
        assert len(await stage.list_notices()) == 2 * len(reported)


async def test_two_sites_have_conditions_of_their_own(make_bench: BenchMaker, clock: StageClock) -> None:
    """A24, A40: the one that is well does not end the other's."""
    async with open_service(make_bench, clock=clock) as stage:
        other = await stage.records.save(
            replace(
                stage.site,
                id="other",
                number=0,
                sitemap_urls=(f"{stage.web.origin}/missing.xml",),
            ),
            origin=Origin.API,
        )
        for _ in range(2):
            await stage.run(other)
            await stage.run()
        assert await stage.list_notices() == [("alert.fired", "execution_failed", "other")]


@pytest.mark.both_databases
async def test_an_alert_is_written_in_the_transaction_that_ends_the_execution(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A24, design decision 5: a crash before it was sent does not lose it; the next start delivers it."""
    async with open_service(make_bench, clock=clock) as stage:
        stage.web.misbehave(Fault(status=404, path=SITEMAP))
        await stage.run()
        assert not stage.sink.requests
        assert await stage.list_open() == {("execution_failed", stage.site.id)}
        assert await stage.list_notices() == [("alert.fired", "execution_failed", stage.site.id)]
