"""What engines have yet to take: failures with their story, pages that are owed, and what becomes of both."""

from collections.abc import Sequence

import pytest
from sqlalchemy import RowMapping, select

from tidings.announce.due.pages import Page, Pages
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.ledger.undelivered import FailedPage, Undelivered, undelivered
from tidings.core.clock import from_milliseconds
from tidings.core.db.database import Database

ALPHA, BETA = "https://alpha.example/indexnow", "https://beta.example/indexnow"
NOON = 1_800_000_000_000
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


def make_pages(*hashes: int, removed: bool = False, lastmod: int | None = None) -> Pages:
    return Pages.gather((Page(h, f"https://example.com/{h}", lastmod) for h in hashes), removed=removed)


class Desk:
    """One execution's view, with a transaction for each call."""

    def __init__(
        self, database: Database, *, execution: int, site: int = 1, channel: Channel = Channel.INDEXNOW
    ) -> None:
        self.database = database
        self.rows = Undelivered(database, site=site, channel=channel, execution=execution)

    async def fail(
        self, pages: Pages, *, engine: str = ALPHA, reason: str = "HTTP 503", attempts: int = 1, at: int = NOON
    ) -> None:
        async with self.database.write() as connection:
            await self.rows.fail(connection, pages, engine=engine, reason=reason, attempts=attempts, at=at)

    async def owe(self, pages: Pages, *engines: str) -> None:
        async with self.database.write() as connection:
            await self.rows.owe(connection, pages, engines=engines)

    async def settle(self, *hashes: int, engine: str = ALPHA) -> None:
        async with self.database.write() as connection:
            await self.rows.settle(connection, hashes, engine=engine)

    async def sweep(self) -> None:
        async with self.database.write() as connection:
            await self.rows.sweep(connection)

    async def find_engines(self, hashes: Sequence[int], *engines: str) -> dict[int, frozenset[str]]:
        return await self.rows.find_engines(hashes, engines=engines or (ALPHA, BETA))

    async def list_open(
        self, engine: str = ALPHA, *, removed: bool = False, earlier_only: bool = False, after: int | None = None
    ) -> list[int]:
        pages = await self.rows.list_open(engine, removed=removed, earlier_only=earlier_only, after=after, limit=1_000)
        assert pages.removed is removed
        return list(pages.hashes)


@pytest.fixture
def first(database: Database) -> Desk:
    return Desk(database, execution=1)


@pytest.fixture
def second(database: Database) -> Desk:
    return Desk(database, execution=2)


async def read_rows(database: Database) -> Sequence[RowMapping]:
    async with database.read() as connection:
        found = await connection.execute(select(undelivered).order_by(undelivered.c.engine, undelivered.c.url_hash))
        return found.mappings().all()


async def test_a_failure_is_kept_with_reason_attempts_and_time(first: Desk, second: Desk) -> None:
    """A13: for a URL and an engine; a repeated one counts up and shows the last reason and time."""
    await first.fail(make_pages(1, 2, 3), reason="HTTP 503: busy")
    await first.fail(make_pages(1), engine=BETA, reason="HTTP 403", at=NOON + 1)
    await second.fail(make_pages(2), reason="HTTP 429", at=NOON + 2)
    assert await second.rows.list_failed() == [
        FailedPage("https://example.com/2", ALPHA, "HTTP 429", 2, from_milliseconds(NOON + 2)),
        FailedPage("https://example.com/1", BETA, "HTTP 403", 1, from_milliseconds(NOON + 1)),
        FailedPage("https://example.com/1", ALPHA, "HTTP 503: busy", 1, from_milliseconds(NOON)),
        FailedPage("https://example.com/3", ALPHA, "HTTP 503: busy", 1, from_milliseconds(NOON)),
    ]
    newest = await second.rows.list_failed(limit=2)
    assert [(page.url[-1], page.engine) for page in newest] == [("2", ALPHA), ("1", BETA)]


