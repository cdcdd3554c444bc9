"""The dispatcher of an installation on PostgreSQL: jobs in Procrastinate's tables, for workers on any machine.

This module uses plain SQL on those tables, so that a command can submit, stop and list jobs without loading
Procrastinate. `procrastinate_worker` loads it, and does the jobs.

An execution's holder is `{place}/{process}@{worker}#{job}`: the process lock, the id of Procrastinate's worker, the id
of the job. A worker that has sent no heartbeat for 15 s is dead, and so are the holders of its jobs. After 60 s its
rows are deleted.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.core.process_lock import ProcessLock
from tidings.core.queue.dispatcher import Job, QueueState, Task, WorkerState, find_queue
from tidings.core.queue.workers import WorkerRecords
from tidings.core.stop import Stop

if TYPE_CHECKING:
    from tidings.core.queue.procrastinate_worker import QueueWorker

TICK_EVERY: Final = timedelta(seconds=5)
BEAT_EVERY: Final = timedelta(seconds=5)
DEAD_AFTER: Final = timedelta(seconds=15)
FORGET_AFTER: Final = timedelta(seconds=60)
# After a start of PostgreSQL, or an outage that this process saw, other workers get time for a heartbeat.
GRACE_AFTER_START: Final = timedelta(seconds=30)
GRACE_AFTER_OUTAGE: Final = timedelta(seconds=15)
# The most jobs of a queue that wait at a time; the rest waits in our own tables.
WINDOW: Final = 1_000

_URGENT: Final = 10
# Values of the statements below, in seconds.
_AGES: Final[Mapping[str, Any]] = {
    "dead_after": DEAD_AFTER.total_seconds(),
    "forget_after": FORGET_AFTER.total_seconds(),
    "grace": GRACE_AFTER_START.total_seconds(),
}


_LOCK_TICKS = text("SELECT pg_advisory_xact_lock(hashtext('tidings.tick'))")
_COUNT_WAITING = text("SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo' AND queue_name = :queue")
# The constraint drops a job whose key waits already. procrastinate_defer_jobs_v1 would abort the transaction.
_SUBMIT = text(
    "INSERT INTO procrastinate_jobs (queue_name, task_name, priority, queueing_lock, args) "
    "SELECT job->>'queue', job->>'task', (job->>'priority')::integer, job->>'key', job->'arguments' "
    "FROM jsonb_array_elements(CAST(:jobs AS jsonb)) AS job "
    "ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING"
)
# Stopping, and who lives.
_ABORT = text("SELECT procrastinate_cancel_job_v1(:job, true, true)")
_FIND_ALIVE = text(
    "SELECT jobs.id FROM procrastinate_jobs AS jobs JOIN procrastinate_workers AS workers ON workers.id = worker_id "
    "WHERE jobs.id = ANY(CAST(:jobs AS bigint[])) AND status = 'doing' "
    "AND last_heartbeat > now() - make_interval(secs => :dead_after)"
)
_IS_STARTING = text("SELECT now() - pg_postmaster_start_time() < make_interval(secs => :grace)")
_LIST_BEATS = text(
    "SELECT id, last_heartbeat, last_heartbeat < now() - make_interval(secs => :dead_after) AS dead, "
    "last_heartbeat < now() - make_interval(secs => :forget_after) AS forgotten FROM procrastinate_workers"
)
# Looking and tidying.
_LIST_QUEUES = text(
    "SELECT queue_name, count(*) AS waiting, extract(epoch FROM now() - min(at)) AS oldest "
    "FROM procrastinate_jobs AS jobs JOIN procrastinate_events AS events "
    "ON events.job_id = jobs.id AND events.type = 'deferred' "
    "WHERE status = 'todo' GROUP BY queue_name"
)
_FORGET_JOBS = text(
    "DELETE FROM procrastinate_jobs WHERE status <> 'todo' AND (worker_id IS NULL OR worker_id IN "
    "(SELECT id FROM procrastinate_workers WHERE last_heartbeat < now() - make_interval(secs => :forget_after)))"
)
_FORGET_WORKERS = text(
    "DELETE FROM procrastinate_workers WHERE last_heartbeat < now() - make_interval(secs => :forget_after)"
)
_LIST_DOING = text("SELECT id FROM procrastinate_jobs WHERE status = 'doing' AND worker_id = ANY(:workers)")
_DELETE_JOBS = text("DELETE FROM procrastinate_jobs WHERE id = ANY(CAST(:jobs AS bigint[]))")


@dataclass(slots=True, eq=False)
class PostgresDispatcher:
    """Jobs for all workers on one database."""

    database: Database
    _: KW_ONLY
    clock: Clock
    process_lock: ProcessLock
    # How many jobs of each queue this process does at once.
    places: Mapping[str, int]
    release: str = ""
    _records: WorkerRecords = field(init=False)
    # When this process last failed to reach the database, in monotonic seconds.
    _failed_at: float | None = field(default=None, init=False)
    # The workers of this process by their ids, with the jobs that each does.
    _running: dict[int, Collection[int]] = field(default_factory=dict, init=False)
    # Jobs of this process that no task was doing at the last tick.
    _idle_jobs: frozenset[int] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        self._records = WorkerRecords(self.database, clock=self.clock, release=self.release)

    @property
    def is_shared(self) -> bool:
        return True

    @property
    def tick_every(self) -> timedelta:
        return TICK_EVERY

    @asynccontextmanager
    async def open_tick(self) -> AsyncIterator[AsyncConnection]:
        async with self.database.write() as connection:
            await connection.execute(_LOCK_TICKS)
            yield connection

    async def find_room(self, connection: AsyncConnection, queue: str) -> int:
        waiting = (await connection.execute(_COUNT_WAITING, {"queue": queue})).scalar_one()
        return max(0, WINDOW - int(waiting))

    async def submit(self, connection: AsyncConnection, jobs: Sequence[Job]) -> int:
        described = [
            {
                "queue": job.queue,
                "task": job.task,
                "priority": _URGENT if job.urgent else 0,
                "key": job.key,
                "arguments": dict(job.arguments),
            }
            for job in jobs
        ]
        return (await connection.execute(_SUBMIT, {"jobs": json.dumps(described)})).rowcount

    async def stop(self, holder: str) -> bool:
        job = _find_job(holder)
        if job is None:
            return False
        async with self.database.write() as connection:
            return (await connection.execute(_ABORT, {"job": job})).scalar_one() is not None

    async def find_dead(self, holders: Collection[str]) -> frozenset[str]:
        dead = {holder for holder in holders if self.process_lock.is_dead(holder)}
        elsewhere = {
            holder: job
            for holder in holders
            if (job := _find_job(holder)) is not None and not self.process_lock.owns(holder) and holder not in dead
        }
        if elsewhere:
            alive = await self._find_alive(set(elsewhere.values()))
            dead |= {holder for holder, job in elsewhere.items() if job not in alive}
        return frozenset(dead)

    async def _find_alive(self, jobs: set[int]) -> set[int]:
        """Those of these jobs that a living worker does; all of them during the grace time after an outage."""
        try:
            async with self.database.write() as connection:
                is_starting = (await connection.execute(_IS_STARTING, _AGES)).scalar_one()
                alive = set((await connection.execute(_FIND_ALIVE, {**_AGES, "jobs": list(jobs)})).scalars())
        except SQLAlchemyError:
            self.record_outage()
            raise
        return jobs if is_starting or self._had_outage() else alive

    def record_outage(self) -> None:
        """Record that the database could not be reached just now."""
        self._failed_at = self.clock.monotonic()

    def _had_outage(self) -> bool:
        grace = GRACE_AFTER_OUTAGE.total_seconds()
        return self._failed_at is not None and self.clock.monotonic() - self._failed_at < grace

    async def list_workers(self) -> Sequence[WorkerState]:
        found = await self._records.list_all()
        beats = {row.id: row for row in await self.database.fetch(_LIST_BEATS, _AGES)}
        return [
            replace(each, seen_at=beat.last_heartbeat, dead=beat.dead)
            for each in found
            if (beat := beats.get(_find_worker(each.process))) is not None
        ]

    async def list_queues(self) -> Sequence[QueueState]:
        found = {
            row.queue_name: QueueState(row.queue_name, row.waiting, timedelta(seconds=float(row.oldest)))
            for row in await self.database.fetch(_LIST_QUEUES)
        }
        return [found.get(queue, QueueState(queue, 0, timedelta(0))) for queue in self.places]

    async def tidy(self) -> None:
        """Remove workers and jobs of dead processes, and jobs of this one whose end could not be written."""
        async with self.database.write() as connection:
            await connection.execute(_FORGET_JOBS, _AGES)
            await connection.execute(_FORGET_WORKERS, _AGES)
            if self._running:
                doing = (await connection.execute(_LIST_DOING, {"workers": list(self._running)})).scalars()
                idle = frozenset(doing) - frozenset().union(*self._running.values())
                # A job that was just fetched has not begun yet, so only jobs that were also idle at the last tick are
                # removed.
                await connection.execute(_DELETE_JOBS, {"jobs": list(idle & self._idle_jobs)})
                self._idle_jobs = idle

    async def work(self, tasks: Mapping[str, Task], stop: Stop, *, drain: timedelta) -> None:
        # One worker for each queue: a full queue must not take the places of another.
        queues = sorted(set(map(find_queue, tasks)))
        await asyncio.gather(*(self._make_worker(queue, tasks).run(stop, drain=drain) for queue in queues))

    def _make_worker(self, queue: str, tasks: Mapping[str, Task]) -> "QueueWorker":
        from tidings.core.queue.procrastinate_worker import QueueWorker

        return QueueWorker(
            self.database,
            {name: task for name, task in tasks.items() if find_queue(name) == queue},
            queue=queue,
            places=self.places[queue],
            clock=self.clock,
            process_lock=self.process_lock,
            on_outage=self.record_outage,
            registered=self._registered,
        )

    @asynccontextmanager
    async def _registered(self, worker: int, queue: str, jobs: Collection[int]) -> AsyncIterator[None]:
        """This worker is in the table while the block runs. `jobs` are always those that it does now."""
        process = f"{self.process_lock.id}@{worker}"
        living = {row.id for row in await self.database.fetch(_LIST_BEATS, _AGES) if not row.forgotten}

        def is_dead(process: str) -> bool:
            return _find_worker(process) not in living

        self._running[worker] = jobs
        try:
            places = self.places[queue]
            async with self._records.registered(process, queues=[queue], places=places, is_dead=is_dead):
                yield
        finally:
            del self._running[worker]


def _find_worker(process: str) -> int | None:
    """The id of Procrastinate's worker in the name of a holder."""
    number = process.partition("#")[0].partition("@")[2]
    return int(number) if number.isdecimal() else None


def _find_job(holder: str) -> int | None:
    """The id of Procrastinate's job in the name of a holder."""
    number = holder.partition("@")[2].partition("#")[2]
    return int(number) if number.isdecimal() else None
