"""The outbox: nothing that an engine has yet to take is lost, nothing goes twice, and failures keep their story."""

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select

from tests.fakes import FakeClock
from tidings.announce.channels.channel import ExecutionContext
from tidings.announce.due.finder import DueFile, FileCounts
from tidings.announce.due.hashes import HashSet
from tidings.announce.due.pages import NO_LASTMOD, Page, PageKeys, Pages
from tidings.announce.due.rules import DueRules
from tidings.announce.execution.plan import Planner
from tidings.announce.ledger.batch_state import DayCount
from tidings.announce.ledger.failed_pages import FailedPages
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.ledger.outbox import MOST_CLAIMED, ClaimedPages, Outbox
from tidings.announce.ledger.outbox_tables import batches, deliveries
from tidings.announce.ledger.packing import (
    decode_pages,
    encode_pages,
    list_positions,
    make_bits,
    read_bits,
    write_bits,
)
from tidings.announce.ledger.recorder import Recorder, TakenPages
from tidings.announce.ledger.statistics import read_days
from tidings.announce.site.site import make_site
from tidings.announce.sitemap.events import SitemapFile
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database
from tidings.core.execution_table import Execution
from tidings.core.net.pace import Pace
from tidings.core.net.retry import RetryPolicy

ALPHA, BETA = "https://alpha.example/indexnow", "https://beta.example/indexnow"
BOTH = (ALPHA, BETA)
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


def make_pages(*hashes: int, removed: bool = False, lastmod: int | None = None) -> Pages:
    return Pages.gather((Page(each, f"https://example.com/{each}", lastmod) for each in hashes), removed=removed)


async def save_nothing() -> None:
    """Nobody watches the progress."""


class Desk:
    """The tables of one site and channel, as one execution writes to them."""

    def __init__(
        self, database: Database, *, execution: int, site: int = 1, channel: Channel = Channel.INDEXNOW
    ) -> None:
        self.database = database
        self.recorder = Recorder(database, site=site, channel=channel, execution=execution)
        self.outbox: Outbox = self.recorder.outbox
        self.ledger: Ledger = self.recorder.ledger
        self.failed_pages = FailedPages(database, site=site, channel=channel)

    async def add(self, pages: Pages, *engines: str, at: datetime = NOON) -> None:
        async with self.database.write() as connection:
            await self.outbox.add(connection, pages, engines=engines or BOTH, at=at)

    async def claim(
        self, engine: str = ALPHA, *, failed: bool = False, limit: int = 100, busy: Iterable[int] = ()
    ) -> ClaimedPages:
        claimed = await self.outbox.claim(engine, failed=failed, limit=limit, busy=set(busy))
        return claimed or ClaimedPages(PageKeys(), (), 0)

    async def list_claimed(self, engine: str = ALPHA, *, failed: bool = False) -> list[int]:
        return list((await self.claim(engine, failed=failed)).keys.hashes)

    async def take(self, claimed: ClaimedPages, start: int, stop: int, *, at: datetime = NOON) -> int:
        async with self.database.write() as connection:
            return (await self.recorder.record_taken(connection, claimed.cut(start, stop), at=at)).pages

    async def fail(
        self,
        claimed: ClaimedPages,
        start: int,
        stop: int,
        *,
        reason: str = "HTTP 503",
        attempts: int = 4,
        at: datetime = NOON,
    ) -> int:
        async with self.database.write() as connection:
            return await self.recorder.record_failed(
                connection, claimed.cut(start, stop), reason=reason, attempts=attempts, at=at
            )

    async def list_failed(self) -> set[tuple[str, str, str, int]]:
        """The last part of the URL, engine, reason and attempts."""
        return {
            (page.url.rpartition("/")[2], page.engine, page.reason, page.attempts)
            for page in await self.failed_pages.list(limit=10_000)
        }

    async def count_rows(self) -> tuple[int, int]:
        async with self.database.read() as connection:
            counts = [
                (await connection.execute(select(func.count()).select_from(table))).scalar_one()
                for table in (batches, deliveries)
            ]
        return counts[0], counts[1]


@pytest.fixture
def first(database: Database) -> Desk:
    return Desk(database, execution=1)


@pytest.fixture
def second(database: Database) -> Desk:
    return Desk(database, execution=2)