async def test_a_repeated_failure_keeps_the_newer_lastmod(first: Desk, second: Desk) -> None:
    """A13: what is sent again later is the page as it was last announced."""
    await first.fail(make_pages(1, lastmod=5))
    await second.fail(make_pages(1, lastmod=9))
    third = Desk(second.database, execution=3)
    assert list(await third.rows.list_open(ALPHA, removed=False, earlier_only=True, after=None, limit=9)) == [
        Page(1, "https://example.com/1", 9)
    ]


async def test_what_is_owed_is_open_but_has_not_failed(first: Desk, second: Desk) -> None:
    """A18: another engine took it first; the slower one still gets it, and nobody reads of a failure."""
    await first.owe(make_pages(1, lastmod=5), ALPHA, BETA)
    assert await second.rows.list_failed() == []
    for engine in (ALPHA, BETA):
        assert await second.list_open(engine) == [1]
    pages = await second.rows.list_open(BETA, removed=False, earlier_only=True, after=None, limit=9)
    assert list(pages) == [Page(1, "https://example.com/1", 5)]
    await second.fail(make_pages(1), engine=BETA)
    assert [(page.engine, page.attempts) for page in await second.rows.list_failed()] == [(BETA, 1)]


async def test_owing_what_has_failed_already_keeps_the_failure(first: Desk, second: Desk) -> None:
    """A13, A18: reason and attempts survive another engine's later success."""
    await first.fail(make_pages(1))
    await second.owe(make_pages(1, 2), ALPHA)
    assert [(page.url[-1], page.attempts) for page in await second.rows.list_failed()] == [("1", 1)]
    assert await second.list_open(earlier_only=True) == [1]
    assert await second.list_open() == [1, 2]


async def test_what_failed_is_not_sent_again_by_the_same_execution(first: Desk, second: Desk) -> None:
    """A13: a failure waits for the next execution; what is only owed may go at once."""
    await first.fail(make_pages(1))
    await first.owe(make_pages(2), ALPHA)
    assert await first.list_open() == [2]
    assert await first.list_open(earlier_only=True) == []
    assert await second.list_open(earlier_only=True) == [1, 2]
    await second.fail(make_pages(1))
    assert await second.list_open() == [2]


async def test_open_pages_come_in_order_and_in_portions_without_loss(first: Desk, second: Desk) -> None:
    """A13: all of them, once each, over the whole range of hashes, however small the portion."""
    hashes = [LOWEST, -5, -1, 0, 1, 7, HIGHEST]
    await first.fail(make_pages(*reversed(hashes)))
    await first.fail(make_pages(3), engine=BETA)
    await first.fail(make_pages(4, removed=True))
    found: list[int] = []
    for _ in range(len(hashes)):
        after = found[-1] if found else None
        part = await second.rows.list_open(ALPHA, removed=False, earlier_only=True, after=after, limit=3)
        found += part.hashes
    assert found == hashes
    assert await second.list_open(removed=True) == [4]


async def test_more_pages_than_one_portion_are_all_kept(first: Desk, second: Desk) -> None:
    """A13: a batch of thousands fails as one."""
    count = 2_500
    await first.fail(make_pages(*range(count)))
    await second.fail(make_pages(*range(count)), reason="HTTP 500")
    failed = await second.rows.list_failed(limit=10 * count)
    assert {(page.reason, page.attempts) for page in failed} == {("HTTP 500", 2)}
    assert len({page.url for page in failed}) == len(failed) == count


async def test_an_engine_that_took_its_own_debt_leaves_no_row(first: Desk) -> None:
    """A18: what this execution put here itself is gone once it is delivered."""
    await first.owe(make_pages(1, 2), ALPHA, BETA)
    await first.settle(1)
    assert [(row["engine"], row["url_hash"]) for row in await read_rows(first.database)] == [
        (ALPHA, 2),
        (BETA, 1),
        (BETA, 2),
    ]


