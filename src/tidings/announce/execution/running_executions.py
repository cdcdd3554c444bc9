"""Executions at work: the newest report of each. Those of this process are exact, those of others a second old."""

import asyncio
from contextlib import suppress
from datetime import timedelta

from tidings.announce.execution.report import Report
from tidings.announce.execution.report_json import ReportJson
from tidings.core.clock import Clock

# After a request for it, progress of other processes is received for this long.
WATCHED_FOR = timedelta(seconds=60)
# The most reports of other processes that are kept; nobody says when their executions end.
MOST_RECEIVED = 1_000


class LiveExecutions:
    """The executions that run in this process, and reports of those in others."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._reports: dict[str, Report] = {}
        self._changed: set[str] = set()
        self._received: dict[str, ReportJson] = {}
        # Set when the next execution ends here.
        self._ended = asyncio.Event()
        self._asked = asyncio.Event()
        self._asked_at: float | None = None

    def record(self, report: Report) -> None:
        """Keep the newest report of an execution."""
        self._reports[report.execution_id] = report
        self._changed.add(report.execution_id)

    def forget(self, execution_id: str) -> None:
        """The execution has ended here."""
        self._reports.pop(execution_id, None)
        self._changed.discard(execution_id)
        self._ended.set()
        self._ended = asyncio.Event()

    def describe(self, execution_id: str) -> ReportJson | None:
        """The newest report of an execution as JSON; None if none is known here. Use it while the execution runs."""
        report = self._reports.get(execution_id)
        if report is not None:
            return report.to_json()
        self._asked_at = self._clock.monotonic()
        self._asked.set()
        return self._received.get(execution_id)

    async def wait_for_an_end(self, *, at_most: timedelta) -> None:
        """Return once an execution has ended in this process, or after `at_most`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), at_most.total_seconds())

    def take_changes(self) -> list[ReportJson]:
        """The reports that changed since this was last called, as JSON."""
        changed, self._changed = self._changed, set()
        return [self._reports[each].to_json() for each in changed if each in self._reports]

    def receive(self, report: ReportJson) -> None:
        """Keep the report that another process sent, and drop the one that is the longest without news."""
        execution_id = str(report.get("executionId"))
        self._received.pop(execution_id, None)
        self._received[execution_id] = report
        if len(self._received) > MOST_RECEIVED:
            del self._received[next(iter(self._received))]

    @property
    def is_watched(self) -> bool:
        """Whether an execution of another process was requested lately. If not, the received reports are dropped."""
        asked_at = self._asked_at
        if asked_at is not None and self._clock.monotonic() - asked_at < WATCHED_FOR.total_seconds():
            return True
        self._received.clear()
        return False

    async def wait_until_watched(self) -> None:
        """Return when an execution of another process is requested."""
        self._asked.clear()
        await self._asked.wait()
