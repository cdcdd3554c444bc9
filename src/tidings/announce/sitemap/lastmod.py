"""The stamps of a sitemap: what moment a W3C date can mean, and how a feed's date is written as one.

Here lives everything about the text of a `lastmod`. Whether a page is due because of it is decided elsewhere.
"""

import re
from calendar import isleap, monthrange
from datetime import UTC, date
from email.utils import parsedate_to_datetime
from functools import lru_cache

_W3C = re.compile(
    rb"(\d{4})(?:-(\d\d)(?:-(\d\d)"
    rb"(?:T([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d+))?)?(?:Z|([+-])([01]\d|2[0-3]):([0-5]\d)))?)?)?"
)
_EPOCH = date(1970, 1, 1).toordinal()
_SECOND = 1_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


@lru_cache(maxsize=16_384)
def parse_lastmod(raw: bytes) -> tuple[int, int] | None:
    """Give the earliest and the latest millisecond since the epoch (UTC, both included) that a stamp can mean.

    A date without a time is that day, month or year in UTC; one digit of a fraction is that tenth of a second.
    None for what is not one of the W3C forms, which counts as no stamp at all.
    """
    found = _W3C.fullmatch(raw)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, ahead_hours, ahead_minutes = found.groups()
    try:
        if hour is None:
            return _span_date(year, month, day)
        start = _find_day(year, month, day) + int(hour) * _HOUR + int(minute) * _MINUTE
    except ValueError:
        return None
    if sign is not None:
        ahead = int(ahead_hours) * _HOUR + int(ahead_minutes) * _MINUTE
        start += ahead if sign == b"-" else -ahead
    if second is None:
        return start, start + _MINUTE - 1
    start += int(second) * _SECOND
    if fraction is None:
        return start, start + _SECOND - 1
    return start + int(fraction[:3].ljust(3, b"0")), start + int(fraction[:3].ljust(3, b"9"))


def write_w3c(text: str) -> str:
    """Write a feed's date (RFC 822, or W3C already) in the W3C form; what is neither becomes the empty string."""
    if text.isascii() and parse_lastmod(text.encode()):
        return text
    try:
        moment = parsedate_to_datetime(text)
        # "-0000" and a missing zone come without one; both are taken as UTC.
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return ""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


@lru_cache(maxsize=4_096)
def _find_day(year: bytes, month: bytes, day: bytes) -> int:
    return (date(int(year), int(month), int(day)).toordinal() - _EPOCH) * _DAY


def _span_date(year: bytes, month: bytes | None, day: bytes | None) -> tuple[int, int]:
    start = _find_day(year, month or b"01", day or b"01")
    if day is not None:
        days = 1
    elif month is not None:
        days = monthrange(int(year), int(month))[1]
    else:
        days = 365 + isleap(int(year))
    return start, start + days * _DAY - 1
