"""The work of a running installation: sites run by schedule, on request, or with URLs that are given.

Everything here may be called by the HTTP API, the command line and the scheduler alike. What an execution does is in
`pipeline`; who may call this is not known here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from tidings.announce.channels.broken_engines import BrokenEngines
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.execution.alerts import AnnounceAlert
from tidings.announce.execution.given_pages import GivenPages
from tidings.announce.execution.pipeline import AnnounceExecution, Announcer, choose_channels
from tidings.announce.execution.report import Report
from tidings.announce.execution.running_executions import LiveExecutions
from tidings.announce.ledger.failed_pages import FailedPage, FailedPages
from tidings.announce.ledger.ledger import Channel
from tidings.announce.schedule.table import ClaimLostError, LateSite, ScheduleClaim, Schedules
from tidings.announce.site.site import ANNOUNCE, WORKFLOW_PREFIX, Site
from tidings.announce.site.table import SiteRecords
from tidings.core.alerts import Alert, Alerts
from tidings.core.clock import Clock, to_text
from tidings.core.db.database import Database
from tidings.core.executions import AlreadyRunningError, Execution, Executions, ExecutionStatus
from tidings.core.logs.logger import bind_request_id, get_logger
from tidings.core.queue.dispatch import Runner

MOST_WAITING = 1_000
# A minute's round tells people of so many late sites at the most.
MOST_LATE = 100
# A site whose executions end with their process so many times in a row may be the cause of it.
MOST_CUT_OFF = 3

_CUT_OFF = (ExecutionStatus.INTERRUPTED, ExecutionStatus.TIMEOUT)

_log = get_logger(__name__)


class BusyError(Exception):
    """Too many executions wait; no more are accepted."""

    def __init__(self) -> None:
        super().__init__(f"{MOST_WAITING:,} executions are waiting; try again later")


@dataclass(frozen=True, slots=True)
class AnnounceService:
    """Runs sites in this process, at most `limit` at once."""

    database: Database
    sites: SiteRecords
    schedules: Schedules
    announcer: Announcer
    executions: Executions
    alerts: Alerts
    clock: Clock
    budget: timedelta
    limit: int
    live: LiveExecutions
    know: Callable[[Site], Site]
    triggered: Runner = field(default_factory=lambda: Runner(MOST_WAITING))
    slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", asyncio.Semaphore(self.limit))

    async def trigger(self, site: Site, *, channel: ChannelChoice = ChannelChoice.ALL) -> "Started":
        """Begin an execution now. Raises AlreadyRunningError, ChannelDisabledError, BusyError."""
        channels = choose_channels(site, channel)

        async def prepare(execution: Execution) -> AnnounceExecution:
            return self.announcer.prepare(execution, site, channels=channels)

        return await self._start(site, prepare)

    async def announce_urls(
        self, site: Site, urls: Sequence[str], *, channel: ChannelChoice = ChannelChoice.ALL
    ) -> "Started":
        """Put these URLs into the outbox, as changed just now, and begin an execution that sends them.

        When this returns, no crash loses them: the next execution sends what this one does not. Raises as `trigger`
        does.
        """
        channels = choose_channels(site, channel)
        given = GivenPages(urls, at=self.clock.now())
        return await self._start(
            site, lambda execution: self.announcer.plan_given(execution, site, given, channels=channels)
        )

    async def run_claim(self, claim: ScheduleClaim) -> None:
        """Do the run that is due, as soon as there is room for it. Raises ClaimLostError.

        A site that is busy otherwise stays due, and is run once it is free; so does one whose run is cut off.
        """
        bind_request_id()
        site = await self.sites.find_by_number(claim.site)
        if site is None:
            raise ClaimLostError(claim)
        site = self.know(site)
        async with self.slots:
            try:
                execution = await self.executions.acquire(site.workflow_name, kind=ANNOUNCE)
            except AlreadyRunningError as error:
                _log.info("run.put_off", site=site.id, reason=str(error))
                return
            await self._begin(claim, site, execution)
            await self._run_on(execution, site)

    async def _run_on(self, execution: Execution, site: Site) -> None:
        """Do the work; where the end of the process cuts it off, it is due again at once."""
        status = ExecutionStatus.INTERRUPTED
        try:
            channels = choose_channels(site, ChannelChoice.ALL)
            report = await self._run(self.announcer.prepare(execution, site, channels=channels))
            status = report.status
        finally:
            if status is ExecutionStatus.INTERRUPTED and self.live.is_stopping:
                await self._make_due(site.number)

    async def _begin(self, claim: ScheduleClaim, site: Site, execution: Execution) -> None:
        try:
            async with self.executions.guard(execution) as connection:
                await self.schedules.begin(connection, claim)
                await self.alerts.resolve_alert(connection, AnnounceAlert.NOT_RUN, site.id)
        except BaseException:
            # After any error the site must not count as running.
            await self.executions.abandon(execution)
            raise

    async def recover(self) -> None:
        """End what dead holders left. What they were doing is due at once, unless it has ended like that again and
        again."""
        for public_id in await self.executions.recover():
            record = await self.executions.find(public_id)
            if record is None or not record.workflow_name.startswith(WORKFLOW_PREFIX):
                continue
            recent = await self.executions.list_recent(record.workflow_name, limit=MOST_CUT_OFF)
            if len(recent) == MOST_CUT_OFF and all(each.status in _CUT_OFF for each in recent):
                _log.warning(
                    "run.given_up", workflow=record.workflow_name, reason=f"cut off {MOST_CUT_OFF} times in a row"
                )
                continue
            number = await self.sites.find_number(record.workflow_name.removeprefix(WORKFLOW_PREFIX))
            if number:
                await self._make_due(number)

    async def _make_due(self, number: int) -> None:
        async with self.database.write() as connection:
            await self.schedules.make_due(connection, number)

    async def watch_over(self) -> None:
        """Once a minute: end executions of dead processes, and raise alerts for sites that missed their schedule."""
        await self.recover()
        late = await self.schedules.list_late(limit=MOST_LATE)
        raised = {each.id for each in late}
        async with self.database.write() as connection:
            for each in late:
                await self.alerts.raise_alert(connection, describe_lateness(each))
            if len(late) < MOST_LATE:
                # A site that was paused or disabled since is late no longer.
                await self.alerts.resolve_matching(
                    connection, lambda kind, subject: kind == "not_run" and subject not in raised
                )
        self.alerts.wake()

    async def free(self, site: Site) -> int:
        """Try again what refused the site's keys, with the same keys; returns how many engines that are."""
        freed = 0
        async with self.database.write() as connection:
            for channel in Channel:
                freed += await BrokenEngines(self.database, site=site, channel=channel).free(connection)
        return freed

    async def remove(self, site: Site) -> None:
        """Remove a site and resolve its alerts."""
        kinds = frozenset(AnnounceAlert)
        await self.sites.remove(site.id)
        async with self.database.write() as connection:
            await self.alerts.resolve_matching(
                connection,
                lambda kind, subject: kind in kinds and (subject == site.id or subject.startswith(f"{site.id} at ")),
            )

    async def list_failed(self, site: Site, *, limit: int) -> list[FailedPage]:
        """Pages that an engine or channel did not take, the newest failure first."""
        return await FailedPages(self.database, site=site.number).list(limit=limit)

    async def count_failed(self, site: Site) -> int:
        """How many pages failed at an engine or channel and wait for the next execution."""
        return await FailedPages(self.database, site=site.number).count()

    async def drain(self, timeout: timedelta) -> None:
        """Let what was triggered end."""
        await self.triggered.drain(timeout)

    async def _start(self, site: Site, prepare: Callable[[Execution], Awaitable[AnnounceExecution]]) -> "Started":
        execution = await self.executions.acquire(site.workflow_name, kind=ANNOUNCE)
        try:
            if not self.triggered.free:
                raise BusyError
            work = await prepare(execution)
        except BaseException:
            await self.executions.abandon(execution)
            raise
        result: asyncio.Future[Report] = asyncio.get_running_loop().create_future()

        async def do() -> None:
            try:
                result.set_result(await self._wait_for_slot(work))
            except BaseException as error:
                if not result.done():
                    result.set_exception(error)
                    # Nobody may be waiting for it; then the log is all there is.
                    result.exception()
                raise

        if not self.triggered.start(execution.public_id, do):
            await self.executions.abandon(execution)
            raise BusyError
        return Started(execution, result)

    async def _wait_for_slot(self, work: AnnounceExecution) -> Report:
        """Run it as soon as there is room; while it waits, it sends heartbeats."""
        try:
            async with self.executions.keep_alive(work.execution):
                await self.slots.acquire()
        except BaseException:
            # It ends before anything was sent: the site must not count as running.
            await self.executions.abandon(work.execution)
            raise
        try:
            return await self._run(work)
        finally:
            self.slots.release()

    async def _run(self, work: AnnounceExecution) -> Report:
        try:
            with self.live.watch(budget=self.budget) as stop:
                return await work.run(stop=stop, on_progress=self.live.record)
        finally:
            self.live.forget(work.execution.public_id)


def describe_lateness(late: LateSite) -> Alert:
    last = "never" if late.last_run is None else f"last at {to_text(late.last_run)}"
    return Alert(
        kind=AnnounceAlert.NOT_RUN,
        subject=late.id,
        reason=f"it should have run twice by {to_text(late.since)}, and has run {last}",
        action="Check that the service runs and has room; `tidings status` shows what it did.",
    )


@dataclass(frozen=True, slots=True)
class Started:
    """An execution that has begun, and its report to be."""

    execution: Execution
    result: "asyncio.Future[Report]"

    async def wait(self) -> Report:
        """Wait for its report. A caller that stops waiting does not stop the execution."""
        return await asyncio.shield(self.result)