async def test_each_batch_of_a_large_file_belongs_into_one_part_of_the_ledger(first: Desk) -> None:
    """A13: every page is planned once, with its own URL; a file that fits into a batch keeps its order."""
    clock = FakeClock(NOON)
    site = make_site(sitemap_urls=["https://example.com/sitemap.xml"], key="abcd-1234", engines=BOTH)
    planner = Planner(
        ExecutionContext(
            site=replace(site, number=1),
            execution=Execution(id=1, public_id="exec-1", workflow_name=site.workflow_name, started_at=NOON),
            database=first.database,
            clock=clock,
            pace=Pace(first.database, clock=clock, interval=timedelta(0), concurrency=1),
            policy=RetryPolicy(),
            rules=DueRules(),
            taken=TakenPages(),
            transaction=first.database.write,
            emit=lambda _: None,
            save_progress=save_nothing,
        ),
        batch_size=10,
    )
    hashes = [random.randint(LOWEST, HIGHEST) for _ in range(35)]
    many, few = hashes[:30], hashes[30:]
    for listed in (many, few):
        due = make_pages(*listed)
        file = SitemapFile("https://example.com/sitemap.xml")
        await planner.add_file(DueFile(file, FileCounts(len(due)), due, frozenset(), (), oldest=0, channels=0))
    await planner.flush()
    planned = [[page.url_hash for page in pages] async for pages in first.outbox.list_pages()]
    *parts, rest = planned
    gathered = [each for part in parts for each in part]
    assert ([len(part) for part in parts], rest) == ([10, 10, 10], few)
    assert sorted(gathered) == sorted(many)
    # The first six bits name a part of the ledger: no batch goes back to a part that an earlier one has left.
    places = [each >> 58 & 63 for each in gathered]
    assert places == sorted(places)
    urls = [page.url for pages in [pages async for pages in first.outbox.list_pages()] for page in pages]
    assert urls == [f"https://example.com/{each}" for each in [*gathered, *few]]


def test_pages_survive_their_encoding() -> None:
    """A13: hashes over the whole range, lastmods and their absence, URLs in any script."""
    urls = ["https://example.com/", "https://example.com/caf%C3%A9?a=1&b=2", "https://例子.example/页"]
    pages = Pages.gather([Page(LOWEST, urls[0], 5), Page(-1, urls[1]), Page(HIGHEST, urls[2], 1 << 60)], removed=True)
    value = encode_pages(pages)
    assert decode_pages(value, size=3, removed=True) == pages
    assert pages.lastmods[1] == NO_LASTMOD
    assert value[:8] == LOWEST.to_bytes(8, "little", signed=True)


@pytest.mark.parametrize("positions", [[], [0], [7, 8, 9], [0, 2, 9_999], list(range(10_000)), [9_999]])
def test_a_bitmap_gives_its_positions_back(positions: list[int]) -> None:
    """A13: which pages of a batch are open."""
    bits = make_bits(positions)
    assert bits == sum(1 << at for at in positions)
    assert list(list_positions(read_bits(write_bits(bits)), 10_000)) == positions


def test_a_set_of_hashes_behaves_as_a_set() -> None:
    """A8: randomised against Python's own, over the whole range."""
    chance = random.Random(7)
    pool = [chance.randint(LOWEST, HIGHEST) for _ in range(300)] + [LOWEST, -1, 0, 1, HIGHEST]
    ours, expected = HashSet(), set[int]()
    for _ in range(3_000):
        number = chance.choice(pool)
        if chance.random() < 0.6:
            assert ours.add(number) is (number not in expected)
            expected.add(number)
        else:
            ours.remove([number])
            expected.discard(number)
        assert (len(ours), number in ours) == (len(expected), number in expected)
    assert set(ours) == expected
    assert "no number" not in ours


async def test_every_engine_gets_every_page_once_and_then_nothing_is_left(first: Desk) -> None:
    """A11, A18: the ledger has a page once an engine took it; the batch goes with its last delivery."""
    await first.add(make_pages(5, 1, LOWEST, HIGHEST))
    for engine, fresh, rows in ((ALPHA, 4, (1, 1)), (BETA, 0, (0, 0))):
        claimed = await first.claim(engine)
        assert list(claimed.keys.hashes) == [5, 1, LOWEST, HIGHEST]
        assert await first.take(claimed, 0, 4) == fresh
        assert await first.list_claimed(engine) == []
        assert await first.count_rows() == rows
        assert set(await first.ledger.find_entries([LOWEST, 1, 5, HIGHEST])) == {LOWEST, 1, 5, HIGHEST}


async def test_pages_that_are_taken_one_by_one_leave_one_by_one(first: Desk, second: Desk) -> None:
    """A11, A19: after a crash between two requests, only the pages without a record are sent again."""
    await first.add(make_pages(1, 2, 3, 4))
    claimed = await first.claim(ALPHA)
    await first.take(claimed, 1, 2)
    await first.take(claimed, 3, 4)
    assert await second.list_claimed(ALPHA) == [1, 3]
    assert await second.list_claimed(BETA) == [1, 2, 3, 4]
    assert set(await second.ledger.find_entries([1, 2, 3, 4])) == {2, 4}


