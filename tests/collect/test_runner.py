"""The built-in runner against the sandbox's platforms, on both databases: every keyword is searched and every candidate
read, what fails is asked again by the table of errors and by nothing else, and an execution ends in any case."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.announce.bing_stage import MORNING
from tests.collect.crawl_stage import session_of
from tests.collect.runner_stage import ACCOUNTS, MINUTE, SOON, TOPIC, RunnerStage, open_runner, read_meta
from tests.collect.writer_stage import begin, make_candidates, read_candidates, read_outbox
from tests.collect.writer_stage import collect as take
from tests.fakes import StageClock
from tests.waiting import wait_until
from tidings.collect.crawl.cookies.states import CookieStatus
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import RULES, ErrorCode, next_delay
from tidings.collect.run.report import CollectReport
from tidings.collect.write.values import Failed, SettledAction
from tidings.collect.write.writer import Writer
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database
from tidings.core.executions import Executions, ExecutionStatus, executions
from tidings.core.heartbeats import HEARTBEAT_EVERY
from tidings.core.logs.logger import LogFormat, configure_logging
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.redaction import Redactor
from tidings.sandbox.media import weibo as sandbox
from tidings.sandbox.media.weibo import SEARCH_PATH
from tidings.sandbox.wire.faults import Fault, FaultKind

pytestmark = pytest.mark.one_database

HANG = Fault(FaultKind.HANG)
# One way to provoke each code that a platform can answer with.
FAULTS = [
    pytest.param(sandbox.RESET, ErrorCode.NETWORK_ERROR, id="network"),
    pytest.param(sandbox.UNAVAILABLE, ErrorCode.PLATFORM_ERROR, id="platform"),
    pytest.param(HANG, ErrorCode.TIMEOUT_ERROR, id="timeout"),
    pytest.param(sandbox.LOGIN_WANTED, ErrorCode.COOKIE_INVALID, id="cookie"),
    pytest.param(sandbox.NO_SUCH_POST, ErrorCode.INVALID_INPUT, id="input"),
]


@pytest.fixture
def clock() -> StageClock:
    return StageClock(MORNING)


@pytest.fixture
async def stage(
    database_url: str, clock: StageClock, keys: KeyRing, process_lock: ProcessLock
) -> AsyncIterator[RunnerStage]:
    async with open_runner(database_url, clock=clock, keys=keys, process_lock=process_lock) as opened:
        yield opened


@pytest.fixture
async def impatient(
    database_url: str, clock: StageClock, keys: KeyRing, process_lock: ProcessLock
) -> AsyncIterator[RunnerStage]:
    """A stage where a request that hangs is soon given up."""
    async with open_runner(
        database_url, clock=clock, keys=keys, process_lock=process_lock, request_timeout=0.4
    ) as opened:
        yield opened


async def collect(stage: RunnerStage) -> CollectReport:
    """One collection of the one platform that has something due."""
    (report,) = await stage.runner.collect(stage.make_stop())
    return report


def list_waits(clock: StageClock) -> list[timedelta]:
    """The waits of the runner; those of the heart are not among them."""
    return [wait for wait in clock.slept if wait]


def expect_waits(code: ErrorCode) -> list[timedelta]:
    """What the one table says about a code that comes every time."""
    delays = [next_delay(code, retry=retry) for retry in range(1, RULES[code].most_retries + 1)]
    return [delay for delay in delays if delay]


# --- Discover ---


async def test_every_keyword_is_searched_page_by_page_and_found_once(stage: RunnerStage) -> None:
    """C19, C2: as many pages as were asked for; a second discovery creates nothing."""
    await stage.add_cookies("one")
    await stage.watch_keyword(keyword="生活", pages=2)
    await stage.watch_keyword("web")
    first = await stage.runner.discover(stage.make_stop())
    second = await stage.runner.discover(stage.make_stop())
    found = {search.platform: (search.found, search.created) for search in first.searches}
    assert found["weibo"] == (20, 20)
    assert found["web"][0] == found["web"][1] > 0
    assert (second.found, second.created, second.failed) == (first.found, 0, 0)
    assert len(stage.list_asked(SEARCH_PATH)) == 4
    assert await stage.count_statuses() == {"pending": first.created}
    assert await stage.list_statuses() == [("discover", "succeeded")] * 2
    keyword = await stage.find_keyword("生活")
    assert (keyword.last_found, keyword.last_created, keyword.last_error_code) == (20, 0, None)
    assert (await stage.find_cookie("one")).state.daily_used == 4


async def test_a_keyword_ends_where_the_platform_has_no_more(stage: RunnerStage) -> None:
    """C19: twelve posts are two pages, however many were asked for."""
    await stage.add_cookies("one")
    await stage.watch_keyword(pages=20)
    report = await stage.runner.discover(stage.make_stop())
    assert (report.found, len(stage.list_asked(SEARCH_PATH))) == (12, 2)


@pytest.mark.parametrize(("fault", "code"), FAULTS[:4])
async def test_a_search_that_fails_is_repeated_by_the_table(
    impatient: RunnerStage, clock: StageClock, fault: Fault, code: ErrorCode
) -> None:
    """C15: as often, and after such waits, as its code's rule says; each try is a use of a cookie."""
    stage = impatient
    await stage.add_cookies(*ACCOUNTS)
    await stage.watch_keyword()
    stage.weibo.misbehave(fault)
    report = await stage.runner.discover(stage.make_stop())
    (search,) = report.searches
    tries = 1 + RULES[code].most_retries
    assert (search.code, len(stage.list_asked(SEARCH_PATH))) == (code, tries)
    assert list_waits(clock) == expect_waits(code)
    assert sum(cookie.state.daily_used for cookie in await stage.cookies.list_all()) == tries
    assert (await stage.find_keyword()).last_error_code == code.value
    assert await stage.list_statuses() == [("discover", "partial")]


