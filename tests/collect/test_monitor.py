"""The alerts of collect: each condition is provoked at the sandbox's platforms, notified once with an action, and
resolved once. A sink counts the notifications."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from tests.announce.bing_stage import MORNING
from tests.collect.cookie_stage import change_row
from tests.collect.runner_stage import MINUTE, TOPIC, RunnerStage, open_runner
from tests.collect.writer_stage import begin, collect, make_candidates
from tests.fakes import StageClock
from tidings.announce.execution.alerts import AnnounceAlert
from tidings.collect.alerts.conditions import MOST_PENDING, is_bad, is_judged
from tidings.collect.alerts.kinds import CollectAlert
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import ErrorCode
from tidings.collect.run.report import EndedExecution
from tidings.collect.status.queries import SuccessRate, count_minutes
from tidings.collect.tables import candidates, collect_minutes
from tidings.collect.write.cookies import CookieRecords, make_cookie
from tidings.collect.write.keywords import record_search
from tidings.collect.write.values import Failed
from tidings.core.alerts.events import Alert
from tidings.core.executions import ExecutionStatus
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import new_master_key
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media import weibo as sandbox

pytestmark = pytest.mark.one_database

FIRED, RESOLVED = "alert.fired", "alert.resolved"
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> StageClock:
    return StageClock(MORNING)


@pytest.fixture
async def stage(
    database_url: str, clock: StageClock, keys: KeyRing, process_lock: ProcessLock
) -> AsyncIterator[RunnerStage]:
    async with open_runner(database_url, clock=clock, keys=keys, process_lock=process_lock) as opened:
        yield opened


async def look(stage: RunnerStage, kind: str) -> list[tuple[str, str]]:
    """Look twice, for the second time must tell nothing more; what was notified of this kind so far."""
    for _ in range(2):
        await stage.monitor.check()
    return [(event, subject) for event, of_kind, subject in await stage.list_notified() if of_kind == kind]


async def find_notified(stage: RunnerStage, kind: str) -> dict[str, Any]:
    """The first event of this kind, as it was sent."""
    await stage.list_notified()
    documents: list[Any] = [recorded.fields["document"]["data"] for recorded in stage.sink.taken]  # type: ignore[index]
    return next(document for document in documents if document["kind"] == kind)


# --- P0: no active cookie ---


async def test_a_platform_with_work_and_no_cookie_is_notified_until_it_has_one(stage: RunnerStage) -> None:
    """C24: a keyword is work; nothing is notified before there is any."""
    assert await look(stage, "no_active_cookie") == []
    await stage.watch_keyword("weibo")
    await stage.watch_keyword("web")
    assert await look(stage, "no_active_cookie") == [(FIRED, "weibo")]
    notified = await find_notified(stage, "no_active_cookie")
    assert "there is none" in notified["reason"]
    assert "tidings cookies add NAME --platform weibo" in notified["action"]
    await stage.add_cookies("one")
    assert await look(stage, "no_active_cookie") == [(FIRED, "weibo"), (RESOLVED, "weibo")]


async def test_candidates_are_work_too_and_no_work_is_no_trouble(stage: RunnerStage) -> None:
    """C24: pending or leased; once they are collected, nobody has to know."""
    execution = await begin(stage.writer)
    await stage.writer.add_candidates(execution, make_candidates("a", platform="weibo"))
    assert await look(stage, "no_active_cookie") == [(FIRED, "weibo")]
    leased = await stage.writer.lease(execution)
    assert await look(stage, "no_active_cookie") == [(FIRED, "weibo")]
    await stage.writer.settle(execution, "weibo", collect(leased))
    assert await look(stage, "no_active_cookie") == [(FIRED, "weibo"), (RESOLVED, "weibo")]


@pytest.mark.parametrize(
    ("values", "word"),
    [
        pytest.param({"status": "cooling", "cooling_until": 2**45}, "cooling", id="cooling"),
        pytest.param({"status": "invalid"}, "invalid", id="invalid"),
        pytest.param({"status": "banned"}, "banned", id="banned"),
        pytest.param({"daily_used": 500}, "used up today", id="used up"),
        pytest.param({"encryption_key_id": "k9"}, "unreadable", id="no key"),
    ],
)
async def test_a_cookie_that_cannot_be_used_is_as_good_as_none(
    stage: RunnerStage, values: dict[str, Any], word: str
) -> None:
    """C24: also without keywords, for whoever stores a cookie wants it used; a second one that works is enough."""
    await stage.add_cookies("one")
    await change_row(stage.database, "one", **values)
    assert await look(stage, "no_active_cookie") == [(FIRED, "weibo")]
    assert f"1 × {word}" in (await find_notified(stage, "no_active_cookie"))["reason"]
    await stage.add_cookies("two")
    assert await look(stage, "no_active_cookie") == [(FIRED, "weibo"), (RESOLVED, "weibo")]


async def test_a_captcha_is_notified_at_once_and_is_over_when_the_cookie_has_rested(
    stage: RunnerStage, clock: StageClock
) -> None:
    """C17, C24: it cools the cookie, which was the only one."""
    await stage.add_cookies("one")
    await stage.discover()
    stage.weibo.misbehave(sandbox.EMPTY_DATA)
    await stage.runner.collect(stage.make_stop())
    assert await look(stage, "cookie_resting") == [(FIRED, "one")]
    assert await look(stage, "no_active_cookie") == [(FIRED, "weibo")]
    notified = await find_notified(stage, "cookie_resting")
    assert "captcha" in notified["reason"]
    assert "tidings cookies enable one" in notified["action"]
    clock.advance(31 * MINUTE)
    assert await look(stage, "cookie_resting") == [(FIRED, "one"), (RESOLVED, "one")]
    assert await look(stage, "no_active_cookie") == [(FIRED, "weibo"), (RESOLVED, "weibo")]


# --- A cookie that needs a person ---


@pytest.mark.parametrize(
    ("status", "word"),
    [("invalid", "errors in all"), ("banned", "while it cooled"), ("nonsense", "cannot be decrypted")],
)
async def test_a_cookie_that_was_given_up_is_notified_until_a_person_acts(
    stage: RunnerStage, status: str, word: str
) -> None:
    """C9, C17: time does not change it; a new cookie of the name does, and so does its removal."""
    await stage.add_cookies("one", "two", "gone")
    for name in ("one", "gone"):
        await change_row(stage.database, name, status=status)
    assert sorted(await look(stage, "cookie_resting")) == [(FIRED, "gone"), (FIRED, "one")]
    assert word in (await find_notified(stage, "cookie_resting"))["reason"]
    await stage.add_cookies("one")
    await stage.cookies.remove("gone")
    assert sorted((await look(stage, "cookie_resting"))[2:]) == [(RESOLVED, "gone"), (RESOLVED, "one")]


async def test_a_cookie_of_another_master_key_is_notified(stage: RunnerStage) -> None:
    """C22: the pool would leave it out without a word to anybody."""
    others = CookieRecords(stage.database, keys=KeyRing.parse(new_master_key()), clock=stage.clock)
    await others.add(make_cookie("one", platform="weibo", secret=Secret("SUB=1")))
    assert await look(stage, "cookie_resting") == [(FIRED, "one")]


# --- P1: the success rate ---


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_a_bad_rate_is_notified_after_ten_minutes_and_is_over_when_it_is_good(
    stage: RunnerStage, clock: StageClock
) -> None:
    """C24: under 90 % for ten minutes; not after nine."""
    await stage.add_cookies("one")
    await stage.discover()
    for note_id in sorted(await stage.read_candidates())[1:]:
        stage.weibo.misbehave(replace(sandbox.UNAVAILABLE, matching=note_id))
    notified = []
    for _ in range(12):
        await stage.runner.collect(stage.make_stop())
        notified.append(await look(stage, "success_rate"))
        clock.advance(MINUTE)
    assert notified[:10] == [[]] * 10
    assert notified[10:] == [[(FIRED, "collect")]] * 2
    event = await find_notified(stage, "success_rate")
    assert " of " in event["reason"]
    assert "tidings collect failed" in event["action"]
    stage.weibo.recover()
    await stage.writer.corrections.requeue()
    clock.advance(10 * MINUTE)
    await stage.runner.collect(stage.make_stop())
    assert await look(stage, "success_rate") == [(FIRED, "collect"), (RESOLVED, "collect")]


@pytest.mark.thorough
async def test_a_rate_that_recovers_within_ten_minutes_is_not_notified(stage: RunnerStage, clock: StageClock) -> None:
    """C24: a short trouble is none."""
    await stage.add_cookies("one")
    await stage.discover()
    stage.weibo.misbehave(replace(sandbox.UNAVAILABLE, matching=sorted(await stage.read_candidates())[0]))
    await stage.runner.collect(stage.make_stop())
    await count(stage, succeeded=0, failed=2)
    assert await look(stage, "success_rate") == []
    assert [each.kind for each in await stage.alerts.list_open()] == ["success_rate"]
    clock.advance(9 * MINUTE)
    await count(stage, succeeded=50, failed=0)
    assert await look(stage, "success_rate") == []
    clock.advance(HOUR)
    assert await look(stage, "success_rate") == []


async def count(stage: RunnerStage, *, succeeded: int, failed: int) -> None:
    """Tries of this minute, as the writer counts them."""
    statement = stage.database.insert(collect_minutes).values(
        minute=count_minutes(stage.clock.now()), succeeded=succeeded, failed=failed
    )
    changed = {
        "succeeded": collect_minutes.c.succeeded + succeeded,
        "failed": collect_minutes.c.failed + failed,
    }
    async with stage.database.write() as connection:
        await connection.execute(statement.on_conflict_do_update(index_elements=["minute"], set_=changed))


@pytest.mark.parametrize(
    ("rate", "judged", "bad"),
    [
        pytest.param(SuccessRate(9, 1, is_known=True), True, False, id="90 % is enough"),
        pytest.param(SuccessRate(89, 11, is_known=True), True, True, id="89 % is not"),
        pytest.param(SuccessRate(0, 5, is_known=True), True, True, id="five tries are enough"),
        pytest.param(SuccessRate(0, 4, is_known=True), False, True, id="four are not"),
        pytest.param(SuccessRate(1, 0, is_known=True), True, False, id="one that went well is well"),
        pytest.param(SuccessRate(0, 0, is_known=True), False, False, id="nothing tried says nothing"),
        pytest.param(SuccessRate(0, 0, is_known=False), True, False, id="nothing for a day is over"),
    ],
)
def test_a_rate_is_judged_by_enough_tries(rate: SuccessRate, judged: bool, bad: bool) -> None:
    """C24: neither good nor bad is said of what was not tried."""
    assert (is_judged(rate), is_bad(rate)) == (judged, bad)


async def test_a_bad_rate_is_not_over_because_nothing_is_tried(stage: RunnerStage, clock: StageClock) -> None:
    """C24: what failed for good is not tried again, and that is no recovery; after a day there is nothing to tell."""
    await count(stage, succeeded=1, failed=9)
    await look(stage, "success_rate")
    clock.advance(5 * MINUTE)
    await count(stage, succeeded=1, failed=9)
    clock.advance(6 * MINUTE)
    assert await look(stage, "success_rate") == [(FIRED, "collect")]
    clock.advance(HOUR)
    assert await look(stage, "success_rate") == [(FIRED, "collect")]
    clock.advance(24 * HOUR)
    # The first look forgets the statistics, the second finds none.
    assert await look(stage, "success_rate") == [(FIRED, "collect"), (RESOLVED, "collect")]


@pytest.mark.thorough
async def test_one_bad_minute_is_notified_to_nobody(stage: RunnerStage, clock: StageClock) -> None:
    """C24: under 90 % for ten minutes; five failures and then silence are less than that."""
    await count(stage, succeeded=0, failed=5)
    for _ in range(30):
        assert await look(stage, "success_rate") == []
        clock.advance(MINUTE)


@pytest.mark.both_databases
async def test_only_the_statistics_of_the_last_day_are_kept(stage: RunnerStage, clock: StageClock) -> None:
    """C24: the table does not grow."""
    await count(stage, succeeded=1, failed=0)
    clock.advance(timedelta(days=1))
    await count(stage, succeeded=2, failed=0)
    await stage.monitor.check()
    async with stage.database.read() as connection:
        left = [row.succeeded for row in await connection.execute(select(collect_minutes))]
    assert left == [2]


# --- P2: many pending ---


@pytest.mark.both_databases
async def test_more_than_500_pending_are_notified_after_half_an_hour(stage: RunnerStage, clock: StageClock) -> None:
    """C24: 501, for 30 minutes and not a second less; 500 are well again."""
    execution = await begin(stage.writer)
    names = [f"n{number}" for number in range(MOST_PENDING + 1)]
    await stage.writer.add_candidates(execution, make_candidates(*names))
    assert await look(stage, "many_pending") == []
    clock.advance(30 * MINUTE - timedelta(seconds=1))
    assert await look(stage, "many_pending") == []
    clock.advance(timedelta(seconds=1))
    assert await look(stage, "many_pending") == [(FIRED, "collect")]
    event = await find_notified(stage, "many_pending")
    assert ("more than 500" in event["reason"], "tidings collect status" in event["action"]) == (True, True)
    leased = await stage.writer.lease(execution, limit=1)
    await stage.writer.settle(execution, leased[0].platform, collect(leased))
    assert await look(stage, "many_pending") == [(FIRED, "collect"), (RESOLVED, "collect")]


# --- Notes that were skipped ---


@pytest.mark.both_databases
async def test_skipped_notes_are_notified_by_platform_for_an_hour(stage: RunnerStage, clock: StageClock) -> None:
    """C15: INVALID_INPUT and NOT_FOUND skip and alert; how many, and why."""
    await stage.add_cookies("one")
    await stage.discover()
    for number in (9, 14):
        stage.weibo.library.remove(number)
    await stage.runner.collect(stage.make_stop())
    assert await look(stage, "notes_skipped") == [(FIRED, "weibo")]
    event = await find_notified(stage, "notes_skipped")
    assert (event["count"], "2 INVALID_INPUT" in event["reason"]) == (2, True)
    assert "tidings collect failed --platform weibo" in event["action"]
    clock.advance(HOUR)
    assert await look(stage, "notes_skipped") == [(FIRED, "weibo"), (RESOLVED, "weibo")]


# --- A clock that was ahead ---


@pytest.mark.both_databases
async def test_what_a_clock_that_was_ahead_counted_is_told_to_nobody_afterwards(
    stage: RunnerStage, clock: StageClock
) -> None:
    """C24, C35: tries and skipped notes of the future hold no alert open, and a condition that began there fires."""
    now = clock.now()
    clock.advance(timedelta(days=400))
    await count(stage, succeeded=0, failed=50)
    execution = await begin(stage.writer)
    await stage.writer.add_candidates(execution, make_candidates("a"))
    await stage.writer.lease(execution)
    await stage.writer.settle(
        execution, "bilibili", [Failed(note_id="a", error=make_error(ErrorCode.INVALID_INPUT, ""))]
    )
    await stage.monitor.check()
    clock.set(now)
    for _ in range(12):
        await count(stage, succeeded=10, failed=0)
        await stage.monitor.check()
        clock.advance(MINUTE)
    assert [each.kind for each in await stage.alerts.list_open()] == []
    await count(stage, succeeded=0, failed=500)
    assert await look(stage, "success_rate") == []
    clock.advance(10 * MINUTE - timedelta(seconds=1))
    await count(stage, succeeded=0, failed=500)
    await stage.monitor.check()
    clock.advance(MINUTE)
    assert await look(stage, "success_rate") == [(FIRED, "collect")]


# --- All of them ---


async def test_a_workflow_that_breaks_is_notified_until_it_comes_to_its_end(stage: RunnerStage) -> None:
    """C24: of one that was interrupted or busy, nothing is said."""
    await stage.watch_keyword()
    ended = EndedExecution(
        workflow="discover", execution_id="exec-1", request_id="req-1", status=ExecutionStatus.FAILED
    )
    for status in (ExecutionStatus.FAILED, ExecutionStatus.INTERRUPTED, ExecutionStatus.RUNNING):
        await stage.monitor.record_end(replace(ended, status=status, reason="it ended early: ValueError"))
        assert await look(stage, "workflow_failed") == [(FIRED, "discover")]
    await stage.monitor.record_end(replace(ended, status=ExecutionStatus.PARTIAL))
    assert await look(stage, "workflow_failed") == [(FIRED, "discover"), (RESOLVED, "discover")]


@pytest.mark.parametrize("workflow", ["discover", "collect:weibo", "collect"])
async def test_a_failure_is_over_when_there_is_nothing_more_to_do(stage: RunnerStage, workflow: str) -> None:
    """C24: a workflow that has nothing to do would never come to its end."""
    await stage.add_cookies("one")
    await stage.watch_keyword()
    await stage.discover()
    ended = EndedExecution(workflow=workflow, execution_id="exec-1", request_id="req-1", status=ExecutionStatus.FAILED)
    await stage.monitor.record_end(ended)
    assert await look(stage, "workflow_failed") == [(FIRED, workflow)]
    await stage.keywords.remove("weibo", TOPIC)
    async with stage.database.write() as connection:
        await connection.execute(update(candidates).values(status="collected"))
    assert await look(stage, "workflow_failed") == [(FIRED, workflow), (RESOLVED, workflow)]


async def test_a_recovery_that_was_done_ends_what_was_notified_of_it(stage: RunnerStage) -> None:
    """C24: it has no execution, and says so itself."""
    await stage.monitor.record_end(
        EndedExecution(workflow="recover", execution_id="1", request_id="req-1", status=ExecutionStatus.FAILED)
    )
    assert await look(stage, "workflow_failed") == [(FIRED, "recover")]
    await stage.monitor.record_recovery()
    assert await look(stage, "workflow_failed") == [(FIRED, "recover"), (RESOLVED, "recover")]


async def test_keywords_that_cannot_be_searched_are_notified(stage: RunnerStage, clock: StageClock) -> None:
    """C15, C24: at once where no later search can change it, otherwise when it has lasted; over when one went well."""
    await stage.add_cookies("one")
    await stage.watch_keyword()
    (keyword,) = await stage.keywords.list_all()
    await note_code(stage, keyword.id, ErrorCode.COOKIE_EXHAUSTED)
    assert await look(stage, "search_failed") == []
    await note_code(stage, keyword.id, ErrorCode.PLATFORM_ERROR)
    assert await look(stage, "search_failed") == []
    clock.advance(2 * HOUR)
    assert await look(stage, "search_failed") == [(FIRED, "weibo")]
    assert f"{TOPIC} (PLATFORM_ERROR)" in (await find_notified(stage, "search_failed"))["reason"]
    await note_code(stage, keyword.id, None)
    assert await look(stage, "search_failed") == [(FIRED, "weibo"), (RESOLVED, "weibo")]
    await note_code(stage, keyword.id, ErrorCode.INVALID_INPUT)
    assert (await look(stage, "search_failed"))[-1] == (FIRED, "weibo")


async def note_code(stage: RunnerStage, keyword_id: int, code: ErrorCode | None) -> None:
    """As a search that ended like this."""
    async with stage.database.write() as connection:
        await record_search(connection, keyword_id, found=0, created=0, code=code, at=stage.clock.now())


async def test_conditions_of_others_are_left_alone(stage: RunnerStage) -> None:
    """C24: whatever their subject."""
    kinds = {AnnounceAlert.NOT_RUN, CollectAlert.MIRROR_FAILED, CollectAlert.WORKFLOW_FAILED}
    async with stage.database.write() as connection:
        for kind in kinds:
            await stage.alerts.raise_alert(connection, Alert(kind, "weibo", reason="late", action="Look."))
    await stage.monitor.check()
    assert {each.kind for each in await stage.alerts.list_open()} == kinds
