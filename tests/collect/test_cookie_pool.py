"""The pool: which cookie is lent, to how many at once, for how long one waits, and what is remembered without writing.
Every pool here stands on a database that has only its reading half."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from sqlalchemy import select, text

from tests.collect.cookie_stage import (
    IMPATIENT,
    PLATFORM,
    SOON,
    add_cookies,
    change_row,
    make_pool,
    record_outcome,
    value_of,
)
from tests.fakes import FakeClock
from tests.waiting import wait_until
from tidings.collect.crawl.cookies.pool import CookiePool
from tidings.collect.crawl.cookies.states import CookieOutcome, CookieRules
from tidings.collect.crawl.cookies.table import cookies
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.write.cookies import CookieRecords
from tidings.core.clock import SystemClock, to_milliseconds
from tidings.core.db.database import Database, ReadableDatabase, open_database, open_read_only_database
from tidings.core.logs.logger import LogFormat, configure_logging
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import new_master_key
from tidings.core.secrets.redaction import Redactor

SEVERAL = 200
NAMES = ("a", "b", "c", "d", "e")

PoolMaker = Callable[..., CookiePool]


@pytest.fixture
async def read_only(database_url: str) -> AsyncIterator[ReadableDatabase]:
    opened = open_read_only_database(database_url)
    yield opened
    await opened.close()


@pytest.fixture
def cookie_records(database: Database, keys: KeyRing, clock: FakeClock) -> CookieRecords:
    return CookieRecords(database, keys=keys, clock=clock)


@pytest.fixture
def pool_of(read_only: ReadableDatabase, keys: KeyRing, clock: FakeClock) -> PoolMaker:
    """Makes a pool with these options."""

    def make(**options: Any) -> CookiePool:
        return make_pool(read_only, **{"keys": keys, "clock": clock, **options})

    return make


async def use(pool: CookiePool, *, exclude: tuple[str, ...] = ()) -> str:
    """The name of the cookie that one request is lent."""
    async with pool.lease(PLATFORM, exclude=exclude) as leased:
        assert leased.secret.reveal() == value_of(leased.name)
        return leased.name


async def use_badly(pool: CookiePool, *, code: ErrorCode = ErrorCode.COOKIE_INVALID, captcha: bool = False) -> str:
    used: list[str] = []

    async def fail() -> None:
        async with pool.lease(PLATFORM) as leased:
            used.append(leased.name)
            raise CrawlError(code, "logged out", captcha=captcha)

    with pytest.raises(CrawlError, match="logged out"):
        await fail()
    return used[0]


async def find_row(database: Database, name: str) -> Mapping[str, Any]:
    """The columns as they are written."""
    async with database.read() as connection:
        row = (await connection.execute(select(cookies).where(cookies.c.cookie_name == name))).one()
    return row._asdict()


@pytest.fixture
def log() -> Iterator[StringIO]:
    """All that is logged."""
    stream = StringIO()
    configure_logging(format=LogFormat.JSON, level="info", redactor=Redactor(), stream=stream)
    yield stream
    configure_logging(format=LogFormat.JSON, level="info", redactor=Redactor(), quiet=True)


async def refuse(attempt: Awaitable[object], code: ErrorCode) -> str:
    """What is said where the pool lends nothing."""
    async with asyncio.timeout(SOON):
        with pytest.raises(CrawlError) as caught:
            await attempt
    assert (caught.value.code, caught.value.blames_cookie) == (code, False)
    return caught.value.message


async def test_the_highest_priority_is_lent_first_and_then_the_least_used(
    cookie_records: CookieRecords, pool_of: PoolMaker, database: Database
) -> None:
    """C18: in this order; cookies of another platform and excluded ones are not lent at all."""
    await add_cookies(cookie_records, "low", "lower", priority=1)
    await add_cookies(cookie_records, "high", priority=2, daily_limit=2)
    await add_cookies(cookie_records, "foreign", platform="weibo", priority=9)
    await change_row(database, "low", daily_used=1)
    pool = pool_of()
    assert [await use(pool) for _ in range(6)] == ["high", "high", "lower", "low", "lower", "low"]
    assert await use(pool, exclude=("low", "high")) == "lower"


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        pytest.param({"status": "invalid"}, "1 invalid", id="invalid"),
        pytest.param({"status": "banned"}, "1 banned", id="banned"),
        pytest.param({"daily_used": 500}, "1 at the daily limit", id="used up"),
        pytest.param({"encryption_key_id": "lost"}, "1 unreadable", id="unreadable"),
        pytest.param({"platform": "weibo"}, "there is none", id="another platform's"),
    ],
)
async def test_a_cookie_that_cannot_be_used_is_not_lent_until_it_can(
    cookie_records: CookieRecords, pool_of: PoolMaker, database: Database, values: dict[str, Any], shown: str
) -> None:
    """C15, C18: COOKIE_EXHAUSTED says why; one that is added a moment later is seen at once, however fresh the read."""
    await add_cookies(cookie_records, "one")
    await change_row(database, "one", **values)
    pool = pool_of(reread_after=timedelta(hours=1))
    message = await refuse(use(pool), ErrorCode.COOKIE_EXHAUSTED)
    assert message == f"no cookie for bilibili can be used: {shown}"
    await add_cookies(cookie_records, "two")
    assert await use(pool) == "two"
    assert "1 excluded" in await refuse(use(pool, exclude=("two",)), ErrorCode.COOKIE_EXHAUSTED)


async def test_a_cooling_cookie_is_lent_again_when_its_time_has_passed(
    cookie_records: CookieRecords, pool_of: PoolMaker, database: Database, clock: FakeClock
) -> None:
    """C9: nobody has to write that it is active again; also without reading the table anew."""
    await add_cookies(cookie_records, "one")
    until = clock.now() + timedelta(minutes=30)
    await change_row(database, "one", status="cooling", consecutive_errors=3, cooling_until=to_milliseconds(until))
    pool = pool_of(reread_after=timedelta(hours=9))
    assert "1 cooling" in await refuse(use(pool), ErrorCode.COOKIE_EXHAUSTED)
    clock.advance(timedelta(minutes=30))
    assert await use(pool) == "one"


@pytest.mark.parametrize("reread_after", [timedelta(0), timedelta(hours=1)], ids=["read anew", "read once"])
async def test_a_caller_that_never_reports_cannot_overrun_the_daily_limit(
    cookie_records: CookieRecords, pool_of: PoolMaker, database: Database, clock: FakeClock, reread_after: timedelta
) -> None:
    """C18: however often the table is read, which says 4 all day; and the next day in UTC begins at none."""
    clock.set(datetime(2026, 11, 15, 23, 59, tzinfo=UTC))
    await add_cookies(cookie_records, "one", daily_limit=7)
    await change_row(database, "one", daily_used=4)
    pool = pool_of(reread_after=reread_after)
    assert [await use(pool) for _ in range(3)] == ["one"] * 3
    await refuse(use(pool), ErrorCode.COOKIE_EXHAUSTED)
    clock.advance(timedelta(minutes=1))
    assert [await use(pool) for _ in range(7)] == ["one"] * 7
    await refuse(use(pool), ErrorCode.COOKIE_EXHAUSTED)


async def test_what_is_reported_is_not_counted_twice_and_what_others_used_is_counted(
    cookie_records: CookieRecords, pool_of: PoolMaker, database: Database, clock: FakeClock
) -> None:
    """C18: a limit of 10 is ten requests, of this process and of others together."""
    await add_cookies(cookie_records, "one", daily_limit=10)
    pool = pool_of()

    async def report() -> None:
        async with database.write() as connection:
            await record_outcome(connection, "one", CookieOutcome.SUCCESS, clock.now())

    for _ in range(3):
        await use(pool)
        await report()
    await use(pool)
    for _ in range(4):
        await report()
    for _ in range(3):
        await use(pool)
    await refuse(use(pool), ErrorCode.COOKIE_EXHAUSTED)


@pytest.mark.parametrize("limit", [1_000, 30], ids=["no limit", "a limit"])
async def test_200_leases_at_once_never_share_a_cookie_and_keep_the_limits(
    cookie_records: CookieRecords, pool_of: PoolMaker, limit: int
) -> None:
    """C18: over five cookies; where the limit is met, the rest learns it and nothing more is used."""
    await add_cookies(cookie_records, *NAMES, daily_limit=limit)
    pool = pool_of(clock=SystemClock(), patience=timedelta(seconds=SOON), reread_after=timedelta(milliseconds=20))
    held: set[str] = set()
    used: Counter[str] = Counter()
    most = 0

    async def request() -> None:
        nonlocal most
        async with pool.lease(PLATFORM) as leased:
            assert leased.name not in held
            held.add(leased.name)
            used[leased.name] += 1
            most = max(most, len(held))
            await asyncio.sleep(0.001)
            held.remove(leased.name)

    async with asyncio.timeout(SOON):
        answers = await asyncio.gather(*(request() for _ in range(SEVERAL)), return_exceptions=True)
    refused = [answer for answer in answers if answer is not None]
    assert all(isinstance(error, CrawlError) and error.code is ErrorCode.COOKIE_EXHAUSTED for error in refused)
    assert sum(used.values()) == SEVERAL - len(refused) == min(SEVERAL, 5 * limit)
    assert max(used.values()) <= limit
    assert most == len(NAMES)


async def test_who_finds_all_cookies_busy_waits_for_one_and_not_for_ever(
    cookie_records: CookieRecords, pool_of: PoolMaker
) -> None:
    """C18: a cookie that is given back goes to whoever waits; where none is, TIMEOUT_ERROR, which may be retried."""
    await add_cookies(cookie_records, "one")
    pool = pool_of(patience=timedelta(seconds=SOON))
    async with pool.lease(PLATFORM):
        waiting = asyncio.create_task(use(pool))
        done, _ = await asyncio.wait({waiting}, timeout=0.1)
        assert not done
    async with asyncio.timeout(SOON):
        assert await waiting == "one"
    hasty = pool_of(patience=IMPATIENT)
    async with hasty.lease(PLATFORM):
        assert "in use" in await refuse(use(hasty), ErrorCode.TIMEOUT_ERROR)
    assert await use(hasty) == "one"


async def test_a_lease_ends_however_its_request_ends(cookie_records: CookieRecords, pool_of: PoolMaker) -> None:
    """C18: after an error, a cancelled request and a cancelled wait, the cookie is free; none of these blames it."""
    await add_cookies(cookie_records, "one")
    pool = pool_of(patience=timedelta(seconds=SOON))
    started = asyncio.Event()

    async def hang() -> None:
        async with pool.lease(PLATFORM):
            started.set()
            await asyncio.Event().wait()

    async def fail() -> None:
        async with pool.lease(PLATFORM):
            raise LookupError

    async with asyncio.timeout(SOON):
        for _ in range(4):
            with pytest.raises(LookupError):
                await fail()
            holder, waiter = asyncio.create_task(hang()), asyncio.create_task(use(pool))
            await started.wait()
            waiter.cancel()
            holder.cancel()
            await asyncio.gather(holder, waiter, return_exceptions=True)
            assert await use(pool) == "one"


async def test_a_cookie_that_fails_here_rests_here_before_anybody_reports_it(
    cookie_records: CookieRecords, pool_of: PoolMaker, clock: FakeClock
) -> None:
    """C9, C18: three in a row, so that the reports of one batch cool it and do not ban it; a success in between starts
    a new row, and other troubles do not count."""
    await add_cookies(cookie_records, "bad", priority=1)
    await add_cookies(cookie_records, "good")
    pool = pool_of(rules=CookieRules(cooling=timedelta(minutes=5)))
    assert [await use_badly(pool) for _ in range(2)] == ["bad"] * 2
    assert await use(pool) == "bad"
    assert [await use_badly(pool, code=ErrorCode.PLATFORM_ERROR) for _ in range(4)] == ["bad"] * 4
    assert [await use_badly(pool) for _ in range(3)] == ["bad"] * 3
    assert await use(pool) == "good"
    clock.advance(timedelta(minutes=5))
    assert await use(pool) == "bad"


async def test_errors_of_an_earlier_process_count_here_so_the_cookie_cools_and_is_not_banned(
    database: Database, cookie_records: CookieRecords, pool_of: PoolMaker, clock: FakeClock
) -> None:
    """C9: two errors are reported, then a new process begins: its first error is the third in a row. A success that is
    reported later begins the count again."""
    await add_cookies(cookie_records, "one")
    for outcome in (CookieOutcome.ERROR, CookieOutcome.ERROR):
        async with database.write() as connection:
            await record_outcome(connection, "one", outcome, clock.now())
    clock.advance(timedelta(minutes=1))
    pool, other = pool_of(), pool_of()
    await use_badly(pool)
    assert "1 cooling" in await refuse(use(pool), ErrorCode.COOKIE_EXHAUSTED)
    await use(other)
    async with database.write() as connection:
        await record_outcome(connection, "one", CookieOutcome.SUCCESS, clock.now())
    for _ in range(3):
        clock.advance(timedelta(minutes=1))
        await use_badly(other)
    assert "1 cooling" in await refuse(use(other), ErrorCode.COOKIE_EXHAUSTED)


async def test_a_captcha_puts_a_cookie_to_rest_at_once(
    cookie_records: CookieRecords, pool_of: PoolMaker, clock: FakeClock
) -> None:
    """C17: before anybody reports it; one that is let go on asking would be banned."""
    await add_cookies(cookie_records, "asked", priority=1)
    await add_cookies(cookie_records, "good")
    pool = pool_of(rules=CookieRules(cooling=timedelta(minutes=5)))
    assert await use_badly(pool, captcha=True) == "asked"
    assert [await use(pool) for _ in range(3)] == ["good"] * 3
    clock.advance(timedelta(minutes=5))
    assert await use(pool) == "asked"


async def test_an_error_after_a_person_enabled_the_cookie_counts_though_the_table_is_read_later(
    cookie_records: CookieRecords, pool_of: PoolMaker, clock: FakeClock
) -> None:
    """C9, C17: only what came before is forgotten; a captcha of a request that was under way is not."""
    await add_cookies(cookie_records, "asked", priority=1)
    await add_cookies(cookie_records, "good")
    pool = pool_of()
    assert await use_badly(pool, captcha=True) == "asked"
    clock.advance(timedelta(minutes=1))
    await cookie_records.enable("asked")
    assert await use(pool) == "asked"
    context = pool.lease(PLATFORM)
    assert (await context.__aenter__()).name == "asked"
    clock.advance(timedelta(minutes=1))
    await cookie_records.enable("asked")
    clock.advance(timedelta(seconds=1))
    error = CrawlError(ErrorCode.COOKIE_INVALID, "who are you", captcha=True)
    assert not await context.__aexit__(CrawlError, error, None)
    assert await use(pool) == "good"


async def test_a_cookie_that_is_added_while_all_are_busy_is_found_by_who_waits(
    cookie_records: CookieRecords, pool_of: PoolMaker
) -> None:
    """C18: within the time after which the table is read again; the busy one is never given back here."""
    await add_cookies(cookie_records, "busy")
    pool = pool_of(clock=SystemClock(), patience=timedelta(seconds=SOON), reread_after=timedelta(milliseconds=20))
    async with pool.lease(PLATFORM):
        waiting = asyncio.create_task(use(pool))
        done, _ = await asyncio.wait({waiting}, timeout=0.1)
        assert not done
        await add_cookies(cookie_records, "added")
        assert await waiting == "added"


async def test_what_another_process_had_is_forgotten_when_it_is_time_to_ask_again(
    postgres_url: str, keys: KeyRing
) -> None:
    """C18: also a cookie that nobody will ever ask for again, or every wait would be a short one from then on."""
    writer, reader = open_database(postgres_url), open_read_only_database(postgres_url)
    records = CookieRecords(writer, keys=keys, clock=SystemClock())
    ours, theirs = (make_pool(reader, keys=keys, patience=timedelta(seconds=SOON)) for _ in range(2))

    async def has_asked() -> bool:
        return ours._held_elsewhere.keys() == {"one"}

    try:
        await add_cookies(records, "one")
        async with theirs.lease(PLATFORM):
            waiting = asyncio.create_task(use(ours))
            await wait_until(has_asked)
            waiting.cancel()
            await asyncio.wait({waiting})
            assert await has_asked()
        await records.remove("one")
        await add_cookies(records, "two")
        async with asyncio.timeout(SOON):
            while ours._held_elsewhere:
                assert await use(ours) == "two"
    finally:
        await reader.close()
        await writer.close()


@pytest.mark.parametrize("values", [{"used_on": "yesterday"}, {"status": "resting"}, {"enabled_at": 9 * 10**18}])
async def test_a_row_with_a_broken_value_keeps_no_other_cookie_from_use(
    cookie_records: CookieRecords, pool_of: PoolMaker, database: Database, log: StringIO, values: dict[str, Any]
) -> None:
    """C18: it is left out and reported once, however often the table is read; when it is mended, it is lent."""
    await add_cookies(cookie_records, "broken", priority=9)
    await add_cookies(cookie_records, "good")
    before = await find_row(database, "broken")
    await change_row(database, "broken", **values)
    pool = pool_of()
    assert [await use(pool) for _ in range(3)] == ["good"] * 3
    said = await refuse(use(pool, exclude=("good",)), ErrorCode.COOKIE_EXHAUSTED)
    assert said.endswith("1 unreadable, 1 excluded")
    lines = [line for line in map(json.loads, log.getvalue().splitlines()) if line["event"] == "cookie.unreadable"]
    assert [line["cookie_name"] for line in lines] == ["broken"]
    await change_row(database, "broken", **{name: before[name] for name in values})
    assert await use(pool) == "broken"


async def test_a_value_that_is_no_text_keeps_no_other_cookie_from_use(
    sqlite_url: str, keys: KeyRing, clock: FakeClock
) -> None:
    """C18: SQLite takes anything in any column, also for text what is none."""
    writer, reader = open_database(sqlite_url), open_read_only_database(sqlite_url)
    try:
        await add_cookies(CookieRecords(writer, keys=keys, clock=clock), "broken", "good")
        async with writer.write() as connection:
            broken = "UPDATE tbl_cookie SET cookie_encrypted = CAST(x'ff00fe' AS TEXT) WHERE cookie_name = 'broken'"
            await connection.execute(text(broken))
        assert await use(make_pool(reader, keys=keys, clock=clock)) == "good"
        assert len(await CookieRecords(writer, keys=keys, clock=clock).list_all()) == 2
    finally:
        await reader.close()
        await writer.close()


async def test_a_row_that_is_broken_for_a_while_does_not_stretch_the_daily_limit(
    cookie_records: CookieRecords, pool_of: PoolMaker, database: Database
) -> None:
    """C18: what was used and never reported stays used."""
    await add_cookies(cookie_records, "one", daily_limit=7)
    await change_row(database, "one", daily_used=3)
    pool = pool_of()
    for _ in range(4):
        await use(pool)
    await change_row(database, "one", status="resting")
    await refuse(use(pool), ErrorCode.COOKIE_EXHAUSTED)
    await change_row(database, "one", status="active")
    assert "1 at the daily limit" in await refuse(use(pool), ErrorCode.COOKIE_EXHAUSTED)


async def test_a_cookie_that_a_person_enables_is_lent_whatever_was_seen_of_it_before(
    cookie_records: CookieRecords, pool_of: PoolMaker, clock: FakeClock
) -> None:
    """C9: also by a process that had put it to rest by itself."""
    await add_cookies(cookie_records, "one")
    pool = pool_of()
    for _ in range(3):
        await use_badly(pool)
    assert "1 cooling" in await refuse(use(pool), ErrorCode.COOKIE_EXHAUSTED)
    clock.advance(timedelta(seconds=1))
    await cookie_records.enable("one")
    assert await use(pool) == "one"


async def test_a_change_in_the_table_is_seen_within_a_second(
    cookie_records: CookieRecords, pool_of: PoolMaker, clock: FakeClock
) -> None:
    """C18: until then no request has to read; a cookie that was removed is lent no more afterwards."""
    await add_cookies(cookie_records, "one", "two", daily_limit=5)
    pool = pool_of(reread_after=timedelta(seconds=1))
    assert await use(pool) == "one"
    await cookie_records.remove("two")
    assert await use(pool) == "two"
    clock.advance(timedelta(seconds=1))
    assert [await use(pool) for _ in range(2)] == ["one", "one"]


@pytest.mark.thorough
async def test_rotating_the_master_key_fails_no_request(
    database: Database, pool_of: PoolMaker, clock: FakeClock
) -> None:
    """C22: what was read before the rotation and what is read during it opens alike."""
    old, new = new_master_key(), new_master_key()
    both = KeyRing.parse(f"k2:{new},k1:{old}")
    await add_cookies(CookieRecords(database, keys=KeyRing.parse(f"k1:{old}"), clock=clock), *NAMES, daily_limit=99_999)
    pool = pool_of(keys=both, clock=SystemClock(), reread_after=timedelta(milliseconds=5))
    rotated = asyncio.create_task(CookieRecords(database, keys=both, clock=clock).rotate_keys())
    served = 0
    async with asyncio.timeout(SOON):
        while not rotated.done() or served < SEVERAL:
            await use(pool)
            served += 1
    assert await rotated == len(NAMES)


async def test_every_cookie_that_is_lent_is_known_to_the_redactor(
    cookie_records: CookieRecords, pool_of: PoolMaker
) -> None:
    """C7, C23: before the request has a chance to show it."""
    await add_cookies(cookie_records, "one")
    redactor = Redactor()
    async with pool_of(redactor=redactor).lease(PLATFORM) as leased:
        assert value_of("one") not in redactor.redact(f"sent {leased.secret.reveal()}.")
        assert "long-value-of-one" not in redactor.redact("x a-long-value-of-one y")
