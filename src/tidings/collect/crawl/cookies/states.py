"""What becomes of a cookie: a pure function from a state and an outcome to the next state. Neither the table nor the
choice between cookies is known here.

    active ── so many errors in a row, or a captcha ──→ cooling ── the cooling time ──→ active
       │                                                   └── another error ──→ banned
       └── so many errors in all ──→ invalid

Only a person brings a cookie back that is invalid or banned. An outcome may be told late: `at` is when it came about,
and a use of an earlier day does not count on a later one.
"""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum


class CookieStatus(StrEnum):
    """What a cookie is fit for; only an active one is used.

    `unreadable` is never come to by an outcome: it is what a row counts as that holds a broken value.
    """

    ACTIVE = "active"
    COOLING = "cooling"
    INVALID = "invalid"
    BANNED = "banned"
    UNREADABLE = "unreadable"


class CookieOutcome(StrEnum):
    """How a request with a cookie went, as far as the cookie is concerned.

    `captcha` is an error after which it must rest at once. `unrelated` is a request that failed for a reason of its
    own: it was a use, and says nothing about the cookie.
    """

    SUCCESS = "success"
    ERROR = "error"
    CAPTCHA = "captcha"
    UNRELATED = "unrelated"


@dataclass(frozen=True, slots=True)
class CookieRules:
    """When a cookie has to rest, for how long, and when it is given up."""

    max_consecutive_errors: int = 3
    max_total_errors: int = 10
    cooling: timedelta = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class CookieState:
    """How a cookie stands. `daily_used` belongs to `day`, which is a day in UTC."""

    day: date
    status: CookieStatus = CookieStatus.ACTIVE
    consecutive_errors: int = 0
    total_errors: int = 0
    cooling_until: datetime | None = None
    daily_used: int = 0


def settle_state(state: CookieState, *, at: datetime) -> CookieState:
    """The state as it counts at this moment: what is over is over, and a new day begins with no uses.

    Whoever has rested begins a new row of errors; those in all stay.
    """
    if state.cooling_until is not None and state.cooling_until <= at:
        state = replace(state, status=CookieStatus.ACTIVE, consecutive_errors=0, cooling_until=None)
    today = utc_day(at)
    return replace(state, day=today, daily_used=0) if today > state.day else state


def advance_state(state: CookieState, outcome: CookieOutcome, *, at: datetime, rules: CookieRules) -> CookieState:
    """The state after one use of the cookie with this outcome."""
    state = settle_state(state, at=at)
    if utc_day(at) == state.day:
        state = replace(state, daily_used=state.daily_used + 1)
    match outcome:
        case CookieOutcome.SUCCESS:
            return replace(state, consecutive_errors=0)
        case CookieOutcome.UNRELATED:
            return state
        case CookieOutcome.ERROR | CookieOutcome.CAPTCHA:
            most = 1 if outcome is CookieOutcome.CAPTCHA else rules.max_consecutive_errors
            return _judge_error(_add_error(state), at=at, rules=replace(rules, max_consecutive_errors=most))


def utc_day(moment: datetime) -> date:
    """The day that uses at this moment belong to."""
    return moment.astimezone(UTC).date()


def _add_error(state: CookieState) -> CookieState:
    return replace(state, consecutive_errors=state.consecutive_errors + 1, total_errors=state.total_errors + 1)


def _judge_error(state: CookieState, *, at: datetime, rules: CookieRules) -> CookieState:
    if state.status is CookieStatus.COOLING:
        return replace(state, status=CookieStatus.BANNED, cooling_until=None)
    if state.status is not CookieStatus.ACTIVE:
        return state
    if state.total_errors >= rules.max_total_errors:
        return replace(state, status=CookieStatus.INVALID)
    if state.consecutive_errors >= rules.max_consecutive_errors:
        return replace(state, status=CookieStatus.COOLING, cooling_until=at + rules.cooling)
    return state