async def test_a_failure_waits_for_the_next_execution_and_goes_first(first: Desk, second: Desk) -> None:
    """A13: with reason, attempts and time; the oldest failure before all others, and new pages last."""
    for number, minutes in ((1, 20), (2, 10)):
        await first.add(make_pages(number))
        claimed = await first.claim(ALPHA)
        await first.fail(claimed, 0, 1, at=NOON + timedelta(minutes=minutes))
        assert await first.list_claimed(ALPHA) == await first.list_claimed(ALPHA, failed=True) == []
    await second.add(make_pages(3))
    assert [page.url[-1] for page in await second.failed_pages.list()] == ["1", "2"]
    assert await second.list_claimed(ALPHA, failed=True) == [2, 1]
    assert await second.list_claimed(ALPHA) == [3]
    assert await second.list_claimed(BETA, failed=True) == []


async def test_attempts_add_up_and_the_last_reason_counts(first: Desk, second: Desk) -> None:
    """A13: four attempts today and four tomorrow are eight."""
    await first.add(make_pages(1, 2))
    await first.fail(await first.claim(ALPHA), 0, 2)
    await second.fail(await second.claim(ALPHA, failed=True), 0, 2, reason="HTTP 500")
    assert await second.list_failed() == {(each, ALPHA, "HTTP 500", 8) for each in "12"}
    assert await second.count_rows() == (1, 2)


async def test_pages_that_failed_differently_are_kept_apart_and_alike_together(first: Desk) -> None:
    """A13, A22: bad URLs of one batch are few rows, however many they are, and nothing else is blamed."""
    await first.add(make_pages(*range(100)), ALPHA)
    claimed = await first.claim(ALPHA)
    for at in range(0, 60, 2):
        await first.fail(claimed, at, at + 1, reason="HTTP 422", attempts=1)
    await first.fail(claimed, 99, 100, reason="HTTP 503")
    await first.take(claimed, 1, 2)
    failed = {(str(at), ALPHA, "HTTP 422", 1) for at in range(0, 60, 2)}
    assert await first.list_failed() == failed | {("99", ALPHA, "HTTP 503", 4)}
    assert await first.count_rows() == (1, 3)
    assert await first.list_claimed(ALPHA) == [at for at in range(99) if at >= 60 or (at % 2 and at != 1)]


async def test_a_batch_that_failed_page_by_page_leaves_one_delivery(first: Desk, second: Desk) -> None:
    """A13: as the same batch that failed at once."""
    await first.add(make_pages(1, 2, 3), ALPHA)
    claimed = await first.claim(ALPHA)
    for at in range(3):
        await first.fail(claimed, at, at + 1)
    assert await first.count_rows() == (1, 1)
    assert await second.list_claimed(ALPHA, failed=True) == [1, 2, 3]
    assert await second.outbox.count_open() == {ALPHA: 3}


async def test_the_same_failure_at_another_engine_is_kept_apart(first: Desk) -> None:
    """A13, A22: a page that two engines refused is open at both, and each takes it by itself."""
    await first.add(make_pages(1, 2, 3))
    for engine in BOTH:
        await first.fail(await first.claim(engine), 0, 1)
    assert await first.list_failed() == {("1", ALPHA, "HTTP 503", 4), ("1", BETA, "HTTP 503", 4)}
    assert await first.count_rows() == (1, 4)


async def test_a_failure_counts_from_its_last_page(first: Desk, second: Desk) -> None:
    """A22: the oldest failure goes first, and pages that failed alike are as old as the last of them."""
    await first.add(make_pages(1, 2), ALPHA)
    await first.add(make_pages(3), ALPHA)
    claimed = await first.claim(ALPHA)
    for at, page in enumerate((0, 2, 1)):
        await first.fail(claimed, page, page + 1, at=NOON + timedelta(minutes=at))
    assert await second.list_claimed(ALPHA, failed=True) == [3, 1, 2]


async def test_a_batch_that_is_done_takes_no_other_with_it(first: Desk) -> None:
    """A13: the last page of one batch leaves, and the pages of all others stay."""
    await first.add(make_pages(1), ALPHA)
    await first.add(make_pages(2), ALPHA)
    await first.take(await first.claim(ALPHA, limit=1), 0, 1)
    assert await first.list_claimed(ALPHA) == [2]
    assert await first.count_rows() == (1, 1)


