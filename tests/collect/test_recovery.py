"""Who holds a record, who has lost it, and who gets it next: fencing, heartbeats and recovery."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, event, insert, select, text, update

from tests.collect.writer_stage import (
    PLATFORM,
    begin,
    collect,
    make_candidates,
    read_candidates,
    read_outbox,
    read_sources,
)
from tests.fakes import FakeClock
from tidings.collect.crawl.cookies.states import CookieStatus
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import ErrorCode
from tidings.collect.tables import CandidateStatus, candidates, sources
from tidings.collect.write.cookies import CookieRecords, make_cookie
from tidings.collect.write.keywords import Keywords, RefreshPlan
from tidings.collect.write.leases import LEASED_TABLES
from tidings.collect.write.values import CookieUse, Failed, SettledAction
from tidings.collect.write.writer import Writer
from tidings.core.db.database import Database, open_database
from tidings.core.executions import ExecutionLostError, Executions, ExecutionStatus
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.secret import Secret

RECOVERERS = 8
SOON = 30.0
SECOND = timedelta(seconds=1)
LOCK = timedelta(minutes=30)
DAY = timedelta(days=1)
AHEAD = 400 * DAY


async def test_a_remote_execution_outlives_the_process_that_gave_it(
    writer: Writer, executions: Executions, process_lock: ProcessLock, clock: FakeClock, database: Database
) -> None:
    """C3, C5: who works through the API is judged by the heartbeat alone."""
    remote, local = await writer.acquire("one", remote=True), await writer.acquire("two")
    process_lock.close()
    other = Executions(database, clock=clock, process_lock=ProcessLock(process_lock._path.parent.parent))
    assert await other.recover() == [local.execution_id]
    resumed = await writer.resume(remote.execution_id)
    assert resumed == remote.execution
    clock.advance(LOCK + SECOND)
    assert await other.recover() == [remote.execution_id]
    with pytest.raises(ExecutionLostError):
        await writer.resume(remote.execution_id)


@pytest.mark.thorough
async def test_many_who_lease_at_once_share_nothing(
    database_url: str, process_lock: ProcessLock, clock: FakeClock, writer: Writer
) -> None:
    """C4: each candidate goes to one of them, over connections of their own."""
    execution = await begin(writer, "discover")
    await writer.add_candidates(execution, make_candidates(*(f"n{number}" for number in range(60))))
    databases = [open_database(database_url) for _ in range(6)]
    writers = [
        Writer(each, executions=Executions(each, clock=clock, process_lock=process_lock), clock=clock)
        for each in databases
    ]

    async def drain(writer: Writer, name: str) -> list[str]:
        mine = await begin(writer, name)
        taken: list[str] = []
        while leased := await writer.lease(mine, limit=3):
            taken += [each.note_id for each in leased]
        return taken

    shares = await asyncio.gather(*(drain(each, f"collect-{number}") for number, each in enumerate(writers)))
    for each in databases:
        await each.close()
    taken = [note_id for share in shares for note_id in share]
    assert sorted(taken) == sorted({f"n{number}" for number in range(60)})


async def test_a_holder_whose_execution_was_taken_away_can_write_nothing(
    writer: Writer, database: Database, clock: FakeClock
) -> None:
    """C4, C5: the execution's id is the fencing token of every write."""
    stale = await begin(writer)
    await writer.add_candidates(stale, make_candidates("a", "b"))
    leased = await writer.lease(stale, limit=1)
    clock.advance(LOCK + SECOND)
    await writer.recover()
    shown = await read_outbox(database)
    for write in (
        writer.settle(stale, PLATFORM, collect(leased)),
        writer.lease(stale),
        writer.heartbeat(stale),
        writer.add_candidates(stale, make_candidates("c")),
        writer.count_cookie_uses(stale, [CookieUse(cookie_name="one")]),
        writer.finish(stale),
    ):
        with pytest.raises(ExecutionLostError):
            await write
    assert await read_sources(database) == []
    assert set(await read_candidates(database)) == {"a", "b"}
    assert await read_outbox(database) == shown


