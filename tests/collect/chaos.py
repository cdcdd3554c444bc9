"""Workers in processes of their own, and what happens to them: stopped for longer than a lock holds, killed, and begun
anew, while somebody recovers. The fencing alone keeps a note from being written twice here: the table of sources has no
unique key, and every worker reads another text, so a second write is a further version in a row of its own. `Unfenced`
writes without the fence, which shows that the harness would see it.

No verdict depends on how fast the machine is. All processes read one clock, which `Board` holds. It moves on only
after every worker that is awake has written something, so a lock expires for those alone that are stopped.
"""

import asyncio
import itertools
import multiprocessing
import os
import random
import signal
import traceback
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import func, select, text

from tests.collect.chaos_board import Board, BoardClock, find_number, name_note
from tests.collect.writer_stage import begin, make_candidates, make_note
from tests.processes import FORKED
from tidings.collect.tables import CandidateStatus, candidates, sources
from tidings.collect.write.leases import CANDIDATES, Settling
from tidings.collect.write.results import split_results, write_collected
from tidings.collect.write.values import Collected, LeasedCandidate, Result, Settled, WriterLimits
from tidings.collect.write.writer import Writer
from tidings.core.clock import Clock
from tidings.core.db.database import Database, open_database
from tidings.core.executions import Execution, ExecutionLostError, Executions
from tidings.core.process_lock import ProcessLock

STEP = timedelta(minutes=10)
# A record may meet any number of deaths here. Locks hold for the usual 30 minutes.
LIMITS = WriterLimits(most_retries=1_000_000, backoff=())
STEPS_OF_A_LOCK = LIMITS.lock_timeout // STEP + 1
PROCESSES = 8
# They take the notes of those that are stopped.
LEAST_AWAKE = 4
BATCH = 2
# Candidates that are open at the same time: so few that a note which is taken back soon has its turn again.
OPEN = 24
# Seconds without any write: perhaps somebody was stopped in the middle of one, and the others wait for it.
STUCK = 1.0
# Seconds between two looks at the board. Nine processes look, on few cores.
POLL = 0.01
# What is done to a worker, in turn: so none of them is left to luck.
TORMENTS = ("stop with a note", "kill", "stop")
# How many workers are tormented between two moves of the clock.
TORMENTED = 2
# Seconds after which something is wrong on the slowest machine.
PATIENCE = 600
LOST, BROKEN = "lost", "broken"


class Unfenced(Writer):
    """A writer that believes that what it once leased is still its own."""

    async def settle(self, execution: Execution, platform: str, results: Sequence[Result]) -> list[Settled]:
        collected, _ = split_results(results)
        held = {
            each.note_id: SimpleNamespace(source_keyword="", refresh_every=None, comments=None) for each in collected
        }
        async with self.database.write() as connection:
            step = Settling(
                connection=connection,
                database=self.database,
                execution=execution,
                platform=platform,
                at=self.clock.now(),
                of=CANDIDATES,
                held=held,
            )
            return await write_collected(step, collected)


def make_writer(database: Database, *, clock: Clock, process_lock: ProcessLock, kind: type[Writer] = Writer) -> Writer:
    executions = Executions(database, clock=clock, process_lock=process_lock, silent_for=LIMITS.lock_timeout)
    return kind(database, executions=executions, clock=clock, limits=LIMITS)


def run_worker(url: str, data_dir: str, number: int, *, fenced: bool) -> None:
    """The life of a process: lease, crawl, write, until there is nothing more. A lost execution is begun anew."""
    try:
        asyncio.run(_work(url, Path(data_dir), number, kind=Writer if fenced else Unfenced))
    except Exception:
        _append(Path(data_dir) / BROKEN, traceback.format_exc())
        raise


async def _work(url: str, data_dir: Path, number: int, *, kind: type[Writer]) -> None:
    parent = multiprocessing.parent_process()
    database, process_lock, board = open_database(url), ProcessLock(data_dir), Board(data_dir)
    writer = make_writer(database, clock=BoardClock(board), process_lock=process_lock, kind=kind)
    try:
        while not board.is_done and parent is not None and parent.is_alive():
            # Another life of this worker may count as running for a moment.
            with suppress(AssertionError):
                try:
                    await _collect(writer, f"collect-{number}-{os.getpid()}", number=number, board=board)
                except ExecutionLostError:
                    _append(data_dir / LOST, f"{number}\n")
    finally:
        await database.close()
        process_lock.close()


async def _collect(writer: Writer, name: str, *, number: int, board: Board) -> None:
    execution = await begin(writer, name)
    # A new execution is begun now and then.
    for _ in range(20):
        # Read before it is counted: the harness may move the clock between the two.
        wrote_at = board.time
        board.count_write(number)
        leased = await writer.lease(execution, limit=BATCH)
        await _crawl(leased, number=number, board=board, since=wrote_at)
        if leased:
            await writer.settle(execution, leased[0].platform, _read(leased, name))
        else:
            await writer.heartbeat(execution)
        if board.is_done:
            break
    await writer.finish(execution)


