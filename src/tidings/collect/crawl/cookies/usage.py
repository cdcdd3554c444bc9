"""A cookie's uses and errors in this process, kept in memory because the crawl API cannot write the table. A restart
forgets them.
"""

from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Final, Self

from tidings.collect.crawl.cookies.states import (
    CookieOutcome,
    CookieRules,
    CookieState,
    CookieStatus,
    advance_state,
    settle_state,
    utc_day,
)
from tidings.collect.crawl.cookies.table import Cookie
from tidings.collect.errors import ErrorCode

# Longer than a read of the table takes, so that an outcome during the read is kept.
_RECENT: Final = timedelta(minutes=1)


@dataclass(slots=True)
class CookieUsage:
    """One cookie's use by this process.

    Callers report uses to the writer. The table counts them, but does not say which process they belong to. Growth of
    the table's count is subtracted from our unreported uses: a use that is never reported stays counted, and none
    counts twice.
    """

    # The UTC day of the counters.
    day: date
    # `enabled_at` of the row: a change resets `own`.
    enabled_at: datetime
    # The state by the outcomes that this process saw.
    own: CookieState
    rules: CookieRules
    # Uses of today according to the table.
    counted: int
    # Uses of today by this process that the table does not count yet.
    unreported: int = 0
    # The outcomes since the last read of the table and shortly before it, with their times.
    recent: list[tuple[datetime, CookieOutcome]] = field(default_factory=list)

    @classmethod
    def begin(cls, cookie: Cookie, *, at: datetime, rules: CookieRules) -> Self:
        day, counted = utc_day(at), settle_state(cookie.state, at=at).daily_used
        return cls(day, cookie.enabled_at, CookieState(day=day), rules, counted=counted)

    def read(self, cookie: Cookie, *, at: datetime) -> None:
        """Merge a new read of the table. Errors from before a person enabled the cookie are dropped."""
        self._turn_day(at)
        stored = settle_state(cookie.state, at=at)
        counted = stored.daily_used
        self.unreported = max(0, self.unreported - max(0, counted - self.counted))
        self.counted = counted
        if cookie.enabled_at != self.enabled_at:
            self.enabled_at, self.own = cookie.enabled_at, CookieState(day=self.day)
            # A request that ended after that says something about the cookie, although the row is read only now.
            for ended_at, outcome in self.recent:
                if ended_at >= cookie.enabled_at:
                    self.own = advance_state(self.own, outcome, at=ended_at, rules=self.rules)
        elif cookie.last_used_at is not None and all(ended_at < cookie.last_used_at for ended_at, _ in self.recent):
            self._add_stored_errors(stored)
        self.recent = [each for each in self.recent if each[0] > at - _RECENT]

    def _add_stored_errors(self, stored: CookieState) -> None:
        """Errors that other processes, or an earlier one, reported. Otherwise this process would use the cookie once
        more after the error that makes it cool, and the writer would ban it."""
        if self.own.status is CookieStatus.ACTIVE:
            self.own = replace(
                self.own,
                consecutive_errors=max(self.own.consecutive_errors, stored.consecutive_errors),
                total_errors=max(self.own.total_errors, stored.total_errors),
            )

    def count(self, *, at: datetime) -> None:
        """Count one use."""
        self._turn_day(at)
        self.unreported += 1

    def take_back(self) -> None:
        """Uncount a use in which nothing was sent."""
        self.unreported = max(0, self.unreported - 1)

    def record(self, outcome: CookieOutcome, *, at: datetime) -> None:
        """Record the outcome of a use. It counts here at once, before the writer stores it."""
        self.own = advance_state(self.own, outcome, at=at, rules=self.rules)
        self.recent.append((at, outcome))

    def estimate(self, *, at: datetime) -> int:
        """Uses of today that are known here."""
        self._turn_day(at)
        return self.counted + self.unreported

    def find_status(self, *, at: datetime) -> CookieStatus:
        """The status by the outcomes that this process saw."""
        return settle_state(self.own, at=at).status

    def _turn_day(self, at: datetime) -> None:
        if utc_day(at) > self.day:
            self.day, self.counted, self.unreported = utc_day(at), 0, 0


def judge_code(code: ErrorCode | None, *, captcha: bool = False) -> CookieOutcome:
    """The outcome for the cookie of a request with this error; a code of None is success."""
    if code is None:
        return CookieOutcome.SUCCESS
    if captcha:
        return CookieOutcome.CAPTCHA
    return CookieOutcome.ERROR if code is ErrorCode.COOKIE_INVALID else CookieOutcome.UNRELATED
