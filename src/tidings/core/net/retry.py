"""Retry rules for HTTP requests: the waits for each kind of failure, and the header Retry-After. Pure: the caller
sleeps."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum

from tidings.core.backoff import Backoff


class Trouble(StrEnum):
    """Why an attempt failed, as far as a retry depends on it."""

    RATE_LIMITED = "rate limited"
    UNAVAILABLE = "unavailable"
    NOT_FETCHED = "not fetched"


_SECOND = timedelta(seconds=1)

_WAITS = {
    Trouble.RATE_LIMITED: (60 * _SECOND,),
    Trouble.UNAVAILABLE: (1 * _SECOND, 2 * _SECOND, 4 * _SECOND, 8 * _SECOND, 16 * _SECOND, 32 * _SECOND),
    Trouble.NOT_FETCHED: (2 * _SECOND,),
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The waits for each kind of failure."""

    # A retry is a further attempt: 3 retries are 4 attempts.
    retries: int = 3
    # Multiplies every wait, so that a rehearsal need not wait a real minute.
    scale: float = 1

    def next_delay(self, trouble: Trouble, *, retry: int, asked_for: timedelta | None = None) -> timedelta | None:
        """The wait before retry number `retry` (from 1), or None to give up.

        `asked_for` is the server's Retry-After. It replaces the wait of a rate limit, and no other.
        """
        waits = _WAITS[trouble]
        if asked_for is not None and trouble is Trouble.RATE_LIMITED:
            waits = (asked_for,)
        wait = Backoff(waits, most_retries=self.retries).next_delay(retry)
        return None if wait is None else wait * self.scale

    def find_rest(self, *, asked_for: timedelta | None) -> timedelta:
        """How long to leave a server alone after a rate limit, also after the last attempt."""
        return (_WAITS[Trouble.RATE_LIMITED][0] if asked_for is None else asked_for) * self.scale


def parse_retry_after(value: str | None, *, now: datetime) -> timedelta | None:
    """The header's duration, given in seconds or as a date; None if it is missing, wrong or past."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return timedelta(seconds=int(text[:9]))
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return at - now if at > now else None
