"""Changes of a stored cookie: its limits, what the log has of each change, and times that a wrong clock wrote."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from tests.announce.stage import Events, pick_events
from tests.collect.cookie_stage import PLATFORM, add_cookies, change_row, find_cookie, record_outcome, value_of
from tests.fakes import FakeClock
from tidings.collect.crawl.cookies.states import CookieOutcome, CookieRules, CookieStatus
from tidings.collect.pasted_cookie import CookieError
from tidings.collect.write.cookies import (
    DEFAULT_DAILY_LIMIT,
    DEFAULT_PRIORITY,
    CookieRecords,
    clamp_future_states,
    make_cookie,
    record_outcomes,
)
from tidings.core.clock import CLOCK_TOLERANCE, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import new_master_key
from tidings.core.secrets.secret import Secret

HOUR = timedelta(hours=1)
RULES = CookieRules()
NAME_RULE = "the name must have 1 to 64 letters, digits, dots, dashes or underscores"
PRIORITY_RULE = "the priority must be a whole number from -1,000,000 to 1,000,000"
LIMIT_RULE = "the daily limit must be a whole number from 1 to 1,000,000"


@pytest.fixture
def events() -> Iterator[Events]:
    with capture_logs() as captured:
        yield captured


@pytest.fixture
def cookie_records(database: Database, keys: KeyRing, clock: FakeClock) -> CookieRecords:
    return CookieRecords(database, keys=keys, clock=clock)


def make(name: str = "one", *, platform: str = PLATFORM, priority: int = 0, daily_limit: int = 1) -> object:
    secret = Secret(value_of("one"))
    return make_cookie(name, platform=platform, secret=secret, priority=priority, daily_limit=daily_limit)


def test_the_limits_of_a_cookie_are_exact() -> None:
    """C9: the last number that is allowed, and the rule for the next one."""
    for allowed in (
        {"name": "a" * 64},
        {"platform": "a" * 32},
        {"priority": 1_000_000},
        {"priority": -1_000_000},
        {"daily_limit": 1},
        {"daily_limit": 1_000_000},
    ):
        assert make(**allowed)
    for refused, rule in (
        ({"name": "a" * 65}, NAME_RULE),
        ({"name": "-a"}, NAME_RULE),
        ({"platform": "a" * 33}, "the platform must be a name such as bilibili"),
        ({"priority": 1_000_001}, PRIORITY_RULE),
        ({"priority": -1_000_001}, PRIORITY_RULE),
        ({"daily_limit": 0}, LIMIT_RULE),
        ({"daily_limit": 1_000_001}, LIMIT_RULE),
    ):
        with pytest.raises(CookieError) as caught:
            make(**refused)
        assert str(caught.value) == rule


def test_a_cookie_of_which_nothing_is_said_has_the_usual_limits() -> None:
    """C9: and the browser of a pasted request, unless another is named."""
    usual = make_cookie("one", platform=PLATFORM, secret=Secret(value_of("one")))
    assert (usual.priority, usual.daily_limit, usual.user_agent) == (DEFAULT_PRIORITY, DEFAULT_DAILY_LIMIT, None)
    pasted = Secret("curl 'https://www.bilibili.com/' -H 'User-Agent: Its/1.0' -H 'Cookie: SESSDATA=abc'")
    assert make_cookie("one", platform=PLATFORM, secret=pasted).user_agent == "Its/1.0"
    named = make_cookie("one", platform=PLATFORM, secret=pasted, user_agent="Mine/2.0")
    assert (named.user_agent, named.secret.reveal()) == ("Mine/2.0", "SESSDATA=abc")


async def test_limits_are_changed_without_entering_the_cookie_again(
    cookie_records: CookieRecords, clock: FakeClock, events: Events
) -> None:
    """C9: only what is named, of the one that is named; a bad number changes nothing."""
    await add_cookies(cookie_records, "one", "two", priority=3, daily_limit=50)
    clock.advance(HOUR)
    assert await cookie_records.change("one", priority=7)
    changed = await find_cookie(cookie_records, "one")
    assert (changed.priority, changed.daily_limit, changed.updated_at) == (7, 50, clock.now())
    assert await cookie_records.change("one", daily_limit=9)
    changed, other = await cookie_records.list_all()
    assert (changed.priority, changed.daily_limit) == (7, 9)
    assert (other.priority, other.daily_limit, other.updated_at) == (3, 50, clock.now() - HOUR)
    assert not await cookie_records.change("none", priority=1)
    for numbers, rule in (({"daily_limit": 0}, LIMIT_RULE), ({"priority": 2_000_000}, PRIORITY_RULE)):
        with pytest.raises(CookieError) as caught:
            await cookie_records.change("one", **numbers)
        assert str(caught.value) == rule
    logged = [
        (event["cookie_name"], event["found"], event.get("priority"), event.get("daily_limit"))
        for event in pick_events(events, "cookie.changed_limits", log_level="info")
    ]
    assert logged == [("one", True, 7, None), ("one", True, None, 9), ("none", False, 1, None)]


async def test_every_step_of_a_cookie_is_in_the_log_by_its_name(
    cookie_records: CookieRecords, database: Database, clock: FakeClock, events: Events
) -> None:
    """C7, C23: who looks for the reason of a pause finds it; the value is never there."""
    for _ in range(2):
        await add_cookies(cookie_records, "one")
    stored = pick_events(events, "cookie.stored", log_level="info")
    assert [(event["cookie_name"], event["platform"], event["replaced"]) for event in stored] == [
        ("one", PLATFORM, False),
        ("one", PLATFORM, True),
    ]
    async with database.write() as connection:
        await record_outcome(connection, "one", CookieOutcome.SUCCESS, clock.now())
        await record_outcome(connection, "one", CookieOutcome.CAPTCHA, clock.now())
    [changed] = pick_events(events, "cookie.changed", log_level="warning")
    assert (changed["cookie_name"], changed["before"], changed["after"]) == ("one", "active", "cooling")
    assert [await cookie_records.enable(name) for name in ("one", "none")] == [True, False]
    enabled = pick_events(events, "cookie.enabled", log_level="info")
    assert [(event["cookie_name"], event["found"]) for event in enabled] == [("one", True), ("none", False)]
    assert [await cookie_records.remove(name) for name in ("one", "one")] == [True, False]
    removed = pick_events(events, "cookie.removed", log_level="info")
    assert [(event["cookie_name"], event["found"]) for event in removed] == [("one", True), ("one", False)]
    assert value_of("one") not in str(events)


async def test_a_use_is_stamped_and_a_late_report_turns_no_time_back(
    cookie_records: CookieRecords, database: Database, clock: FakeClock
) -> None:
    """C9: the last use is the latest one, whoever reports first."""
    await add_cookies(cookie_records, "one", "two")
    began = clock.now()
    assert (await find_cookie(cookie_records, "one")).last_used_at is None
    for at in (began + HOUR, began - HOUR):
        async with database.write() as connection:
            states = await record_outcomes(connection, {"one": [CookieOutcome.SUCCESS]}, at, rules=RULES)
        assert set(states) == {"one"}
    used, other = await cookie_records.list_all()
    assert (used.last_used_at, used.updated_at, used.state.daily_used) == (began + HOUR, began + HOUR, 2)
    assert (other.last_used_at, other.updated_at, other.state.daily_used) == (None, began, 0)


async def test_cookies_are_counted_by_the_key_that_encrypted_them(database: Database, clock: FakeClock) -> None:
    """C22: whoever wants to drop an old key sees what it still holds."""
    old, new = new_master_key(), new_master_key()
    await add_cookies(CookieRecords(database, keys=KeyRing.parse(f"k1:{old}"), clock=clock), "one", "two")
    both = CookieRecords(database, keys=KeyRing.parse(f"k2:{new},k1:{old}"), clock=clock)
    assert await both.count_key_ids() == {"k1": 2}
    await add_cookies(both, "three")
    assert await both.count_key_ids() == {"k1": 2, "k2": 1}
    assert await both.rotate_keys() == 2
    assert await both.count_key_ids() == {"k2": 3}


async def test_times_that_a_clock_ahead_of_ours_wrote_are_ended(
    cookie_records: CookieRecords, database: Database, clock: FakeClock
) -> None:
    """C9: a cooling of years would never end. What a clock may rightly have written stays."""
    clock.set(datetime(2026, 11, 15, 12, 0, tzinfo=UTC))
    await add_cookies(cookie_records, "cooling", "far", "tomorrow", "later")
    latest = clock.now() + CLOCK_TOLERANCE + RULES.cooling
    await change_row(database, "cooling", status="cooling", cooling_until=to_milliseconds(latest))
    await change_row(database, "far", status="cooling", cooling_until=to_milliseconds(latest) + 1)
    await change_row(database, "tomorrow", used_on="2026-11-16", daily_used=5)
    await change_row(database, "later", used_on="2026-11-17", daily_used=6)
    async with database.write() as connection:
        assert await clamp_future_states(connection, at=clock.now(), rules=RULES) == 2
        assert await clamp_future_states(connection, at=clock.now(), rules=RULES) == 0
    async with database.read() as connection:
        rows = await connection.execute(text("SELECT cookie_name, used_on, daily_used, cooling_until FROM tbl_cookie"))
        found = {row.cookie_name: tuple(row)[1:] for row in rows}
    now = to_milliseconds(clock.now())
    assert found["cooling"] == ("2026-11-15", 0, to_milliseconds(latest))
    assert found["far"] == ("2026-11-15", 0, now)
    assert found["tomorrow"] == ("2026-11-16", 5, None)
    assert found["later"] == ("2026-11-15", 0, None)
    assert (await find_cookie(cookie_records, "far")).state.status is CookieStatus.ACTIVE