async def test_a_search_that_fails_once_is_found_at_the_second_try(stage: RunnerStage, clock: StageClock) -> None:
    """C15: and nothing is left of the failure."""
    await stage.add_cookies("one")
    await stage.watch_keyword()
    stage.weibo.misbehave(Fault(FaultKind.RESET, times=1))
    report = await stage.runner.discover(stage.make_stop())
    assert (report.created, report.failed, list_waits(clock)) == (10, 0, [timedelta(seconds=5)])
    assert (await stage.find_keyword()).last_error_code is None


async def test_a_platform_without_a_cookie_is_left_alone_and_the_others_are_not(stage: RunnerStage) -> None:
    """C15: COOKIE_EXHAUSTED pauses; the platform's other keywords are not asked for."""
    await stage.watch_keyword(keyword="first")
    await stage.watch_keyword(keyword="second")
    await stage.watch_keyword("web")
    report = await stage.runner.discover(stage.make_stop())
    shown = {(each.platform, each.keyword): (each.code, each.skipped) for each in report.searches}
    assert shown == {
        ("weibo", "first"): (ErrorCode.COOKIE_EXHAUSTED, False),
        ("weibo", "second"): (None, True),
        ("web", TOPIC): (None, False),
    }
    assert (report.created > 0, len(stage.weibo.requests)) == (True, 0)
    assert (await stage.find_keyword("second")).last_run_at is None


async def test_without_keywords_nothing_begins(stage: RunnerStage) -> None:
    """C19: a paused one is none."""
    await stage.watch_keyword()
    await stage.keywords.set_enabled("weibo", TOPIC, enabled=False)
    assert (await stage.runner.discover(stage.make_stop())).ended is None
    assert await stage.list_statuses() == []


async def test_a_second_discovery_is_reported_who_has_the_right_to_run(stage: RunnerStage) -> None:
    """C3: and asks nothing."""
    await stage.watch_keyword("web")
    holder = await stage.writer.acquire("discover")
    ended = (await stage.runner.discover(stage.make_stop())).ended
    assert ended is not None
    assert (ended.status, ended.execution_id) == (ExecutionStatus.RUNNING, holder.execution_id)
    assert holder.execution_id in (ended.reason or "")
    assert len(stage.blog.requests) == 0


# --- Collect ---