async def test_a_record_that_another_holds_now_is_left_alone(
    writer: Writer, database: Database, clock: FakeClock
) -> None:
    """C4: the execution lives, but its record was taken back and leased to another."""
    mine, other = await begin(writer), await begin(writer, "collect-2")
    await writer.add_candidates(mine, make_candidates("a"))
    leased = await writer.lease(mine)
    async with database.write() as connection:
        await connection.execute(update(candidates).values(status="pending", processing_lock=None, locked_at=None))
    assert len(await writer.lease(other)) == 1
    (settled,) = await writer.settle(mine, PLATFORM, collect(leased))
    (failed,) = await writer.settle(
        mine, PLATFORM, [Failed(note_id="a", error=make_error(ErrorCode.INVALID_INPUT, ""))]
    )
    assert (settled.action, settled.status, failed.action) == ("lost", None, "lost")
    row = (await read_candidates(database))["a"]
    assert (row.status, row.processing_lock, row.retry_count) == ("processing", other.public_id, 0)
    assert await read_sources(database) == []


async def test_a_heartbeat_renews_what_the_execution_holds_and_nothing_else(
    writer: Writer, database: Database, clock: FakeClock
) -> None:
    """C4, C5."""
    mine, other = await begin(writer), await begin(writer, "collect-2")
    await writer.add_candidates(mine, make_candidates("a", "b", "c"))
    held, theirs = await writer.lease(mine, limit=2), await writer.lease(other)
    leased_at = clock.now()
    clock.advance(timedelta(minutes=20))
    assert await writer.heartbeat(mine) == 2
    rows = await read_candidates(database)
    assert {rows[each.note_id].locked_at for each in held} == {_write_timestamp(clock.now())}
    assert {rows[each.note_id].locked_at for each in theirs} == {_write_timestamp(leased_at)}


@pytest.mark.parametrize(("age", "recovered"), [(LOCK - SECOND, 0), (LOCK + SECOND, 3)])
async def test_a_lease_of_2959_is_kept_and_one_of_3001_is_recovered_once_by_eight_at_a_time(
    database_url: str,
    process_lock: ProcessLock,
    writer: Writer,
    database: Database,
    clock: FakeClock,
    age: timedelta,
    recovered: int,
) -> None:
    """C5, C27: whoever recovers, and however many do it at once."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a", "b", "c"))
    await writer.lease(execution)
    clock.advance(age)
    databases = [open_database(database_url) for _ in range(RECOVERERS)]
    writers = [
        Writer(each, executions=Executions(each, clock=clock, process_lock=process_lock), clock=clock)
        for each in databases
    ]
    answers = await asyncio.gather(*(each.recover() for each in writers))
    for each in databases:
        await each.close()
    assert sum(answer.records for answer in answers) == recovered
    assert sum(len(answer.executions) for answer in answers) == (1 if recovered else 0)
    rows = (await read_candidates(database)).values()
    assert {(row.status, row.retry_count) for row in rows} == {("pending", 1) if recovered else ("processing", 0)}


async def test_a_silent_lease_is_recovered_although_its_execution_lives(
    writer: Writer, executions: Executions, clock: FakeClock
) -> None:
    """C5: by the record's own age; the execution's heartbeat without the record's does not keep it."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a"))
    await writer.lease(execution)
    for _ in range(2):
        clock.advance(LOCK / 2 + SECOND)
        await executions.heartbeat(execution)
    recovered = await writer.recover()
    assert (recovered.executions, recovered.records) == ([], 1)


