"""Does the jobs of one queue with Procrastinate. This module alone imports it.

`QueueWorker` runs one Procrastinate worker and starts another if it ends early. For each job, Procrastinate calls a
function that runs our task (`run_call`); a request to abort the job becomes the stop signal of the call.
`DatabaseConnector` runs Procrastinate's statements on our own connections and repeats them until the database is back,
so that an outage ends neither the worker nor its heartbeat.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any, Final

import psycopg
from procrastinate import App, JobContext
from procrastinate.connector import BaseAsyncConnector, Notify
from procrastinate.exceptions import ConnectorException
from procrastinate.worker import Worker as ProcrastinateWorker
from psycopg import sql
from psycopg.rows import dict_row
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.core.db.terse_connection import open_listener
from tidings.core.execution_table import STOPPED_BY_PERSON
from tidings.core.logs.logger import get_logger
from tidings.core.process_lock import ProcessLock
from tidings.core.queue.dispatcher import Call, Task, cancel_calls, run_call
from tidings.core.queue.postgresql import BEAT_EVERY, FORGET_AFTER
from tidings.core.stop import Stop

# How often a worker polls for jobs and aborts without a notification.
_POLL_EVERY: Final = timedelta(seconds=5)
_AGAIN_AFTER: Final = timedelta(seconds=1)
# How long a statement is repeated after the stop signal: the end of a job must not outlast the drain.
_LAST_TRIES: Final = timedelta(seconds=2)
_DATABASE_AWAY: Final = (OperationalError, InterfaceError, PoolTimeoutError, psycopg.OperationalError, OSError)

Registered = Callable[[int, str, Collection[int]], AbstractAsyncContextManager[None]]

_log = get_logger(__name__)


class DatabaseConnector(BaseAsyncConnector):
    """Runs Procrastinate's statements on our pool, and survives outages of the database."""

    def __init__(self, database: Database, *, clock: Clock, stop: Stop, on_outage: Callable[[], None]) -> None:
        self._database = database
        self._clock = clock
        self._stop = stop
        self._on_outage = on_outage
        self._stopped_at: float | None = None

    async def open_async(self, pool: Any = None) -> None:
        """Nothing to open."""

    async def close_async(self) -> None:
        """Nothing to close."""

    async def execute_query_async(self, query: Any, **arguments: Any) -> None:
        await self._execute(query, arguments)

    async def execute_query_one_async(self, query: Any, **arguments: Any) -> dict[str, Any]:
        return (await self._execute(query, arguments))[0]

    async def execute_query_all_async(self, query: Any, **arguments: Any) -> list[dict[str, Any]]:
        return await self._execute(query, arguments)

    async def _execute(self, query: Any, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        while True:
            try:
                return await self._try(query, arguments)
            except _DATABASE_AWAY as error:
                self._on_outage()
                if self._has_given_up():
                    raise ConnectorException(type(error).__name__) from error
            await asyncio.sleep(_AGAIN_AFTER.total_seconds())

    async def _try(self, query: Any, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        async with self._database.write_once() as connection:
            raw = await connection.get_raw_connection()
            driver = raw.driver_connection
            if driver is None:
                raise OSError
            async with driver.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(query, arguments)
                return await cursor.fetchall() if cursor.description else []

    def _has_given_up(self) -> bool:
        if not self._stop.requested:
            return False
        if self._stopped_at is None:
            self._stopped_at = self._clock.monotonic()
        return self._clock.monotonic() - self._stopped_at > _LAST_TRIES.total_seconds()

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        """Listen until cancelled. Polling finds what was notified while the connection was lost."""
        names = list(channels)
        while True:
            with suppress(*_DATABASE_AWAY):
                await self._listen(on_notification, names)
            await asyncio.sleep(_AGAIN_AFTER.total_seconds())

    async def _listen(self, on_notification: Notify, channels: Iterable[str]) -> None:
        async with await open_listener(self._database.url) as connection:
            for channel in channels:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            async for notification in connection.notifies():
                await on_notification(channel=notification.channel, payload=notification.payload)


@dataclass(slots=True, eq=False)
class QueueWorker:
    """One worker of one queue."""

    database: Database
    tasks: Mapping[str, Task]
    _: KW_ONLY
    queue: str
    # Jobs at once, at most.
    places: int
    clock: Clock
    process_lock: ProcessLock
    # Called when a statement finds the database away.
    on_outage: Callable[[], None]
    # Shows a worker (by its id, queue and jobs) in our table of workers for as long as its block runs.
    registered: Registered
    # The stop signal of each job that runs, by the job's id.
    _stops: dict[int, Stop] = field(default_factory=dict, init=False)

    async def run(self, stop: Stop, *, drain: timedelta) -> None:
        """Do jobs until the stop signal. A worker that ends earlier, as after a long freeze, is started again."""
        while not stop.requested:
            await self._run_once(stop, drain=drain)
            if not stop.requested:
                _log.warning("worker.restarted", queue=self.queue, reason="it counted as dead, or broke")
                with suppress(Exception):
                    await stop.sleep(_AGAIN_AFTER)

    async def _run_once(self, stop: Stop, *, drain: timedelta) -> None:
        """Run Procrastinate's worker until it ends; beside it, pass on the stop signal and show it in our table."""
        worker = self._make_worker(stop, drain=drain)
        running = asyncio.create_task(worker.run())
        beside = [asyncio.create_task(self._end(worker, stop)), asyncio.create_task(self._register(worker))]
        try:
            await asyncio.wait({running})
        finally:
            worker.stop()
            for task in beside:
                task.cancel()
            for result in await asyncio.gather(running, *beside, return_exceptions=True):
                if isinstance(result, Exception):
                    _log.warning("worker.broken", queue=self.queue, reason=f"{type(result).__name__}: {result}")

    def _make_worker(self, stop: Stop, *, drain: timedelta) -> Any:
        connector = DatabaseConnector(self.database, clock=self.clock, stop=stop, on_outage=self.on_outage)
        app = App(connector=connector)
        for name, task in self.tasks.items():
            app.task(name=name, queue=self.queue, pass_context=True)(self._make_function(name, task, stop))
        return ProcrastinateWorker(
            app,
            queues=[self.queue],
            name=self.queue,
            concurrency=self.places,
            fetch_job_polling_interval=_POLL_EVERY.total_seconds(),
            abort_job_polling_interval=_POLL_EVERY.total_seconds(),
            shutdown_graceful_timeout=drain.total_seconds(),
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=BEAT_EVERY.total_seconds(),
            stalled_worker_timeout=FORGET_AFTER.total_seconds(),
        )

    async def _register(self, worker: Any) -> None:
        """Show the worker in our table while it runs."""
        while worker.worker_id is None:  # noqa: ASYNC110 - Procrastinate has no event for it
            await asyncio.sleep(0.02)
        while True:
            with suppress(*_DATABASE_AWAY):
                async with self.registered(worker.worker_id, self.queue, self._stops.keys()):
                    await asyncio.Event().wait()
            await asyncio.sleep(_AGAIN_AFTER.total_seconds())

    async def _end(self, worker: Any, stop: Stop) -> None:
        """At the stop signal: the calls get theirs first, then Procrastinate drains."""
        await stop.wait()
        for each in self._stops.values():
            each.request(stop.reason or "the worker ends")
        worker.stop()

    def _make_function(self, name: str, task: Task, ending: Stop) -> Callable[..., Awaitable[None]]:
        """What Procrastinate calls for each job of this task."""

        async def function(context: JobContext, **arguments: Any) -> None:
            job = context.job
            if job.id is None or job.worker_id is None:
                return
            holder = f"{self.process_lock.id}@{job.worker_id}#{job.id}"
            call = Call(arguments, holder, Stop(clock=self.clock), ending)
            if ending.requested:
                call.stop.request(ending.reason or "the worker ends")
            self._stops[job.id] = call.stop
            work = asyncio.create_task(run_call(task, call, name=name, process_lock=self.process_lock))
            try:
                await _watch(work, call.stop, is_ending=lambda: ending.requested)
            finally:
                del self._stops[job.id]

        return function


async def _watch(work: asyncio.Task[None], stop: Stop, *, is_ending: Callable[[], bool]) -> None:
    """Wait for the work. The first cancel is a stop request; a second one, at the end of the drain, cancels the
    work."""
    task = asyncio.current_task()
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            if is_ending() or stop.requested or task is None:
                await cancel_calls([work])
                raise
            task.uncancel()
            stop.request(STOPPED_BY_PERSON)
