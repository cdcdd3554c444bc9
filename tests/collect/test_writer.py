"""The writer of collect: locks, leases, idempotent writes, and what becomes of candidates that fail."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from sqlalchemy import Connection, inspect, select, text, update

from tests.collect.cookie_stage import add_cookies, find_cookie
from tests.collect.writer_stage import (
    PLATFORM,
    begin,
    collect,
    make_candidates,
    make_note,
    read_candidates,
    read_outbox,
    read_sources,
)
from tests.fakes import FakeClock
from tidings.collect.crawl.cookies.states import CookieStatus
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import RULES, Action, ErrorCode
from tidings.collect.tables import candidates, collect_minutes
from tidings.collect.write.cookies import CookieRecords
from tidings.collect.write.keywords import Keywords
from tidings.collect.write.values import (
    Collected,
    CookieUse,
    Failed,
    Result,
    SettledAction,
    WorkflowNameError,
    WriterLimits,
    judge_failure,
)
from tidings.collect.write.writer import Writer
from tidings.core.db.database import Database
from tidings.core.executions import Executions, ExecutionStatus
from tidings.core.logs.request_id import request_id_scope
from tidings.core.secrets.keyring import KeyRing

RECOVERERS = 8
SECOND = timedelta(seconds=1)
LOCK = timedelta(minutes=30)


async def test_the_four_tables_have_the_fields_that_were_asked_for(database: Database) -> None:
    """C9, C10, C11, C12, C27: names and fields as given; tbl_crawl_execution is a view over the executions."""
    wanted = {
        "tbl_cookie": "cookie_name platform cookie_encrypted encryption_key_id status priority daily_used daily_limit "
        "consecutive_errors total_errors cooling_until created_at updated_at",
        "tbl_candidate": "note_id platform note_url status processing_lock locked_at retry_count source_keyword "
        "exec_meta",
        "tbl_crawl_execution": "workflow_name execution_id status started_at heartbeat_at completed_at items_processed "
        "items_failed",
        "tbl_source": "platform idempotency_key processing_lock locked_at retry_count last_error_code exec_meta",
    }
    async with database.write() as connection:
        for name, fields in wanted.items():
            columns = await connection.run_sync(partial(_list_columns, table=name))
            assert columns >= set(fields.split()), name


async def test_of_two_that_start_at_once_one_gets_the_lock_and_the_other_learns_who_has_it(
    writer: Writer, database: Database
) -> None:
    """C3, C20, C11: and the view shows the execution; what announce runs is not in it."""
    first, second = await asyncio.gather(writer.acquire("collect"), writer.acquire("collect"))
    winner, loser = (first, second) if first.locked else (second, first)
    assert winner.locked
    assert winner.reason is None
    assert (loser.locked, loser.execution_id) == (False, winner.execution_id)
    assert "already running" in (loser.reason or "")
    async with database.read() as connection:
        rows = (await connection.execute(text("SELECT * FROM tbl_crawl_execution"))).all()
    assert [(row.workflow_name, row.execution_id, row.status) for row in rows] == [
        ("collect", winner.execution_id, "running")
    ]


@pytest.mark.parametrize("name", ["", "announce:example.com", "Collect", "-x", "a b", "x" * 101, "a\n"])
async def test_a_name_that_is_not_collects_own_is_refused(writer: Writer, name: str) -> None:
    """C3: nobody can take announce's locks through collect."""
    with pytest.raises(WorkflowNameError):
        await writer.acquire(name)


async def test_candidates_that_are_found_again_are_one_record(writer: Writer, database: Database) -> None:
    """C2, C10, C19: the key is platform and note id; what stands there is not touched."""
    execution = await begin(writer, "discover")
    found = make_candidates("a", "b", "a")
    added = await writer.add_candidates(execution, found)
    assert (added.created, added.known) == (2, 1)
    again = await writer.add_candidates(execution, [*found, *make_candidates("a", platform="weibo")])
    assert (again.created, again.known) == (1, 3)
    async with database.read() as connection:
        keys = set(await connection.execute(select(candidates.c.platform, candidates.c.note_id)))
    assert keys == {("bilibili", "a"), ("bilibili", "b"), ("weibo", "a")}


