"""The minimum interval between two requests to one platform and between two with one cookie.

`core.net.pace` keeps its queues in a table for all workers. The crawl API cannot write, so these queues are in memory;
the head of each queue waits for a turn that all processes share (`shared_turns`). A request that is cancelled while it
waits leaves no gap.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from tidings.collect.crawl.platforms.shared_turns import SharedTurns
from tidings.core.clock import Clock
from tidings.core.secrets.secret import Secret

DEFAULT_PLATFORM_INTERVAL: Final = timedelta(seconds=1)
DEFAULT_COOKIE_INTERVAL: Final = timedelta(seconds=3)

_MOST_QUEUES: Final = 4_096


@dataclass(slots=True)
class _Queue:
    """The requests that wait for one target or cookie."""

    # When the next request may be sent, in monotonic seconds.
    next_at: float = 0.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    # How many requests wait.
    waiting: int = 0


@dataclass(slots=True)
class TurnTrace:
    """The turns that one request of the crawler waited for; it may send several requests to the platform."""

    # Turns that it got, which are requests that it sent.
    taken: int = 0
    # Whether it waits for a turn now.
    is_waiting: bool = False
    # Whether it was ended while it waited: its time limit is about to cancel it.
    is_ended: bool = False


# The trace of the request that the present task serves.
current_turns: ContextVar[TurnTrace | None] = ContextVar("current_turns", default=None)


@dataclass(slots=True, eq=False, kw_only=True)
class LocalPace:
    """The queues of one process. `Pacing` states the contract."""

    clock: Clock
    platform_interval: timedelta = DEFAULT_PLATFORM_INTERVAL
    cookie_interval: timedelta = DEFAULT_COOKIE_INTERVAL
    # The turns that all processes share; None where there is only one.
    turns: SharedTurns | None = None
    _queues: dict[tuple[str, str], _Queue] = field(default_factory=dict, init=False)

    async def wait_turn(self, target: str, *, cookie: Secret | None = None, least: timedelta = timedelta(0)) -> None:
        trace = current_turns.get() or TurnTrace()
        trace.is_waiting = True
        await self._wait_for_queues(target, cookie, interval=max(self.platform_interval, least))
        trace.is_waiting = False
        trace.taken += 1

    async def _wait_for_queues(self, target: str, cookie: Secret | None, *, interval: timedelta) -> None:
        if cookie is None:
            await self._wait_in(target, interval)
            return
        queue = self._find_queue(target, cookie.fingerprint)
        # The cookie's queue first, so that a request that waits for its cookie does not block the platform for others.
        queue.waiting += 1
        try:
            async with queue.turn:
                await self._wait_until(queue.next_at)
                async with self._share_cookie(cookie.fingerprint):
                    await self._wait_in(target, interval)
                queue.next_at = self.clock.monotonic() + self.cookie_interval.total_seconds()
        finally:
            queue.waiting -= 1

    @asynccontextmanager
    async def _share_cookie(self, cookie: str) -> AsyncIterator[None]:
        """No other process sends this cookie during the block and, if the block succeeds, for the interval after it."""
        if self.turns is None or not self.cookie_interval:
            yield
            return
        await self.turns.take_cookie(cookie)
        interval = timedelta(0)
        try:
            yield
            interval = self.cookie_interval
        finally:
            self.turns.end_cookie(cookie, interval)

    async def _wait_in(self, target: str, interval: timedelta) -> None:
        queue = self._find_queue(target, "")
        queue.waiting += 1
        try:
            async with queue.turn:
                await self._wait_until(queue.next_at)
                if self.turns is not None:
                    await self.turns.take(target, interval)
                await _stop_if_ended()
                queue.next_at = self.clock.monotonic() + interval.total_seconds()
        finally:
            queue.waiting -= 1

    async def _wait_until(self, due_at: float) -> None:
        while (left := due_at - self.clock.monotonic()) > 0:
            await self.clock.sleep(timedelta(seconds=left, microseconds=1))

    def _find_queue(self, target: str, cookie: str) -> _Queue:
        key = (target, cookie)
        if key not in self._queues:
            self._forget_idle()
            self._queues[key] = _Queue()
        return self._queues[key]

    def _forget_idle(self) -> None:
        """Delete unused queues: the open web has too many hosts to keep them all."""
        if len(self._queues) < _MOST_QUEUES:
            return
        now = self.clock.monotonic()
        self._queues = {key: queue for key, queue in self._queues.items() if queue.waiting or queue.next_at > now}


async def _stop_if_ended() -> None:
    """Give way to the cancellation of a request that was ended after the event loop had scheduled its task."""
    trace = current_turns.get()
    if trace is not None and trace.is_ended:
        await asyncio.sleep(0)
