"""The work of a running installation: executes sites by schedule, on request, or with given URLs.

The HTTP API, the command line and the tick call it. A request is stored and answered at once; a worker adopts it, in
this process or another. `pipeline` says what an execution does.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.announcer import Announcer
from tidings.announce.channels.broken_engines import BrokenEngines
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.channels.enabled_channels import choose_channels
from tidings.announce.due.given_pages import GivenPages
from tidings.announce.execution.alerts import AnnounceAlert
from tidings.announce.execution.pipeline import AnnounceExecution
from tidings.announce.execution.running_executions import LiveExecutions
from tidings.announce.ledger.failed_pages import FailedPage, FailedPages
from tidings.announce.ledger.ledger import Channel
from tidings.announce.schedule.table import LateSite, Schedules
from tidings.announce.site.site import ANNOUNCE, WORKFLOW_PREFIX, Site
from tidings.announce.site.table import SiteRecords, sites
from tidings.core.alerts.events import Alert
from tidings.core.alerts.service import Alerts
from tidings.core.clock import Clock, from_milliseconds, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.execution_requests import ExecutionRequests
from tidings.core.execution_table import AdoptedExecution, LostExecution
from tidings.core.execution_table import executions as execution_table
from tidings.core.executions import (
    AlreadyRunningError,
    Execution,
    ExecutionLostError,
    ExecutionRecord,
    Executions,
    ExecutionStatus,
)
from tidings.core.logs.logger import get_logger
from tidings.core.queue.dispatcher import Call, Dispatcher, Job
from tidings.core.stop import Stop

RUN = "announce.run"

MOST_WAITING = 1_000
# The most late sites that raise an alert in one minute.
MOST_LATE = 100
# If the executions of a site end with their process this many times in a row, the site may be the cause.
MOST_CUT_OFF = 3
# A due execution that could not begin is tried again after this.
PUT_OFF = timedelta(minutes=2)
# The longest delay until the end of an execution in another process is noticed.
_LOOK_EVERY = timedelta(seconds=1)

_CUT_OFF = (ExecutionStatus.INTERRUPTED, ExecutionStatus.TIMEOUT)

_log = get_logger(__name__)


class BusyError(Exception):
    """Too many executions wait; no more are accepted."""

    def __init__(self) -> None:
        super().__init__(f"{MOST_WAITING:,} executions are waiting; try again later")


class _BusySiteError(Exception):
    """Another execution of the site runs: the due one stays due."""


@dataclass(frozen=True, slots=True)
class AnnounceService:
    """Stores requests, and carries them out as a worker."""

    database: Database
    sites: SiteRecords
    schedules: Schedules
    announcer: Announcer
    executions: Executions
    requests: ExecutionRequests
    dispatcher: Dispatcher
    alerts: Alerts
    clock: Clock
    budget: timedelta
    live: LiveExecutions
    know: Callable[[Site], Site]
    # Called after a change that creates work.
    wake: Callable[[], None]
    # The most executions that may wait for a worker.
    most_waiting: int = MOST_WAITING
    # The maximum of scheduled executions at once, over all workers. None: limited only by the workers' places.
    most_running: int | None = None

    async def trigger(self, site: Site, *, channel: ChannelChoice = ChannelChoice.ALL) -> "Started":
        """Ask for an execution now. Raises AlreadyRunningError, ChannelDisabledError, BusyError."""
        choose_channels(site, channel)
        return await self._request(site, {"channel": channel.value})

    async def follow_up(self, site: Site) -> "Started | None":
        """Ask for an execution now, or right after the running one; in that case returns None. Raises BusyError."""
        try:
            return await self.trigger(site)
        except AlreadyRunningError:
            if not await self.schedules.add_follow_up(site.number):
                raise
            # The running execution may have ended meanwhile.
            self.wake()
            return None

    async def announce_urls(
        self, site: Site, urls: Sequence[str], *, channel: ChannelChoice = ChannelChoice.ALL
    ) -> "Started":
        """Store these URLs, as changed just now, and ask for an execution that sends them.

        When this returns, no crash loses them: an execution that dies is asked for again. Raises as `trigger` does.
        """
        choose_channels(site, channel, given=True)
        at = self.clock.now()
        GivenPages.of_request(urls, at=at)
        return await self._request(site, {"channel": channel.value, "urls": list(urls), "at": to_milliseconds(at)})

    async def _request(self, site: Site, request: Mapping[str, Any]) -> "Started":
        """Store a request and wake a worker, in one transaction."""
        await self.executions.recover(workflow_name=site.workflow_name)
        async with self.database.write() as connection:
            if await self.requests.count_queued(connection) >= self.most_waiting:
                raise BusyError
            execution = await self.requests.reserve(connection, site.workflow_name, kind=ANNOUNCE, request=request)
            await self.dispatcher.submit(connection, [_make_request_job(execution.public_id)])
        if not self.dispatcher.is_shared:
            # A tick passes stop requests on, and ticks are more frequent while something runs.
            self.wake()
        return Started(execution, executions=self.executions, live=self.live)

    async def stop(self, execution_id: str) -> bool:
        """Ask an execution to end in good order, wherever it runs. False if it does not run."""
        holder = await self.requests.request_stop(execution_id)
        if holder:
            await self.dispatcher.stop(holder)
        if holder == "":
            self.live.forget(execution_id)
        self.wake()
        return holder is not None

    async def list_requested(self, connection: AsyncConnection, limit: int) -> list[Job]:
        """Jobs for requested executions that no worker has adopted."""
        waiting = await self.requests.list_queued(connection, kind=ANNOUNCE, limit=limit)
        return [_make_request_job(public_id) for public_id in waiting]

    async def list_due(self, connection: AsyncConnection, limit: int) -> list[Job]:
        """Jobs for due sites."""
        if self.most_running is not None:
            limit = min(limit, self.most_running - await self.executions.count_running_in(connection))
        if limit <= 0:
            return []
        due = dict.fromkeys(await self.schedules.list_follow_ups(connection, limit=limit))
        due |= dict.fromkeys(await self.schedules.list_due(connection, limit=limit))
        return [Job(RUN, f"{RUN}:{number}", {"site": number}) for number in list(due)[:limit]]

    async def run(self, call: Call) -> None:
        """The task of a worker: do the work of a job, unless it is already done."""
        try:
            if "execution" in call.arguments:
                await self._run_requested(call, call.arguments["execution"])
            else:
                await self._run_due(call, call.arguments["site"])
        except ExecutionLostError as error:
            _log.warning("execution.lost", reason=str(error))

    async def _run_due(self, call: Call, number: int) -> None:
        """Run the due execution. A busy site stays due, and so does one whose execution is interrupted."""
        try:
            site = await self.sites.find_by_number(number)
            execution = None if site is None else await self._begin(self.know(site), call)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                # Not at once, or a lasting fault would cause endless retries.
                await self.schedules.put_off(number, PUT_OFF)
            raise
        if site is not None and execution is not None:
            channels = choose_channels(site, ChannelChoice.ALL)
            await self._run(AnnounceExecution(self.announcer, execution, site, channels=channels), call)

    async def _begin(self, site: Site, call: Call) -> Execution | None:
        """Begin the due execution and plan the next, in one transaction. None if it is not due, or the site is busy."""
        await self.executions.recover(workflow_name=site.workflow_name)
        try:
            async with self.database.write() as connection:
                if not await self.schedules.begin(connection, site.number):
                    return None
                execution = await self.executions.insert(
                    connection, site.workflow_name, kind=ANNOUNCE, holder=call.holder
                )
                if execution is None:
                    raise _BusySiteError
                await self.alerts.resolve_alert(connection, AnnounceAlert.NOT_RUN, site.id)
                return execution
        except _BusySiteError:
            _log.info("run.put_off", site=site.id, reason="another execution of the site runs")
            return None

    async def _run_requested(self, call: Call, public_id: str) -> None:
        adopted = await self.requests.adopt(public_id, holder=call.holder)
        if adopted is None:
            return
        try:
            work, given = await self._prepare_requested(adopted)
        except Exception as error:
            result = {"status": ExecutionStatus.FAILED.value, "errors": [f"it could not begin: {error}"]}
            await self.executions.finish(adopted.execution, ExecutionStatus.FAILED, result=result)
            self.live.forget(public_id)
            raise
        await self._run(work, call, pages=given)

    async def _prepare_requested(self, adopted: AdoptedExecution) -> tuple[AnnounceExecution, GivenPages | None]:
        execution, request = adopted.execution, adopted.request
        site = await self.sites.find(execution.workflow_name.removeprefix(WORKFLOW_PREFIX))
        if site is None:
            raise LookupError("the site was removed")
        site, given = self.know(site), None
        channels = choose_channels(site, ChannelChoice(request["channel"]), given="urls" in request)
        if "urls" in request:
            given = GivenPages.of_request(request["urls"], at=from_milliseconds(request["at"]))
            # The sitemap is not read, so removed pages are not detected.
            site = replace(site, announce_removed=False)
        return AnnounceExecution(self.announcer, execution, site, channels=channels), given

    async def _run(self, work: AnnounceExecution, call: Call, *, pages: GivenPages | None = None) -> None:
        """Do the work. If the worker ends before that, the work is due again at once."""
        call.stop.limit(self.budget)
        # Nothing else lists given pages: neither a stop nor the time budget comes before they are in the outbox.
        planning = None if pages is None else Stop(clock=self.announcer.clock)
        status = ExecutionStatus.INTERRUPTED
        try:
            report = await work.run(stop=call.stop, pages=pages, planning=planning, on_progress=self.live.record)
            status = report.status
        finally:
            self.live.forget(work.execution.public_id)
            # Another execution may wait for the end of this one.
            self.wake()
            if status is ExecutionStatus.INTERRUPTED and call.ending.requested:
                await self._put_back_cut_off(work.execution)

    async def _put_back_cut_off(self, execution: Execution) -> None:
        async with self.database.write() as connection:
            row = (await connection.execute(select(execution_table).where(execution_table.c.id == execution.id))).one()
            # If it could not be ended, `recover` ends it later and puts the work back.
            if row.status == ExecutionStatus.INTERRUPTED and row.stop_requested_at is None:
                request = None if row.request is None else json.loads(row.request)
                await self.put_back(
                    connection, LostExecution(row.public_id, row.workflow_name, row.kind, request), again=True
                )

    async def put_back(self, connection: AsyncConnection, lost: LostExecution, *, again: bool = False) -> None:
        """In the caller's transaction: make the work of this execution due again. Unless `again`, a site whose
        executions were interrupted several times in a row waits for its schedule, because it may be the cause.
        """
        if lost.kind != ANNOUNCE or not (again or await self._may_repeat(connection, lost)):
            return
        if lost.request is not None:
            with suppress(AlreadyRunningError):
                await self.requests.reserve(connection, lost.workflow_name, kind=ANNOUNCE, request=lost.request)
            moved = update(execution_table).where(execution_table.c.public_id == lost.public_id)
            await connection.execute(moved.values(request=None))
            return
        site_id = lost.workflow_name.removeprefix(WORKFLOW_PREFIX)
        number = (await connection.execute(select(sites.c.number).where(sites.c.id == site_id))).scalar()
        if number is not None:
            await self.schedules.make_due(connection, number)

    async def _may_repeat(self, connection: AsyncConnection, lost: LostExecution) -> bool:
        recent = (
            select(execution_table.c.status)
            .where(execution_table.c.workflow_name == lost.workflow_name)
            .order_by(execution_table.c.id.desc())
            .limit(MOST_CUT_OFF)
        )
        statuses = (await connection.execute(recent)).scalars().all()
        if len(statuses) < MOST_CUT_OFF or any(status not in _CUT_OFF for status in statuses):
            return True
        reason = f"cut off {MOST_CUT_OFF} times in a row"
        _log.warning("run.given_up", workflow=lost.workflow_name, reason=reason)
        return False

    async def watch_over(self) -> None:
        """Once a minute: raise alerts for sites that missed their schedule."""
        late = await self.schedules.list_late(limit=MOST_LATE)
        raised = {each.id for each in late}
        async with self.database.write() as connection:
            for each in late:
                await self.alerts.raise_alert(connection, _describe_lateness(each))
            if len(late) < MOST_LATE:
                # A site that was paused or disabled since then is no longer late.
                await self.alerts.resolve_matching(
                    connection, lambda kind, subject: kind == AnnounceAlert.NOT_RUN and subject not in raised
                )
        self.alerts.wake()

    async def free(self, site: Site) -> int:
        """Reopen the engines that refused the site's keys, with the same keys; returns how many."""
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


def _make_request_job(public_id: str) -> Job:
    return Job(RUN, f"{RUN}:{public_id}", {"execution": public_id}, urgent=True)


def _describe_lateness(late: LateSite) -> Alert:
    last = "never" if late.last_run is None else f"last at {late.last_run:%Y-%m-%d %H:%M} UTC"
    return Alert(
        kind=AnnounceAlert.NOT_RUN,
        subject=late.id,
        reason=f"it should have run twice by {late.since:%Y-%m-%d %H:%M} UTC, and has run {last}",
        action="Check that the service runs and has room; `tidings status` shows what it did.",
    )


@dataclass(frozen=True, slots=True)
class Started:
    """A requested execution."""

    execution: Execution
    executions: Executions
    live: LiveExecutions

    async def wait(self) -> ExecutionRecord:
        """Wait for its end, in any process. A caller that stops waiting does not stop the execution. Raises
        ExecutionLostError if it was deleted before it began.
        """
        while True:
            record = await self.executions.find(self.execution.public_id)
            if record is None:
                raise ExecutionLostError(self.execution.public_id, self.execution.workflow_name)
            if record.status is not ExecutionStatus.RUNNING:
                return record
            await self.live.wait_for_an_end(at_most=_LOOK_EVERY)
