"""Counting outcomes: in the caller's transaction, one after the other, on both databases."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import select

from tests.collect.cookie_stage import PLATFORM, add_cookies, change_row, find_cookie, record_outcome, without_times
from tests.fakes import FakeClock
from tidings.collect.crawl.cookies.states import CookieOutcome, CookieRules, CookieState, CookieStatus
from tidings.collect.crawl.cookies.table import cookies
from tidings.collect.crawl.cookies.usage import judge_code
from tidings.collect.errors import ErrorCode
from tidings.collect.status.overview import read_collection
from tidings.collect.write.cookies import CookieRecords
from tidings.core.db.database import Database
from tidings.core.secrets.keyring import KeyRing


@pytest.fixture
async def cookie_records(database: Database, keys: KeyRing, clock: FakeClock) -> CookieRecords:
    made = CookieRecords(database, keys=keys, clock=clock)
    await add_cookies(made, "one", "two")
    return made


async def record(
    database: Database, outcome: CookieOutcome, clock: FakeClock, **options: CookieRules
) -> CookieState | None:
    async with database.write() as connection:
        return await record_outcome(connection, "one", outcome, clock.now(), **options)


async def test_the_overview_counts_the_cookies_that_can_be_used_today(
    cookie_records: CookieRecords, database: Database, clock: FakeClock
) -> None:
    """C18: a cookie whose uses of today are spent is usable again tomorrow."""
    await cookie_records.change("one", daily_limit=1)
    await record(database, CookieOutcome.SUCCESS, clock)

    async def count_usable() -> tuple[int, int]:
        platform = (await read_collection(database, clock=clock)).platforms[PLATFORM]
        return platform.usable, platform.cookies

    assert await count_usable() == (1, 2)
    clock.advance(timedelta(days=1))
    assert await count_usable() == (2, 2)


async def test_outcomes_lead_from_active_over_cooling_and_back_to_banned(
    cookie_records: CookieRecords, database: Database, clock: FakeClock
) -> None:
    """C9: what is written is what the state machine says, and nothing is written of the other cookie."""
    other = await find_cookie(cookie_records, "two")
    for outcome in (CookieOutcome.SUCCESS, CookieOutcome.ERROR, CookieOutcome.ERROR, CookieOutcome.ERROR):
        await record(database, outcome, clock)
    cooling = (await find_cookie(cookie_records, "one")).state
    assert (cooling.status, cooling.cooling_until) == (CookieStatus.COOLING, clock.now() + timedelta(minutes=30))
    assert (cooling.consecutive_errors, cooling.total_errors, cooling.daily_used) == (3, 3, 4)
    clock.advance(timedelta(minutes=30))
    assert (await find_cookie(cookie_records, "one")).state.status is CookieStatus.ACTIVE
    once = CookieRules(max_consecutive_errors=1)
    states = [await record(database, CookieOutcome.ERROR, clock, rules=once) for _ in range(2)]
    assert [state and state.status for state in states] == [CookieStatus.COOLING, CookieStatus.BANNED]
    found = await find_cookie(cookie_records, "one")
    assert (found.state, found.last_used_at) == (states[-1], clock.now())
    assert without_times(await find_cookie(cookie_records, "two")) == without_times(other)


async def test_an_outcome_stands_or_falls_with_its_transaction(
    cookie_records: CookieRecords, database: Database, clock: FakeClock
) -> None:
    """C2: a result that is rolled back was no use either, so the repetition counts it once."""
    before = await find_cookie(cookie_records, "one")

    async def fail() -> None:
        async with database.write() as connection:
            await record_outcome(connection, "one", CookieOutcome.ERROR, clock.now())
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert await find_cookie(cookie_records, "one") == before


async def test_outcomes_at_the_same_time_are_all_counted(
    cookie_records: CookieRecords, database: Database, clock: FakeClock
) -> None:
    """C9: none is lost between reading the row and writing it."""
    async with asyncio.timeout(30):
        await asyncio.gather(*(record(database, CookieOutcome.UNRELATED, clock) for _ in range(40)))
        await asyncio.gather(*(record(database, CookieOutcome.ERROR, clock) for _ in range(4)))
    state = (await find_cookie(cookie_records, "one")).state
    assert (state.daily_used, state.total_errors, state.status) == (44, 4, CookieStatus.BANNED)


async def test_a_cookie_that_is_gone_has_no_outcome(
    cookie_records: CookieRecords, database: Database, clock: FakeClock
) -> None:
    """C9: it may be removed while a request with it is under way."""
    await cookie_records.remove("one")
    assert await record(database, CookieOutcome.SUCCESS, clock) is None


async def test_a_report_of_yesterday_moves_nothing_back(
    cookie_records: CookieRecords, database: Database, clock: FakeClock
) -> None:
    """C9: reports may come in any order; the last use stays the last."""
    await record(database, CookieOutcome.SUCCESS, clock)
    async with database.write() as connection:
        await record_outcome(connection, "one", CookieOutcome.SUCCESS, clock.now() - timedelta(days=1))
    found = await find_cookie(cookie_records, "one")
    assert (found.state.daily_used, found.last_used_at) == (1, clock.now())


@pytest.mark.parametrize("code", [None, *ErrorCode])
def test_only_cookie_invalid_speaks_against_the_cookie(code: ErrorCode | None) -> None:
    """C15: a note that is gone or a platform that is down is not the account's fault."""
    expected = {None: CookieOutcome.SUCCESS, ErrorCode.COOKIE_INVALID: CookieOutcome.ERROR}.get(
        code, CookieOutcome.UNRELATED
    )
    assert judge_code(code) is expected


@pytest.mark.parametrize("code", [None, *ErrorCode])
def test_a_captcha_is_one_whatever_the_code_and_a_success_is_none(code: ErrorCode | None) -> None:
    """C17: what the answer's `error.captcha` says, and what the pool that lent the cookie made of it."""
    assert judge_code(code, captcha=True) is (CookieOutcome.SUCCESS if code is None else CookieOutcome.CAPTCHA)


async def test_a_captcha_that_is_reported_cools_the_cookie_at_once(
    cookie_records: CookieRecords, database: Database, clock: FakeClock
) -> None:
    """C17: one is enough, where it takes three other errors."""
    await record(database, judge_code(ErrorCode.COOKIE_INVALID, captcha=True), clock)
    state = (await find_cookie(cookie_records, "one")).state
    assert (state.status, state.cooling_until) == (CookieStatus.COOLING, clock.now() + timedelta(minutes=30))


async def test_an_outcome_of_a_cookie_whose_row_is_broken_leaves_it_as_it_is(
    cookie_records: CookieRecords, database: Database, clock: FakeClock
) -> None:
    """C9: the report of a batch does not fail for it, and what a person has to look at stays there to be seen."""
    await change_row(database, "one", used_on="yesterday")
    assert await record(database, CookieOutcome.ERROR, clock) is None
    async with database.read() as connection:
        row = (await connection.execute(select(cookies).where(cookies.c.cookie_name == "one"))).one()
    assert (row.used_on, row.status, row.total_errors) == ("yesterday", "active", 0)
