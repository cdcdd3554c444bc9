"""Executions that an external client drives, what they count, and how they are found again. The tests of the lock
itself are in `test_executions`."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from structlog.testing import capture_logs

from tests.fakes import FakeClock
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database
from tidings.core.execution_table import QUEUED, last_executions
from tidings.core.executions import (
    REMOTE,
    SILENT_FOR,
    AlreadyRunningError,
    ExecutionLostError,
    Executions,
    ExecutionStatus,
    LostExecution,
    executions,
)
from tidings.core.process_lock import ProcessLock

KIND = "collect"
NAME = "bilibili"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def running(database: Database, clock: FakeClock, process_lock: ProcessLock) -> Executions:
    return Executions(database, clock=clock, process_lock=process_lock)


async def read_row(database: Database, public_id: str) -> Any:
    async with database.read() as connection:
        return (await connection.execute(select(executions).where(executions.c.public_id == public_id))).one()


async def change_row(database: Database, public_id: str, **values: Any) -> None:
    async with database.write() as connection:
        await connection.execute(update(executions).where(executions.c.public_id == public_id).values(values))


# Driven by an external client


async def test_the_same_key_gets_the_same_execution_and_another_is_refused(
    running: Executions, database: Database, clock: FakeClock
) -> None:
    """C3: a client that repeats its request after a lost answer goes on; nobody else gets in."""
    first = await running.acquire(NAME, kind=KIND, remote=True, idempotency_key="one")
    clock.advance(MINUTE)
    assert await running.acquire(NAME, kind=KIND, remote=True, idempotency_key="one") == first
    for key in ("two", None):
        with pytest.raises(AlreadyRunningError) as refused:
            await running.acquire(NAME, kind=KIND, remote=True, idempotency_key=key)
        assert (refused.value.execution_id, refused.value.since) == (first.public_id, first.started_at)
        assert NAME in str(refused.value)
    with pytest.raises(AlreadyRunningError):
        await running.acquire(NAME, kind=KIND)
    assert (await read_row(database, first.public_id)).holder == f"{REMOTE}/one"


async def test_without_a_key_no_two_requests_are_the_same(running: Executions, database: Database) -> None:
    """C3: two clients that name no key are two clients."""
    first = await running.acquire(NAME, kind=KIND, remote=True)
    row = await read_row(database, first.public_id)
    assert (row.holder, row.request) == (REMOTE, None)
    with pytest.raises(AlreadyRunningError):
        await running.acquire(NAME, kind=KIND, remote=True)


@pytest.mark.parametrize("key", [None, "one"])
async def test_a_remote_execution_is_resumed_by_its_id_until_it_ends(running: Executions, key: str | None) -> None:
    """C3: any process may serve the client's next request. A local execution is nobody else's."""
    remote = await running.acquire(NAME, kind=KIND, remote=True, idempotency_key=key)
    local = await running.acquire("local", kind=KIND)
    assert await running.resume(remote.public_id) == remote
    assert await running.find_finished(remote.public_id) is None
    with pytest.raises(ExecutionLostError, match=f"^{local.public_id} no longer holds local;"):
        await running.resume(local.public_id)
    with pytest.raises(ExecutionLostError, match=r"^exec-0-none no longer holds any workflow;"):
        await running.resume("exec-0-none")
    for each in (remote, local):
        await running.finish(each, ExecutionStatus.PARTIAL, processed=3, failed=1)
    with pytest.raises(ExecutionLostError, match=f"no longer holds {NAME};"):
        await running.resume(remote.public_id)
    finished = await running.find_finished(remote.public_id)
    assert finished is not None
    assert (finished.status, finished.items_processed, finished.items_failed) == (ExecutionStatus.PARTIAL, 3, 1)
    assert await running.find_finished(local.public_id) is None
    assert await running.find_finished("exec-0-none") is None


async def test_an_execution_that_was_taken_away_is_not_finished(running: Executions, clock: FakeClock) -> None:
    """C3: only its own holder ends an execution with a result."""
    remote = await running.acquire(NAME, kind=KIND, remote=True)
    clock.advance(SILENT_FOR + timedelta(milliseconds=1))
    assert await running.recover() == [remote.public_id]
    assert await running.find_finished(remote.public_id) is None


# What it counts


async def test_counted_items_add_up_and_are_a_sign_of_life(running: Executions, clock: FakeClock) -> None:
    """C11: each batch adds its own; the end keeps what was counted, unless it brings numbers of its own."""
    execution = await running.acquire(NAME, kind=KIND)
    for processed, failed in ((3, 1), (4, 2)):
        clock.advance(MINUTE)
        async with running.guard(execution) as connection:
            await running.count_items(connection, execution, processed=processed, failed=failed)
    found = await running.find(execution.public_id)
    assert found is not None
    assert (found.items_processed, found.items_failed, found.heartbeat_at) == (7, 3, clock.now())
    await running.finish(execution, ExecutionStatus.SUCCEEDED, processed=None, failed=None, result={"n": 1})
    ended = await running.find(execution.public_id)
    assert ended is not None
    assert (ended.items_processed, ended.items_failed, ended.result) == (7, 3, {"n": 1})


async def test_an_end_without_numbers_counts_nothing(running: Executions) -> None:
    """A38: what was counted on the way is replaced by the result."""
    execution = await running.acquire(NAME, kind=KIND)
    async with running.guard(execution) as connection:
        await running.count_items(connection, execution, processed=3, failed=1)
    await running.finish(execution, ExecutionStatus.FAILED)
    ended = await running.find(execution.public_id)
    assert ended is not None
    assert (ended.items_processed, ended.items_failed, ended.result, ended.progress) == (0, 0, {}, {})


async def test_progress_carries_its_counts(running: Executions) -> None:
    """A37: what a page shows while it runs."""
    execution = await running.acquire(NAME, kind=KIND)
    async with running.guard_progress(execution) as (connection, before):
        assert before == {}
        await running.save_progress(connection, execution, processed=5, failed=2, progress={"step": "send"})
    found = await running.find(execution.public_id)
    assert found is not None
    assert (found.items_processed, found.items_failed, found.progress) == (5, 2, {"step": "send"})
    async with running.guard_progress(execution) as (_, after):
        assert after == {"step": "send"}


async def test_what_is_written_with_the_end_is_written_with_it_or_not_at_all(
    running: Executions, database: Database
) -> None:
    """C4: the end and what belongs to it are one transaction."""

    async def fail(connection: AsyncConnection) -> None:
        assert connection is not None
        raise LookupError("no")

    execution = await running.acquire(NAME, kind=KIND)
    with pytest.raises(LookupError):
        await running.finish(execution, ExecutionStatus.SUCCEEDED, also=fail)
    found = await running.find(execution.public_id)
    assert found is not None
    assert found.status is ExecutionStatus.RUNNING


# Requests, and the dead


@pytest.mark.parametrize("status", [each for each in ExecutionStatus if each is not ExecutionStatus.RUNNING])
async def test_a_request_is_kept_only_for_an_execution_that_was_cut_off(
    running: Executions, database: Database, status: ExecutionStatus
) -> None:
    """A38: what was asked for is done once it ended by itself; else somebody has to do it again."""
    async with database.write() as connection:
        execution = await running.insert(connection, NAME, kind=KIND, request={"urls": 3})
    assert execution is not None
    await running.finish(execution, status)
    row = await read_row(database, execution.public_id)
    cut_off = status in (ExecutionStatus.INTERRUPTED, ExecutionStatus.TIMEOUT)
    assert row.request == ('{"urls": 3}' if cut_off else None)


async def test_whoever_lost_an_execution_is_reported_what_was_asked_for(
    database: Database, clock: FakeClock, process_lock: ProcessLock
) -> None:
    """A38: in the transaction that ends it. One that somebody stopped is not wanted again."""
    lost_ones: list[LostExecution] = []

    async def remember(connection: AsyncConnection, lost: LostExecution) -> None:
        assert (await connection.execute(select(executions.c.id))).all()
        lost_ones.append(lost)

    running = Executions(database, clock=clock, process_lock=process_lock, on_lost=remember)
    ids = []
    async with database.write() as connection:
        for name, request in (("asked", {"urls": 3}), ("stopped", {"urls": 4}), ("plain", None)):
            execution = await running.insert(connection, name, kind=KIND, request=request)
            assert execution is not None
            ids.append(execution.public_id)
    await change_row(database, ids[1], stop_requested_at=to_milliseconds(clock.now()))
    clock.advance(SILENT_FOR + MINUTE)
    with capture_logs() as events:
        assert sorted(await running.recover()) == sorted(ids)
    assert sorted(lost_ones, key=lambda lost: lost.workflow_name) == [
        LostExecution(ids[0], "asked", KIND, {"urls": 3}),
        LostExecution(ids[2], "plain", KIND, None),
    ]
    recovered = [event for event in events if event["event"] == "execution.recovered"]
    names = {(event["execution"], event["workflow"]) for event in recovered}
    assert names == {*zip(ids, ("asked", "stopped", "plain"), strict=True)}
    assert {(event["reason"], event["log_level"]) for event in recovered} == {
        ("no sign of life for 30 minutes", "warning")
    }
    ended = await running.find(ids[0])
    assert ended is not None
    assert (ended.status, ended.completed_at) == (ExecutionStatus.TIMEOUT, clock.now())
    assert ended.result == {"status": "timeout", "errors": ["no sign of life for 30 minutes"]}


async def test_thirty_minutes_of_silence_are_not_too_long(running: Executions, clock: FakeClock) -> None:
    """Attack cases "Locks": 29:59 kept, 30:00 kept, after that recovered."""
    execution = await running.acquire(NAME, kind=KIND, remote=True)
    clock.advance(SILENT_FOR)
    assert await running.recover() == []
    clock.advance(timedelta(milliseconds=1))
    assert await running.recover() == [execution.public_id]


async def test_a_dead_holder_is_succeeded_at_once_after_thirty_minutes_of_silence_too(
    database: Database, clock: FakeClock, process_lock: ProcessLock
) -> None:
    """A38, C5: silence alone does not end it yet, so its death does."""

    async def find_dead(holders: Collection[str]) -> frozenset[str]:
        return frozenset(holders)

    running = Executions(database, clock=clock, process_lock=process_lock, find_dead=find_dead)
    execution = await running.acquire(NAME, kind=KIND)
    clock.advance(SILENT_FOR)
    assert await running.recover() == [execution.public_id]
    ended = await running.find(execution.public_id)
    assert ended is not None
    assert ended.status is ExecutionStatus.INTERRUPTED


async def test_the_reason_names_how_long_it_was_silent(
    database: Database, clock: FakeClock, process_lock: ProcessLock
) -> None:
    """A37, C5: LOCK_TIMEOUT_MINUTES may be another number than thirty."""
    silent_for = timedelta(hours=4)
    running = Executions(database, clock=clock, process_lock=process_lock, silent_for=silent_for)
    execution = await running.acquire(NAME, kind=KIND)
    clock.advance(silent_for + MINUTE)
    assert await running.recover() == [execution.public_id]
    ended = await running.find(execution.public_id)
    assert ended is not None
    assert ended.result["errors"] == ["no sign of life for 240 minutes"]


async def test_an_execution_that_waits_for_a_worker_is_not_taken_for_dead(
    running: Executions, database: Database, clock: FakeClock
) -> None:
    """A38: however long it waits, for nobody who could give a sign of life has begun it."""
    async with database.write() as connection:
        waiting = await running.insert(connection, NAME, kind=KIND, holder=QUEUED)
    assert waiting is not None
    clock.advance(2 * SILENT_FOR)
    assert await running.recover() == []
    found = await running.find_running(NAME)
    assert found is not None
    assert found.public_id == waiting.public_id


async def test_a_recovery_keeps_to_its_workflow_and_kinds(running: Executions, clock: FakeClock) -> None:
    """A38, C5: a pipeline ends its own executions, and leaves those that wait for a worker."""
    mine = await running.acquire("mine", kind="mirror", remote=True)
    other = await running.acquire("other", kind=KIND, remote=True)
    third = await running.acquire("third", kind="announce", remote=True)
    clock.advance(2 * SILENT_FOR)
    assert await running.recover(workflow_name="nobody's") == []
    assert await running.recover(kinds=("nothing",)) == []
    assert await running.recover(workflow_name="other") == [other.public_id]
    assert await running.recover(kinds=("mirror", KIND)) == [mine.public_id]
    assert await running.recover() == [third.public_id]


async def test_others_may_say_who_is_dead(database: Database, clock: FakeClock, process_lock: ProcessLock) -> None:
    """A38: on several machines the queue knows; a holder that it names is succeeded at once."""
    asked: list[set[str]] = []

    async def find_dead(holders: Any) -> frozenset[str]:
        asked.append(set(holders))
        return frozenset({REMOTE})

    running = Executions(database, clock=clock, process_lock=process_lock, find_dead=find_dead)
    dead = await running.acquire("dead", kind=KIND, remote=True)
    living = await running.acquire("living", kind=KIND)
    assert await running.recover() == [dead.public_id]
    assert asked[-1] == {REMOTE, process_lock.holder}
    ended = await running.find(dead.public_id)
    assert ended is not None
    assert (ended.status, ended.result["errors"]) == (
        ExecutionStatus.INTERRUPTED,
        ["its process ended without finishing it"],
    )
    assert await running.find_running("living") is not None
    assert living.public_id != dead.public_id


# Found again


async def test_running_executions_are_found_and_counted(running: Executions, database: Database) -> None:
    """A37: by workflow; one that ended, or that was given up before it did anything, runs no more."""
    assert (await running.count_running(), await running.find_running(NAME)) == (0, None)
    first, second = await running.acquire(NAME, kind=KIND), await running.acquire("other", kind=KIND)
    assert await running.count_running() == 2
    async with database.read() as connection:
        assert await running.count_running_in(connection) == 2
    found = await running.find_running(NAME)
    assert found is not None
    assert (found.public_id, found.workflow_name, found.kind) == (first.public_id, NAME, KIND)
    await running.finish(first, ExecutionStatus.SUCCEEDED)
    third = await running.acquire("third", kind=KIND)
    # It has ended: there is nothing to give up.
    await running.abandon(first)
    assert await running.find(first.public_id) is not None
    await running.abandon(second)
    assert await running.find(second.public_id) is None
    found = await running.find_running("third")
    assert found is not None
    assert found.public_id == third.public_id
    assert (await running.count_running(), await running.find_running(NAME)) == (1, None)


async def test_the_latest_of_all_workflows_are_listed_page_by_page(running: Executions) -> None:
    """A37: the newest first, and the next page goes on after the last of this one."""
    ids: list[str] = []
    for number in range(25):
        execution = await running.acquire("other" if number in (3, 22) else NAME, kind=KIND)
        await running.finish(execution, ExecutionStatus.SUCCEEDED)
        ids.insert(0, execution.public_id)
    listed = [each.public_id for each in await running.list_latest()]
    assert listed == ids[:20]
    assert [each.public_id for each in await running.list_latest(limit=3, before=ids[4])] == ids[5:8]
    own = [*ids[:2], *ids[3:21], *ids[22:]]
    assert [each.public_id for each in await running.list_recent(NAME)] == own[:20]
    assert [each.public_id for each in await running.list_recent(NAME, limit=2, before=own[1])] == own[2:4]


async def test_the_latest_are_listed_by_kind_and_by_trouble(running: Executions) -> None:
    """A37: the dashboard shows the executions of one pipeline, or those that somebody has to look at."""
    ids: dict[tuple[str, ExecutionStatus], str] = {}
    for kind in (KIND, "announce"):
        for status in (ExecutionStatus.FAILED, ExecutionStatus.SUCCEEDED):
            execution = await running.acquire(NAME, kind=kind)
            await running.finish(execution, status)
            ids[kind, status] = execution.public_id
    newest = list(reversed(ids.values()))
    failed = [ids[kind, ExecutionStatus.FAILED] for kind in ("announce", KIND)]
    assert [each.public_id for each in await running.list_latest()] == newest
    assert [each.public_id for each in await running.list_latest(kinds=["announce"])] == newest[:2]
    assert [each.public_id for each in await running.list_latest(kinds=["announce", KIND])] == newest
    assert [each.public_id for each in await running.list_latest(with_trouble=True)] == failed
    assert [each.public_id for each in await running.list_latest(kinds=[KIND], with_trouble=True)] == failed[1:]


@pytest.mark.parametrize("ends", ["finished", "lost"])
async def test_the_last_execution_of_a_workflow_is_known_by_kind(
    running: Executions, database: Database, clock: FakeClock, ends: str
) -> None:
    """A37: an overview of many sites reads one row of each."""
    execution = await running.acquire(NAME, kind=KIND, remote=True)
    other = await running.acquire("other", kind=KIND)
    if ends == "finished":
        await running.finish(execution, ExecutionStatus.PARTIAL)
    else:
        clock.advance(SILENT_FOR + MINUTE)
        await running.recover(workflow_name=NAME)
    async with database.read() as connection:
        rows = (await connection.execute(select(last_executions))).all()
    status = "partial" if ends == "finished" else "timeout"
    assert [tuple(row) for row in rows] == [(NAME, KIND, execution.id, status)]
    assert other.id != execution.id


async def test_what_is_acquired_in_a_block_is_dead_after_it(
    running: Executions, database: Database, process_lock: ProcessLock
) -> None:
    """A38: if the database was away at its end, the next one need not wait for thirty minutes."""
    with running.hold():
        lost = await running.acquire(NAME, kind=KIND)
        assert (await read_row(database, lost.public_id)).holder.startswith(f"{process_lock.id}#")
        assert await running.recover() == []
    assert await running.recover() == [lost.public_id]