@pytest.mark.both_databases
async def test_all_candidates_are_collected_in_batches(stage: RunnerStage) -> None:
    """C19, C20: each note is asked for once and stands in the table once, whatever the size of a batch."""
    await stage.add_cookies(*ACCOUNTS)
    await stage.watch_keyword(pages=2)
    await stage.runner.discover(stage.make_stop())
    report = await collect(stage)
    again = await stage.runner.collect(stage.make_stop())
    assert (report.counts, report.ended.status) == ({SettledAction.CREATED: 12}, ExecutionStatus.SUCCEEDED)
    assert again == []
    assert await stage.count_statuses() == {"collected": 12}
    rows = await stage.read_sources()
    assert len({row.note_id for row in rows}) == len(rows) == len(stage.list_asked()) == 12
    assert json.loads(rows[0].content)["platform"] == "weibo"


@pytest.mark.thorough
async def test_a_request_id_leads_from_the_log_to_the_record(
    stage: RunnerStage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """C6: each execution has its own, in every line and every record that it wrote."""
    log = tmp_path_factory.mktemp("logs") / "tidings.log"
    configure_logging(format=LogFormat.JSON, level="info", quiet=True, redactor=Redactor(), file=log)
    await stage.add_cookies("one")
    await stage.discover("weibo", "web")
    reports = await stage.runner.collect(stage.make_stop())
    written = {row.platform: read_meta(row) for row in await stage.read_sources()}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len({report.ended.request_id for report in reports}) == 2
    for report in reports:
        ended = report.ended
        assert written[report.platform]["request_id"] == ended.request_id
        assert written[report.platform]["execution_id"] == ended.execution_id
        events = {line["event"] for line in lines if line["request_id"] == ended.request_id}
        assert events >= {"workflow.acquired", "candidates.leased", "crawl.item", "crawl.batch", "candidates.settled"}
        assert events >= {"workflow.finished", "workflow.done"}
    assert all(line["request_id"] != "-" for line in lines if line["event"].startswith(("crawl", "workflow")))


@pytest.mark.thorough
async def test_the_platforms_are_collected_at_the_same_time(stage: RunnerStage) -> None:
    """C19: one that is slow does not keep another waiting."""
    await stage.add_cookies("one")
    await stage.discover("weibo", "web")
    held = stage.hold_back()
    running = asyncio.create_task(stage.runner.collect(stage.make_stop()))
    await held.arrive()

    async def is_web_done() -> bool:
        return ("collect:web", "succeeded") in await stage.list_statuses()

    await wait_until(is_web_done)
    assert ("collect:weibo", "running") in await stage.list_statuses()
    held.let_go()
    reports = await asyncio.wait_for(running, SOON)
    assert {report.platform: report.ended.status.value for report in reports} == {
        "weibo": "succeeded",
        "web": "succeeded",
    }


@pytest.mark.thorough
async def test_only_the_platform_that_is_named_is_collected(stage: RunnerStage) -> None:
    """C19: the other's candidates stay as they are."""
    await stage.add_cookies("one")
    await stage.discover("weibo", "web")
    reports = await stage.runner.collect(stage.make_stop(), platform="web")
    assert [report.platform for report in reports] == ["web"]
    assert len(stage.list_asked()) == 0


@pytest.mark.thorough
@pytest.mark.parametrize(("fault", "code"), FAULTS)
async def test_a_note_that_fails_is_repeated_by_the_table_while_the_others_are_kept(
    impatient: RunnerStage, clock: StageClock, fault: Fault, code: ErrorCode
) -> None:
    """C8, C10, C15: then it is a failure of the candidate, which is due again later, or given up at once."""
    stage = impatient
    await stage.add_cookies(*ACCOUNTS)
    await stage.discover()
    note_id = sorted(await stage.read_candidates())[0]
    stage.weibo.misbehave(_aim(fault, note_id))
    clock.slept.clear()
    report = await collect(stage)
    tries = 1 + RULES[code].most_retries
    row = (await stage.read_candidates())[note_id]
    assert sum(note_id in request.query for request in stage.list_asked()) == tries
    assert len(stage.list_asked()) == 9 + tries
    assert list_waits(clock) == expect_waits(code)
    assert (row.retry_count, row.last_error_code) == (1, code.value)
    hopeless = code is ErrorCode.INVALID_INPUT
    assert row.status == ("failed" if hopeless else "pending")
    assert report.counts == {SettledAction.CREATED: 9, SettledAction.FAILED if hopeless else SettledAction.RETRY: 1}
    assert report.ended.status is ExecutionStatus.PARTIAL
    # The discovery was a use as well.
    used = sum(cookie.state.daily_used for cookie in await stage.cookies.list_all())
    assert used == 1 + len(stage.list_asked())


async def test_a_candidate_that_fails_four_times_is_given_up(stage: RunnerStage, clock: StageClock) -> None:
    """C10: each failure is all the tries that its rule allows; in between it rests."""
    await stage.add_cookies("one")
    await stage.discover()
    note_id = sorted(await stage.read_candidates())[0]
    stage.weibo.misbehave(_aim(sandbox.UNAVAILABLE, note_id))
    counts = []
    for _ in range(4):
        await collect(stage)
        counts.append((await stage.read_candidates())[note_id].retry_count)
        assert await stage.runner.collect(stage.make_stop()) == []
        clock.advance(MINUTE)
    assert counts == [1, 2, 3, 4]
    assert await stage.count_statuses() == {"collected": 9, "failed": 1}
    assert sum(note_id in request.query for request in stage.list_asked()) == 12


async def test_a_note_is_collected_at_the_third_try_past_two_refused_cookies(stage: RunnerStage) -> None:
    """C15: each refused cookie is excluded from the next try, also when it has the highest priority."""
    await stage.add_cookies("one", priority=9)
    await stage.add_cookies("two", priority=5)
    await stage.add_cookies("three")
    await stage.add_candidate()
    for name in ("one", "two"):
        stage.weibo.log_out(session_of(name))
    report = await collect(stage)
    (source,) = await stage.read_sources()
    assert report.counts == {SettledAction.CREATED: 1}
    assert (len(stage.list_asked()), read_meta(source)["cookie_used"]) == (3, "three")
    errors = [(await stage.find_cookie(name)).state.total_errors for name in ("one", "two", "three")]
    assert errors == [1, 1, 0]


async def test_a_keyword_is_found_at_the_third_try_past_two_refused_cookies(stage: RunnerStage) -> None:
    """C15: a search switches cookies as a note does."""
    await stage.add_cookies("one", priority=9)
    await stage.add_cookies("two", priority=5)
    await stage.add_cookies("three")
    await stage.watch_keyword()
    for name in ("one", "two"):
        stage.weibo.log_out(session_of(name))
    report = await stage.runner.discover(stage.make_stop())
    assert (report.created, report.failed, len(stage.list_asked(SEARCH_PATH))) == (10, 0, 3)
    used = [(await stage.find_cookie(name)).state.daily_used for name in ("one", "two", "three")]
    assert used == [1, 1, 1]


async def test_a_search_that_every_cookie_is_refused_for_is_reported_as_refused(stage: RunnerStage) -> None:
    """C15: the only cookie is asked once, and the keyword shows why it failed."""
    await stage.add_cookies("one")
    await stage.watch_keyword()
    stage.weibo.log_out(session_of("one"))
    report = await stage.runner.discover(stage.make_stop())
    assert [search.code for search in report.searches] == [ErrorCode.COOKIE_INVALID]
    assert len(stage.list_asked(SEARCH_PATH)) == 1
    assert (await stage.find_cookie("one")).state.daily_used == 1


async def test_a_refused_cookie_does_not_keep_a_batch_from_being_collected(stage: RunnerStage) -> None:
    """C15, C9: every note is collected with the good cookie, and the refused one cools."""
    await stage.add_cookies("one", priority=9)
    await stage.add_cookies("two")
    await stage.discover()
    stage.weibo.log_out(session_of("one"))
    report = await collect(stage)
    bad, good = await stage.find_cookie("one"), await stage.find_cookie("two")
    assert report.counts == {SettledAction.CREATED: 10}
    assert (bad.state.status, good.state.status) == (CookieStatus.COOLING, CookieStatus.ACTIVE)
    assert {read_meta(row)["cookie_used"] for row in await stage.read_sources()} == {"two"}


async def test_a_note_that_is_refused_with_cookies_that_work_fails_alone(stage: RunnerStage) -> None:
    """C10, C15: its cookie brought other notes, so the note is at fault; the platform is not paused for it."""
    await stage.add_cookies("one")
    await stage.discover()
    note_id = sorted(await stage.read_candidates())[0]
    stage.weibo.misbehave(_aim(sandbox.LOGIN_WANTED, note_id))
    report = await collect(stage)
    row = (await stage.read_candidates())[note_id]
    assert report.counts == {SettledAction.CREATED: 9, SettledAction.RETRY: 1}
    assert (row.retry_count, row.last_error_code) == (1, "COOKIE_INVALID")
    assert sum(note_id in request.query for request in stage.list_asked()) == 1
    assert (await stage.find_cookie("one")).state.total_errors == 1


async def test_candidates_are_given_back_uncounted_when_every_cookie_is_refused(stage: RunnerStage) -> None:
    """C15, C34: a refused account says nothing about the notes."""
    await stage.add_cookies("one", "two")
    await stage.discover()
    for name in ("one", "two"):
        stage.weibo.log_out(session_of(name))
    report = await collect(stage)
    rows = (await stage.read_candidates()).values()
    assert report.counts == {SettledAction.RELEASED: 10}
    assert {(row.status, row.retry_count) for row in rows} == {("pending", 0)}


async def test_without_a_cookie_everything_is_given_back_uncounted(stage: RunnerStage, clock: StageClock) -> None:
    """C15: the platform is left alone for this execution; the next one tries again."""
    await stage.add_cookies("one")
    await stage.watch_keyword(pages=2)
    await stage.runner.discover(stage.make_stop())
    await stage.cookies.remove("one")
    clock.advance(MINUTE)
    report = await collect(stage)
    rows = (await stage.read_candidates()).values()
    assert (report.counts, report.ended.status) == ({SettledAction.RELEASED: 10}, ExecutionStatus.PARTIAL)
    assert {(row.status, row.retry_count, row.processing_lock) for row in rows} == {("pending", 0, None)}
    assert len(stage.list_asked()) == 0
    await stage.add_cookies("two")
    clock.advance(MINUTE)
    assert (await collect(stage)).collected == 12


# --- The end of an execution ---


async def test_a_collection_takes_up_what_a_killed_process_had_leased(stage: RunnerStage, tmp_path: Path) -> None:
    """C35: without a service too, one `collect run` after a kill collects everything."""
    await stage.add_cookies("one")
    await stage.discover()
    dead = ProcessLock(tmp_path)
    executions = Executions(stage.database, clock=stage.clock, process_lock=dead)
    killed = Writer(stage.database, executions=executions, clock=stage.clock)
    await killed.lease(await begin(killed, "collect:weibo"))
    dead.close()
    report = await collect(stage)
    assert report.counts == {SettledAction.CREATED: 10}


async def test_a_stop_gives_back_what_is_not_certain(stage: RunnerStage) -> None:
    """C19: it ends at once, as interrupted, and nothing counts as a failure."""
    await stage.add_cookies("one")
    await stage.discover()
    held, stop = stage.hold_back(), stage.make_stop()
    running = asyncio.create_task(stage.runner.collect(stop))
    await held.arrive()
    stop.request("SIGTERM was received")
    (report,) = await asyncio.wait_for(running, SOON)
    rows = (await stage.read_candidates()).values()
    assert (report.ended.status, report.ended.reason) == (ExecutionStatus.INTERRUPTED, "SIGTERM was received")
    assert {(row.status, row.retry_count, row.processing_lock) for row in rows} == {("pending", 0, None)}
    assert (await stage.list_statuses())[-1] == ("collect:weibo", "interrupted")


async def test_a_stop_ends_a_discovery_too(stage: RunnerStage) -> None:
    """C19: also while it waits before a retry, or for an answer."""
    await stage.add_cookies("one")
    await stage.watch_keyword()
    held, stop = stage.hold_back(), stage.make_stop()
    running = asyncio.create_task(stage.runner.discover(stop))
    await held.arrive()
    stop.request("the service ends")
    report = await asyncio.wait_for(running, SOON)
    assert report.ended is not None
    assert report.ended.status is ExecutionStatus.INTERRUPTED
    assert await stage.list_statuses() == [("discover", "interrupted")]


async def test_one_who_is_cut_off_ends_its_execution_all_the_same(stage: RunnerStage) -> None:
    """C19: what it had leased is free."""
    await stage.add_cookies("one")
    await stage.discover()
    held = stage.hold_back()
    running = asyncio.create_task(stage.runner.collect(stage.make_stop()))
    await held.arrive()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await stage.list_statuses())[-1] == ("collect:weibo", "interrupted")
    assert await stage.count_statuses() == {"pending": 10}


