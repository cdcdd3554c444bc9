"""The jobs of collect in a running service: discover, collect, recover and monitor, each when it is due, and the mirror
all the time. Of several processes on one database, one does each job.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from tidings.collect.alerts import CollectMonitor
from tidings.collect.run.runner import CollectRunner
from tidings.core.clock import Clock
from tidings.core.logs.logger import get_logger
from tidings.core.logs.request_id import request_id_scope
from tidings.core.loop import Loop
from tidings.core.queue.jobs import Jobs
from tidings.core.stop import Stop, StopRequestedError

MONITOR_EVERY: Final = timedelta(minutes=1)
# How often a job asks whether it is due: another process that owned it may have died.
_CHECK_EVERY: Final = timedelta(minutes=1)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """How often each job is due."""

    discover: timedelta = timedelta(minutes=60)
    collect: timedelta = timedelta(minutes=5)
    recover: timedelta = timedelta(minutes=15)
    monitor: timedelta = MONITOR_EVERY


@dataclass(frozen=True, slots=True)
class _Job:
    """Work that is due at an interval, and at once when its loop is woken."""

    name: str
    every: timedelta
    work: Callable[[Stop], Awaitable[None]]
    loop: Loop


class CollectJobs:
    """The jobs of one process.

    `drives`: whether this installation discovers and collects by itself; otherwise n8n does. `mirror`: keeps the
    Feishu mirror up to date until the stop signal.
    """

    def __init__(
        self,
        jobs: Jobs,
        *,
        runner: CollectRunner,
        monitor: CollectMonitor,
        clock: Clock,
        intervals: Intervals,
        drives: bool = True,
        mirror: Callable[[Stop], Awaitable[None]] | None = None,
    ) -> None:
        self._jobs = jobs
        self._runner = runner
        self._monitor = monitor
        self._clock = clock
        self._mirror = mirror
        self._collect = _Job("collect", intervals.collect, self._do_collect, Loop(clock=clock))
        recover = _Job("recover", intervals.recover, self._do_recover, Loop(clock=clock))
        # Recover at the start: the process before this one may just have died.
        recover.loop.wake()
        monitoring = _Job("monitor", intervals.monitor, self._do_monitor, Loop(clock=clock))
        discover = _Job("discover", intervals.discover, self._do_discover, Loop(clock=clock))
        self._all = (discover, self._collect, recover, monitoring) if drives else (recover, monitoring)

    async def run(self, stop: Stop, *, drain: timedelta) -> None:
        """Do the jobs until the stop signal. Jobs that run then have `drain` to end; the rest is cancelled."""
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
        async def step() -> timedelta:
            await self._do_if_due(job, stop)
            return min(job.every, _CHECK_EVERY)

        await job.loop.run(step, stop)

    async def _do_if_due(self, job: _Job, stop: Stop) -> None:
        """Do the job if this process gets it. An error is logged; the job runs again when it is next due."""
        with request_id_scope():
            try:
                if await self._jobs.claim(f"collect.{job.name}", every=job.every) or job.loop.was_woken:
                    await job.work(stop)
            except StopRequestedError:
                raise
            except SQLAlchemyError as error:
                _log.warning("job.failed", job=job.name, reason=type(error).__name__)
            except Exception:  # noqa: BLE001 - no error of one job may end its loop
                _log.exception("job.failed", job=job.name)

    async def _keep_mirror(self, mirror: Callable[[Stop], Awaitable[None]], stop: Stop) -> None:
        async def step() -> timedelta:
            try:
                await mirror(stop)
            except Exception:  # noqa: BLE001 - the tables are the truth; an error of their copy ends nothing else
                _log.exception("job.failed", job="mirror")
            return _CHECK_EVERY

        await Loop(clock=self._clock).run(step, stop)

    async def _do_discover(self, stop: Stop) -> None:
        report = await self._runner.discover(stop)
        if report.created:
            self._collect.loop.wake()
        if report.ended is not None:
            await self._monitor.record_end(report.ended)

    async def _do_collect(self, stop: Stop) -> None:
        for report in await self._runner.collect(stop):
            await self._monitor.record_end(report.ended)

    async def _do_recover(self, _stop: Stop) -> None:
        await self._runner.recover()
        await self._monitor.record_recovery()

    async def _do_monitor(self, _stop: Stop) -> None:
        await self._monitor.check()