def _read(leased: Sequence[LeasedCandidate], name: str) -> list[Collected]:
    return [Collected(note_id=each.note_id, note=make_note(each.note_id, title=name)) for each in leased]


async def _crawl(leased: Sequence[LeasedCandidate], *, number: int, board: Board, since: datetime) -> None:
    """Takes until the clock goes on: so a stop or a kill finds many workers with notes in their hands.

    A worker that is told to wait says which note it has, and keeps it until the harness has stopped the process.
    """
    is_shown = False
    while not board.is_done:
        if leased and board.is_to_wait(number):
            # Once: the harness may stop the process and take the note off the board at any time after that.
            if not is_shown:
                board.show_held(number, find_number(leased[0].note_id))
            is_shown = True
        elif board.time > since:
            break
        await asyncio.sleep(POLL)


@dataclass(slots=True)
class ChaosOutcome:
    """What was left when all was done."""

    written: Counter[str] = field(default_factory=Counter)
    collected: int = 0
    # Writes that were refused because the execution had been ended.
    lost: int = 0
    stops: int = 0
    # Of the stops: those with a note in hand that another worker had written before the process went on.
    overtaken: int = 0
    kills: int = 0
    left_locked: int = 0
    left_running: int = 0
    broken: str = ""

    @property
    def written_twice(self) -> list[str]:
        return [note_id for note_id, count in self.written.items() if count > 1]