async def test_what_was_taken_away_is_left_at_once_and_nothing_more_is_written(
    stage: RunnerStage, clock: StageClock
) -> None:
    """C5: its heartbeat tells it, in the middle of a request."""
    await stage.add_cookies("one")
    await stage.discover()
    held = stage.hold_back()
    running = asyncio.create_task(stage.runner.collect(stage.make_stop()))
    await held.arrive()
    async with stage.database.write() as connection:
        await connection.execute(
            update(executions).where(executions.c.workflow_name == "collect:weibo").values(status="timeout")
        )
    before = await stage.read_candidates()
    clock.advance(HEARTBEAT_EVERY)
    (report,) = await asyncio.wait_for(running, SOON)
    assert "no longer holds collect:weibo" in (report.ended.reason or "")
    assert (await stage.list_statuses())[-1] == ("collect:weibo", "timeout")
    assert await stage.read_candidates() == before
    assert await stage.read_sources() == []


async def test_a_long_batch_keeps_its_leases_alive(stage: RunnerStage, clock: StageClock) -> None:
    """C4, C5: the heart beats while the platform is waited for; half an hour later nothing was taken away."""
    await stage.add_cookies("one")
    await stage.discover()
    held = stage.hold_back()
    running = asyncio.create_task(stage.runner.collect(stage.make_stop()))
    await held.arrive()
    for _ in range(31):
        await clock.pass_minute(hearts=1)
        renewed = {row.locked_at for row in (await stage.read_candidates()).values()}
        assert renewed == {to_milliseconds(clock.now())}
    recovered = await stage.runner.recover()
    held.let_go()
    (report,) = await asyncio.wait_for(running, SOON)
    assert (recovered.executions, recovered.records) == ([], 0)
    assert report.counts == {SettledAction.CREATED: 10}


