"""Bing's daily quota by itself: what is reserved, given back, recorded and corrected, and that two cannot overspend."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.announce.stage import Events, pick_events
from tests.fakes import FakeClock
from tidings.announce.channels.protocols.bing import BING_KIND
from tidings.announce.channels.quota.quota import KEPT_DAYS, Quota, QuotaState
from tidings.core.db.database import Database, open_database

TODAY = date(2025, 1, 15)
LIMIT = 100
HOUR = timedelta(hours=1)

Change = Callable[[Quota, AsyncConnection], Awaitable[object]]
CHANGES: dict[str, Change] = {
    "reserve": lambda quota, connection: quota.reserve(connection, 5),
    "release": lambda quota, connection: quota.release(connection, 5),
    "confirm": lambda quota, connection: quota.confirm(connection, 5),
    "record": lambda quota, connection: quota.record(connection, 500),
    "correct": lambda quota, connection: quota.correct(connection, remaining=3, reserved=5),
    "close": lambda quota, connection: quota.close(connection, reserved=5),
}


class Book:
    """The quota of a site on a database, each change of it in a transaction of its own."""

    def __init__(self, database: Database, clock: FakeClock, *, site: int = 1, day: date = TODAY, limit: int = LIMIT):
        self.clock = clock
        self.quota = Quota(database, terms=BING_KIND, site=site, day=day, limit=limit, clock=clock)
        self._database = database

    async def read(self) -> QuotaState:
        return await self.quota.read()

    async def apply(self, change: Change) -> None:
        async with self._database.write() as connection:
            await change(self.quota, connection)

    async def reserve(self, count: int) -> int:
        async with self._database.write() as connection:
            return await self.quota.reserve(connection, count)

    async def release(self, count: int) -> None:
        await self.apply(lambda quota, connection: quota.release(connection, count))

    async def record(self, count: int) -> QuotaState:
        await self.apply(lambda quota, connection: quota.record(connection, count))
        return await self.quota.read()

    async def correct(self, *, remaining: int, reserved: int) -> None:
        await self.apply(lambda quota, connection: quota.correct(connection, remaining=remaining, reserved=reserved))

    async def close(self, *, reserved: int) -> None:
        await self.apply(lambda quota, connection: quota.close(connection, reserved=reserved))


@pytest.fixture
def book(database: Database, clock: FakeClock) -> Book:
    return Book(database, clock)


@pytest.fixture
async def second_database(database_url: str) -> AsyncIterator[Database]:
    """Another process's view of the same database."""
    opened = open_database(database_url)
    yield opened
    await opened.close()


async def test_a_day_that_nobody_used_has_all_of_its_quota(book: Book) -> None:
    """A28: also before there is anything on record."""
    state = await book.read()
    assert state == QuotaState(TODAY, LIMIT, used=0, full=False, updated_at=None, submitted_at=None)
    assert state.remaining == LIMIT


@pytest.mark.parametrize(
    ("asked", "granted"),
    [((85, 15), (85, 15)), ((60, 60, 1), (60, 40, 0)), ((100, 1), (100, 0)), ((250,), (100,)), ((0, 100), (0, 100))],
)
async def test_no_more_is_granted_than_remains(book: Book, asked: tuple[int, ...], granted: tuple[int, ...]) -> None:
    """A28, A29: what is reserved counts as used at once, and nothing is granted beyond the limit."""
    assert tuple([await book.reserve(count) for count in asked]) == granted
    state = await book.read()
    assert (state.used, state.remaining) == (sum(granted), LIMIT - sum(granted))


async def test_what_is_released_can_be_reserved_again(book: Book) -> None:
    """A28, A31: an error answer costs nothing."""
    await book.reserve(100)
    await book.release(30)
    assert (await book.read()).remaining == 30
    assert await book.reserve(50) == 30


async def test_a_release_never_goes_below_nothing(book: Book) -> None:
    """A28: more is never available than the limit, no matter what is given back."""
    await book.reserve(3)
    await book.release(5)
    state = await book.read()
    assert (state.used, state.remaining) == (0, LIMIT)
    assert await book.reserve(LIMIT + 1) == LIMIT


