"""At least so long between two requests to one platform, and between two with one cookie, in this process.

`core.pace` keeps its queue in the database, for all workers together; whoever crawls has only the reading half of the
database, so this queue is in memory. A request that is given up while it waits leaves no gap.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from tidings.core.clock import Clock
from tidings.core.secrets.secret import Secret

DEFAULT_PLATFORM_INTERVAL: Final = timedelta(seconds=1)
DEFAULT_COOKIE_INTERVAL: Final = timedelta(seconds=3)

_MOST_LANES: Final = 4_096


@dataclass(slots=True)
class _Lane:
    """Those who wait for one target or cookie, and when the next may go (monotonic seconds)."""

    next_at: float = 0.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class LocalPace:
    """The queues of one process; see `Pacing` for what it promises."""

    def __init__(
        self,
        *,
        clock: Clock,
        platform_interval: timedelta = DEFAULT_PLATFORM_INTERVAL,
        cookie_interval: timedelta = DEFAULT_COOKIE_INTERVAL,
    ) -> None:
        self._clock = clock
        self._platform_interval = platform_interval
        self._cookie_interval = cookie_interval
        self._lanes: dict[tuple[str, str], _Lane] = {}

    async def wait_turn(self, target: str, *, cookie: Secret | None = None, least: timedelta = timedelta(0)) -> None:
        interval = max(self._platform_interval, least)
        if cookie is None:
            await self._wait_in(self._find_lane(target, ""), interval)
            return
        lane = self._find_lane(target, cookie.fingerprint)
        # The cookie's queue first: whoever waits for a cookie must not keep others from the platform.
        lane.waiting += 1
        try:
            async with lane.turn:
                await self._wait_until(lane.next_at)
                await self._wait_in(self._find_lane(target, ""), interval)
                lane.next_at = self._clock.monotonic() + self._cookie_interval.total_seconds()
        finally:
            lane.waiting -= 1

    async def _wait_in(self, lane: _Lane, interval: timedelta) -> None:
        lane.waiting += 1
        try:
            async with lane.turn:
                await self._wait_until(lane.next_at)
                lane.next_at = self._clock.monotonic() + interval.total_seconds()
        finally:
            lane.waiting -= 1

    async def _wait_until(self, moment: float) -> None:
        while (left := moment - self._clock.monotonic()) > 0:
            await self._clock.sleep(timedelta(seconds=left, microseconds=1))

    def _find_lane(self, target: str, cookie: str) -> _Lane:
        key = (target, cookie)
        if key not in self._lanes:
            self._forget_idle()
            self._lanes[key] = _Lane()
        return self._lanes[key]

    def _forget_idle(self) -> None:
        """The open web has more hosts than there is memory."""
        if len(self._lanes) < _MOST_LANES:
            return
        now = self._clock.monotonic()
        self._lanes = {key: lane for key, lane in self._lanes.items() if lane.waiting or lane.next_at > now}