async def test_a_search_is_noted_on_its_keyword_and_its_cookie(
    writer: Writer, database: Database, clock: FakeClock, keys: KeyRing
) -> None:
    """C18, C19: in the transaction that writes what it found."""
    await add_cookies(CookieRecords(database, keys=keys, clock=clock), "one")
    keywords = Keywords(database, clock=clock)
    assert await keywords.add(PLATFORM, " tea ", pages=2)
    assert not await keywords.add(PLATFORM, "tea", pages=3)
    (watched,) = await keywords.list_enabled()
    execution = await begin(writer, "discover")
    uses = [CookieUse(cookie_name="one"), CookieUse(cookie_name="one", code=ErrorCode.COOKIE_INVALID)]
    await writer.add_candidates(execution, make_candidates("a", "b"), keyword_id=watched.id, uses=uses)
    (after,) = await keywords.list_all()
    assert (after.pages, after.last_found, after.last_created, after.last_run_at) == (3, 2, 2, clock.now())
    cookie = await find_cookie(CookieRecords(database, keys=keys, clock=clock), "one")
    assert (cookie.state.daily_used, cookie.state.total_errors) == (2, 1)


async def test_a_lease_takes_the_longest_waiting_of_one_platform(
    writer: Writer, database: Database, clock: FakeClock
) -> None:
    """C4, C19, C20: ten at a time, locked by this execution, and no other gets them."""
    first, second = await begin(writer), await begin(writer, "collect-2")
    await writer.add_candidates(first, make_candidates("late", platform="weibo"))
    clock.advance(SECOND)
    await writer.add_candidates(first, make_candidates(*(f"n{number:02}" for number in range(12))))
    (only,) = await writer.lease(first)
    assert (only.platform, only.note_id, only.note_url) == ("weibo", "late", "https://weibo.example/late")
    leased = await writer.lease(first)
    others = await writer.lease(second)
    assert (len(leased), len(others)) == (10, 2)
    assert not {each.note_id for each in leased} & {each.note_id for each in others}
    assert await writer.lease(second) == []
    rows = await read_candidates(database)
    assert {rows[each.note_id].processing_lock for each in leased} == {first.public_id}
    assert {row.status for row in rows.values()} == {"processing"}


async def test_a_named_platform_is_the_only_one_leased_from(writer: Writer) -> None:
    """C19."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a") + make_candidates("b", platform="weibo"))
    assert [each.note_id for each in await writer.lease(execution, platform="weibo")] == ["b"]
    assert await writer.lease(execution, platform="xiaohongshu") == []


async def test_a_note_is_written_and_its_candidate_marked_together(
    writer: Writer, database: Database, executions: Executions, clock: FakeClock
) -> None:
    """C6, C12, C20: with the idempotency key, the request id and the execution; the counts are counted."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a"))
    leased = await writer.lease(execution)
    with request_id_scope("req-of-mine"):
        (settled,) = await writer.settle(execution, PLATFORM, collect(leased))
    (source,) = await read_sources(database)
    assert (settled.action, settled.existing_id, settled.status) == ("created", source.id, "collected")
    assert (source.platform, source.idempotency_key, source.title) == (PLATFORM, "a_v1", "About a")
    assert json.loads(source.content) == make_note("a").describe()
    assert json.loads(source.exec_meta) == {"request_id": "req-of-mine", "execution_id": execution.public_id}
    row = (await read_candidates(database))["a"]
    assert (row.status, row.processing_lock, row.locked_at) == ("collected", None, None)
    assert json.loads(row.exec_meta)["request_id"] == "req-of-mine"
    record = await executions.find(execution.public_id)
    assert record is not None
    assert (record.items_processed, record.items_failed) == (2, 0)


