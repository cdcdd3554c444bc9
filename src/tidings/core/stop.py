"""The stop signal: set by a request, or when a time budget runs out. Work checks it before it continues or waits."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from tidings.core.clock import Clock, write_duration

Result = TypeVar("Result")

# A time on the event loop's clock that has passed.
_PASSED = 0.0


class StopRequestedError(Exception):
    """The stop signal was set; the message is its reason."""


class Stop:
    """One stop signal, shared by all parts of one execution."""

    def __init__(self, *, clock: Clock, budget: timedelta | None = None) -> None:
        self._clock = clock
        self._event = asyncio.Event()
        self._ends_at: float | None = None
        self._budget = timedelta()
        # Of the work that is awaited now.
        self._deadlines: set[asyncio.Timeout] = set()
        self.reason: str | None = None
        if budget is not None:
            self.limit(budget)

    def request(self, reason: str) -> None:
        """Set the stop signal. The first reason is kept."""
        if self.reason is None:
            self.reason = reason
        self._event.set()
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(_PASSED)

    def request_by_signal(self, name: str) -> None:
        """The operating system asks for it."""
        self.request(f"{name} was received")

    def limit(self, budget: timedelta) -> None:
        """Set the time budget. Call it before anything waits for this signal."""
        self._budget, self._ends_at = budget, self._clock.monotonic() + budget.total_seconds()

    @property
    def requested(self) -> bool:
        """Whether the signal is set, or the budget has run out."""
        if not self._event.is_set() and self._ends_at is not None and self._clock.monotonic() >= self._ends_at:
            self.request(self._name_budget())
        return self._event.is_set()

    def remaining(self) -> timedelta | None:
        """The rest of the budget; None if there is no budget."""
        if self._ends_at is None:
            return None
        return timedelta(seconds=max(0.0, self._ends_at - self._clock.monotonic()))

    def has_time_for(self, duration: timedelta) -> bool:
        """Whether the rest of the budget is as long as this."""
        left = self.remaining()
        return left is None or duration <= left

    def check(self) -> None:
        """Raise StopRequestedError if the stop was requested."""
        if self.requested:
            raise StopRequestedError(self.reason)

    async def wait(self) -> None:
        """Return once the stop is requested."""
        while not self.requested:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._event.wait(), self._count_seconds())

    async def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await this work. The stop signal cancels it and raises StopRequestedError."""
        try:
            async with asyncio.timeout(self._count_seconds()) as deadline:
                self._deadlines.add(deadline)
                return await work
        except Exception:
            # Once the work is cancelled, its own errors do not matter.
            if not deadline.expired():
                raise
        finally:
            self._deadlines.discard(deadline)
        # Without a request it was the budget that ended.
        self.request(self._name_budget())
        raise StopRequestedError(self.reason)

    async def sleep(self, duration: timedelta) -> None:
        """Sleep. The stop signal ends it and raises StopRequestedError."""
        self.check()
        await self.wait_for(self._clock.sleep(duration))

    def _name_budget(self) -> str:
        return f"the time budget of {write_duration(self._budget)} ran out"

    def _count_seconds(self) -> float | None:
        """How long work may still take."""
        left = timedelta(0) if self.requested else self.remaining()
        return None if left is None else left.total_seconds()