async def test_what_an_ended_execution_left_locked_is_free_at_the_next_recovery(
    writer: Writer, executions: Executions
) -> None:
    """C5: it can never be written again, so there is nothing to wait for."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a"))
    await writer.lease(execution)
    await executions.finish(execution, ExecutionStatus.INTERRUPTED)
    assert (await writer.recover()).records == 1


async def test_a_record_that_kills_its_worker_ends_as_failed(
    writer: Writer, database: Database, clock: FakeClock
) -> None:
    """C10: a lock that timed out counts as a failure; the fourth is the last, and nobody gets the record again."""
    for number in range(4):
        execution = await begin(writer, f"collect-{number}")
        if number == 0:
            await writer.add_candidates(execution, make_candidates("a"))
        assert len(await writer.lease(execution)) == 1
        clock.advance(LOCK + SECOND)
        recovered = await writer.recover()
        assert (recovered.records, recovered.failed) == (1, 1 if number == 3 else 0)
    row = (await read_candidates(database))["a"]
    assert (row.status, row.retry_count, row.last_error_code) == ("failed", 4, "TIMEOUT_ERROR")
    assert await writer.lease(await begin(writer)) == []


async def test_a_stale_lock_on_a_source_is_released(writer: Writer, database: Database, clock: FakeClock) -> None:
    """C5, C12: records of both tables."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a"))
    await writer.settle(execution, PLATFORM, collect(await writer.lease(execution)))
    async with database.write() as connection:
        await connection.execute(
            update(sources).values(
                status="processing", processing_lock="somebody", locked_at=_write_timestamp(clock.now())
            )
        )
    clock.advance(LOCK - SECOND)
    assert (await writer.recover()).records == 0
    clock.advance(2 * SECOND)
    assert (await writer.recover()).records == 1
    (source,) = await read_sources(database)
    assert (source.processing_lock, source.locked_at, source.retry_count) == (None, None, 1)


async def test_a_candidate_that_was_removed_meanwhile_is_lost(writer: Writer, database: Database) -> None:
    """C4: there is nothing to mark, so nothing is written."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a"))
    leased = await writer.lease(execution)
    async with database.write() as connection:
        await connection.execute(delete(candidates))
    (settled,) = await writer.settle(execution, PLATFORM, collect(leased))
    assert settled.action is SettledAction.LOST
    assert await read_sources(database) == []


async def test_recovery_waits_for_nobody_who_is_writing(writer: Writer, database: Database) -> None:
    """C5: what is just being written is held by somebody who lives; on PostgreSQL two who wait for each other would
    end one of them."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a", "b"))
    await writer.lease(execution)
    async with database.write() as connection:
        await connection.execute(update(candidates).values(locked_at=1))
    if database.dialect == "sqlite":
        # There is one writer at a time, and nothing to wait for.
        assert (await writer.recover()).records == 2
        return
    async with database.write() as connection:
        await connection.execute(select(candidates).where(candidates.c.note_id == "a").with_for_update())
        async with asyncio.timeout(SOON):
            assert (await writer.recover()).records == 1
    assert (await writer.recover()).records == 1


async def test_recovery_leaves_a_record_alone_that_changed_hands_meanwhile(
    writer: Writer, database: Database, executions: Executions
) -> None:
    """C4, C5: two records are silent; while somebody has the first, the second goes to an execution that began after
    the recovery did. That one is not taken for ended."""
    dead, slow = await begin(writer, "dead"), await begin(writer, "slow")
    await writer.add_candidates(dead, make_candidates("a"))
    await writer.lease(dead)
    await writer.add_candidates(dead, make_candidates("b"))
    await writer.lease(slow)
    async with database.write() as connection:
        await connection.execute(update(candidates).values(locked_at=1))
    async with hold_row(database, "a"):
        recovering = asyncio.create_task(writer.recover())
        await wait_until_done_or_waiting(recovering, database)
        await writer.finish(slow)
        alive = await begin(writer, "alive")
        assert "b" in [each.note_id for each in await writer.lease(alive, platform=PLATFORM)]
    await asyncio.wait_for(recovering, SOON)
    row = (await read_candidates(database))["b"]
    assert (row.status, row.processing_lock) == ("processing", alive.public_id)


@asynccontextmanager
async def hold_row(database: Database, note_id: str) -> AsyncIterator[None]:
    """Somebody has this row in a transaction; on SQLite nobody can while others write."""
    if database.dialect == "sqlite":
        yield
        return
    async with database.write() as connection:
        await connection.execute(select(candidates).where(candidates.c.note_id == note_id).with_for_update())
        yield


async def wait_until_done_or_waiting(task: "asyncio.Task[Any]", database: Database) -> None:
    """Until the task has ended, or PostgreSQL says that somebody waits for a lock."""
    async with asyncio.timeout(SOON):
        while not task.done():
            await asyncio.sleep(0)
            if database.dialect == "postgresql":
                async with database.read() as connection:
                    statement = text(
                        "SELECT count(*) FROM pg_stat_activity "
                        "WHERE wait_event_type = 'Lock' AND datname = current_database()"
                    )
                    if (await connection.execute(statement)).scalar_one():
                        return