class Chaos:
    """A stage with candidates and eight processes. `fenced=False` is the control."""

    def __init__(self, url: str, data_dir: Path, *, notes: int, fenced: bool) -> None:
        self._url = url
        self._data_dir = data_dir
        self._notes = notes
        self._fenced = fenced
        self._board = Board(data_dir)
        self._workers: dict[int, BaseProcess] = {}
        # Workers that are stopped, and the step at which they go on.
        self._stopped: dict[int, int] = {}
        # Workers that shall be stopped with a note in their hands.
        self._told: set[int] = set()
        # Workers that are stopped, and the note in their hands: they go on once another worker has written it.
        self._holding: dict[int, int] = {}
        self._steps = 0
        self._added = 0
        # How often each worker had written when the clock moved last.
        self._writes = [0] * PROCESSES
        self._torments = itertools.cycle(TORMENTS)
        self._random = random.Random(20261115)
        self._outcome = ChaosOutcome()

    async def run(self) -> ChaosOutcome:
        """Everything from the first candidate to the last recovery."""
        database, process_lock = open_database(self._url), ProcessLock(self._data_dir)
        writer = make_writer(database, clock=BoardClock(self._board), process_lock=process_lock)
        try:
            await _drop_unique_key(database)
            for number in range(PROCESSES):
                self._start(number)
            while (collected := await _count(database, CandidateStatus.COLLECTED)) < self._notes:
                await self._see_to(self._discover(writer, collected=collected))
                await self._see_to(self._wait_for_writes())
                self._move_clock()
                await self._see_to(writer.recover())
                self._stop_who_holds_a_note()
                for _ in range(TORMENTED):
                    self._torment()
                # After the torments: who goes on has to write before it can be told to wait again. It may not have got
                # the processor yet, and would take that for what it was told before.
                await self._wake(database)
            await self._end(database, writer)
            return await self._look(database)
        finally:
            self._kill_all()
            await database.close()
            process_lock.close()

    async def _discover(self, writer: Writer, *, collected: int) -> None:
        more = range(self._added, min(self._notes, collected + OPEN))
        if more:
            execution = await begin(writer, "discover")
            await writer.add_candidates(execution, make_candidates(*map(name_note, more)))
            await writer.finish(execution)
            self._added = more.stop

    @property
    def _awake(self) -> list[int]:
        return [number for number in self._workers if number not in self._stopped and number not in self._holding]

    def _move_clock(self) -> None:
        self._writes = self._board.list_writes()
        self._board.advance(STEP)
        self._steps += 1

    async def _wait_for_writes(self) -> None:
        """Return once every worker that is awake has written since the clock moved."""
        missing = self._awake
        while missing:
            await asyncio.sleep(POLL)
            now = self._board.list_writes()
            missing = [
                number
                for number in self._awake
                if now[number] == self._writes[number] and not self._board.is_holding(number)
            ]

    async def _see_to(self, work: Coroutine[Any, Any, object]) -> None:
        """Do this, and let everybody go on who was stopped in the middle of a write, if that is what it waits for."""
        task = asyncio.create_task(work)
        async with asyncio.timeout(PATIENCE):
            while not task.done():
                before = self._board.list_writes()
                await asyncio.wait({task}, timeout=STUCK)
                # Nobody need wait for a worker that an error ended.
                assert not _look_into(self._data_dir / BROKEN)
                if not task.done() and self._board.list_writes() == before:
                    for number in list(self._stopped):
                        self._let_go_on(number)
        await task

    def _torment(self) -> None:
        number = self._random.choice(self._awake)
        if number in self._told:
            return
        kind = next(self._torments)
        if kind == "kill":
            self._kill(number)
        elif len(self._awake) - len(self._told) <= LEAST_AWAKE:
            return
        elif kind == "stop":
            self._stop(number)
        else:
            self._told.add(number)
            self._board.tell_to_wait(number)

    def _stop(self, number: int) -> None:
        """Anywhere, for longer than a lock holds: the worker has lost everything when it goes on, without knowing."""
        _signal(self._workers[number], signal.SIGSTOP)
        self._outcome.stops += 1
        self._stopped[number] = self._steps + STEPS_OF_A_LOCK + self._random.randrange(3)

    def _stop_who_holds_a_note(self) -> None:
        """Between lease and settle: the worker goes on only after another one has written its note."""
        for number in list(self._told):
            if self._board.is_holding(number):
                self._told.remove(number)
                self._holding[number] = self._board.find_held(number)
                _signal(self._workers[number], signal.SIGSTOP)
                self._board.let_go_on(number)
                self._outcome.stops += 1

    async def _wake(self, database: Database) -> None:
        for number in [number for number, step in self._stopped.items() if step <= self._steps]:
            self._let_go_on(number)
        for number, note in list(self._holding.items()):
            if await _is_collected(database, note):
                self._let_go_on(number)

    def _let_go_on(self, number: int) -> None:
        self._stopped.pop(number, None)
        if self._holding.pop(number, None) is not None:
            self._outcome.overtaken += 1
        _signal(self._workers[number], signal.SIGCONT)

    def _start(self, number: int) -> None:
        worker = FORKED.Process(
            target=run_worker, args=(self._url, str(self._data_dir), number), kwargs={"fenced": self._fenced}
        )
        worker.start()
        self._workers[number] = worker

    def _kill(self, number: int) -> None:
        worker = self._workers[number]
        worker.kill()
        worker.join()
        self._outcome.kills += 1
        self._start(number)

    async def _end(self, database: Database, writer: Writer) -> None:
        """Everybody goes on, writes once more, and ends by itself; what the last dead left is recovered."""
        for number in self._told:
            self._board.let_go_on(number)
        self._told.clear()
        await self._wake(database)
        for number in list(self._stopped):
            self._let_go_on(number)
        self._move_clock()
        await self._see_to(self._wait_for_writes())
        self._board.end()
        for worker in self._workers.values():
            await asyncio.to_thread(worker.join, PATIENCE)
        await writer.recover()

    def _kill_all(self) -> None:
        for worker in self._workers.values():
            if worker.is_alive():
                worker.kill()
                worker.join()

    async def _look(self, database: Database) -> ChaosOutcome:
        outcome = self._outcome
        async with database.read() as connection:
            rows = await connection.execute(select(sources.c.note_id, func.count()).group_by(sources.c.note_id))
            outcome.written = Counter({row[0]: row[1] for row in rows})
            running = text("SELECT count(*) FROM tbl_crawl_execution WHERE status = 'running'")
            outcome.left_running = (await connection.execute(running)).scalar_one()
        outcome.collected = await _count(database, CandidateStatus.COLLECTED)
        outcome.left_locked = await _count(database, CandidateStatus.PROCESSING)
        outcome.lost = len(_look_into(self._data_dir / LOST).splitlines())
        outcome.broken = _look_into(self._data_dir / BROKEN)
        return outcome


def _append(path: Path, words: str) -> None:
    with path.open("a") as file:
        file.write(words)


def _look_into(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _signal(worker: BaseProcess, number: signal.Signals) -> None:
    assert worker.pid is not None
    os.kill(worker.pid, number)


async def _drop_unique_key(database: Database) -> None:
    async with database.write() as connection:
        await connection.run_sync(sources.drop)
        bare = sources.to_metadata(sources.metadata.__class__())
        bare.constraints = {each for each in bare.constraints if each is bare.primary_key}
        await connection.run_sync(bare.create)


async def _count(database: Database, status: CandidateStatus) -> int:
    async with database.read() as connection:
        statement = select(func.count()).select_from(candidates).where(candidates.c.status == status.value)
        return int((await connection.execute(statement)).scalar_one())


async def _is_collected(database: Database, note: int) -> bool:
    async with database.read() as connection:
        statement = select(candidates.c.status).where(candidates.c.note_id == name_note(note))
        return bool((await connection.execute(statement)).scalar_one() == CandidateStatus.COLLECTED.value)
