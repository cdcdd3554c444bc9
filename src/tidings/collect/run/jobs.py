"""The jobs of collect: discover, collect, recover and monitor, each when it is due. One worker does each."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.alerts.monitor import CollectMonitor
from tidings.collect.run.runner import CollectRunner
from tidings.core.db.database import Database
from tidings.core.logs.logger import get_logger
from tidings.core.queue.dispatcher import Call, Job, Task
from tidings.core.queue.periodic import PeriodicJobs
from tidings.core.stop import Stop, StopRequestedError

MONITOR_EVERY: Final = timedelta(minutes=1)
COLLECT_JOB: Final = "collect.collect"
RECOVER_JOB: Final = "collect.recover"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """How often each job is due."""

    discover: timedelta = timedelta(minutes=60)
    collect: timedelta = timedelta(minutes=5)
    recover: timedelta = timedelta(minutes=15)
    monitor: timedelta = MONITOR_EVERY


def list_intervals(intervals: Intervals, *, drives: bool) -> Mapping[str, timedelta]:
    """Each job with its interval. `drives`: this installation discovers and collects by itself; otherwise n8n does."""
    own = {"collect.discover": intervals.discover, COLLECT_JOB: intervals.collect} if drives else {}
    return {**own, RECOVER_JOB: intervals.recover, "collect.monitor": intervals.monitor}


@dataclass(frozen=True, slots=True)
class CollectSchedule:
    """Finds the jobs of collect that are due. It needs no crawler, so that every process can tick."""

    periodic: PeriodicJobs
    intervals: Mapping[str, timedelta]

    async def list_due(self, connection: AsyncConnection, limit: int) -> list[Job]:
        due = await self.periodic.list_due(connection, self.intervals)
        return [Job(name, name) for name in due[:limit]]


@dataclass(frozen=True, slots=True)
class CollectJobs:
    """The tasks of a worker."""

    database: Database
    periodic: PeriodicJobs
    _: KW_ONLY
    runner: CollectRunner
    monitor: CollectMonitor
    intervals: Mapping[str, timedelta]
    # Called when another job became due.
    wake: Callable[[], None]

    def list_tasks(self) -> Mapping[str, Task]:
        """The tasks by name."""
        works: Mapping[str, Callable[[Stop], Awaitable[None]]] = {
            "collect.discover": self._discover,
            COLLECT_JOB: self._collect,
            RECOVER_JOB: self._recover,
            "collect.monitor": self._check,
        }
        return {name: self._make_task(name, work) for name, work in works.items() if name in self.intervals}

    def _make_task(self, name: str, work: Callable[[Stop], Awaitable[None]]) -> Task:
        async def do(call: Call) -> None:
            """Do the job if it is due. An error is logged; the job runs again when it is next due."""
            try:
                if await self.periodic.begin(name, every=self.intervals[name]):
                    await work(call.stop)
            except StopRequestedError:
                return
            except SQLAlchemyError as error:
                _log.warning("job.failed", job=name, reason=type(error).__name__)
            except Exception:  # noqa: BLE001 - it is logged, and done again at its next time
                _log.exception("job.failed", job=name)

        return do

    async def make_due(self, name: str) -> None:
        """Make this job due at once."""
        async with self.database.write() as connection:
            await self.periodic.make_due(connection, name)
        self.wake()

    async def _discover(self, stop: Stop) -> None:
        report = await self.runner.discover(stop)
        if report.created:
            await self.make_due(COLLECT_JOB)
        if report.ended is not None:
            await self.monitor.record_end(report.ended)

    async def _collect(self, stop: Stop) -> None:
        for report in await self.runner.collect(stop):
            await self.monitor.record_end(report.ended)

    async def _recover(self, _stop: Stop) -> None:
        await self.runner.recover()
        await self.monitor.record_recovery()

    async def _check(self, _stop: Stop) -> None:
        await self.monitor.check()