async def test_a_reservation_ends_with_a_transaction_that_fails(book: Book) -> None:
    """A29: nothing was sent on it, so nothing stays charged."""

    async def reserve_and_fail(quota: Quota, connection: AsyncConnection) -> None:
        assert await quota.reserve(connection, 40) == 40
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        await book.apply(reserve_and_fail)
    assert (await book.read()).used == 0


async def test_every_change_is_stamped_and_only_success_is_a_submission(book: Book) -> None:
    """A28: the time of the last change and that of the last success are kept apart."""
    began = book.clock.now()
    await book.reserve(50)
    state = await book.read()
    assert (state.updated_at, state.submitted_at) == (began, None)
    book.clock.advance(HOUR)
    await book.apply(CHANGES["confirm"])
    state = await book.read()
    assert (state.used, state.updated_at, state.submitted_at) == (50, began + HOUR, began + HOUR)
    book.clock.advance(HOUR)
    await book.release(10)
    state = await book.read()
    assert (state.used, state.updated_at, state.submitted_at) == (40, began + 2 * HOUR, began + HOUR)


async def test_what_was_really_used_is_recorded_beyond_the_limit_and_logged(book: Book, events: Events) -> None:
    """A29: 95 + 5 + 5 → 105; recording never refuses, and the log has it for audit. Then nothing remains."""
    assert (await book.record(95)).used == 95
    assert (await book.record(5)).used == 100
    assert not pick_events(events, "bing.quota_exceeded")
    assert (await book.record(5)).used == 105
    [logged] = pick_events(events, "bing.quota_exceeded", log_level="warning")
    assert (logged["day"], logged["used"], logged["quota"]) == ("2025-01-15", 105, 100)
    state = await book.read()
    assert (state.used, state.remaining) == (105, 0)
    assert await book.reserve(1) == 0


async def test_recording_says_how_the_day_stands_and_when(book: Book) -> None:
    """A28: 50 + 30 → 80, with a timestamp."""
    await book.record(50)
    book.clock.advance(HOUR)
    state = await book.record(30)
    assert (state.used, state.remaining, state.updated_at) == (80, 20, book.clock.now())
    assert state == await book.read()


@pytest.mark.parametrize(
    ("counted", "reserved", "remaining", "used"),
    [
        pytest.param(0, 100, 27, 73, id="somebody else used the rest"),
        pytest.param(50, 50, 10, 90, id="somebody else used some"),
        pytest.param(60, 20, 90, 60, id="Bing counts less than was sent"),
        pytest.param(60, 20, 40, 60, id="both count the same"),
        pytest.param(60, 20, 480, 60, id="Bing allows more than the limit"),
        pytest.param(60, 20, 0, 100, id="nothing remains"),
    ],
)
async def test_a_correction_never_lowers_the_count_below_what_was_used(
    book: Book, events: Events, counted: int, reserved: int, remaining: int, used: int
) -> None:
    """A29, A31: the refused reservation comes back, and the larger of both counts holds."""
    await book.record(counted)
    assert await book.reserve(reserved) == reserved
    await book.correct(remaining=remaining, reserved=reserved)
    state = await book.read()
    assert (state.used, state.remaining) == (used, LIMIT - used)
    [logged] = pick_events(events, "bing.quota_corrected", log_level="warning")
    assert (logged["day"], logged["counted"], logged["used"]) == ("2025-01-15", counted, used)


async def test_a_correction_never_goes_below_nothing(book: Book) -> None:
    """A28: as with a release, no more is available than the limit, whatever is given back and whatever Bing says."""
    await book.reserve(3)
    await book.correct(remaining=480, reserved=5)
    state = await book.read()
    assert (state.used, state.remaining) == (0, LIMIT)


async def test_a_correction_keeps_what_was_recorded_beyond_the_limit(book: Book) -> None:
    """A29: the true number stands."""
    await book.record(105)
    await book.correct(remaining=20, reserved=0)
    assert (await book.read()).used == 105


