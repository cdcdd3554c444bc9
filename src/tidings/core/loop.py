"""Background loops: repeat a step until the stop signal, and sleep or be woken between two steps."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from tidings.core.clock import Clock
from tidings.core.stop import Stop, StopRequestedError


class Loop:
    """One background loop. `wake` may be called at any time, even before `run` and from within a step."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Run the next step at once. A call during a step is not lost: the step runs again."""
        self._woken.set()

    async def run(self, step: Callable[[], Awaitable[timedelta]], stop: Stop) -> None:
        """Repeat `step`, which returns how long to sleep, until the stop signal.

        A step is never cancelled: give it `stop` if it can take long. StopRequestedError from a step ends the loop.
        """
        with suppress(StopRequestedError):
            while not stop.requested:
                self._woken.clear()
                await self._sleep(await step(), stop)

    async def _sleep(self, duration: timedelta, stop: Stop) -> None:
        waits: tuple[Awaitable[object], ...] = (self._clock.sleep(duration), self._woken.wait(), stop.wait())
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
