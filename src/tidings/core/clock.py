"""The injectable clock, and timestamps. No other module asks the system for the time.

Tables store timestamps as whole milliseconds since the epoch (UTC), so that SQLite and PostgreSQL compare them alike.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """The time, as the rest of the program reads it."""

    def now(self) -> datetime:
        """The current time, UTC."""

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


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_milliseconds(timestamp: datetime) -> int:
    """Whole milliseconds since the epoch, as the tables hold them."""
    return (timestamp - _EPOCH) // _MILLISECOND


def from_milliseconds(milliseconds: int) -> datetime:
    """The inverse of `to_milliseconds`."""
    return _EPOCH + milliseconds * _MILLISECOND


def read_timestamp(milliseconds: int | None) -> datetime | None:
    """A timestamp from a column that may be NULL."""
    return None if milliseconds is None else from_milliseconds(milliseconds)


def to_text(timestamp: datetime) -> str:
    """ISO 8601 with milliseconds and a Z, for people and JSON."""
    return timestamp.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_timestamp(text: str) -> datetime | None:
    """A timestamp that a person wrote, such as 2026-11-15T10:00Z, or a day; None if it is neither.

    UTC unless the text names another zone.
    """
    try:
        timestamp = datetime.fromisoformat(text)
        return timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
