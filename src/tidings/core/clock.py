"""The injectable clock, timestamps and durations. No other module asks the system for the time.

Tables store timestamps as whole milliseconds since the epoch (UTC), so that SQLite and PostgreSQL compare them alike.
"""

import asyncio
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

# Clocks of machines may differ by this much. A time that is further ahead was written by a clock that was wrong.
CLOCK_TOLERANCE: Final = timedelta(minutes=5)


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


_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]*)", re.ASCII)
UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_UNIT_NAMES = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_milliseconds(timestamp: datetime) -> int:
    """Whole milliseconds since the epoch, as the tables hold them."""
    return (timestamp - _EPOCH) // _MILLISECOND


def from_milliseconds(milliseconds: int) -> datetime:
    """The inverse of `to_milliseconds`."""
    return _EPOCH + milliseconds * _MILLISECOND


def read_timestamp(milliseconds: int | None) -> datetime | None:
    """The inverse of `to_milliseconds` for a column that may be NULL."""
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


def parse_duration(text: str, *, unit: str, least: float = 0, most: float = 1_000_000) -> timedelta:
    """Such as `30` (of `unit`), `30s`, `15m` or `1.5h`. Raises ValueError."""
    matched = _DURATION.fullmatch(text)
    duration = None
    if matched is not None and (matched[2] or unit) in UNITS:
        duration = float(matched[1]) * UNITS[matched[2] or unit]
    if duration is None or not least <= duration / UNITS[unit] <= most:
        rule = f"it must be a number of {_UNIT_NAMES[unit]} from {least:g} to {most:,}"
        raise ValueError(f"{rule}, or one with a unit ({', '.join(UNITS)}) such as 30s or 15m")
    return duration


def write_duration(duration: timedelta) -> str:
    """A duration as `parse_duration` reads it, in the largest unit that fits, such as `36h`."""
    unit = next((name for name in reversed(UNITS) if not duration % UNITS[name]), "ms")
    return f"{duration / UNITS[unit]:.15g}{unit}"
