"""How long to wait before the next attempt. Pure: the caller sleeps."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing waits between attempts."""

    # The wait before the first, second, … retry. The last one repeats; without any, retries follow at once.
    waits: Sequence[timedelta]
    # A retry is a further attempt: 3 retries are 4 attempts. None never gives up.
    most_retries: int | None = None

    def next_delay(self, retry: int, *, at_least: timedelta | None = None) -> timedelta | None:
        """The wait before retry number `retry` (from 1), or None to give up.

        `at_least` is a longer wait that the other side asked for (Retry-After).
        """
        if self.most_retries is not None and retry > self.most_retries:
            return None
        wait = self.waits[min(retry, len(self.waits)) - 1] if self.waits else timedelta(0)
        return wait if at_least is None else max(wait, at_least)
