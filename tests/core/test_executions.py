"""Exclusive executions: one at a time over tasks and processes, fenced once lost, taken back from the dead, kept."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.fakes import FakeClock
from tests.processes import FORKED, open_pool, wait_at_line
from tidings.core.clock import SystemClock
from tidings.core.db.database import Database, open_database
from tidings.core.execution_table import KEPT, last_executions, purge_executions
from tidings.core.executions import (
    AlreadyRunningError,
    Execution,
    ExecutionLostError,
    Executions,
    ExecutionStatus,
    executions,
)
from tidings.core.process_lock import ProcessLock

KIND = "announce"
NAME = "announce:example.com"
PROCESSES = 8
SOON = 30.0
SECOND = timedelta(seconds=1)
PATIENCE = 60.0

# What a process of the pool keeps: the line they start from, and holders, which must live on for the others to see.
_KEPT: dict[str, Any] = {}


@pytest.fixture
def running(database: Database, clock: FakeClock, process_lock: ProcessLock) -> Executions:
    return Executions(database, clock=clock, process_lock=process_lock)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[ProcessLock]:
    """A holder on another data directory, as on another machine."""
    (tmp_path / "elsewhere").mkdir()
    held = ProcessLock(tmp_path / "elsewhere")
    yield held
    held.close()


@asynccontextmanager
async def open_several(url: str, count: int) -> AsyncIterator[list[Database]]:
    """Database objects of their own, as several workers have them."""
    databases = [open_database(url) for _ in range(count)]
    yield databases
    for database in databases:
        await database.close()


async def find_status(running: Executions, execution: Execution) -> ExecutionStatus:
    record = await running.find(execution.public_id)
    assert record is not None
    return record.status


async def end_behind_its_back(database: Database, execution: Execution) -> None:
    """What a recovery elsewhere does to an execution."""
    async with database.write() as connection:
        await connection.execute(update(executions).where(executions.c.id == execution.id).values(status="timeout"))


async def list_hosts(database: Database) -> list[str]:
    async with database.read() as connection:
        return [row.host for row in await connection.execute(text("SELECT host FROM pace"))]


async def write_guarded(running: Executions, execution: Execution) -> None:
    async with running.guard(execution) as connection:
        await connection.execute(text("INSERT INTO pace (host, next_at) VALUES ('written', 0)"))


# One at a time


async def test_of_two_that_acquire_at_once_one_wins_and_the_other_learns_who_holds_it(
    database_url: str, clock: FakeClock, process_lock: ProcessLock
) -> None:
    """A39, C3: one gets it, the other learns the holder's id and since when."""
    async with open_several(database_url, 2) as databases:
        workers = [Executions(database, clock=clock, process_lock=process_lock) for database in databases]
        answers = await asyncio.gather(*(worker.acquire(NAME, kind=KIND) for worker in workers), return_exceptions=True)
    [won] = [answer for answer in answers if isinstance(answer, Execution)]
    [refused] = [answer for answer in answers if isinstance(answer, AlreadyRunningError)]
    assert (refused.execution_id, refused.since) == (won.public_id, clock.now())
    assert won.public_id in str(refused)


async def test_workflows_do_not_wait_for_each_other(running: Executions) -> None:
    """A39: one execution of a site at a time; another site is another matter."""
    one, two = await running.acquire("announce:one", kind=KIND), await running.acquire("announce:two", kind=KIND)
    assert one.id != two.id


@pytest.mark.thorough
async def test_acquiring_while_the_holder_finishes_gets_it_or_is_reported_who_holds_it(
    database_url: str, clock: FakeClock, process_lock: ProcessLock
) -> None:
    """A39, C3: whenever the holder ends, there is one of the two answers and never another error."""
    async with open_several(database_url, 4) as databases:
        workers = [Executions(database, clock=clock, process_lock=process_lock) for database in databases]
        wins = await asyncio.gather(*(acquire_and_finish(worker, rounds=40) for worker in workers))
    assert sum(wins) > 0


