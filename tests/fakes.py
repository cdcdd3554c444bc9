"""The few things that tests put in place of the world: a clock they can set. Everything else is real."""

import asyncio
from datetime import UTC, datetime, timedelta


class FakeClock:
    """Stands still until it is told to go on. Sleeping moves it, and lets everything else run meanwhile; a sleep of
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
