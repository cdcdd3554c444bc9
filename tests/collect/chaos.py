"""Workers in processes of their own, and what happens to them: stopped for longer than a lock holds, killed, and begun
anew, while somebody recovers. The table of sources has no unique key here: what keeps a note from being written twice
is the fencing alone. `Unfenced` writes without it, which shows that the harness would see it.
"""

import asyncio
import os
import random
import signal
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace

from sqlalchemy import func, select, text

from tests.collect.writer_stage import begin, collect, make_candidates
from tests.processes import FORKED
from tidings.collect.tables import CandidateStatus, candidates, sources
from tidings.collect.write.results import split_results, write_collected
from tidings.collect.write.values import Result, Settled, WriterLimits
from tidings.collect.write.writer import Writer
from tidings.core.clock import SystemClock
from tidings.core.db.database import Database, open_database
from tidings.core.executions import Execution, ExecutionLostError, Executions
from tidings.core.process_lock import ProcessLock

LOCK = timedelta(milliseconds=500)
# A record may meet any number of deaths here.
LIMITS = WriterLimits(lock_timeout=LOCK, most_retries=1_000_000, backoff=())
PROCESSES = 8
BATCH = 2
PATIENCE = timedelta(seconds=150)
LOST, BROKEN = "lost", "broken"


class Unfenced(Writer):
    """A writer that believes that what it once leased is still its own."""

    async def settle(self, execution: Execution, platform: str, results: Sequence[Result]) -> list[Settled]:
        collected, _ = split_results(results)
        held = {
            each.note_id: SimpleNamespace(retry_count=0, last_error_code=None, source_keyword="") for each in collected
        }
        async with self._database.write() as connection:
            return await write_collected(
                connection,
                self._database,
                collected,
                platform=platform,
                held=held,
                execution=execution,
                at=self._clock.now(),
            )


def make_writer(database: Database, *, process_lock: ProcessLock, kind: type[Writer] = Writer) -> Writer:
    clock = SystemClock()
    executions = Executions(database, clock=clock, process_lock=process_lock, silent_for=LOCK)
    return kind(database, executions=executions, clock=clock, limits=LIMITS)


def run_worker(url: str, data_dir: str, number: int, *, fenced: bool) -> None:
    """The life of a process: lease, crawl, write, until there is nothing more. A lost execution is begun anew."""
    try:
        asyncio.run(_work(url, Path(data_dir), number, kind=Writer if fenced else Unfenced))
    except Exception:
        _append(Path(data_dir) / BROKEN, traceback.format_exc())
        raise


async def _work(url: str, data_dir: Path, number: int, *, kind: type[Writer]) -> None:
    database, process_lock = open_database(url), ProcessLock(data_dir)
    writer = make_writer(database, process_lock=process_lock, kind=kind)
    try:
        while not (data_dir / "done").exists():
            # Another life of this worker may count as running for a moment.
            with suppress(AssertionError):
                try:
                    await _collect(writer, f"collect-{number}-{os.getpid()}")
                except ExecutionLostError:
                    _append(data_dir / LOST, f"{number}\n")
    finally:
        await database.close()
        process_lock.close()


async def _collect(writer: Writer, name: str) -> None:
    execution = await begin(writer, name)
    # So many that a stop or a kill finds it at work, and a new execution is begun now and then.
    for _ in range(20):
        leased = await writer.lease(execution, limit=BATCH)
        await asyncio.sleep(random.uniform(0.05, 0.15))
        if leased:
            await writer.settle(execution, leased[0].platform, collect(leased))
    await writer.finish(execution)


@dataclass(slots=True)
class CookieOutcome:
    """What was left when all was done."""

    written: Counter[str] = field(default_factory=Counter)
    collected: int = 0
    lost: int = 0
    stops: int = 0
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
        self._workers: dict[int, BaseProcess] = {}
        self._random = random.Random(20261115)
        self._outcome = CookieOutcome()

    async def run(self) -> CookieOutcome:
        """Everything from the first candidate to the last recovery."""
        database, process_lock = open_database(self._url), ProcessLock(self._data_dir)
        writer = make_writer(database, process_lock=process_lock)
        try:
            await _prepare(database, writer, notes=self._notes)
            for number in range(PROCESSES):
                self._start(number)
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await self._torment(database, writer)
            await self._end(writer)
            return await self._look(database)
        finally:
            self._kill_all()
            await database.close()
            process_lock.close()

    async def _torment(self, database: Database, writer: Writer) -> None:
        stopped: list[asyncio.Task[None]] = []
        while await _count(database, CandidateStatus.COLLECTED) < self._notes:
            await asyncio.sleep(self._random.uniform(0.05, 0.2))
            await writer.recover()
            number = self._random.randrange(PROCESSES)
            if self._random.random() < 0.6:
                stopped.append(asyncio.create_task(self._stop_for_a_while(self._workers[number])))
            else:
                self._kill(number)
        await asyncio.gather(*stopped)

    async def _stop_for_a_while(self, worker: BaseProcess) -> None:
        """Longer than a lock holds: whoever wakes up from it has lost everything, and does not know it."""
        if not _signal(worker, signal.SIGSTOP):
            return
        self._outcome.stops += 1
        await asyncio.sleep(2 * LOCK.total_seconds() * self._random.uniform(0.8, 1.5))
        _signal(worker, signal.SIGCONT)

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

    async def _end(self, writer: Writer) -> None:
        """The workers end by themselves; what the last dead left is recovered."""
        (self._data_dir / "done").touch()
        for worker in self._workers.values():
            _signal(worker, signal.SIGCONT)
            await asyncio.to_thread(worker.join, 30)
        await writer.recover()

    def _kill_all(self) -> None:
        for worker in self._workers.values():
            if worker.is_alive():
                worker.kill()
                worker.join()

    async def _look(self, database: Database) -> CookieOutcome:
        outcome = self._outcome
        async with database.read() as connection:
            rows = await connection.execute(select(sources.c.note_id, func.count()).group_by(sources.c.note_id))
            outcome.written = Counter({row[0]: row[1] for row in rows})
            running = text("SELECT count(*) FROM tbl_crawl_execution WHERE status = 'running'")
            outcome.left_running = (await connection.execute(running)).scalar_one()
        outcome.collected = await _count(database, CandidateStatus.COLLECTED)
        outcome.left_locked = await _count(database, CandidateStatus.PROCESSING)
        outcome.lost = len(_read(self._data_dir / LOST).splitlines())
        outcome.broken = _read(self._data_dir / BROKEN)
        return outcome


def _append(path: Path, words: str) -> None:
    with path.open("a") as file:
        file.write(words)


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _signal(worker: BaseProcess, number: signal.Signals) -> bool:
    if worker.pid is None or not worker.is_alive():
        return False
    os.kill(worker.pid, number)
    return True


async def _prepare(database: Database, writer: Writer, *, notes: int) -> None:
    async with database.write() as connection:
        await connection.run_sync(sources.drop)
        bare = sources.to_metadata(sources.metadata.__class__())
        bare.constraints = {each for each in bare.constraints if each is bare.primary_key}
        await connection.run_sync(bare.create)
    execution = await begin(writer, "discover")
    await writer.add_candidates(execution, make_candidates(*(f"n{number}" for number in range(notes))))
    await writer.finish(execution)


async def _count(database: Database, status: CandidateStatus) -> int:
    async with database.read() as connection:
        statement = select(func.count()).select_from(candidates).where(candidates.c.status == status.value)
        return int((await connection.execute(statement)).scalar_one())
