"""The background work of a process: ticks, jobs, the Feishu mirror and the delivery of alerts."""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta

from sqlalchemy.exc import SQLAlchemyError

from tidings.announce.execution.progress_feed import ProgressFeed
from tidings.announce.service import RUN
from tidings.collect.crawl.crawler import Crawler
from tidings.collect.run.jobs import RECOVER_JOB
from tidings.core.db.revisions import NewerDatabaseError, check_compatibility
from tidings.core.logs.logger import get_logger
from tidings.core.loop import AFTER_ERROR, Loop
from tidings.core.queue.dispatcher import Task
from tidings.core.stop import Stop
from tidings.wiring.crawl import make_collect_jobs
from tidings.wiring.installation import Installation

QUEUES = ("announce", "collect")
# The server gives open requests five seconds, and everything must end within ten.
DRAIN = timedelta(seconds=8)
_LOOK_AT_TABLES = timedelta(seconds=10)

_log = get_logger(__name__)


class Worker:
    """The work of one process, until the stop signal. Without queues it only ticks and delivers alerts."""

    def __init__(self, installation: Installation, *, crawler: Crawler, queues: Collection[str] = QUEUES) -> None:
        self._installation = installation
        self._queues = queues
        self._ticker = installation.ticker
        self._collect = make_collect_jobs(installation, crawler=crawler)
        self._outdated: NewerDatabaseError | None = None

    async def run(self, stop: Stop) -> None:
        """Raises NewerDatabaseError if a newer release changed the tables meanwhile so that this one has to end."""
        installation = self._installation
        feed = ProgressFeed(installation.database, installation.service.live, clock=installation.clock)
        await asyncio.gather(
            self._ticker.run(stop),
            installation.alerts.run(stop),
            self._work(stop),
            self._keep_mirror(stop),
            feed.run(stop),
            self._watch_tables(stop),
        )
        # Alerts of the last executions go out now, or at the next start.
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await installation.alerts.deliver()
        _log.info("worker.ended", reason=stop.reason)
        if self._outdated is not None:
            raise self._outdated

    async def _watch_tables(self, stop: Stop) -> None:
        """End this process in good order once a newer release has made tables that it cannot work on."""

        async def step() -> timedelta:
            try:
                await check_compatibility(self._installation.database)
            except NewerDatabaseError as error:
                _log.error("release.outdated", reason=str(error))
                self._outdated = error
                stop.request(str(error))
            return _LOOK_AT_TABLES

        await Loop("tables.check", clock=self._installation.clock, after_error=_LOOK_AT_TABLES).run(step, stop)

    async def _work(self, stop: Stop) -> None:
        if "collect" in self._queues:
            # The process before this one may just have died with leased records.
            with suppress(SQLAlchemyError):
                await self._collect.make_due(RECOVER_JOB)
        if self._queues:
            await Loop("worker", clock=self._installation.clock).run(lambda: self._take_jobs(stop), stop)

    async def _take_jobs(self, stop: Stop) -> timedelta:
        """Take jobs until the stop signal. A database that is full or away when it begins is tried again soon."""
        await self._installation.dispatcher.work(self._list_tasks(), stop, drain=DRAIN)
        return AFTER_ERROR

    def _list_tasks(self) -> Mapping[str, Task]:
        tasks: dict[str, Task] = {}
        if "announce" in self._queues:
            tasks[RUN] = self._installation.service.run
        if "collect" in self._queues:
            tasks |= self._collect.list_tasks()
        return tasks

    async def _keep_mirror(self, stop: Stop) -> None:
        """Deliver to Feishu all the time; of several workers, one does at a time."""
        mirror = self._installation.collect.mirror
        if mirror is not None and "collect" in self._queues:
            await mirror.run(stop)