async def test_one_claim_reads_a_bounded_number_of_deliveries(first: Desk) -> None:
    """A19: a thousand small deliveries are not read at once."""
    for number in range(MOST_CLAIMED + 1):
        await first.add(make_pages(number), ALPHA)
    assert await first.list_claimed(ALPHA) == list(range(MOST_CLAIMED))
    assert len(await first.claim(ALPHA, limit=1_000)) == MOST_CLAIMED


async def test_small_deliveries_go_out_together_and_large_ones_in_portions(first: Desk, second: Desk) -> None:
    """A16, A19: up to the limit, in the order of planning; what is being sent is left alone."""
    for numbers in (range(3), range(3, 5), range(5, 12)):
        await first.add(make_pages(*numbers), ALPHA)
    claimed = await second.claim(ALPHA, limit=6)
    assert (list(claimed.keys.hashes), claimed.repeated) == ([0, 1, 2, 3, 4, 5], 6)
    assert (await first.claim(ALPHA)).repeated == 0
    assert [list(pages.hashes) for _, pages in claimed.cut(2, 5).list_segments()] == [[2], [3, 4]]
    assert len(claimed.cut(1, 4)) == 3
    assert claimed.cut(1, 4).list_urls() == [f"https://example.com/{number}".encode() for number in (1, 2, 3)]
    busy = {segment.delivery for segment in claimed.segments}
    assert len(busy) == 3
    assert (await second.claim(ALPHA, limit=6, busy=busy)).segments == ()
    await second.take(claimed, 2, 4)
    assert await second.list_claimed(ALPHA) == [0, 1, 4, *range(5, 12)]


async def test_removals_and_changes_are_never_mixed(first: Desk) -> None:
    """A14: one enters the ledger, the other leaves it."""
    await first.add(make_pages(1))
    await first.add(make_pages(2, removed=True))
    await first.add(make_pages(3))
    claimed = await first.claim(ALPHA)
    assert (list(claimed.keys.hashes), claimed.keys.removed) == ([1], False)
    await first.take(claimed, 0, 1)
    removed = await first.claim(ALPHA)
    assert (list(removed.keys.hashes), removed.keys.removed) == ([2], True)


async def test_failed_pages_are_not_mixed_with_new_ones(first: Desk, second: Desk) -> None:
    """A22: one bad URL would make good ones wait."""
    await first.add(make_pages(1, 2))
    await first.fail(await first.claim(ALPHA), 0, 2)
    await second.add(make_pages(3))
    assert await second.list_claimed(ALPHA, failed=True) == [1, 2]
    assert await second.list_claimed(ALPHA) == [3]


async def test_open_pages_are_known_by_engine_and_kind(first: Desk, second: Desk) -> None:
    """A13, A18: what is open at one engine is not planned for it again, and what another took is not open there."""
    await first.add(make_pages(1, 2, 3))
    await first.add(make_pages(2, removed=True))
    await first.take(await first.claim(ALPHA), 0, 2)
    found = await second.outbox.list_open([ALPHA, BETA])
    assert {engine: set(hashes) for engine, hashes in found[False].items()} == {ALPHA: {3}, BETA: {1, 2, 3}}
    assert {engine: set(hashes) for engine, hashes in found[True].items()} == {ALPHA: {2}, BETA: {2}}
    assert (await second.outbox.list_open([ALPHA]))[False].keys() == {ALPHA}
    pages = [(set(pages.hashes), pages.removed) async for pages in second.outbox.list_pages()]
    assert pages == [({1, 2, 3}, False), ({2}, True)]


async def test_pages_that_every_engine_took_are_open_no_more(first: Desk) -> None:
    """A13, A18: also if others of the same batch are."""
    await first.add(make_pages(1, 2))
    await first.add(make_pages(3, 4))
    for engine in BOTH:
        claimed = await first.claim(engine)
        await first.take(claimed, 0, 1)
        await first.take(claimed, 2, 3)
    assert [set(pages.hashes) async for pages in first.outbox.list_pages()] == [{2}, {4}]


async def test_all_open_pages_are_known_however_many_batches_hold_them(first: Desk, second: Desk) -> None:
    """A13: they are read block by block."""
    for number in range(1, 31):
        await first.add(make_pages(number))
    found = await second.outbox.list_open([ALPHA, BETA])
    assert {engine: set(hashes) for engine, hashes in found[False].items()} == {
        ALPHA: set(range(1, 31)),
        BETA: set(range(1, 31)),
    }


