"""Time, injectable. The only place that asks the system for it.

Moments are stored as whole milliseconds since the epoch (UTC), so that SQLite and PostgreSQL compare them alike.
Pace alone measures with the monotonic clock, because it waits for fractions of a second.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What the rest of the program knows of time."""

    def now(self) -> datetime:
        """The present moment, UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back, for measuring."""

    async def sleep(self, duration: timedelta) -> None:
        """Return after at least this long."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())


def to_milliseconds(moment: datetime) -> int:
    """Whole milliseconds since the epoch; what the tables hold."""
    return (moment - _EPOCH) // _MILLISECOND


def from_milliseconds(stamp: int) -> datetime:
    """The inverse of `to_milliseconds`."""
    return _EPOCH + stamp * _MILLISECOND


def to_text(moment: datetime) -> str:
    """ISO 8601 with milliseconds and a Z, as people and JSON read it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
