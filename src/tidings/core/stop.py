"""The wish to stop in good order: a budget that ran out, or a signal. Work asks here before it goes on or waits."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from tidings.core.clock import Clock

Result = TypeVar("Result")


class StopRequestedError(Exception):
    """Raised where work would have gone on or waited although it is time to stop."""


class Stop:
    """One wish to stop, shared by everything that belongs to one execution."""

    def __init__(self, *, clock: Clock, budget: timedelta | None = None) -> None:
        self._clock = clock
        self._event = asyncio.Event()
        self._ends_at = None if budget is None else clock.monotonic() + budget.total_seconds()
        self._budget = budget
        self.reason: str | None = None

    def request(self, reason: str) -> None:
        """Ask for a stop; the first reason is the one that is kept."""
        if self.reason is None:
            self.reason = reason
        self._event.set()

    @property
    def requested(self) -> bool:
        """Whether it is time to stop, also because the budget has run out."""
        if not self._event.is_set() and self._ends_at is not None and self._clock.monotonic() >= self._ends_at:
            self.request(f"the time budget of {self._budget} ran out")
        return self._event.is_set()

    def remaining(self) -> timedelta | None:
        """What is left of the budget; None where there is none."""
        if self._ends_at is None:
            return None
        return timedelta(seconds=max(0.0, self._ends_at - self._clock.monotonic()))

    def check(self) -> None:
        """Raise StopRequestedError when it is time to stop."""
        if self.requested:
            raise StopRequestedError(self.reason)

    async def wait(self) -> None:
        """Return once it is time to stop."""
        while not self.requested:
            left = self.remaining()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._event.wait(), None if left is None else left.total_seconds())

    async def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do this work, but not beyond the wish to stop: then it is cancelled, and StopRequestedError raised."""
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
        """Wait so long, but not beyond the wish to stop. Raises StopRequestedError."""
        self.check()
        await self.wait_for(self._clock.sleep(duration))
