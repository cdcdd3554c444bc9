"""The status of a site: the state and its reason, the last execution and the one at work, the next execution, Bing.
On both databases, after real executions."""

from datetime import timedelta
from typing import Any

import pytest

from tests.announce.bing_stage import MORNING
from tests.announce.service_stage import ServiceStage, open_service
from tests.conftest import BenchMaker
from tests.fakes import StageClock
from tidings.announce.execution.report_json import ReportJson
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.site import parse_engines
from tidings.announce.status import SiteOverview, describe_execution, read_overview
from tidings.core.clock import to_text
from tidings.core.secrets.secret import Secret
from tidings.sandbox.engines.bing import THROTTLE_USER
from tidings.sandbox.engines.indexnow import FORBIDDEN, SandboxEngine
from tidings.sandbox.wire.faults import Fault

NOON = MORNING.replace(hour=12, minute=0)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> StageClock:
    return StageClock(MORNING)


async def look(stage: ServiceStage, site_id: str | None = None) -> SiteOverview | None:
    return await read_overview(
        site_id or stage.site.id,
        database=stage.database,
        records=stage.records,
        clock=stage.service.clock,
        live=stage.service.live,
    )


async def read(stage: ServiceStage) -> dict[str, Any]:
    overview = await look(stage)
    assert overview is not None
    return {**overview.to_json()}


async def test_a_new_site_runs_and_has_nothing_behind_it(make_bench: BenchMaker, clock: StageClock) -> None:
    """A33: every field is there; with Bing off, `bing` is just that."""
    async with open_service(make_bench, clock=clock) as stage:
        assert await read(stage) == {
            "status": "running",
            "siteId": stage.site.id,
            "lastExecution": None,
            "executing": False,
            "execution": None,
            "nextRun": to_text(NOON),
            "bing": {"enabled": False},
            "bingQuota": None,
            "baidu": {"enabled": False},
            "baiduQuota": None,
            "google": {"enabled": False},
            "googleQuota": None,
            "googleSitemaps": [],
        }


async def test_a_site_that_is_not_there_has_no_overview(make_bench: BenchMaker, clock: StageClock) -> None:
    """A33, A35: neither one that never was nor one that was removed."""
    async with open_service(make_bench, clock=clock) as stage:
        await stage.records.remove(stage.site.id)
        assert [await look(stage, "nobody"), await look(stage)] == [None, None]


