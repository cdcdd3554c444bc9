"""What tests wait with: requests that are held back at a stand-in, and a question that is asked until it is so."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tidings.sandbox.wire.request_log import Recorded

SOON = 60.0
# Seconds between two questions: the second comes soon, and the more that follow, the more the others get done.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05


class Held:
    """Requests that wait. `came` is set by the first of them."""

    def __init__(self) -> None:
        self.came = asyncio.Event()
        self._go_on = asyncio.Event()

    async def wait(self, _: Recorded) -> None:
        self.came.set()
        await self._go_on.wait()

    async def arrive(self) -> None:
        """Return once a request waits; raises TimeoutError."""
        async with asyncio.timeout(SOON):
            await self.came.wait()

    def let_go(self) -> None:
        self._go_on.set()


async def wait_until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so; raises TimeoutError. Between two questions the others get the processor."""
    pause = _SHORTEST_PAUSE
    async with asyncio.timeout(SOON):
        # There is no event: what is asked is a database or another process.
        while not await is_so():
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


class Pulse:
    """Measures how long the event loop stands still at most, in seconds."""

    longest = 0.0

    async def beat(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now


@asynccontextmanager
async def feel_pulse() -> AsyncIterator[Pulse]:
    pulse = Pulse()
    beating = asyncio.create_task(pulse.beat())
    try:
        yield pulse
    finally:
        beating.cancel()
