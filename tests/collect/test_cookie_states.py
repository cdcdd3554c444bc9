"""What becomes of a cookie: the table of transitions, and what a moment alone changes."""

import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from tidings.collect.crawl.cookies.states import (
    CookieOutcome,
    CookieRules,
    CookieState,
    CookieStatus,
    advance_state,
    settle_state,
    utc_day,
)

ACTIVE, COOLING, INVALID, BANNED, UNREADABLE = CookieStatus
SUCCESS, ERROR, CAPTCHA, UNRELATED = CookieOutcome
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
TODAY = NOW.date()
RULES = CookieRules()
SOME, LATER = NOW + timedelta(minutes=10), NOW + timedelta(minutes=30)

# status, errors in a row, in all, cooling until; the outcome; then the same again
TRANSITIONS = [
    (ACTIVE, 0, 0, None, SUCCESS, ACTIVE, 0, 0, None),
    (ACTIVE, 2, 7, None, SUCCESS, ACTIVE, 0, 7, None),
    (ACTIVE, 2, 7, None, UNRELATED, ACTIVE, 2, 7, None),
    (ACTIVE, 0, 0, None, ERROR, ACTIVE, 1, 1, None),
    (ACTIVE, 1, 1, None, ERROR, ACTIVE, 2, 2, None),
    (ACTIVE, 2, 2, None, ERROR, COOLING, 3, 3, LATER),
    (ACTIVE, 0, 8, None, ERROR, ACTIVE, 1, 9, None),
    (ACTIVE, 0, 9, None, ERROR, INVALID, 1, 10, None),
    (ACTIVE, 2, 9, None, ERROR, INVALID, 3, 10, None),
    (ACTIVE, 0, 0, None, CAPTCHA, COOLING, 1, 1, LATER),
    (ACTIVE, 0, 9, None, CAPTCHA, INVALID, 1, 10, None),
    (COOLING, 3, 3, SOME, SUCCESS, COOLING, 0, 3, SOME),
    (COOLING, 3, 3, SOME, UNRELATED, COOLING, 3, 3, SOME),
    (COOLING, 3, 3, SOME, ERROR, BANNED, 4, 4, None),
    (COOLING, 3, 3, SOME, CAPTCHA, BANNED, 4, 4, None),
    (COOLING, 3, 9, SOME, ERROR, BANNED, 4, 10, None),
    (COOLING, 3, 3, NOW, SUCCESS, ACTIVE, 0, 3, None),
    (COOLING, 3, 3, NOW, ERROR, ACTIVE, 1, 4, None),
    (COOLING, 3, 9, NOW, ERROR, INVALID, 1, 10, None),
    (INVALID, 1, 10, None, SUCCESS, INVALID, 0, 10, None),
    (INVALID, 0, 10, None, ERROR, INVALID, 1, 11, None),
    (BANNED, 4, 4, None, SUCCESS, BANNED, 0, 4, None),
    (BANNED, 4, 4, None, ERROR, BANNED, 5, 5, None),
    (UNREADABLE, 0, 0, None, SUCCESS, UNREADABLE, 0, 0, None),
    (UNREADABLE, 0, 0, None, ERROR, UNREADABLE, 1, 1, None),
]


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: " ".join(map(str, row)))
def test_each_outcome_leads_where_the_table_says(row: tuple[Any, ...]) -> None:
    """C9, C17: every edge of the drawing, the last step before it, and what is no edge. Each of them is a use."""
    before, outcome, after = CookieState(TODAY, *row[:4]), row[4], CookieState(TODAY, *row[5:])
    advanced = advance_state(replace(before, daily_used=5), outcome, at=NOW, rules=RULES)
    assert advanced == replace(after, daily_used=6)


def test_every_status_and_outcome_has_its_row() -> None:
    """C9: the table leaves nothing out but captchas of cookies that are given up."""
    shown = {(row[0], row[4]) for row in TRANSITIONS}
    wanted = {(status, outcome) for status in (ACTIVE, COOLING) for outcome in CookieOutcome}
    given_up = (INVALID, BANNED, UNREADABLE)
    assert shown == wanted | {(status, outcome) for status in given_up for outcome in (SUCCESS, ERROR)}


