"""When to try again: pure decisions. Nothing here waits, or knows which engine or platform it is about."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum


class Trouble(StrEnum):
    """Why an attempt failed, as far as trying again goes."""

    RATE_LIMITED = "rate limited"
    UNAVAILABLE = "unavailable"
    NOT_FETCHED = "not fetched"


_SECOND = timedelta(seconds=1)

# The last wait repeats where more retries are allowed than there are waits.
_WAITS = {
    Trouble.RATE_LIMITED: (60 * _SECOND,),
    Trouble.UNAVAILABLE: (1 * _SECOND, 2 * _SECOND, 4 * _SECOND, 8 * _SECOND, 16 * _SECOND, 32 * _SECOND),
    Trouble.NOT_FETCHED: (2 * _SECOND,),
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """So many retries, each after a wait. A retry is a further attempt: 3 retries are 4 attempts.

    `scale` multiplies every wait, so that a rehearsal need not wait a real minute.
    """

    retries: int = 3
    scale: float = 1

    def next_delay(self, trouble: Trouble, *, retry: int, asked_for: timedelta | None = None) -> timedelta | None:
        """The wait before retry number `retry` (from 1), or None to give up.

        `asked_for` is what the other side wants (Retry-After); with a rate limit it goes before the rule's own wait.
        """
        if retry > self.retries:
            return None
        waits = _WAITS[trouble]
        wait = waits[min(retry, len(waits)) - 1]
        if asked_for is not None and trouble is Trouble.RATE_LIMITED:
            wait = asked_for
        return wait * self.scale


def parse_retry_after(value: str | None, *, now: datetime) -> timedelta | None:
    """The header's wish, in seconds or as a date; None where it is missing, wrong or past."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return timedelta(seconds=int(text[:9]))
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment - now if moment > now else None