@pytest.mark.thorough
async def test_thousands_that_were_given_up_are_requeued_in_blocks(
    writer: Writer, database: Database, clock: FakeClock
) -> None:
    """C10: each once, however many there are; one platform's where it is named."""
    execution = await begin(writer, "discover")
    notes = [f"n{number}" for number in range(2_300)]
    await writer.add_candidates(execution, make_candidates(*notes) + make_candidates("x", platform="weibo"))
    async with database.write() as connection:
        await connection.execute(update(candidates).values(status="failed", retry_count=3))
    assert await writer.corrections.requeue(PLATFORM) == 2_300
    assert await writer.corrections.requeue() == 1
    assert await writer.corrections.requeue() == 0
    rows = (await read_candidates(database)).values()
    assert {(row.status, row.retry_count) for row in rows} == {("pending", 0)}


def _write_timestamp(at_time: datetime) -> int:
    return round(at_time.timestamp() * 1000)


async def test_taking_the_lock_of_a_dead_process_gives_its_records_back_at_once(
    writer: Writer, database: Database, process_lock: ProcessLock, clock: FakeClock, tmp_path: Path
) -> None:
    """C35: also without a service; the next holder of the lock leases them without waiting for the timeout."""
    dead = ProcessLock(tmp_path)
    executions = Executions(database, clock=clock, process_lock=dead)
    killed = Writer(database, executions=executions, clock=clock)
    execution = await begin(killed)
    await killed.add_candidates(execution, make_candidates("a", "b"))
    assert len(await killed.lease(execution)) == 2
    dead.close()
    leased = await writer.lease(await begin(writer))
    assert {(each.note_id, each.retry_count) for each in leased} == {("a", 1), ("b", 1)}


async def test_a_clock_that_was_ahead_leaves_no_candidate_stuck(
    writer: Writer, database: Database, clock: FakeClock
) -> None:
    """C35: due times and locks from the future count as now."""
    now = clock.now()
    clock.advance(AHEAD)
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a", "b"))
    await writer.lease(execution, limit=1)
    await writer.settle(execution, PLATFORM, [Failed(note_id="a", error=make_error(ErrorCode.COOKIE_INVALID, ""))])
    await writer.lease(execution, limit=1)
    clock.set(now)
    next_execution = await begin(writer, "next")
    assert [each.note_id for each in await writer.lease(next_execution)] == ["a"]
    clock.advance(LOCK + SECOND)
    assert (await writer.recover()).executions == [execution.public_id, next_execution.public_id]
    assert {each.note_id for each in await writer.lease(await begin(writer, "last"))} == {"a", "b"}


async def test_a_clock_that_was_ahead_keeps_no_note_from_being_read_again(
    writer: Writer, database: Database, clock: FakeClock
) -> None:
    """C32, C35: a note that was collected in the future is read again now, and one of today when it is its time."""
    await Keywords(database, clock=clock).add(PLATFORM, "tea", refresh=RefreshPlan(DAY, 7 * DAY))
    now = clock.now()
    execution = await begin(writer)
    for name, at in (("ahead", now + AHEAD), ("today", now)):
        clock.set(at)
        await writer.add_candidates(execution, make_candidates(name))
        await writer.settle(execution, PLATFORM, collect(await writer.lease(execution)))
    clock.set(now + SECOND)
    next_execution = await begin(writer, "next")
    assert [each.note_id for each in await writer.lease(next_execution)] == ["ahead"]
    clock.advance(DAY)
    assert [each.note_id for each in await writer.lease(next_execution)] == ["today"]