async def test_an_earlier_debt_that_is_delivered_is_kept_until_the_sweep(first: Desk, second: Desk) -> None:
    """A18: until then it says that this engine has been seen to, so that the crawl does not send the page again."""
    await first.fail(make_pages(1, 2))
    await second.settle(1)
    assert await second.list_open() == [2]
    assert [page.url[-1] for page in await second.rows.list_failed()] == ["2"]
    assert await second.find_engines([1, 2, 3]) == {1: frozenset({ALPHA}), 2: frozenset({ALPHA})}
    await second.sweep()
    assert [(row["url_hash"], row["attempts"]) for row in await read_rows(first.database)] == [(2, 1)]
    assert await second.find_engines([1, 2, 3]) == {2: frozenset({ALPHA})}


async def test_the_sweep_keeps_what_an_engine_that_is_not_asked_now_has_yet_to_take(first: Desk, second: Desk) -> None:
    """A13, A18: it may be broken, or left out of one run by hand; its debts wait for it."""
    await first.fail(make_pages(1), engine=ALPHA)
    await first.owe(make_pages(2), BETA)
    await second.settle(1, engine=ALPHA)
    await second.sweep()
    assert [row["engine"] for row in await read_rows(first.database)] == [BETA]


async def test_attempts_of_several_executions_add_up(first: Desk, second: Desk) -> None:
    """A13: four attempts today and four tomorrow are eight."""
    await first.fail(make_pages(1), attempts=4)
    await second.fail(make_pages(1), attempts=4)
    assert [row["attempts"] for row in await read_rows(first.database)] == [8]


async def test_a_page_that_failed_at_two_engines_counts_as_one_failed_page(first: Desk) -> None:
    """A37: and one that another engine took does not count at all."""
    await first.fail(make_pages(1, 2), engine=ALPHA)
    await first.fail(make_pages(1, 2), engine=BETA)
    ledger = Ledger(first.database, site=1, channel=Channel.INDEXNOW)
    async with first.database.write() as connection:
        await ledger.enter(connection, make_pages(2), at=NOON)
        assert await first.rows.count_failed(connection, expired_before=NOON) == 1
        assert await first.rows.count_failed(connection, expired_before=NOON + 1) == 2


async def test_engines_are_found_for_each_page(first: Desk) -> None:
    """A18: all engines that have a row for it, failed or owed."""
    await first.owe(make_pages(LOWEST, 5), ALPHA, BETA)
    await first.fail(make_pages(HIGHEST), engine=BETA)
    both = frozenset({ALPHA, BETA})
    assert await first.find_engines([LOWEST, 5, HIGHEST, 6]) == {LOWEST: both, 5: both, HIGHEST: frozenset({BETA})}
    assert await first.find_engines([5, HIGHEST], ALPHA) == {5: frozenset({ALPHA})}
    assert await first.find_engines([]) == {}


async def test_rows_belong_to_one_site_and_channel(first: Desk) -> None:
    """A13, A18: another site's or channel's work neither sees them nor takes them away."""
    await first.fail(make_pages(1))
    for site, channel in [(2, Channel.INDEXNOW), (1, Channel.BING)]:
        other = Desk(first.database, execution=2, site=site, channel=channel)
        assert await other.list_open() == []
        assert await other.rows.list_failed() == []
        assert await other.find_engines([1]) == {}
        await other.fail(make_pages(1), reason="HTTP 400")
        await other.settle(1)
        await other.sweep()
        assert [(page.reason, page.attempts) for page in await first.rows.list_failed()] == [("HTTP 503", 1)]


async def test_a_removed_page_stays_removed_until_it_is_delivered(first: Desk, second: Desk) -> None:
    """A13, A14: a notice of removal that failed is repeated as one."""
    await first.fail(make_pages(1, removed=True))
    await first.owe(make_pages(2, removed=True), ALPHA)
    assert await second.list_open(removed=True) == [1, 2]
    assert await second.list_open(removed=False) == []
