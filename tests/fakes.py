"""Clocks that a test sets. Everything else in a test is real."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from tidings.core.heartbeats import HEARTBEAT_EVERY

SOON = 60.0


class FakeClock:
    """Stands still until a test moves it on. Sleeping moves it, and lets everything else run meanwhile; a sleep of
    nothing takes a tenth of a millisecond, as it does in truth."""

    def __init__(self, now: datetime = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)) -> None:
        self._now = now
        self._elapsed = 0.0
        self.slept: list[timedelta] = []

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, duration: timedelta) -> None:
        self._now += duration
        self._elapsed += duration.total_seconds()

    def set(self, now: datetime) -> None:
        self.advance(now - self._now)

    async def sleep(self, duration: timedelta) -> None:
        self.slept.append(duration)
        self.advance(duration or timedelta(microseconds=100))
        await asyncio.sleep(0)


class StageClock(FakeClock):
    """Moved by the test and by every sleep but a heartbeat's: heartbeats come as the time goes by."""

    def __init__(self, now: datetime) -> None:
        super().__init__(now)
        self._changed = asyncio.Condition()
        self._moved = asyncio.Event()
        self._asleep = 0
        self._sleeps = 0

    def advance(self, duration: timedelta) -> None:
        super().advance(duration)
        self._moved.set()

    async def sleep(self, duration: timedelta) -> None:
        # The very object, not one of the same length: a rate limit asks for a minute too.
        if duration is not HEARTBEAT_EVERY:
            await super().sleep(duration)
            return
        due_at = self.monotonic() + duration.total_seconds()
        async with self._changed:
            self._asleep += 1
            self._sleeps += 1
            self._changed.notify_all()
        try:
            while self.monotonic() < due_at:
                self._moved.clear()
                await self._moved.wait()
        finally:
            self._asleep -= 1

    async def pass_minute(self, *, hearts: int) -> None:
        """Let a minute go by in which each of so many executions sends its heartbeat; raises TimeoutError."""
        await self._wait_until(lambda: self._asleep == hearts)
        expected = self._sleeps + hearts
        self.advance(HEARTBEAT_EVERY)
        await self._wait_until(lambda: self._sleeps >= expected)

    async def _wait_until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(SOON), self._changed:
            await self._changed.wait_for(is_so)
