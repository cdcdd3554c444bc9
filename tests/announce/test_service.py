"""The service below HTTP: executions by schedule, on request and for given URLs, one at a time for each site, so many
at once in all, ended in good order; on both databases, against the sandbox."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from tests.announce.bing_stage import MORNING
from tests.announce.service_stage import ServiceStage, open_service
from tests.announce.stage import list_sent
from tests.conftest import BenchMaker
from tests.fakes import StageClock
from tests.waiting import wait_until
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.channels.enabled_channels import ChannelDisabledError
from tidings.announce.due.given_pages import MOST_GIVEN
from tidings.announce.execution.alerts import AnnounceAlert
from tidings.announce.ledger.ledger import Channel
from tidings.announce.page_check.settings import PageCheck, PageCheckMode
from tidings.announce.service import MOST_CUT_OFF, PUT_OFF, BusyError
from tidings.announce.site.errors import SiteError
from tidings.announce.site.site import ANNOUNCE, SubmitMethod
from tidings.collect.alerts.kinds import CollectAlert
from tidings.core.alerts.events import Alert
from tidings.core.clock import SystemClock
from tidings.core.executions import SILENT_FOR, AlreadyRunningError, Executions, ExecutionStatus
from tidings.core.process_lock import ProcessLock
from tidings.sandbox.engines.indexnow import FORBIDDEN

pytestmark = pytest.mark.one_database

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
# The first time of the schedule after the stage was set up.
NOON = MORNING.replace(hour=12, minute=0)


@pytest.fixture
def clock() -> StageClock:
    return StageClock(MORNING)


async def test_a_triggered_execution_begins_at_once_is_seen_live_and_leaves_its_record(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A35, A36, A37: the id comes at once, progress while it runs here, and the history afterwards."""
    async with open_service(make_bench, clock=clock) as stage:
        held = stage.hold_back()
        started = await stage.service.trigger(stage.site)
        await held.arrive()
        execution_id = started.execution.public_id
        live = stage.service.live.describe(execution_id)
        assert await stage.list_statuses() == ["running"]
        held.let_go()
        report = await stage.finish(started)
        (record,) = await stage.list_executions()
        assert live is not None
        assert (live["total"], live["status"]) == (20, "running")
        assert (report.execution_id, report.status) == (execution_id, ExecutionStatus.SUCCEEDED)
        assert (record.public_id, record.items_processed) == (execution_id, 20)
        assert stage.service.live.describe(execution_id) is None
        assert dict(stage.engine.accepted) == dict.fromkeys(stage.web.urls(), 1)


async def test_whoever_stops_waiting_does_not_stop_the_execution(make_bench: BenchMaker, clock: StageClock) -> None:
    """A35: `wait=true` and a caller that goes away."""
    async with open_service(make_bench, clock=clock) as stage:
        held = stage.hold_back()
        started = await stage.service.trigger(stage.site)
        waiting = asyncio.create_task(started.wait())
        await held.arrive()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        held.let_go()
        assert (await started.wait()).status is ExecutionStatus.SUCCEEDED


