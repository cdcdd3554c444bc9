"""The dispatcher of an installation on SQLite: jobs in the memory of this process.

It accepts no more jobs than it has places for; other due work waits in the tables. A job may begin before the
transaction that submitted it ends. Its first write then waits, because a process has one writing connection on SQLite.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.core.execution_table import STOPPED_BY_PERSON, executions, is_running
from tidings.core.process_lock import ProcessLock
from tidings.core.queue.dispatcher import Call, Job, QueueState, Task, WorkerState, cancel_calls, find_queue, run_call
from tidings.core.queue.workers import WorkerRecords
from tidings.core.stop import Stop

_TICK_WHILE_RUNNING = timedelta(seconds=1)
_TICK_WHILE_IDLE = timedelta(seconds=5)
# Built once: `look_up` keeps what it compiled.
_asked_to_stop = select(executions.c.holder).where(is_running, executions.c.stop_requested_at.is_not(None))


@dataclass(frozen=True, slots=True)
class _RunningJob:
    """A job that this process does."""

    job: Job
    stop: Stop
    task: asyncio.Task[None]


@dataclass(slots=True, eq=False)
class EmbeddedDispatcher:
    """Does the jobs of this process."""

    database: Database
    _: KW_ONLY
    clock: Clock
    process_lock: ProcessLock
    # How many jobs of each queue it does at once.
    places: Mapping[str, int]
    release: str = ""
    # Called when a place becomes free.
    on_free: Callable[[], None] = lambda: None
    _records: WorkerRecords = field(init=False)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False)
    _waiting: dict[str, Job] = field(default_factory=dict, init=False)
    _running: dict[str, _RunningJob] = field(default_factory=dict, init=False)
    # The queues of `work`'s tasks; empty while it does not run.
    _queues: frozenset[str] = field(default=frozenset(), init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        self._records = WorkerRecords(self.database, clock=self.clock, release=self.release)

    @property
    def is_shared(self) -> bool:
        return False

    @property
    def tick_every(self) -> timedelta:
        # `tidy` finds stop requests of other processes.
        return _TICK_WHILE_RUNNING if self._running else _TICK_WHILE_IDLE

    @property
    def busy(self) -> int:
        """How many jobs wait or run here."""
        return len(self._waiting) + len(self._running)

    @asynccontextmanager
    async def open_tick(self) -> AsyncIterator[AsyncConnection]:
        async with self.database.read() as connection:
            yield connection

    async def find_room(self, _connection: AsyncConnection, queue: str) -> int:
        if queue not in self._queues:
            return 0
        taken = sum(job.queue == queue for job in (*self._waiting.values(), *self._list_running()))
        return max(0, self.places[queue] - taken)

    async def submit(self, _connection: AsyncConnection, jobs: Sequence[Job]) -> int:
        new = {job.key: job for job in jobs if job.key not in self._waiting}
        self._waiting |= new
        self._changed.set()
        return len(new)

    async def stop(self, holder: str) -> bool:
        running = self._running.get(holder)
        if running is not None:
            running.stop.request(STOPPED_BY_PERSON)
        return running is not None

    async def find_dead(self, holders: Collection[str]) -> frozenset[str]:
        return frozenset(holder for holder in holders if self.process_lock.is_dead(holder))

    async def list_workers(self) -> Sequence[WorkerState]:
        now, found = self.clock.now(), await self._records.list_all()
        return [replace(each, seen_at=now) for each in found if not self.process_lock.is_dead(each.process)]

    async def list_queues(self) -> Sequence[QueueState]:
        return ()

    async def tidy(self) -> None:
        """Pass on stop requests that other processes stored."""
        if not self._running:
            return
        for row in await self.database.look_up(_asked_to_stop, {}):
            await self.stop(row.holder)

    async def work(self, tasks: Mapping[str, Task], stop: Stop, *, drain: timedelta) -> None:
        self._queues = frozenset(map(find_queue, tasks))
        queues, places = sorted(self._queues), sum(self.places[queue] for queue in self._queues)
        lock = self.process_lock
        async with self._records.registered(lock.id, queues=queues, places=places, is_dead=lock.is_dead):
            stopping = asyncio.create_task(stop.wait())
            try:
                while not stop.requested:
                    self._changed.clear()
                    self._start_waiting(tasks, stop)
                    changed = asyncio.create_task(self._changed.wait())
                    await asyncio.wait({stopping, changed}, return_when=asyncio.FIRST_COMPLETED)
                    changed.cancel()
            finally:
                stopping.cancel()
                self._queues = frozenset()
                await self._drain(stop, drain)

    def _start_waiting(self, tasks: Mapping[str, Task], stop: Stop) -> None:
        """Start waiting jobs for which there is a place, the urgent ones first."""
        busy = [job.queue for job in self._list_running()]
        for job in sorted(self._waiting.values(), key=lambda job: not job.urgent):
            if job.queue in self._queues and busy.count(job.queue) < self.places[job.queue]:
                busy.append(job.queue)
                del self._waiting[job.key]
                self._start(job, tasks[job.task], stop)

    def _start(self, job: Job, task: Task, ending: Stop) -> None:
        holder, stop = f"{self.process_lock.id}#{next(self._numbers)}", Stop(clock=self.clock)
        call = Call(job.arguments, holder, stop, ending)
        work = run_call(task, call, name=job.task, process_lock=self.process_lock)
        running = asyncio.create_task(work)
        self._running[holder] = _RunningJob(job, stop, running)
        running.add_done_callback(lambda _: self._end(holder))

    def _end(self, holder: str) -> None:
        del self._running[holder]
        self._changed.set()
        self.on_free()

    async def _drain(self, stop: Stop, drain: timedelta) -> None:
        running = list(self._running.values())
        for each in running:
            each.stop.request(stop.reason or "the worker ends")
        tasks = [each.task for each in running]
        if tasks:
            await asyncio.wait(tasks, timeout=drain.total_seconds())
        await cancel_calls(tasks)

    def _list_running(self) -> list[Job]:
        return [each.job for each in self._running.values()]