async def test_the_last_execution_is_the_one_that_ended_while_another_is_at_work(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A33, A36: with live progress of the one that runs here."""
    async with open_service(make_bench, clock=clock) as stage:
        other = await stage.add_site("other")
        first = await stage.run()
        await stage.run(other)
        stage.web.change_many([1, 2])
        clock.advance(MINUTE)
        held = stage.hold_back()
        started = await stage.service.trigger(stage.site)
        await held.arrive()
        during = await read(stage)
        held.let_go()
        second = await stage.finish(started)
        after = await read(stage)
        assert during["lastExecution"]["executionId"] == first.execution_id
        assert during["lastExecution"]["result"]["submitted"] == 20
        assert (during["executing"], during["execution"]["executionId"]) == (True, second.execution_id)
        assert (during["execution"]["status"], during["execution"]["completedAt"]) == ("running", None)
        assert during["execution"]["result"]["new"] == 2
        assert (after["executing"], after["execution"]) == (False, None)
        assert after["lastExecution"]["executionId"] == second.execution_id
        assert after["lastExecution"]["startedAt"] == to_text(started.execution.started_at)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("site", None),
        ("everything", "everything is paused"),
        ("both", "everything is paused"),
        ("disabled", "disabled"),
    ],
)
async def test_what_does_not_run_by_itself_is_paused_and_has_no_next_run(
    make_bench: BenchMaker, clock: StageClock, how: str, reason: str | None
) -> None:
    """A33, A41: `paused`, with the reason where it is not the site's own pause."""
    async with open_service(make_bench, clock=clock) as stage:
        if how in ("site", "both"):
            await stage.schedules.pause(stage.site.number)
        if how in ("everything", "both"):
            await stage.schedules.pause(None)
        if how == "disabled":
            await stage.change(enabled=False)
        shown = await read(stage)
        assert (shown["status"], shown["nextRun"]) == ("paused", None)
        assert ("reason" in shown) == (reason is not None)
        assert (reason or "") in shown.get("reason", "")


async def test_a_resumed_site_runs_again_at_its_time(make_bench: BenchMaker, clock: StageClock) -> None:
    """A33, A41: the pause of everything and the site's own are ended each by itself."""
    async with open_service(make_bench, clock=clock) as stage:
        states = []
        for number in (stage.site.number, None):
            await stage.schedules.pause(number)
        for number in (None, stage.site.number):
            await stage.schedules.resume(number)
            shown = await read(stage)
            states.append((shown["status"], shown["nextRun"]))
        assert states == [("paused", None), ("running", to_text(NOON))]


async def test_a_site_is_broken_where_every_engine_refuses_its_key(make_bench: BenchMaker, clock: StageClock) -> None:
    """A22, A33: with the reason; one engine of two is not enough, and another key makes it whole."""
    async with open_service(make_bench, clock=clock) as stage, SandboxEngine("beta") as beta:
        stage.engine.misbehave(FORBIDDEN)
        stage = await stage.change(engines=parse_engines([stage.engine.endpoint, beta.endpoint]))
        await stage.run()
        one_of_two = await read(stage)
        stage = await stage.change(engines=parse_engines([stage.engine.endpoint]))
        only_one = await read(stage)
        stage = await stage.change(key=Secret("another-key-0123456789"))
        another_key = await read(stage)
        assert (one_of_two["status"], "reason" in one_of_two) == ("running", False)
        assert only_one["status"] == "broken"
        assert stage.engine.host in only_one["reason"]
        assert only_one["nextRun"] == to_text(NOON)
        assert another_key["status"] == "running"


async def test_a_failure_that_passes_does_not_break_a_site(make_bench: BenchMaker, clock: StageClock) -> None:
    """A33: `broken` is for what needs a person."""
    async with open_service(make_bench, clock=clock) as stage:
        stage.web.misbehave(Fault(status=404, path="/sitemap.xml"))
        await stage.run()
        shown = await read(stage)
        assert (shown["status"], shown["lastExecution"]["status"]) == ("running", "failed")


async def test_bings_quota_is_that_of_the_day(make_bench: BenchMaker, clock: StageClock) -> None:
    """A28, A33: used and remaining today, new after midnight; the last submission stays."""
    async with open_service(make_bench, clock=clock, quota=12) as stage:
        before = await read(stage)
        await stage.run()
        after = await read(stage)
        submitted = to_text(clock.now())
        clock.advance(timedelta(days=1))
        tomorrow = await read(stage)
        assert before["bing"] == {
            "enabled": True,
            "todayQuotaUsed": 0,
            "todayQuotaRemaining": 12,
            "lastSubmission": None,
        }
        assert (after["bing"]["todayQuotaUsed"], after["bing"]["todayQuotaRemaining"]) == (12, 0)
        assert after["bingQuota"]["resetsAt"] == "2025-01-16T00:00:00.000Z"
        assert (tomorrow["bing"]["todayQuotaUsed"], tomorrow["bing"]["todayQuotaRemaining"]) == (0, 12)
        assert tomorrow["bing"]["lastSubmission"] is not None
        assert tomorrow["bing"]["lastSubmission"] <= submitted


@pytest.mark.thorough
async def test_bing_switched_off_breaks_a_site_until_it_has_another_key_or_no_bing(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A31, A33: the reason is Bing's; the engines go on meanwhile."""
    async with open_service(make_bench, clock=clock, quota=12) as stage:
        good = stage.site.bing
        stage = await stage.change(bing=BingSettings.make(enabled=True, key="wrong-key", daily_quota=12))
        await stage.run()
        off = await read(stage)
        states = []
        for bing in (BingSettings.make(key="wrong-key"), good):
            stage = await stage.change(bing=bing)
            states.append((await read(stage))["status"])
        assert off["status"] == "broken"
        assert off["reason"].startswith("Bing: switched off since 2025-01-15")
        assert (off["bingQuota"]["switchedOff"], off["bing"]["enabled"]) == (True, True)
        assert states == ["running", "running"]
        assert set(stage.engine.accepted) == set(stage.web.urls())


async def test_a_key_that_rests_is_shown_and_does_not_break_the_site(make_bench: BenchMaker, clock: StageClock) -> None:
    """A31, A33: an hour later it is over by itself."""
    async with open_service(make_bench, clock=clock, quota=12) as stage:
        stage.bing.misbehave(THROTTLE_USER)
        await stage.run()
        resting = await read(stage)
        clock.advance(timedelta(hours=1, seconds=1))
        over = await read(stage)
        assert (resting["status"], resting["bingQuota"]["switchedOff"]) == ("running", False)
        assert resting["bingQuota"]["reason"].startswith("the key rests until 2025-01-15")
        assert over["bingQuota"]["reason"] is None


async def test_an_execution_shows_its_progress_until_it_has_a_result(make_bench: BenchMaker, clock: StageClock) -> None:
    """A36, A37: what is known here and now, else the result, else what was saved last, else nothing."""
    async with open_service(make_bench, clock=clock) as stage:
        execution = await stage.service.executions.acquire(stage.site.workflow_name, kind="announce")
        results = [await _describe(stage)]
        async with stage.service.executions.guard(execution) as connection:
            await stage.service.executions.save_progress(
                connection, execution, processed=1, failed=0, progress={"submitted": 1}
            )
        results += [await _describe(stage), await _describe(stage, live={"submitted": 2})]
        assert results == [None, {"submitted": 1}, {"submitted": 2}]


async def _describe(stage: ServiceStage, live: ReportJson | None = None) -> Any:
    (record,) = await stage.list_executions()
    described = describe_execution(record, live=live)
    assert (described["site"], described["status"]) == (stage.site.id, "running")
    return described["result"]