async def test_a_site_that_runs_cannot_be_triggered_and_bing_only_where_it_is_on(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A35, A39: refused with the id of the one that runs; and what is refused leaves no execution behind."""
    async with open_service(make_bench, clock=clock) as stage:
        with pytest.raises(ChannelDisabledError, match="Bing submission is not enabled for this site"):
            await stage.service.trigger(stage.site, channel=ChannelChoice.BING)
        assert await stage.list_executions() == []
        held = stage.hold_back()
        started = await stage.service.trigger(stage.site)
        await held.arrive()
        for refused in (stage.service.trigger(stage.site), stage.service.announce_urls(stage.site, [stage.web.url(1)])):
            with pytest.raises(AlreadyRunningError) as caught:
                await refused
            assert caught.value.execution_id == started.execution.public_id
        held.let_go()
        await started.wait()
        assert await stage.list_statuses() == ["succeeded"]


@pytest.mark.both_databases
async def test_of_fifty_triggers_at_once_one_begins(make_bench: BenchMaker, clock: StageClock) -> None:
    """A39: the others learn its id."""
    async with open_service(make_bench, clock=clock) as stage:
        held = stage.hold_back()
        outcomes = await asyncio.gather(*(stage.service.trigger(stage.site) for _ in range(50)), return_exceptions=True)
        refused = [each for each in outcomes if isinstance(each, AlreadyRunningError)]
        (started,) = (each for each in outcomes if not isinstance(each, BaseException))
        held.let_go()
        await started.wait()
        assert {each.execution_id for each in refused} == {started.execution.public_id}
        assert len(refused) == 49
        assert await stage.list_statuses() == ["succeeded"]


@pytest.mark.both_databases
async def test_a_due_execution_is_done_once_and_the_next_is_planned(make_bench: BenchMaker, clock: StageClock) -> None:
    """A38: what is due is sent, and the schedule goes on from there."""
    async with open_service(make_bench, clock=clock) as stage:
        clock.set(NOON)
        assert await stage.run_due() == 1
        state = await stage.schedules.read(stage.site.number)
        assert (state.last_run, state.next_run) == (NOON, NOON + DAY)
        assert await stage.list_due() == []
        assert await stage.list_statuses() == ["succeeded"]
        assert dict(stage.engine.accepted) == dict.fromkeys(stage.web.urls(), 1)


async def test_no_more_scheduled_runs_begin_than_the_pace_of_an_engine_allows(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A17, A38: beside so many that run, over all workers, a due one waits in its table."""
    async with open_service(make_bench, clock=clock) as stage:
        clock.set(NOON)
        bounded = replace(stage.service, most_running=1)
        async with stage.database.write() as connection:
            assert len(await bounded.list_due(connection, 10)) == 1
            await stage.service.executions.insert(connection, "another", kind="announce", holder="queue")
            assert await bounded.list_due(connection, 10) == []


async def test_a_due_run_of_a_site_that_is_busy_is_done_once_it_is_free(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A38, A39: the one that runs stays the only one; what was due is not lost by it, and done once."""
    async with open_service(make_bench, clock=clock) as stage:
        clock.set(NOON - MINUTE)
        held = stage.hold_back()
        started = await stage.service.trigger(stage.site)
        await held.arrive()
        clock.set(NOON)
        assert await stage.list_due() == []
        await stage.call(site=stage.site.number)
        held.let_go()
        await started.wait()
        assert [record.public_id for record in await stage.list_executions()] == [started.execution.public_id]
        assert await stage.run_due() == 1
        state = await stage.schedules.read(stage.site.number)
        assert (state.last_run, state.next_run) == (NOON, NOON + DAY)
        assert await stage.list_due() == []
        assert dict(stage.engine.accepted) == dict.fromkeys(stage.web.urls(), 1)


@pytest.mark.both_databases
@pytest.mark.parametrize("what", ["a site", "a follow-up", "a request"])
async def test_a_tick_finds_what_became_due_since_the_last_one(
    make_bench: BenchMaker, clock: StageClock, what: str
) -> None:
    """A38: also one that looks shortly, as most ticks do."""
    async with open_service(make_bench, clock=clock) as stage:
        ticker = stage.bench.installation.ticker
        clock.set(NOON - timedelta(seconds=30))
        await ticker.tick()
        assert await ticker.tick() == 0
        if what == "a site":
            clock.set(NOON)
        elif what == "a follow-up":
            await stage.schedules.add_follow_up(stage.site.number)
        else:
            async with stage.database.write() as connection:
                asked = {"channel": "all"}
                await stage.service.requests.reserve(connection, stage.site.workflow_name, kind=ANNOUNCE, request=asked)
        assert await ticker.tick() == 1

        async def is_done() -> bool:
            return await stage.list_statuses() == ["succeeded"]

        await wait_until(is_done)


@pytest.mark.both_databases
@pytest.mark.parametrize("loss", ["begun by another", "site removed", "site disabled", "paused"])
async def test_a_job_whose_work_is_gone_leaves_no_trace_of_an_execution(
    make_bench: BenchMaker, clock: StageClock, loss: str
) -> None:
    """A38, A39: a job is a wake-up call; of two that come for one execution, one runs it."""
    async with open_service(make_bench, clock=clock) as stage:
        clock.set(NOON)
        (number,) = await stage.list_due()
        if loss == "begun by another":
            async with stage.database.write() as connection:
                assert await stage.schedules.begin(connection, number)
        elif loss == "site removed":
            await stage.records.remove(stage.site.id)
        elif loss == "site disabled":
            await stage.change(enabled=False)
        else:
            await stage.schedules.pause(number)
        await stage.call(site=number)
        assert await stage.list_executions() == []
        assert not stage.web.requests
        assert await stage.service.executions.count_running() == 0


async def test_a_run_that_cannot_begin_leaves_the_site_free_and_the_run_due_a_little_later(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A38, A39: an error of the database in the middle must not lock the site, nor be tried without end."""
    async with open_service(make_bench, clock=clock) as stage:
        clock.set(NOON)
        await _rename(stage, "alert_conditions", to="away")
        with pytest.raises(SQLAlchemyError):
            await stage.call(site=stage.site.number)
        await _rename(stage, "away", to="alert_conditions")
        assert await stage.list_executions() == []
        assert await stage.run_due() == 0
        clock.advance(PUT_OFF)
        assert await stage.run_due() == 1
        assert await stage.list_statuses() == ["succeeded"]


async def _rename(stage: ServiceStage, table: str, *, to: str) -> None:
    async with stage.database.write() as connection:
        await connection.execute(text(f"ALTER TABLE {table} RENAME TO {to}"))


async def test_given_urls_are_sent_at_once_without_the_sitemap_and_foreign_ones_dropped_and_counted(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A7, A36: known pages too, because they are said to have changed; a page that no sitemap lists is as good."""
    async with open_service(make_bench, clock=clock) as stage:
        await stage.run()
        crawled, sent = len(stage.list_crawled()), len(stage.engine.requests)
        clock.advance(timedelta(hours=1))
        own = [*(stage.web.url(number) for number in range(1, 8)), f"{stage.web.origin}/unlisted"]
        report = await stage.announce(*own, own[0], "https://other.example/page", "not a URL")
        assert sorted(list_sent(stage.engine, since=sent)) == sorted(own)
        assert len(stage.list_crawled()) == crawled
        assert (report.status, report.submitted, report.changed) == (ExecutionStatus.PARTIAL, 8, 7)
        assert (report.dropped.foreign_host, report.dropped.invalid) == (1, 1)
        unsent = [
            error for error in report.to_json()["errors"] if error.startswith("named URLs that were not sent: 1 ")
        ]
        assert (len(unsent), "not valid" in unsent[0], stage.site.host in unsent[1]) == (2, True, True)
        assert await stage.list_statuses() == ["partial", "succeeded"]


async def test_a_given_url_is_not_sent_again_within_ten_minutes(make_bench: BenchMaker, clock: StageClock) -> None:
    """A12: at least ten minutes between two notices of one URL, no matter who asks for them."""
    async with open_service(make_bench, clock=clock, resubmit_gap=timedelta(minutes=10)) as stage:
        url = stage.web.url(3)
        sent: list[tuple[int, int]] = []
        for _ in range(3):
            report = await stage.announce(url)
            sent.append((report.submitted, report.too_soon))
            said = "only minutes ago; name them again later" in "".join(report.to_json()["errors"])
            assert said == (report.status is ExecutionStatus.PARTIAL) == (report.too_soon > 0)
            clock.advance(timedelta(minutes=5, seconds=1))
        assert sent == [(1, 0), (0, 1), (1, 0)]
        assert dict(stage.engine.accepted) == {url: 2}


async def test_a_stop_leaves_given_urls_in_the_outbox(make_bench: BenchMaker, clock: StageClock) -> None:
    """A20: nothing else lists them, so the next execution sends them."""
    async with open_service(make_bench, clock=clock) as stage:
        await stage.worker.end()
        unlisted = f"{stage.web.origin}/unlisted"
        started = await stage.service.announce_urls(stage.site, [unlisted])
        await stage.call(execution=started.execution.public_id, stopped=True)
        assert (await stage.list_statuses(), list_sent(stage.engine)) == (["interrupted"], [])
        stage.worker.start()
        await stage.run()
        assert dict(stage.engine.accepted) == dict.fromkeys([unlisted, *stage.web.urls()], 1)


async def test_a_used_up_time_budget_leaves_given_urls_in_the_outbox(make_bench: BenchMaker, clock: StageClock) -> None:
    """A20: the whole budget may go by before they are planned, because a channel is asked for its quota first."""
    async with open_service(make_bench, clock=clock) as stage:
        await stage.worker.end()
        hasty = replace(stage, service=replace(stage.service, budget=timedelta(0)))
        unlisted = f"{stage.web.origin}/unlisted"
        started = await hasty.service.announce_urls(stage.site, [unlisted])
        await hasty.call(execution=started.execution.public_id)
        assert (await stage.list_statuses(), list_sent(stage.engine)) == (["interrupted"], [])
        stage.worker.start()
        await stage.run()
        assert stage.engine.accepted[unlisted] == 1


async def test_the_check_of_given_urls_keeps_to_its_share_of_the_time(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A20, A46: six fetches, 0.2 s apart, begin in a third of three seconds; the other pages go out unchecked."""
    async with open_service(make_bench, clock=clock, page_check=PageCheck(PageCheckMode.ALL)) as stage:
        await stage.worker.end()
        hasty = replace(stage, service=replace(stage.service, budget=timedelta(seconds=3)))
        started = await hasty.service.announce_urls(stage.site, [*stage.web.urls()])
        await hasty.call(execution=started.execution.public_id)
        report = await stage.finish(started)
        assert (report.page_check.checked, report.submitted) == (6, 20)
        assert any("its share of the time is used up" in line for line in report.warnings)


@pytest.mark.parametrize("count", [0, MOST_GIVEN + 1])
async def test_no_urls_or_too_many_are_refused_before_anything_begins(
    make_bench: BenchMaker, clock: StageClock, count: int
) -> None:
    """A36: the rule is reported, and the site is free."""
    async with open_service(make_bench, clock=clock) as stage:
        with pytest.raises(SiteError, match="1 to 10,000 URLs"):
            await stage.service.announce_urls(stage.site, [stage.web.url(1)] * count)
        assert await stage.list_executions() == []


@pytest.mark.thorough
async def test_given_urls_do_not_make_the_others_count_as_removed(make_bench: BenchMaker, clock: StageClock) -> None:
    """A14: only a complete crawl tells what has left the sitemap; and it still does afterwards."""
    async with open_service(make_bench, clock=clock, announce_removed=True) as stage:
        await stage.run()
        clock.advance(timedelta(hours=1))
        given = await stage.announce(stage.web.url(1), f"{stage.web.origin}/unlisted")
        again = await stage.run()
        stage.web.remove(5)
        gone = stage.web.origin + "/pages/0000005/"
        last = await stage.run()
        assert (given.removed, again.removed, last.removed) == (0, 0, 1)
        assert (given.submitted, again.submitted, last.submitted) == (2, 0, 1)
        assert [url for url, times in stage.engine.accepted.items() if times == 2 and url.startswith(gone)] != []


async def test_given_urls_go_to_bing_within_its_quota(make_bench: BenchMaker, clock: StageClock) -> None:
    """A28, A30, A35: the quota of the day is kept, the engines get all; `channel` chooses."""
    async with open_service(make_bench, clock=clock, quota=5) as stage:
        urls = [stage.web.url(number) for number in range(1, 9)]
        both = await stage.announce(*urls)
        line = both.ranked[Channel.BING].engine
        assert (line.succeeded, line.left) == (5, 3)
        assert (await stage.read_quota()).used == stage.bing.used(stage.web.origin, clock.now().date()) == 5
        assert dict(stage.engine.accepted) == dict.fromkeys(urls, 1)
        clock.advance(DAY)
        alone = await stage.service.announce_urls(stage.site, urls[:2], channel=ChannelChoice.BING)
        assert (await stage.finish(alone)).submitted == 2
        assert dict(stage.engine.accepted) == dict.fromkeys(urls, 1)
        assert stage.bing.accepted.total() == 7
        assert not stage.list_crawled()


async def test_a_site_that_did_not_run_is_reported_once_and_resolved_by_its_next_execution(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A40: not run for two periods."""
    async with open_service(make_bench, clock=clock) as stage:
        said = []
        for days in (1, 1, 1, 0):
            clock.advance(days * DAY)
            await stage.service.watch_over()
            said.append(len(await stage.list_notices()))
        fired = ("alert.fired", "not_run", stage.site.id)
        assert said == [0, 1, 1, 1]
        assert await stage.list_notices() == [fired]
        assert await stage.list_open() == {("not_run", stage.site.id)}
        await stage.run_due()
        await stage.service.watch_over()
        assert await stage.list_notices() == [fired, ("alert.resolved", "not_run", stage.site.id)]
        assert await stage.list_open() == set()


async def test_a_paused_site_is_not_missed(make_bench: BenchMaker, clock: StageClock) -> None:
    """A40, A41: who pauses it knows that it does not run."""
    async with open_service(make_bench, clock=clock) as stage:
        await stage.schedules.pause(stage.site.number)
        clock.advance(10 * DAY)
        await stage.service.watch_over()
        assert await stage.list_open() == set()


async def test_a_site_takes_its_own_conditions_along_when_it_is_removed_and_nobody_elses(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A40, C24: a platform may have the name of a site; its alerts go on."""
    async with open_service(make_bench, clock=clock) as stage:
        name, alerts = stage.site.id, stage.service.alerts
        own = [(AnnounceAlert.NOT_RUN, name), (AnnounceAlert.CHANNEL_BROKEN, f"{name} at api.example")]
        others = [(CollectAlert.NO_ACTIVE_COOKIE, name), (AnnounceAlert.NOT_RUN, f"{name}.example")]
        async with stage.database.write() as connection:
            for kind, subject in [*own, *others]:
                await alerts.raise_alert(
                    connection, Alert(kind=kind, subject=subject, reason="it is so", action="Look.")
                )
        await stage.service.remove(stage.site)
        left = {(condition.kind, condition.subject) for condition in await alerts.list_open()}
    assert left == set(others)


@pytest.mark.both_databases
async def test_what_a_dead_process_held_is_ended_by_the_next_tick_and_due_again(
    make_bench: BenchMaker, clock: StageClock, tmp_path: Path
) -> None:
    """A38, A39, design decision 3: the tick takes it back; the site is due at once, but not for ever."""
    async with open_service(make_bench, clock=clock) as stage:
        tick = stage.bench.installation.ticker.tick
        await stage.worker.end()
        for times in range(1, MOST_CUT_OFF + 1):
            dead = ProcessLock(tmp_path)
            await Executions(stage.database, clock=clock, process_lock=dead).acquire(
                stage.site.workflow_name, kind="announce"
            )
            await tick()
            assert (await stage.list_statuses())[0] == "running"
            dead.close()
            await tick()
            assert await stage.list_statuses() == ["interrupted"] * times
            assert await stage.list_due() == ([stage.site.number] if times < MOST_CUT_OFF else [])
            async with stage.database.write() as connection:
                await stage.schedules.begin(connection, stage.site.number)


@pytest.mark.both_databases
@pytest.mark.parametrize("state", ["waiting", "adopted"])
async def test_a_request_survives_the_death_of_every_process(
    make_bench: BenchMaker, clock: StageClock, tmp_path: Path, state: str
) -> None:
    """A13, A35: URLs that were answered with 202 are sent, though no sitemap lists them and no schedule runs."""
    async with open_service(make_bench, clock=clock, enabled=False) as stage:
        await stage.worker.end()
        unlisted = f"{stage.web.origin}/unlisted"
        started = await stage.service.announce_urls(stage.site, [unlisted])
        if state == "adopted":
            dead = ProcessLock(tmp_path)
            assert await stage.service.requests.adopt(started.execution.public_id, holder=f"{dead.id}#1")
            dead.close()
        stage.worker.start()
        await stage.bench.installation.ticker.tick()

        async def is_sent() -> bool:
            return "succeeded" in await stage.list_statuses()

        await wait_until(is_sent)
        assert dict(stage.engine.accepted) == {unlisted: 1}
        assert await stage.list_statuses() == ["succeeded", *(["interrupted"] if state == "adopted" else [])]


async def test_an_execution_that_could_not_be_ended_is_ended_by_the_next_tick(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A38, A39: the database was away at its end, and the process lives on: the site must not wait for half an hour."""
    async with open_service(make_bench, clock=clock) as stage:
        held = stage.hold_back()
        await stage.service.trigger(stage.site)
        await held.arrive()
        await _rename(stage, "alert_conditions", to="away")
        await _rename(stage, "deliveries", to="gone")
        held.let_go()
        await wait_until(lambda: _is_idle(stage))
        await _rename(stage, "away", to="alert_conditions")
        await _rename(stage, "gone", to="deliveries")
        assert await stage.list_statuses() == ["running"]
        await stage.bench.installation.ticker.tick()

        async def is_done() -> bool:
            return "succeeded" in await stage.list_statuses()

        await wait_until(is_done)
        assert set(stage.engine.accepted) == set(stage.web.urls())


async def _is_idle(stage: ServiceStage) -> bool:
    """No job holds anything in this process."""
    (record,) = await stage.list_executions()
    async with stage.database.read() as connection:
        statement = text("SELECT holder FROM executions WHERE public_id = :id")
        holder = (await connection.execute(statement, {"id": record.public_id})).scalar_one()
    return holder != "queue" and stage.bench.installation.process_lock.is_dead(holder)


async def test_a_stop_ends_one_execution_in_good_order_and_it_is_not_begun_again(make_bench: BenchMaker) -> None:
    """A20: somebody stops it; what it did is saved, and only its schedule begins the next."""
    async with open_service(
        make_bench, clock=SystemClock(), pages=40, submit_method=SubmitMethod.GET, limit=1
    ) as stage:
        other = await stage.add_site("other")
        held = stage.hold_back()
        running = await stage.service.trigger(stage.site)
        await held.arrive()
        waiting = await stage.service.trigger(other)
        assert await stage.service.stop(waiting.execution.public_id)
        assert (await waiting.wait()).status is ExecutionStatus.INTERRUPTED
        assert await stage.service.stop(running.execution.public_id)
        held.let_go()
        report = await stage.finish(running)
        assert report.status is ExecutionStatus.INTERRUPTED
        assert 1 <= report.submitted == len(stage.engine.accepted) < 40
        assert not await stage.service.stop(running.execution.public_id)
        await stage.bench.installation.ticker.tick()
        assert (await stage.list_statuses(), await stage.list_statuses(other)) == (["interrupted"], ["interrupted"])
        assert await stage.list_due() == []


async def test_freed_engines_are_tried_again_with_the_same_keys(make_bench: BenchMaker, clock: StageClock) -> None:
    """A22, A31, A41: what refused a key for good is left alone until a person says that it may be tried."""
    async with open_service(make_bench, clock=clock, quota=50) as stage:
        key = stage.site.bing.require_key().reveal()
        stage.engine.misbehave(FORBIDDEN)
        stage.bing.revoke(key)
        first = await stage.run()
        asked = len(stage.engine.requests), len(stage.bing.requests)
        second = await stage.run()
        assert (first.status, second.status) == (ExecutionStatus.FAILED, ExecutionStatus.FAILED)
        assert (len(stage.engine.requests), len(stage.bing.requests)) == asked
        stage.engine.recover()
        stage.bing.add_site(stage.web.origin, key=key)
        assert [await stage.service.free(stage.site), await stage.service.free(stage.site)] == [2, 0]
        assert (await stage.run()).status is ExecutionStatus.SUCCEEDED
        assert set(stage.engine.accepted) == set(stage.bing.accepted) == set(stage.web.urls())


async def test_where_too_many_wait_no_more_are_taken_and_nothing_is_left_of_them(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A39: refused is refused: the site is free for the next one who asks."""
    async with open_service(make_bench, clock=clock, waiting=1, limit=1) as stage:
        other = await stage.add_site("other")
        held = stage.hold_back()
        started = await stage.service.trigger(stage.site)
        await held.arrive()
        waiting = await stage.service.trigger(await stage.add_site("second"))
        with pytest.raises(BusyError, match="are waiting; try again later"):
            await stage.service.trigger(other)
        assert await stage.list_executions(other) == []
        held.let_go()
        await started.wait()
        await waiting.wait()
        assert (await stage.run(other)).status is ExecutionStatus.SUCCEEDED


@pytest.mark.thorough
async def test_triggers_beyond_the_slots_wait_and_stay_alive_for_as_long_as_it_takes(
    make_bench: BenchMaker, clock: StageClock
) -> None:
    """A39, design decision 4: one that waits for its turn is not taken for dead, and is run in the end."""
    async with open_service(make_bench, clock=clock, limit=1) as stage:
        others = [await stage.add_site(name) for name in ("b", "c")]
        held = stage.hold_back()
        first = await stage.service.trigger(stage.site)
        await held.arrive()
        crawled = len(stage.list_crawled())
        waiting = [await stage.service.trigger(site) for site in others]
        too_long = clock.now() + SILENT_FOR + MINUTE
        while clock.now() < too_long:
            await clock.pass_minute(hearts=1)
            await stage.bench.installation.ticker.tick()
        assert len(stage.list_crawled()) == crawled
        assert [await stage.list_statuses(site) for site in (stage.site, *others)] == [["running"]] * 3
        held.let_go()
        reports = [await stage.finish(started) for started in (first, *waiting)]
        assert [report.submitted for report in reports] == [20] * 3
        assert stage.engine.max_in_flight <= 3


@pytest.mark.thorough
async def test_a_stop_interrupts_what_runs_and_the_next_run_sends_the_rest_and_nothing_twice(
    make_bench: BenchMaker,
) -> None:
    """A20: requests under way end, everything done is saved, what waited for its turn begins nothing."""
    async with open_service(
        make_bench, clock=SystemClock(), limit=1, pages=40, submit_method=SubmitMethod.GET
    ) as stage:
        other = await stage.add_site("other")
        held = stage.hold_back()
        running = await stage.service.trigger(stage.site)
        await held.arrive()
        waiting = await stage.service.trigger(other)
        stage.worker.stop.request("the test says so")
        held.let_go()
        report = await stage.finish(running)
        await stage.worker.end()
        assert report.status is ExecutionStatus.INTERRUPTED
        assert 1 <= report.submitted == len(stage.engine.accepted) < 40
        assert any("the test says so" in warning for warning in report.warnings)
        assert await stage.list_statuses(other) == ["running"]
        stage.worker.start()
        await stage.bench.installation.ticker.tick()
        assert (await stage.finish(waiting)).status is ExecutionStatus.SUCCEEDED

        async def is_done() -> bool:
            return await stage.list_statuses() == ["succeeded", "interrupted"]

        await wait_until(is_done)
        assert dict(stage.engine.accepted) == dict.fromkeys(stage.web.urls(), 2)