async def test_a_closed_day_grants_nothing_more(database: Database, book: Book) -> None:
    """A31: the reservation comes back, and neither a release nor a higher limit opens the day again."""
    await book.record(20)
    await book.reserve(10)
    await book.close(reserved=10)
    state = await book.read()
    assert (state.used, state.full, state.remaining) == (20, True, 0)
    await book.release(20)
    raised = Book(database, book.clock, limit=500)
    for closed in (book, raised):
        assert (await closed.read()).remaining == 0
        assert await closed.reserve(1) == 0
    assert (await book.read()).used == 0


async def test_closing_never_goes_below_nothing(book: Book) -> None:
    """A31: as with a release."""
    await book.reserve(3)
    await book.close(reserved=5)
    assert (await book.read()).used == 0


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_other_sites_and_other_days_are_not_touched(database: Database, clock: FakeClock, change: Change) -> None:
    """A28: a quota is one site's on one day."""
    book = Book(database, clock)
    others = [
        Book(database, clock, site=2),
        *(Book(database, clock, day=TODAY + timedelta(days=days)) for days in (-1, 1)),
    ]
    for each in (book, *others):
        await each.record(40)
    before = [await other.read() for other in others]
    own = await book.read()
    clock.advance(HOUR)
    await book.apply(change)
    assert await book.read() != own
    assert [await other.read() for other in others] == before


@pytest.mark.parametrize(("limit", "remaining"), [(150, 50), (101, 1), (100, 0), (40, 0)])
async def test_another_limit_counts_at_once(
    database: Database, book: Book, clock: FakeClock, limit: int, remaining: int
) -> None:
    """A28: what was used stands, what remains follows the limit and is never less than nothing."""
    await book.reserve(100)
    changed = Book(database, clock, limit=limit)
    assert (await changed.read()).remaining == remaining
    assert await changed.reserve(500) == remaining


@pytest.mark.parametrize(
    ("day", "midnight"),
    [
        (date(2025, 1, 15), datetime(2025, 1, 16, tzinfo=UTC)),
        (date(2024, 2, 28), datetime(2024, 2, 29, tzinfo=UTC)),
        (date(2024, 12, 31), datetime(2025, 1, 1, tzinfo=UTC)),
    ],
)
async def test_the_quota_is_new_at_the_next_midnight_in_utc(
    database: Database, clock: FakeClock, day: date, midnight: datetime
) -> None:
    """A28: no matter what the clock shows now."""
    assert (await Book(database, clock, day=day).read()).resets_at == midnight


async def test_only_days_that_nobody_asks_for_are_purged(database: Database, clock: FakeClock) -> None:
    """A28: those of this site, longer ago than they are kept."""
    kept = Book(database, clock, day=TODAY - timedelta(days=KEPT_DAYS))
    old = Book(database, clock, day=TODAY - timedelta(days=KEPT_DAYS + 1))
    of_another = Book(database, clock, site=2, day=old.quota.day)
    for book in (kept, old, of_another):
        await book.record(7)
    await Book(database, clock).apply(lambda quota, connection: quota.purge(connection))
    assert [(await book.read()).used for book in (kept, old, of_another)] == [7, 0, 7]


async def test_reserving_at_once_never_grants_more_than_the_limit(
    database: Database, second_database: Database, clock: FakeClock
) -> None:
    """A29: two connections' worth of takers, of which each asks for more than its share: the limit is met exactly."""
    books = [Book(opened, clock) for opened in (database, second_database)]
    granted = await asyncio.gather(*(book.reserve(7) for _ in range(12) for book in books))
    assert sum(granted) == LIMIT
    assert sorted(granted, reverse=True) == [7] * 14 + [2] + [0] * 9
    assert (await books[0].read()).used == LIMIT


async def test_reserving_and_releasing_at_once_loses_nothing(
    database: Database, second_database: Database, clock: FakeClock
) -> None:
    """A29: while one half gives everything back, the other half's reservations stand."""

    async def take(book: Book, *, keep: bool) -> int:
        granted = await book.reserve(5)
        if keep:
            return granted
        await book.release(granted)
        return 0

    books = [Book(opened, clock) for opened in (database, second_database)]
    kept = await asyncio.gather(*(take(book, keep=at % 2 == 0) for at in range(8) for book in books))
    assert sum(kept) == (await books[0].read()).used == 40
