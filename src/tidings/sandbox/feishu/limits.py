"""Limits of the stand-in: writes and searches for each table and second, and the size of a request. The rates are
Feishu's documented ones. Feishu does not document a size.
"""

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidings.sandbox.feishu.tables import RefusalError
from tidings.sandbox.wire.stand_in import Now

RESET_HEADER: Final = "x-ogw-ratelimit-reset"


@dataclass(frozen=True, slots=True)
class BitableLimits:
    """Limits of one base."""

    writes_a_second: int = 50
    searches_a_second: int = 20
    most_bytes: int = 2_000_000


DOCUMENTED_LIMITS: Final = BitableLimits()


class RateGate:
    """Passes at most this many requests within any second; None passes all."""

    def __init__(self, most: int | None, *, now: Now) -> None:
        self._most = most
        self._now = now
        self._passed: deque[datetime] = deque()

    def pass_one(self) -> None:
        """Raise RefusalError for a request above the limit, with the seconds to wait."""
        if self._most is None:
            return
        now = self._now()
        while self._passed and now - self._passed[0] >= timedelta(seconds=1):
            self._passed.popleft()
        if len(self._passed) >= self._most:
            headers = {"x-ogw-ratelimit-limit": str(self._most), RESET_HEADER: "1"}
            raise RefusalError(99991400, "request trigger frequency limit", status=429, headers=headers)
        self._passed.append(now)
