"""The stop signal: a time budget that ran out, or a request. Work checks it before it continues or waits."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from tidings.core.clock import Clock

Result = TypeVar("Result")


class StopRequestedError(Exception):
    """The stop signal was set; the message is its reason."""


class Stop:
    """One stop signal, shared by all parts of one execution."""

    def __init__(self, *, clock: Clock, budget: timedelta | None = None) -> None:
        self._clock = clock
        self._event = asyncio.Event()
        self._ends_at = None if budget is None else clock.monotonic() + budget.total_seconds()
        self._budget = budget
        self.reason: str | None = None

    def request(self, reason: str) -> None:
        """Set the stop signal. The first reason is kept."""
        if self.reason is None:
            self.reason = reason
        self._event.set()

    def request_by_signal(self, name: str) -> None:
        """The operating system asks for it."""
        self.request(f"{name} was received")

    def limit(self, budget: timedelta) -> None:
        """Set the time budget, before anything waits for this signal."""
        self._budget, self._ends_at = budget, self._clock.monotonic() + budget.total_seconds()

    @property
    def requested(self) -> bool:
        """Whether the signal is set, or the budget has run out."""
        if not self._event.is_set() and self._ends_at is not None and self._clock.monotonic() >= self._ends_at:
            self.request(f"the time budget of {self._budget} ran out")
        return self._event.is_set()

    def remaining(self) -> timedelta | None:
        """The rest of the budget; None if there is no budget."""
        if self._ends_at is None:
            return None
        return timedelta(seconds=max(0.0, self._ends_at - self._clock.monotonic()))

    def check(self) -> None:
        """Raise StopRequestedError if the stop was requested."""
        if self.requested:
            raise StopRequestedError(self.reason)

    async def wait(self) -> None:
        """Return once the stop is requested."""
        while not self.requested:
            left = self.remaining()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._event.wait(), None if left is None else left.total_seconds())

    async def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await this work. The stop signal cancels it and raises StopRequestedError."""
        working = asyncio.create_task(work)
        stopping = asyncio.create_task(self.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
        raise StopRequestedError(self.reason)

    async def sleep(self, duration: timedelta) -> None:
        """Sleep. The stop signal ends it and raises StopRequestedError."""
        self.check()
        await self.wait_for(self._clock.sleep(duration))
