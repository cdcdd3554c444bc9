"""A cookie as the collect machine's model sees it: the rules of C9 in a few lines, without the product's own code."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum

COOLING = timedelta(minutes=30)
MOST_IN_A_ROW = 3
MOST_ERRORS = 10


class Use(StrEnum):
    """How a request with a cookie ended."""

    SUCCESS = "success"
    ERROR = "error"
    CAPTCHA = "captcha"
    UNRELATED = "unrelated"


@dataclass(slots=True)
class ModelCookie:
    """Status and counters; times are those of the machine's clock, days are UTC's."""

    status: str = "active"
    in_a_row: int = 0
    errors: int = 0
    cooling_until: datetime | None = None
    day: date = date.min
    used: int = 0

    def settle(self, at: datetime) -> None:
        """Let the time pass: a cooling ends, a day begins."""
        if self.cooling_until is not None and self.cooling_until <= at:
            self.status, self.in_a_row, self.cooling_until = "active", 0, None
        if at.date() > self.day:
            self.day, self.used = at.date(), 0

    def record(self, use: Use, at: datetime) -> None:
        self.settle(at)
        self.used += 1
        if use is Use.SUCCESS:
            self.in_a_row = 0
        if use in (Use.SUCCESS, Use.UNRELATED):
            return
        self.in_a_row += 1
        self.errors += 1
        if self.status == "cooling":
            self.status, self.cooling_until = "banned", None
        elif self.status == "active" and self.errors >= MOST_ERRORS:
            self.status = "invalid"
        elif self.status == "active" and (use is Use.CAPTCHA or self.in_a_row >= MOST_IN_A_ROW):
            self.status, self.cooling_until = "cooling", at + COOLING

    def enable(self, at: datetime) -> None:
        """A person makes it active again. The uses of today stay."""
        self.settle(at)
        self.status, self.in_a_row, self.errors, self.cooling_until = "active", 0, 0, None