@pytest.mark.both_databases
async def test_two_runners_share_the_work_without_doing_it_twice(stage: RunnerStage) -> None:
    """C3, C4: of two at once on one platform one works, and no note is asked for twice."""
    await stage.add_cookies(*ACCOUNTS)
    await stage.discover()
    async with asyncio.timeout(SOON):
        both = await asyncio.gather(*(stage.runner.collect(stage.make_stop()) for _ in range(2)))
    statuses = sorted(report.ended.status.value for reports in both for report in reports)
    assert statuses in (["running", "succeeded"], ["succeeded", "succeeded"], ["succeeded"])
    assert len(stage.list_asked()) == len(await stage.read_sources()) == 10


def _aim(fault: Fault, note_id: str) -> Fault:
    """The same fault for one note alone."""
    return Fault(fault.kind, status=fault.status, headers=fault.headers, body=fault.body, matching=note_id)


@pytest.mark.both_databases
async def test_what_was_given_up_is_due_again_as_if_it_had_never_failed(writer: Writer, database: Database) -> None:
    """C10: of one platform or of all; the mirror learns of it, and nothing else is touched."""
    execution = await begin(writer)
    for platform in ("bilibili", "weibo"):
        await writer.add_candidates(execution, make_candidates(f"{platform}-1", f"{platform}-2", platform=platform))
        first, second = await writer.lease(execution, platform=platform)
        failure = Failed(note_id=first.note_id, error=make_error(ErrorCode.INVALID_INPUT, "gone"))
        await writer.settle(execution, platform, [failure, *take([second])])
    shown = len(await read_outbox(database))
    counts = [
        await writer.corrections.requeue("weibo"),
        await writer.corrections.requeue("weibo"),
        await writer.corrections.requeue(),
    ]
    rows = await read_candidates(database)
    assert counts == [1, 0, 1]
    assert [(name, row.status, row.retry_count) for name, row in sorted(rows.items())] == [
        ("bilibili-1", "pending", 0),
        ("bilibili-2", "collected", 0),
        ("weibo-1", "pending", 0),
        ("weibo-2", "collected", 0),
    ]
    assert (await read_outbox(database))[shown:] == [("tbl_candidate", "weibo-1"), ("tbl_candidate", "bilibili-1")]
    assert {each.note_id for each in await writer.lease(execution, platform="weibo")} == {"weibo-1"}