async def test_what_is_left_and_what_failed_is_counted(first: Desk) -> None:
    """A37: pages by engine that wait; different pages that failed and that no engine took."""
    await first.add(make_pages(1, 2, 3, 4))
    await first.fail(await first.claim(ALPHA), 0, 3)
    claimed = await first.claim(BETA)
    await first.take(claimed, 0, 1)
    await first.fail(claimed, 1, 2)
    assert await first.outbox.count_open() == {ALPHA: 1, BETA: 2}
    assert await first.outbox.count_untaken() == 2


async def test_the_outbox_of_one_site_and_channel_is_not_anothers(first: Desk) -> None:
    """A10, A13: nobody else sees it, sends it or counts it."""
    await first.add(make_pages(1))
    await first.fail(await first.claim(ALPHA), 0, 1)
    for site, channel in [(2, Channel.INDEXNOW), (1, Channel.BING)]:
        other = Desk(first.database, execution=2, site=site, channel=channel)
        assert await other.list_claimed(ALPHA, failed=True) == []
        assert await other.list_failed() == set()
        assert await other.outbox.list_open([ALPHA]) == {False: {}, True: {}}
        assert (await other.outbox.count_open(), await other.outbox.count_untaken()) == ({}, 0)
        async with other.database.write() as connection:
            await other.outbox.drop_since(connection, since=0)
    assert await Desk(first.database, execution=1, site=2).outbox.count_untaken() == 0
    assert len(await first.list_failed()) == 1


async def test_a_page_that_was_taken_earlier_today_is_not_counted_again(first: Desk) -> None:
    """A34: the planner names such pages; the statistics of the day hold them already."""
    async with first.database.write() as connection:
        await first.outbox.add(connection, make_pages(1, 2, 3), engines=[ALPHA], at=NOON, counted={1})
    await first.take(await first.claim(ALPHA), 0, 3)
    [day] = (await read_days(first.database, today=NOON.date(), days=1)).values()
    assert day[Channel.INDEXNOW] == DayCount(2, 2)


async def test_a_page_counts_once_a_day_over_engines_failures_and_midnight(first: Desk, second: Desk) -> None:
    """A34: tried and taken on each day, and never more taken than tried."""
    await first.add(make_pages(1, 2, 3))
    await first.fail(await first.claim(ALPHA), 0, 3)
    await first.take(await first.claim(BETA), 0, 2)
    later = NOON + timedelta(days=1)
    claimed = await second.claim(ALPHA, failed=True)
    await second.take(claimed, 0, 3, at=later)
    await second.take(await second.claim(BETA), 0, 1, at=later)
    days = await read_days(first.database, today=later.date(), days=2)
    counts = [each[Channel.INDEXNOW] for each in days.values()]
    assert counts == [DayCount(3, 2), DayCount(3, 3)]


async def test_an_older_batch_does_not_count_a_page_that_was_taken_today_already(first: Desk, second: Desk) -> None:
    """A12, A34: its change was taken by one engine today; the other takes what it missed yesterday."""
    later = NOON + timedelta(days=1)
    await first.add(make_pages(1))
    await first.take(await first.claim(ALPHA), 0, 1)
    await second.add(make_pages(1), ALPHA, at=later)
    await second.take(await second.claim(ALPHA), 0, 1, at=later)
    await second.take(await second.claim(BETA), 0, 1, at=later)
    days = await read_days(first.database, today=later.date(), days=2)
    assert [each[Channel.INDEXNOW] for each in days.values()] == [DayCount(1, 1), DayCount(1, 1)]


async def test_a_page_that_is_taken_late_counts_as_submitted_when_it_was_planned(first: Desk, second: Desk) -> None:
    """A12, A13: it may have changed since; a later time would hide that change from the other engines."""
    later = NOON + timedelta(hours=1)
    await first.add(make_pages(1))
    await first.fail(await first.claim(ALPHA), 0, 1)
    await second.take(await second.claim(ALPHA, failed=True), 0, 1, at=later)
    await second.add(make_pages(2), at=NOON)
    await second.take(await second.claim(ALPHA), 0, 1, at=later)
    entries = await second.ledger.find_entries([1, 2])
    times = [entries[url_hash].submitted_at for url_hash in (1, 2)]
    assert times == [to_milliseconds(NOON), to_milliseconds(later)]


async def test_what_was_planned_since_a_time_can_be_dropped(first: Desk) -> None:
    """A36, A41: undoing a bad run takes back what it had not sent yet, and nothing older."""
    await first.add(make_pages(1))
    await first.add(make_pages(2), at=NOON + timedelta(hours=1))
    async with first.database.write() as connection:
        await first.outbox.drop_since(connection, since=to_milliseconds(NOON + timedelta(hours=1)))
    assert await first.list_claimed(ALPHA) == [1]
    assert await first.count_rows() == (1, 2)