async def test_the_same_write_twice_is_one_record(writer: Writer, database: Database) -> None:
    """C2, C20, C27: whoever repeats it, because its answer was lost, gets `skipped` and which record it is."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a", "b"))
    leased = await writer.lease(execution)
    first = await writer.settle(execution, PLATFORM, collect(leased))
    second = await writer.settle(execution, PLATFORM, collect(leased))
    assert {each.action for each in first} == {SettledAction.CREATED}
    assert {each.action for each in second} == {SettledAction.SKIPPED}
    assert [each.existing_id for each in first] == [each.existing_id for each in second]
    assert len(await read_sources(database)) == 2


async def test_what_stands_in_the_table_already_is_skipped_and_the_candidate_is_done(
    writer: Writer, database: Database
) -> None:
    """C2, C20: a candidate that came back for a note that was collected before."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a"))
    await writer.settle(execution, PLATFORM, collect(await writer.lease(execution)))
    async with database.write() as connection:
        await connection.execute(update(candidates).values(status="pending"))
    (settled,) = await writer.settle(execution, PLATFORM, collect(await writer.lease(execution)))
    assert settled.action is SettledAction.SKIPPED
    assert (await read_candidates(database))["a"].status == "collected"
    assert len(await read_sources(database)) == 1


@pytest.mark.parametrize("code", list(ErrorCode))
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_every_code_has_its_verdict(code: ErrorCode, before: int) -> None:
    """C10, C15: tried again after 5, 15 and 45 s; then failed; hopeless at once; a pause is uncounted."""
    at = datetime(2026, 11, 15, tzinfo=UTC)
    verdict = judge_failure(
        Failed(note_id="a", error=make_error(code, "")), retry_count=before, at=at, limits=WriterLimits()
    )
    expected: tuple[SettledAction, int, datetime | None]
    if RULES[code].action is Action.PAUSE:
        expected = (SettledAction.RELEASED, before, at)
    elif code in (ErrorCode.INVALID_INPUT, ErrorCode.NOT_FOUND) or before == 3:
        expected = (SettledAction.FAILED, before + 1, None)
    else:
        expected = (SettledAction.RETRY, before + 1, at + (5 * SECOND, 15 * SECOND, 45 * SECOND)[before])
    assert (verdict.action, verdict.retry_count, verdict.retry_at) == expected


async def test_a_failed_candidate_rests_and_is_then_leased_again(
    writer: Writer, database: Database, clock: FakeClock
) -> None:
    """C10, C15: after the backoff, with its count and the reason in the row; three retries are four attempts."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a"))
    failure = Failed(note_id="a", error=make_error(ErrorCode.COOKIE_INVALID, "it is refused" * 100))
    for rest in (5 * SECOND, 15 * SECOND, 45 * SECOND):
        assert len(await writer.lease(execution)) == 1
        (settled,) = await writer.settle(execution, PLATFORM, [failure])
        assert settled.action is SettledAction.RETRY
        clock.advance(rest - SECOND)
        assert await writer.lease(execution) == []
        clock.advance(SECOND)
    assert len(await writer.lease(execution)) == 1
    (settled,) = await writer.settle(execution, PLATFORM, [failure])
    row = (await read_candidates(database))["a"]
    assert (settled.action, row.status, row.retry_count) == ("failed", "failed", 4)
    assert row.last_error_code == "COOKIE_INVALID"
    assert row.last_error.startswith("it is refused")


async def test_a_platform_without_cookies_is_left_alone_for_the_rest_of_the_execution(
    writer: Writer, database: Database
) -> None:
    """C15: pause; its candidates lose nothing, the other platforms go on, and the next execution tries again."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a", "b") + make_candidates("c", platform="weibo"))
    leased = await writer.lease(execution, platform=PLATFORM, limit=1)
    failure = Failed(note_id=leased[0].note_id, error=make_error(ErrorCode.COOKIE_EXHAUSTED, ""))
    (settled,) = await writer.settle(execution, PLATFORM, [failure])
    assert (settled.action, settled.retry_count) == ("released", 0)
    assert [each.platform for each in await writer.lease(execution)] == ["weibo"]
    assert await writer.lease(execution, platform=PLATFORM) == []
    await writer.finish(execution)
    assert {each.note_id for each in await writer.lease(await begin(writer), platform=PLATFORM)} == {"a", "b"}
    row = (await read_candidates(database))[leased[0].note_id]
    assert (row.retry_count, row.last_error_code) == (0, "COOKIE_EXHAUSTED")


