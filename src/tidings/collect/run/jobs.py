"""The jobs of collect in a running service: discover, collect, recover and watch, each when it is due, and the mirror
all the time. Of several processes on one database one does each job; what it does is in `runner` and `watch`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol

from sqlalchemy.exc import SQLAlchemyError

from tidings.collect.alerts import CollectMonitor
from tidings.collect.run.runner import CollectRunner
from tidings.core.clock import Clock
from tidings.core.logs.logger import get_logger
from tidings.core.logs.request_id import request_id_scope
from tidings.core.queue.jobs import Jobs
from tidings.core.stop import Stop, StopRequestedError

MONITOR_EVERY: Final = timedelta(minutes=1)
# So often another process may be found to have died over a job; the table does not call.
_LOOK_EVERY: Final = timedelta(minutes=1)

_log = get_logger(__name__)


class Mirror(Protocol):
    """Whoever keeps a copy of the tables elsewhere."""

    async def run(self, stop: Stop) -> None:
        """Go on until the stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """How often each job is due."""

    discover: timedelta = timedelta(minutes=60)
    collect: timedelta = timedelta(minutes=5)
    recover: timedelta = timedelta(minutes=15)
    watch: timedelta = MONITOR_EVERY


@dataclass(frozen=True, slots=True)
class _Job:
    """Work that is due every so often; `woken` has it done at once."""

    name: str
    every: timedelta
    work: Callable[[Stop], Awaitable[None]]
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class CollectJobs:
    """One process's jobs. Where `drives` is False, somebody else discovers and collects, through the API."""

    def __init__(
        self,
        jobs: Jobs,
        *,
        runner: CollectRunner,
        watch: CollectMonitor,
        clock: Clock,
        intervals: Intervals,
        drives: bool = True,
        mirror: Mirror | None = None,
    ) -> None:
        self._jobs = jobs
        self._runner = runner
        self._watch = watch
        self._clock = clock
        self._mirror = mirror
        self._collect = _Job("collect", intervals.collect, self._do_collect)
        driving = (_Job("discover", intervals.discover, self._do_discover), self._collect) if drives else ()
        recover = _Job("recover", intervals.recover, self._do_recover)
        # At the start in any case: what died with the process before this one is not to wait for its time.
        recover.woken.set()
        self._all = (
            *driving,
            recover,
            _Job("watch", intervals.watch, self._do_watch),
        )

    async def run(self, stop: Stop, *, drain: timedelta) -> None:
        """Do the jobs until the stop; what runs then has so long to end in good order."""
        loops: list[Coroutine[Any, Any, None]] = [self._repeat(job, stop) for job in self._all]
        if self._mirror is not None:
            loops.append(self._keep_mirror(self._mirror, stop))
        tasks = [asyncio.create_task(loop) for loop in loops]
        try:
            await stop.wait()
            await asyncio.wait(tasks, timeout=drain.total_seconds())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, job: _Job, stop: Stop) -> None:
        with suppress(StopRequestedError):
            while True:
                stop.check()
                await self._do_if_due(job, stop)
                await stop.wait_for(self._pause(job))

    async def _do_if_due(self, job: _Job, stop: Stop) -> None:
        """Whatever goes wrong, the job is tried again when it is next due."""
        with request_id_scope():
            try:
                was_woken = job.woken.is_set()
                job.woken.clear()
                if await self._jobs.claim(f"collect.{job.name}", every=job.every) or was_woken:
                    await job.work(stop)
            except StopRequestedError:
                raise
            except SQLAlchemyError as error:
                _log.warning("job.failed", job=job.name, reason=type(error).__name__)
            except Exception:  # noqa: BLE001 - it is told with all that is known, and the other times must come
                _log.exception("job.failed", job=job.name)

    async def _pause(self, job: _Job) -> None:
        """Until the job may be due, or is called for."""
        pause = min(job.every, _LOOK_EVERY)
        ends = {asyncio.create_task(job.woken.wait()), asyncio.create_task(self._clock.sleep(pause))}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _keep_mirror(self, mirror: Mirror, stop: Stop) -> None:
        with suppress(StopRequestedError):
            while not stop.requested:
                try:
                    await mirror.run(stop)
                except Exception:  # noqa: BLE001 - the tables are the truth, and their copy must not end anything else
                    _log.exception("job.failed", job="mirror")
                    await stop.sleep(_LOOK_EVERY)

    async def _do_discover(self, stop: Stop) -> None:
        report = await self._runner.discover(stop)
        if report.created:
            self._collect.woken.set()
        if report.ended is not None:
            await self._watch.record_end(report.ended)

    async def _do_collect(self, stop: Stop) -> None:
        for report in await self._runner.collect(stop):
            await self._watch.record_end(report.ended)

    async def _do_recover(self, _stop: Stop) -> None:
        await self._runner.recover()
        await self._watch.record_recovery()

    async def _do_watch(self, _stop: Stop) -> None:
        await self._watch.look()