def test_a_life_from_the_first_error_to_the_last() -> None:
    """C9: three in a row cool it, three times; the tenth in all ends it."""
    state, seen = CookieState(TODAY), []
    for number in range(10):
        at = NOW + timedelta(minutes=20) * number
        state = advance_state(state, ERROR, at=at, rules=RULES)
        seen.append(state.status)
        state = settle_state(state, at=at + RULES.cooling) if state.status is COOLING else state
    assert seen == [ACTIVE, ACTIVE, COOLING] * 3 + [INVALID]


@pytest.mark.parametrize(
    ("minutes", "status"), [(-31, COOLING), (-1, COOLING), (0, ACTIVE), (1, ACTIVE), (600, ACTIVE)]
)
def test_a_cookie_whose_cooling_time_has_passed_counts_as_active(minutes: int, status: CookieStatus) -> None:
    """C9: at that time exactly, without anybody writing it; its next errors are counted from one."""
    state = CookieState(TODAY, COOLING, 3, 4, cooling_until=NOW)
    settled = settle_state(state, at=NOW + timedelta(minutes=minutes))
    assert (settled.status, settled.cooling_until is None) == (status, status is ACTIVE)
    assert (settled.consecutive_errors, settled.total_errors) == (0 if status is ACTIVE else 3, 4)


@pytest.mark.parametrize(
    ("at", "day", "used"),
    [
        pytest.param(datetime(2026, 11, 15, 23, 59, 59, tzinfo=UTC), date(2026, 11, 15), 8, id="the same day"),
        pytest.param(datetime(2026, 11, 16, tzinfo=UTC), date(2026, 11, 16), 1, id="midnight"),
        pytest.param(datetime(2027, 1, 1, tzinfo=UTC), date(2027, 1, 1), 1, id="long after"),
        pytest.param(datetime(2026, 11, 14, 23, 59, tzinfo=UTC), date(2026, 11, 15), 7, id="reported late"),
        pytest.param(
            datetime(2026, 11, 16, 7, 59, tzinfo=timezone(timedelta(hours=8))), date(2026, 11, 15), 8, id="in Beijing"
        ),
    ],
)
def test_uses_belong_to_their_day_in_utc(at: datetime, day: date, used: int) -> None:
    """C9: a new day begins with none, and yesterday's report does not make today's uses more or less."""
    state = advance_state(CookieState(TODAY, daily_used=7), SUCCESS, at=at, rules=RULES)
    assert (state.day, state.daily_used) == (day, used)
    assert utc_day(NOW) == TODAY


def test_the_constants_can_be_set() -> None:
    """C26: MAX_CONSECUTIVE_ERRORS, MAX_TOTAL_ERRORS, COOLING_DURATION_MINUTES; their defaults are the source's."""
    assert CookieRules() == CookieRules(3, 10, timedelta(minutes=30))
    rules = CookieRules(max_consecutive_errors=1, max_total_errors=2, cooling=timedelta(minutes=1))
    first = advance_state(CookieState(TODAY), ERROR, at=NOW, rules=rules)
    assert (first.status, first.cooling_until) == (COOLING, NOW + timedelta(minutes=1))
    rested = replace(settle_state(first, at=NOW + timedelta(minutes=1)), daily_used=0)
    assert advance_state(rested, ERROR, at=NOW + timedelta(minutes=1), rules=rules).status is INVALID


def test_a_day_is_a_day_of_utc_wherever_the_machine_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """C9: on a machine in Shanghai the next day has begun already; uses of the same day count together."""
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert utc_day(datetime(2026, 11, 15, 23, 30, tzinfo=UTC)) == date(2026, 11, 15)
    finally:
        monkeypatch.undo()
        time.tzset()
