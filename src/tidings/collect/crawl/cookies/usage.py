"""What this process knows of a cookie beyond the table, which it can only read: how often it has used the cookie today,
and what it has seen go wrong. In memory, so a restart forgets it.
"""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Self

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


@dataclass(slots=True)
class CookieUsage:
    """One cookie's use by this process. `counted` is what the table said of today, `unreported` our uses beyond that.

    The table grows by what callers report. It does not say whose uses those were, so they are taken for ours as long as
    any of ours is missing: one that is never reported stays missing, and none is counted twice.
    """

    day: date
    enabled_at: datetime
    own: CookieState
    counted: int
    unreported: int = 0

    @classmethod
    def begin(cls, cookie: Cookie, *, at: datetime) -> Self:
        day = utc_day(at)
        return cls(day, cookie.enabled_at, CookieState(day=day), counted=settle_state(cookie.state, at=at).daily_used)

    def read(self, cookie: Cookie, *, at: datetime) -> None:
        """The table was read anew. What was seen of a cookie before a person enabled it no longer counts."""
        self._turn_day(at)
        counted = settle_state(cookie.state, at=at).daily_used
        self.unreported = max(0, self.unreported - max(0, counted - self.counted))
        self.counted = counted
        if cookie.enabled_at != self.enabled_at:
            self.enabled_at, self.own = cookie.enabled_at, CookieState(day=self.day)

    def count(self, *, at: datetime) -> None:
        """It is used once more."""
        self._turn_day(at)
        self.unreported += 1

    def note(self, outcome: CookieOutcome, *, at: datetime, rules: CookieRules) -> None:
        """A use has ended like this. What the writer will make of it once it is told, counts here at once."""
        self.own = advance_state(self.own, outcome, at=at, rules=rules)

    def estimate(self, *, at: datetime) -> int:
        """How often the cookie was used today, at the least."""
        self._turn_day(at)
        return self.counted + self.unreported

    def find_status(self, *, at: datetime) -> CookieStatus:
        """How the cookie stands by what this process has seen of it."""
        return settle_state(self.own, at=at).status

    def _turn_day(self, at: datetime) -> None:
        if utc_day(at) > self.day:
            self.day, self.counted, self.unreported = utc_day(at), 0, 0
