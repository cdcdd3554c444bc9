"""Executions at work in this process: the newest report of each, and the stop signal for all of them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from tidings.announce.execution.report import Report
from tidings.core.clock import Clock
from tidings.core.stop import Stop


class LiveExecutions:
    """The executions that run in this process. Those of other processes are known only by what they saved."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._reports: dict[str, Report] = {}
        self._stops: set[Stop] = set()
        self._reason: str | None = None

    @contextmanager
    def watch(self, *, budget: timedelta) -> Iterator[Stop]:
        """The stop signal of one execution: its own budget, or the end of the whole process."""
        stop = Stop(clock=self._clock, budget=budget)
        self._stops.add(stop)
        if self._reason is not None:
            stop.request(self._reason)
        try:
            yield stop
        finally:
            self._stops.discard(stop)

    def record(self, report: Report) -> None:
        """Keep the newest report of an execution."""
        self._reports[report.execution_id] = report

    def forget(self, execution_id: str) -> None:
        self._reports.pop(execution_id, None)

    def describe(self, execution_id: str) -> Mapping[str, Any] | None:
        """The newest report of an execution as JSON; None if it does not run here."""
        report = self._reports.get(execution_id)
        return None if report is None else report.to_json()

    @property
    def is_stopping(self) -> bool:
        """Whether all of them have to end."""
        return self._reason is not None

    def stop_all(self, reason: str) -> None:
        """End them in good order, and those that begin later at once."""
        self._reason = reason
        for stop in self._stops:
            stop.request(reason)