async def test_one_call_can_hold_good_and_bad_news(writer: Writer, database: Database, executions: Executions) -> None:
    """C8: two notes and one failure of three; each stands in its own row, and the execution counts both."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a", "b", "c"))
    leased = await writer.lease(execution)
    results: list[Result] = [
        *collect(leased[:2]),
        Failed(note_id=leased[2].note_id, error=make_error(ErrorCode.TIMEOUT_ERROR, "")),
    ]
    settled = await writer.settle(execution, PLATFORM, results)
    assert [each.action for each in settled] == ["created", "created", "retry"]
    assert (await writer.finish(execution)).status is ExecutionStatus.PARTIAL
    async with database.read() as connection:
        (minute,) = await connection.execute(select(collect_minutes))
    assert (minute.succeeded, minute.failed) == (2, 1)


async def test_the_end_of_an_execution_gives_back_what_it_holds_uncounted(writer: Writer, database: Database) -> None:
    """C3, C4, C19, C27: the lock is free, the records are, and nothing is held against them."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a", "b"))
    await writer.lease(execution)
    finished = await writer.finish(execution)
    assert (finished.status, finished.released) == (ExecutionStatus.SUCCEEDED, 2)
    rows = (await read_candidates(database)).values()
    assert {(row.status, row.retry_count, row.processing_lock) for row in rows} == {("pending", 0, None)}
    assert (await writer.acquire("collect")).locked


async def test_cookies_are_counted_with_the_write_and_not_by_its_repetition(
    writer: Writer, database: Database, clock: FakeClock, keys: KeyRing
) -> None:
    """C9, C17, C18: by the name that the API gave; a captcha cools at once; a cookie that is gone harms nothing."""
    cookies = CookieRecords(database, keys=keys, clock=clock)
    await add_cookies(cookies, "good", "seen")
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a", "b", "c"))
    leased = await writer.lease(execution)
    results: list[Result] = [
        *collect(leased[:1], cookie_used="good"),
        Failed(
            note_id=leased[1].note_id, cookie_used="seen", error=make_error(ErrorCode.PLATFORM_ERROR, "", captcha=True)
        ),
        *collect(leased[2:], cookie_used="removed"),
    ]
    await writer.settle(execution, PLATFORM, results)
    await writer.settle(execution, PLATFORM, results)
    good, seen = await find_cookie(cookies, "good"), await find_cookie(cookies, "seen")
    assert (good.state.daily_used, good.state.total_errors) == (1, 0)
    assert (seen.state.daily_used, seen.state.status) == (1, CookieStatus.COOLING)
    meta = json.loads((await read_sources(database))[0].exec_meta)
    assert meta["cookie_used"] in ("good", "removed")


async def test_every_change_is_noted_for_the_mirror_in_its_transaction(
    writer: Writer, database: Database, clock: FakeClock, executions: Executions
) -> None:
    """C21: found, leased, collected, given back, recovered; without a mirror nothing is noted."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a"))
    leased = await writer.lease(execution)
    await writer.settle(execution, PLATFORM, collect(leased))
    assert await read_outbox(database) == [
        ("tbl_candidate", "a"),
        ("tbl_candidate", "a"),
        ("tbl_candidate", "a"),
        ("tbl_source", "a_v1"),
    ]
    plain = Writer(database, executions=executions, clock=clock)
    await plain.add_candidates(execution, make_candidates("b"))
    assert len(await read_outbox(database)) == 4


async def test_a_note_of_any_text_is_kept_as_it_is(writer: Writer, database: Database) -> None:
    """C12: emoji, quotes, line ends; a title of a megabyte."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a"))
    (leased,) = await writer.lease(execution)
    note = replace(make_note("a", title="茶\U0001f375 \"quoted\" 'and' \\ %s :x" + "x" * 1_000_000), text="a\nb\tc")
    await writer.settle(execution, PLATFORM, [Collected(note_id=leased.note_id, note=note)])
    (source,) = await read_sources(database)
    assert json.loads(source.content) == note.describe()
    assert source.title == note.title


def _list_columns(connection: Connection, *, table: str) -> set[str]:
    return {column["name"] for column in inspect(connection).get_columns(table)}
