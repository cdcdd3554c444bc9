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


def parse_timestamp(text: str) -> datetime | None:
    """A moment as people write it, such as 2026-11-15T10:00Z, or a day; in UTC where no zone is named. None for
    anything else."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