@pytest.mark.one_database
async def test_recovery_heartbeat_and_end_read_no_candidates_but_those_that_are_held_or_far_ahead(
    writer: Writer, database: Database
) -> None:
    """C5: each execution has them, and a table may have a million candidates that were collected."""
    execution = await begin(writer)
    done = [_describe_collected(f"n{number}") for number in range(3_000)]
    async with database.write() as connection:
        await connection.execute(insert(candidates), done)
        await connection.exec_driver_sql("ANALYZE")
        engine = connection.engine.sync_engine
    seen: list[tuple[str, Any]] = []

    def record(_connection: Any, _cursor: Any, statement: str, values: Any, *_others: Any) -> None:
        seen.append((statement, values))

    event.listen(engine, "before_cursor_execute", record)
    await writer.recover()
    await writer.heartbeat(execution)
    await writer.finish(execution)
    event.remove(engine, "before_cursor_execute", record)
    changes = [each for each in seen if "UPDATE tbl_candidate" in each[0]]
    assert len(changes) > 3
    for statement, values in changes:
        async with database.write() as connection:
            rows = (await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)).all()
        plan = "\n".join(row[-1] for row in rows)
        assert not re.search("SCAN tbl_candidate(?! USING INDEX candidates_)", plan), plan


@pytest.mark.one_database
async def test_a_lease_finds_its_platform_without_reading_what_was_collected(database: Database) -> None:
    """C19: with a million collected candidates, each lease of any platform read every one of their index entries."""
    async with database.write() as connection:
        for of in LEASED_TABLES:
            for statement in (of.find_due_platforms, of.find_pending_platforms):
                explained = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}".replace(":now", "1"))
                plan = [row[-1] for row in explained if of.table.name in row[-1] or "SEARCH one" in row[-1]]
                assert plan
                assert all(re.search("INDEX [a-z]+_due", step) for step in plan), plan


async def test_a_recovery_with_a_slower_clock_waits_for_nobody_who_writes(
    postgres_url: str, process_lock: ProcessLock, clock: FakeClock
) -> None:
    """C5, C35: who writes may wait for what the recovery has changed, and neither would ever go on."""
    database = open_database(postgres_url)
    executions = Executions(database, clock=clock, process_lock=process_lock)
    writer = Writer(database, executions=executions, clock=clock)
    now = clock.now()
    clock.advance(AHEAD)
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a", "b"))
    await writer.lease(execution)
    clock.set(now)
    try:
        async with asyncio.timeout(SOON), executions.guard(execution) as connection:
            # It has changed the candidates, but not the execution, which this transaction holds.
            await writer.recover()
            assert {row.locked_at for row in (await read_candidates(database)).values()} == {_write_timestamp(now)}
            await connection.execute(update(candidates).values(title="still mine"))
        ahead = await executions.find(execution.public_id)
        await writer.recover()
        found = await executions.find(execution.public_id)
    finally:
        await database.close()
    assert ahead is not None
    assert found is not None
    assert (ahead.heartbeat_at, found.heartbeat_at) == (now + AHEAD, now)


async def test_a_clock_that_was_ahead_leaves_no_cookie_cooling_or_used_up(
    writer: Writer, database: Database, clock: FakeClock, keys: KeyRing
) -> None:
    """C35: a cooling and a day of use from the future have ended."""
    records = CookieRecords(database, keys=keys, clock=clock)
    await records.add(make_cookie("one", platform=PLATFORM, secret=Secret("SESSDATA=a-long-value")))
    now = clock.now()
    clock.advance(AHEAD)
    execution = await begin(writer)
    use = CookieUse(cookie_name="one", code=ErrorCode.COOKIE_INVALID, captcha=True)
    await writer.count_cookie_uses(execution, [use])
    clock.set(now)
    await writer.recover()
    (cookie,) = await records.list_all()
    assert (cookie.state.status, cookie.state.daily_used, cookie.state.total_errors) == (CookieStatus.ACTIVE, 0, 1)


async def test_times_that_may_be_real_are_left_as_they_are(
    writer: Writer, database: Database, clock: FakeClock
) -> None:
    """C35: a candidate that waits for its backoff is not due early."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a"))
    await writer.lease(execution)
    await writer.settle(execution, PLATFORM, [Failed(note_id="a", error=make_error(ErrorCode.COOKIE_INVALID, ""))])
    await writer.recover()
    assert await writer.lease(execution) == []


def _describe_collected(note_id: str) -> dict[str, Any]:
    texts = dict.fromkeys(("note_url", "title", "source_keyword", "exec_meta"), "")
    numbers = dict.fromkeys(("retry_count", "due_at", "created_at", "updated_at"), 0)
    return {"platform": PLATFORM, "note_id": note_id, "status": CandidateStatus.COLLECTED.value, **texts, **numbers}
