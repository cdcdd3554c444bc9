"""The states of a cookie: pure functions from a state and an outcome to the next state.

    active ── 3 errors in a row, or a captcha ──→ cooling ── 30 minutes ──→ active
       │                                             └── another error ──→ banned
       └── 10 errors in all ──→ invalid

Only a person makes an invalid or banned cookie active again. An outcome may be reported late: `at` is when it happened,
and a use of an earlier day does not count on a later one.
"""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum


class CookieStatus(StrEnum):
    """Only an active cookie is used. `unreadable` is a row with a broken value; no outcome leads to it."""

    ACTIVE = "active"
    COOLING = "cooling"
    INVALID = "invalid"
    BANNED = "banned"
    UNREADABLE = "unreadable"


class CookieOutcome(StrEnum):
    """The result of a request for its cookie."""

    SUCCESS = "success"
    # The platform refused the account.
    ERROR = "error"
    # The platform asked for a captcha: the cookie must cool at once.
    CAPTCHA = "captcha"
    # The request failed for a reason that says nothing about the cookie; it counts only as a use.
    UNRELATED = "unrelated"


@dataclass(frozen=True, slots=True)
class CookieRules:
    """When a cookie cools and when it becomes invalid."""

    # After this many errors in a row it cools.
    max_consecutive_errors: int = 3
    # After this many errors in all it is invalid.
    max_total_errors: int = 10
    # How long it cools.
    cooling: timedelta = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class CookieState:
    """Status and counters of a cookie."""

    # The UTC day that `daily_used` belongs to.
    day: date
    status: CookieStatus = CookieStatus.ACTIVE
    consecutive_errors: int = 0
    total_errors: int = 0
    cooling_until: datetime | None = None
    daily_used: int = 0


def settle_state(state: CookieState, *, at: datetime) -> CookieState:
    """The state at this time: an expired cooling has ended, and a new day begins with no uses.

    A cookie that has cooled starts again with no consecutive errors; its total stays.
    """
    if state.cooling_until is not None and state.cooling_until <= at:
        state = replace(state, status=CookieStatus.ACTIVE, consecutive_errors=0, cooling_until=None)
    today = utc_day(at)
    return replace(state, day=today, daily_used=0) if today > state.day else state


def advance_state(state: CookieState, outcome: CookieOutcome, *, at: datetime, rules: CookieRules) -> CookieState:
    """The state after one use with this outcome."""
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


def utc_day(timestamp: datetime) -> date:
    """The day that a use at this time belongs to."""
    return timestamp.astimezone(UTC).date()


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
