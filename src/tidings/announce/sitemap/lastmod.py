"""The text of a `lastmod`: the time span of a W3C date, and a feed's date in W3C form. `due` decides
whether a page is due because of it.
"""

import re
from calendar import isleap, monthrange
from datetime import UTC, date
from email.utils import parsedate_to_datetime
from functools import lru_cache

_W3C = re.compile(
    rb"(\d{4}(?:-\d\d(?:-\d\d)?)?)"
    rb"(?:(?<=-\d\d-\d\d)T([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d+))?)?(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d))?"
)
# The form that most programs write, in UTC. It has a short cut, because a first execution parses a million of them.
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_USUAL = b"0000-00-00T00:00:00"
_EPOCH = date(1970, 1, 1).toordinal()
_SECOND = 1_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


def parse_lastmod(raw: bytes) -> tuple[int, int] | None:
    """The first and the last millisecond since the epoch (UTC, both included) that a timestamp can mean.

    A date without a time is that day, month or year in UTC. One digit of a fraction is that tenth of a second.
    None for any other form, which counts as no timestamp.
    """
    if raw[19:] in (b"+00:00", b"Z") and raw[:19].translate(_DIGITS) == _USUAL:
        span, time_of_day = _span_date(raw[:10]), _find_time(raw[11:16])
        if span is not None and time_of_day is not None and (second := int(raw[17:19])) < 60:
            start = span[0] + time_of_day + second * _SECOND
            return start, start + _SECOND - 1
    return _parse_any(raw)


@lru_cache(maxsize=1_024)
def _parse_any(raw: bytes) -> tuple[int, int] | None:
    found = _W3C.fullmatch(raw)
    if found is None:
        return None
    day, hour, minute, second, fraction, zone = found.groups()
    span = _span_date(day)
    if hour is None or span is None:
        return span
    start = span[0] + int(hour) * _HOUR + int(minute) * _MINUTE - _find_offset(zone)
    if second is None:
        return start, start + _MINUTE - 1
    start += int(second) * _SECOND
    if fraction is None:
        return start, start + _SECOND - 1
    return start + int(fraction[:3].ljust(3, b"0")), start + int(fraction[:3].ljust(3, b"9"))


def write_w3c(text: str) -> str:
    """The date of a feed (RFC 822 or W3C) in W3C form. Empty for any other text."""
    if text.isascii() and parse_lastmod(text.encode()):
        return text
    try:
        timestamp = parsedate_to_datetime(text)
        # "-0000" and a missing zone are parsed without a zone; both count as UTC.
        timestamp = timestamp.astimezone(UTC) if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return ""
    return timestamp.isoformat(timespec="seconds").replace("+00:00", "Z")


@lru_cache(maxsize=4_096)
def _span_date(text: bytes) -> tuple[int, int] | None:
    year, month, day = (int(part) for part in (text + b"-01-01")[:10].split(b"-"))
    try:
        start = (date(year, month, day).toordinal() - _EPOCH) * _DAY
    except ValueError:
        return None
    days = {len("YYYY"): 365 + isleap(year), len("YYYY-MM"): monthrange(year, month)[1]}.get(len(text), 1)
    return start, start + days * _DAY - 1


@lru_cache(maxsize=2_048)
def _find_time(text: bytes) -> int | None:
    """The milliseconds from midnight to HH:MM."""
    hour, minute = int(text[:2]), int(text[3:])
    return hour * _HOUR + minute * _MINUTE if hour < 24 and minute < 60 else None


@lru_cache(maxsize=256)
def _find_offset(zone: bytes) -> int:
    if zone == b"Z":
        return 0
    ahead = int(zone[1:3]) * _HOUR + int(zone[4:]) * _MINUTE
    return -ahead if zone.startswith(b"-") else ahead