async def test_a_holder_that_ends_between_the_refusal_and_the_look_is_succeeded(
    running: Executions, database: Database, clock: FakeClock, process_lock: ProcessLock
) -> None:
    """A39, C3: anybody who was refused and then finds nobody tries again, and gets it."""
    held = await running.acquire(NAME, kind=KIND)

    async def end() -> None:
        await running.finish(held, ExecutionStatus.SUCCEEDED)

    late: Any = ThenDatabase(database, end)
    execution = await Executions(late, clock=clock, process_lock=process_lock).acquire(NAME, kind=KIND)
    assert execution.id > held.id
    assert await find_status(running, execution) is ExecutionStatus.RUNNING
    assert await find_status(running, held) is ExecutionStatus.SUCCEEDED


class ThenDatabase:
    """A database after whose first writing transaction something happens."""

    def __init__(self, database: Database, happen: Callable[[], Awaitable[None]]) -> None:
        self._database = database
        self._happen: Callable[[], Awaitable[None]] | None = happen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def write(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._watch(self._database.write())

    def write_once(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._watch(self._database.write_once())

    @asynccontextmanager
    async def _watch(self, block: AbstractAsyncContextManager[AsyncConnection]) -> AsyncIterator[AsyncConnection]:
        async with block as connection:
            yield connection
        happen, self._happen = self._happen, None
        if happen is not None:
            await happen()


async def acquire_and_finish(worker: Executions, *, rounds: int) -> int:
    """How often it got hold of the workflow."""
    wins = 0
    for _ in range(rounds):
        try:
            execution = await worker.acquire(NAME, kind=KIND)
        except AlreadyRunningError:
            continue
        wins += 1
        await worker.finish(execution, ExecutionStatus.SUCCEEDED)
    return wins


async def test_the_id_increases_even_when_rows_were_deleted(running: Executions, database: Database) -> None:
    """C5, decision 4: a fencing token never comes twice."""
    ids = []
    for _ in range(3):
        execution = await running.acquire(NAME, kind=KIND)
        ids.append(execution.id)
        await running.finish(execution, ExecutionStatus.SUCCEEDED)
        async with database.write() as connection:
            await connection.execute(delete(executions))
    assert ids == sorted(set(ids))


async def test_the_public_id_tells_the_time_and_is_not_repeated(running: Executions, clock: FakeClock) -> None:
    """C11, decision 4: exec-{milliseconds}-{random}."""
    clock.set(datetime(2026, 11, 15, 12, 0, 0, 123_000, tzinfo=UTC))
    made = [await running.acquire(f"announce:{number}", kind=KIND) for number in range(3)]
    assert all(re.fullmatch(r"exec-1794744000123-[0-9a-f]{8}", execution.public_id) for execution in made)
    assert len({execution.public_id for execution in made}) == 3
    assert {execution.started_at for execution in made} == {clock.now()}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Other processes that can start from one line."""
    with open_pool(PROCESSES) as made:
        yield made


def acquire_in_process(url: str, data_dir: str) -> tuple[bool, str]:
    """In another process: whether it won, and who holds the workflow."""
    if "holder" in _KEPT:
        _KEPT["holder"].close()
    _KEPT["holder"] = ProcessLock(Path(data_dir))

    async def run() -> tuple[bool, str]:
        database = open_database(url)
        try:
            worker = Executions(database, clock=SystemClock(), process_lock=_KEPT["holder"])
            wait_at_line(SOON)
            return True, (await worker.acquire(NAME, kind=KIND)).public_id
        except AlreadyRunningError as error:
            return False, error.execution_id
        finally:
            await database.close()

    return asyncio.run(run())


@pytest.mark.thorough
def test_of_eight_processes_exactly_one_wins(pool: Pool, database_url: str, tmp_path: Path) -> None:
    """A39, C3: over all processes; the seven others all name the winner."""
    answers = pool.starmap(acquire_in_process, [(database_url, str(tmp_path))] * PROCESSES, chunksize=1)
    assert sorted(won for won, _ in answers) == [False] * (PROCESSES - 1) + [True]
    assert len({execution_id for _, execution_id in answers}) == 1


# Fenced once lost


async def test_a_guarded_write_of_the_holder_is_kept(running: Executions, database: Database) -> None:
    """C4: as long as it runs, it writes."""
    await write_guarded(running, await running.acquire(NAME, kind=KIND))
    assert await list_hosts(database) == ["written"]


async def test_a_lost_execution_can_write_nothing_more(running: Executions, database: Database) -> None:
    """C5: a holder whose lock was taken away is refused, also where another execution runs by now."""
    lost = await running.acquire(NAME, kind=KIND)
    await end_behind_its_back(database, lost)
    successor = await running.acquire(NAME, kind=KIND)
    with pytest.raises(ExecutionLostError, match=lost.public_id):
        await write_guarded(running, lost)
    with pytest.raises(ExecutionLostError, match=lost.public_id):
        await running.heartbeat(lost)
    with pytest.raises(ExecutionLostError, match=lost.public_id):
        await running.finish(lost, ExecutionStatus.SUCCEEDED, processed=7)
    assert await list_hosts(database) == []
    assert await find_status(running, lost) == ExecutionStatus.TIMEOUT
    assert await find_status(running, successor) == ExecutionStatus.RUNNING


async def test_what_fails_inside_the_guard_is_not_written(running: Executions, database: Database) -> None:
    """C4: the check and the write are one transaction."""
    execution = await running.acquire(NAME, kind=KIND)

    async def fail() -> None:
        async with running.guard(execution) as connection:
            await connection.execute(text("INSERT INTO pace (host, next_at) VALUES ('written', 0)"))
            await running.save_progress(connection, execution, processed=5, failed=0, progress={})
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    record = await running.find(execution.public_id)
    assert record is not None
    assert (await list_hosts(database), record.items_processed) == ([], 0)


async def test_a_recovery_waits_for_a_guarded_write_and_then_sees_its_sign_of_life(
    database_url: str, clock: FakeClock, process_lock: ProcessLock
) -> None:
    """C4, C5: inside the guard the execution cannot be taken away, not even when its heartbeat was too old."""
    async with open_several(database_url, 2) as databases:
        mine, other = (Executions(database, clock=clock, process_lock=process_lock) for database in databases)
        execution = await mine.acquire(NAME, kind=KIND)
        clock.advance(timedelta(minutes=31))
        async with mine.guard(execution) as connection:
            recovering = asyncio.create_task(other.recover())
            done, _ = await asyncio.wait({recovering}, timeout=0.2)
            assert not done
            await mine.save_progress(connection, execution, processed=1, failed=0, progress={})
        async with asyncio.timeout(SOON):
            assert await recovering == []
        assert await find_status(mine, execution) == ExecutionStatus.RUNNING


# Signs of life


async def look_until(condition: Callable[[], bool], running: Executions, execution: Execution) -> None:
    """Give the heartbeat room to work until the condition holds."""
    # By time, not by the number of looks: beside other tests a write can take as long as hundreds of them.
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await running.find(execution.public_id)


@pytest.mark.thorough
async def test_a_kept_alive_execution_is_not_taken_for_dead(
    running: Executions, clock: FakeClock, database: Database
) -> None:
    """C4, decision 4: a heartbeat every minute, however long it runs."""
    execution = await running.acquire(NAME, kind=KIND)
    async with running.keep_alive(execution):
        await look_until(lambda: clock.now() - execution.started_at > timedelta(minutes=35), running, execution)
        assert await running.recover() == []
    record = await running.find(execution.public_id)
    assert record is not None
    assert set(clock.slept) == {timedelta(minutes=1)}
    assert clock.now() - record.heartbeat_at <= timedelta(minutes=1)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_block_of_a_lost_execution_is_cancelled(running: Executions, database: Database) -> None:
    """C5, decision 4: anybody who lost it gets ExecutionLostError and stops, in the middle of a wait too."""
    execution = await running.acquire(NAME, kind=KIND)
    cleaned_up = []

    async def work() -> None:
        async with running.keep_alive(execution):
            await end_behind_its_back(database, execution)
            try:
                await asyncio.Event().wait()
            finally:
                cleaned_up.append(True)

    async with asyncio.timeout(SOON):
        with pytest.raises(ExecutionLostError, match=execution.public_id):
            await work()
    assert cleaned_up == [True]


async def test_the_task_that_lost_its_execution_can_go_on(running: Executions, database: Database) -> None:
    """C5: the cancellation was for the block; afterwards the task does not count as being cancelled."""
    execution = await running.acquire(NAME, kind=KIND)

    async def work() -> int:
        try:
            async with running.keep_alive(execution):
                await end_behind_its_back(database, execution)
                await asyncio.Event().wait()
        except ExecutionLostError:
            task = asyncio.current_task()
            return -1 if task is None else task.cancelling()
        return -1

    async with asyncio.timeout(SOON):
        assert await asyncio.create_task(work()) == 0


async def test_a_cancelled_holder_is_cancelled_and_not_reported_that_it_lost(running: Executions) -> None:
    """Decision 4: only a lost execution is reported as lost."""
    execution = await running.acquire(NAME, kind=KIND)
    inside = asyncio.Event()

    async def work() -> None:
        async with running.keep_alive(execution):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    async with asyncio.timeout(SOON):
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await find_status(running, execution) == ExecutionStatus.RUNNING


async def test_a_heartbeat_that_fails_is_not_the_last(
    running: Executions, clock: FakeClock, database: Database
) -> None:
    """C5, decision 4: a database that is away for some minutes does not end the signs of life for good."""
    execution = await running.acquire(NAME, kind=KIND)
    async with running.keep_alive(execution):
        await rename_table(database, "executions", "away")
        for _ in range(20):
            await list_hosts(database)
        await rename_table(database, "away", "executions")
        back_at = clock.now()
        await look_until(lambda: clock.now() - back_at > timedelta(minutes=3), running, execution)
    record = await running.find(execution.public_id)
    assert record is not None
    assert record.heartbeat_at > back_at


async def rename_table(database: Database, old: str, new: str) -> None:
    async with database.write() as connection:
        await connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))


# Taken back from the dead


@pytest.mark.parametrize(
    ("silent_for", "status"),
    [
        (timedelta(minutes=29, seconds=59), ExecutionStatus.RUNNING),
        (timedelta(minutes=30), ExecutionStatus.RUNNING),
        (timedelta(minutes=30, seconds=1), ExecutionStatus.TIMEOUT),
    ],
)
async def test_silence_of_more_than_thirty_minutes_is_a_timeout(
    running: Executions, clock: FakeClock, silent_for: timedelta, status: ExecutionStatus
) -> None:
    """C5, A37: counted from the last heartbeat, and written with its time and its reason."""
    execution = await running.acquire(NAME, kind=KIND)
    clock.advance(timedelta(minutes=20))
    await running.heartbeat(execution)
    clock.advance(silent_for)
    recovered = await running.recover()
    record = await running.find(execution.public_id)
    assert record is not None
    assert record.status == status
    if status == ExecutionStatus.TIMEOUT:
        assert recovered == [execution.public_id]
        assert record.completed_at == clock.now()
        assert record.result["errors"] == ["no sign of life for 30 minutes"]
    else:
        assert recovered == []


async def test_acquiring_takes_over_from_the_silent(running: Executions, database: Database, clock: FakeClock) -> None:
    """A39, C5: nobody has to wait for the recovery workflow. The last outcome of each kind is known by itself."""
    ended = await running.acquire(NAME, kind="correction")
    await running.finish(ended, ExecutionStatus.SUCCEEDED)
    silent = await running.acquire(NAME, kind=KIND)
    clock.advance(timedelta(minutes=30) + SECOND)
    successor = await running.acquire(NAME, kind=KIND)
    assert successor.id > silent.id
    assert await find_status(running, silent) == ExecutionStatus.TIMEOUT
    async with database.read() as connection:
        last = (await connection.execute(select(last_executions).order_by(last_executions.c.execution))).all()
    assert [tuple(row[1:]) for row in last] == [
        ("correction", ended.id, "succeeded"),
        (KIND, silent.id, "timeout"),
    ]


async def test_what_a_dead_execution_had_saved_is_in_its_result(
    running: Executions, database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    """A37: the counts of its last progress are kept, beside the reason of its end."""
    gone = ProcessLock(tmp_path)
    dying = Executions(database, clock=clock, process_lock=gone)
    execution = await dying.acquire(NAME, kind=KIND)
    async with dying.guard(execution) as connection:
        await dying.save_progress(connection, execution, processed=7, failed=1, progress={"submitted": 6})
    gone.close()
    assert await running.recover() == [execution.public_id]
    record = await running.find(execution.public_id)
    assert record is not None
    assert (record.items_processed, record.items_failed) == (7, 1)
    assert record.result == {
        "submitted": 6,
        "status": "interrupted",
        "errors": ["its process ended without finishing it"],
    }


@pytest.mark.parametrize("end", ["silent", "dead"])
async def test_eight_that_recover_at_once_recover_each_execution_once(
    database_url: str, clock: FakeClock, process_lock: ProcessLock, tmp_path: Path, end: str
) -> None:
    """C5: of several answers, exactly one has it; what is alive is in none."""
    gone = ProcessLock(tmp_path)
    async with open_several(database_url, PROCESSES) as databases:
        workers = [Executions(database, clock=clock, process_lock=process_lock) for database in databases]
        dying = Executions(databases[0], clock=clock, process_lock=gone)
        ended = {(await dying.acquire(f"announce:{number}", kind=KIND)).public_id for number in range(3)}
        if end == "silent":
            clock.advance(timedelta(minutes=30) + SECOND)
        gone.close()
        alive = await workers[0].acquire("announce:alive", kind=KIND)
        answers = await asyncio.gather(*(worker.recover() for worker in workers))
        assert sorted(public_id for answer in answers for public_id in answer) == sorted(ended)
        assert await find_status(workers[0], alive) == ExecutionStatus.RUNNING


def hold_in_process(url: str, data_dir: str, pipe: Any) -> None:
    """In another process: acquire, say so, and then do nothing until it is killed."""

    async def run() -> None:
        worker = Executions(open_database(url), clock=SystemClock(), process_lock=ProcessLock(Path(data_dir)))
        pipe.send((await worker.acquire(NAME, kind=KIND)).public_id)
        pipe.recv()

    asyncio.run(run())


async def test_a_killed_process_is_succeeded_at_once_and_a_living_one_is_not(
    database: Database, database_url: str, process_lock: ProcessLock, tmp_path: Path
) -> None:
    """A39, C3, decision 4: on one data directory nobody waits 30 minutes for a dead process."""
    running = Executions(database, clock=SystemClock(), process_lock=process_lock)
    here, there = FORKED.Pipe()
    process = FORKED.Process(target=hold_in_process, args=(database_url, str(tmp_path), there))
    process.start()
    try:
        assert here.poll(SOON)
        held: str = here.recv()
        with pytest.raises(AlreadyRunningError) as refused:
            await running.acquire(NAME, kind=KIND)
        assert refused.value.execution_id == held
        assert await running.recover() == []
    finally:
        process.kill()
        process.join(SOON)
    successor = await running.acquire(NAME, kind=KIND)
    record = await running.find(held)
    assert record is not None
    assert record.status == ExecutionStatus.INTERRUPTED
    assert record.completed_at is not None
    assert record.result["errors"] == ["its process ended without finishing it"]
    assert await find_status(running, successor) == ExecutionStatus.RUNNING


async def test_a_holder_of_another_data_directory_is_judged_by_its_heartbeat_alone(
    running: Executions, database: Database, clock: FakeClock, elsewhere: ProcessLock, tmp_path: Path
) -> None:
    """A39, C5: dead or not, it keeps its execution for 30 minutes."""
    gone = ProcessLock(tmp_path / "elsewhere")
    execution = await Executions(database, clock=clock, process_lock=gone).acquire(NAME, kind=KIND)
    gone.close()
    clock.advance(timedelta(minutes=29, seconds=59))
    with pytest.raises(AlreadyRunningError):
        await running.acquire(NAME, kind=KIND)
    clock.advance(2 * SECOND)
    await running.acquire(NAME, kind=KIND)
    assert await find_status(running, execution) == ExecutionStatus.TIMEOUT


async def test_a_process_does_not_recover_what_it_holds_itself(running: Executions) -> None:
    """A39: its own lock is no sign of death."""
    execution = await running.acquire(NAME, kind=KIND)
    assert await running.recover() == []
    assert await find_status(running, execution) == ExecutionStatus.RUNNING


# Kept


async def test_progress_is_kept_while_it_runs_and_is_a_sign_of_life(running: Executions, clock: FakeClock) -> None:
    """A36, A37: counts and counts, live."""
    execution = await running.acquire(NAME, kind=KIND)
    clock.advance(timedelta(minutes=5))
    async with running.guard(execution) as connection:
        await running.save_progress(connection, execution, processed=100, failed=3, progress={"sent": {"a": 97}})
    record = await running.find(execution.public_id)
    assert record is not None
    assert (record.status, record.items_processed, record.items_failed) == (ExecutionStatus.RUNNING, 100, 3)
    assert (record.progress, record.result, record.completed_at) == ({"sent": {"a": 97}}, {}, None)
    assert (record.started_at, record.heartbeat_at) == (execution.started_at, clock.now())


async def test_every_result_is_kept_and_the_workflow_is_free_again(running: Executions, clock: FakeClock) -> None:
    """A37: every execution is kept, with its times, counts and errors; it ends once."""
    result = {"total": 250, "errors": ["één"], "engines": [{"host": "a", "mean": 0.25}]}
    for status in set(ExecutionStatus) - {ExecutionStatus.RUNNING}:
        execution = await running.acquire(NAME, kind=KIND)
        clock.advance(timedelta(minutes=5))
        await running.finish(execution, status, processed=250, failed=4, result=result)
        record = await running.find(execution.public_id)
        assert record is not None
        assert (record.workflow_name, record.status, record.result) == (NAME, status, result)
        assert (record.items_processed, record.items_failed, record.completed_at) == (250, 4, clock.now())
        with pytest.raises(ExecutionLostError):
            await running.finish(execution, ExecutionStatus.SUCCEEDED)


async def test_the_history_lists_the_newest_first(running: Executions) -> None:
    """A36, A37: by order of beginning, this workflow's only, as many as asked for."""
    made = []
    for _ in range(4):
        execution = await running.acquire(NAME, kind=KIND)
        made.append(execution.public_id)
        await running.finish(execution, ExecutionStatus.SUCCEEDED)
        await running.finish(await running.acquire("announce:other", kind=KIND), ExecutionStatus.FAILED)
    listed = [record.public_id for record in await running.list_recent(NAME)]
    assert listed == made[::-1]
    assert [record.public_id for record in await running.list_recent(NAME, limit=2)] == made[:1:-1]
    assert await running.find("exec-0-00000000") is None


@pytest.mark.thorough
async def test_old_executions_are_deleted_but_the_newest_thirty_of_a_workflow(
    database: Database, clock: FakeClock, process_lock: ProcessLock
) -> None:
    """A37: the history is long, not endless; one that runs stays."""
    made = Executions(database, clock=clock, process_lock=process_lock)
    for workflow, count in (("announce:busy", 40), ("announce:quiet", 5)):
        for _ in range(count):
            await made.finish(await made.acquire(workflow, kind="announce"), ExecutionStatus.SUCCEEDED)
    clock.advance(timedelta(days=100))
    young = await made.acquire("announce:busy", kind="announce")
    await made.finish(young, ExecutionStatus.SUCCEEDED)
    running = await made.acquire("announce:busy", kind="announce")
    clock.advance(timedelta(days=1))
    assert await purge_executions(database, clock=clock, older_than=timedelta(days=200)) == 0
    assert await purge_executions(database, clock=clock, older_than=timedelta(days=30)) == 12
    left = await made.list_recent("announce:busy", limit=100)
    assert (len(left), left[0].public_id, left[1].public_id) == (KEPT, running.public_id, young.public_id)
    assert len(await made.list_recent("announce:quiet", limit=100)) == 5
