"""The choice of pages for Bing, held against a model that reads everything, sorts it and takes the first.

Among pages of one rank any may be chosen, so what is compared is how many of each rank there are.
"""

import gc
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum, auto
from itertools import chain, count

import pytest

from tidings.announce.channels.quota.ranking import (
    MOST_KNOWN,
    Best,
    Candidate,
    Chooser,
    FileBacklog,
    LastmodForm,
    find_likely,
)
from tidings.announce.due.pages import NO_LASTMOD, Listing, Page, Pages, hash_urls
from tidings.announce.due.rules import DueRules, DueState
from tidings.announce.ledger.ledger import Channel, Entry, Ledger
from tidings.announce.site.channel_settings import PagePriority
from tidings.announce.sitemap.events import SitemapFile
from tidings.announce.sitemap.lastmod import parse_lastmod
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database, open_database

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NOW = to_milliseconds(NOON)
YESTERDAY = NOON - timedelta(days=1)
HOUR_MS = 3_600_000
# Of entries: expired, some days or hours old, and too new for the page to be sent again.
AGES = (31 * 24 * HOUR_MS, 50 * HOUR_MS, 24 * HOUR_MS, 23 * HOUR_MS, HOUR_MS // 10)
RULES = DueRules()
SIZES = (1, 50, 100, 500, 5_000)
BLOCKS = (13, 100, 5_000)
MOST_IN_FILE = 350

WriteLastmod = Callable[[random.Random, datetime], str]


def write(form: str, *, hours: float = 0) -> WriteLastmod:
    """A lastmod of this form in the time zone that is so many hours ahead."""
    zone = timezone(timedelta(hours=hours))
    return lambda _, at_time: at_time.astimezone(zone).strftime(form)


def write_fraction(rng: random.Random, at_time: datetime) -> str:
    return f"{at_time:%Y-%m-%dT%H:%M:%S}.{rng.randrange(10**6):06d}"[: 20 + rng.randint(1, 6)] + "Z"


def write_any(*forms: WriteLastmod) -> WriteLastmod:
    return lambda rng, at_time: rng.choice(forms)(rng, at_time)


def write_one_of(*texts: str) -> WriteLastmod:
    return lambda rng, _: rng.choice(texts)


UTC_SECONDS = write("%Y-%m-%dT%H:%M:%SZ")
EASTERN = write("%Y-%m-%dT%H:%M:%S+08:00", hours=8)
UNIFORM: dict[str, WriteLastmod] = {
    "utc": UTC_SECONDS,
    "plus-0": write("%Y-%m-%dT%H:%M:%S+00:00"),
    "plus-8": EASTERN,
    "minus-3-30": write("%Y-%m-%dT%H:%M:%S-03:30", hours=-3.5),
    "minutes-utc": write("%Y-%m-%dT%H:%MZ"),
    "minutes-plus-8": write("%Y-%m-%dT%H:%M+08:00", hours=8),
    "tenths": write("%Y-%m-%dT%H:%M:%S.5Z"),
    "date": write("%Y-%m-%d"),
    "month": write("%Y-%m"),
    "year": write("%Y"),
    "empty": write_one_of(""),
    "same": write_one_of("2026-11-14T10:00:00+00:00"),
}
SHAPES: dict[str, WriteLastmod] = {
    **UNIFORM,
    "fractions": write_fraction,
    "zones": write_any(UTC_SECONDS, EASTERN, write("%Y-%m-%dT%H:%M:%S-11:00", hours=-11)),
    "invalid-dates": write_any(write("%Y-%m-%d"), write_one_of("0000-00-00", "2026-02-30", "yesterday!")),
    "invalid-times": write_any(UTC_SECONDS, write_one_of("9999-99-99T00:00:00Z", "0000-00-00T00:00:00Z")),
    "some-empty": write_any(UTC_SECONDS, write_one_of("")),
    "ends-of-time": write_any(
        EASTERN, write_one_of("9999-12-31", "9999-12-31T23:59:59-08:00", "9999", "1969-12-31", "0001-01-01T00:00:00Z")
    ),
    "anything": write_any(*UNIFORM.values(), write_fraction, write_one_of("yesterday!", "9999-99-99T00:00:00Z")),
}


class Fate(Enum):
    """What becomes of a file once it was read."""

    GOOD = auto()
    NOT_BELIEVED = auto()
    TAKEN_BACK = auto()


@dataclass(frozen=True, slots=True)
class Case:
    """Files in the order of a crawl, and what is known before it."""

    files: list[tuple[Fate, Listing]]
    known: dict[int, Entry] = field(default_factory=dict)
    skip: frozenset[int] = frozenset()

    def judge(self, url_hash: int, lastmod: bytes) -> DueState:
        at_time = parse_lastmod(lastmod)
        return RULES.judge(at_time and at_time[1], self.known.get(url_hash), now=NOW)

    def find_due(self, fate: Fate, listing: Listing) -> Iterator[tuple[int, int]]:
        """Hash and latest time of each entry of a file that makes its page due."""
        counted = {Fate.GOOD: (DueState.NEW, DueState.CHANGED), Fate.NOT_BELIEVED: (DueState.NEW,)}.get(fate, ())
        for url_hash, lastmod in zip(listing.hashes, listing.lastmods, strict=True):
            if url_hash not in self.skip and self.judge(url_hash, lastmod) in counted:
                yield url_hash, rank(lastmod)

    def rank_due(self) -> dict[int, int]:
        """The model: every page that is due, with the best rank of all its entries."""
        ranks: dict[int, int] = {}
        for file in self.files:
            for url_hash, own in self.find_due(*file):
                ranks[url_hash] = max(own, ranks.get(url_hash, own))
        return ranks


WITHOUT_LASTMOD = -(10**18)


def rank(lastmod: bytes) -> int:
    """The later the higher; those without a lastmod, or with a wrong one, are alike, and below all."""
    at_time = parse_lastmod(lastmod)
    return WITHOUT_LASTMOD if at_time is None else at_time[1]


def make_listing(entries: Sequence[tuple[int, str]]) -> Listing:
    urls = [f"https://example.com/pages/{number}".encode() for number, _ in entries]
    return Listing(urls, hash_urls(urls), [lastmod.encode() for _, lastmod in entries])


def draw_case(rng: random.Random, shape: WriteLastmod | None, *, twice: Sequence[float] = (0, 0.1, 0.7)) -> Case:
    """Up to five files; `twice` are possible shares of entries whose page may stand elsewhere too. Without a shape,
    each file has one of its own."""
    span = rng.choice([timedelta(minutes=3), timedelta(days=3), timedelta(days=900)])
    order = rng.choice([None, False, True])
    share = rng.choice(twice)
    files = []
    for number in range(rng.choice([1, 1, 2, 5])):
        timestamp = shape or rng.choice(list(UNIFORM.values()))
        timestamps = [YESTERDAY + rng.uniform(-1, 1) * span for _ in range(rng.randint(0, MOST_IN_FILE))]
        if order is not None:
            timestamps.sort(reverse=order)
        pages = (rng.randrange(200) if rng.random() < share else 1_000 * (number + 1) + at for at in count())
        entries = [(page, timestamp(rng, at_time)) for page, at_time in zip(pages, timestamps, strict=False)]
        files.append((rng.choices(list(Fate), weights=[4, 1, 1])[0], make_listing(entries)))
    hashes = sorted({url_hash for _, listing in files for url_hash in listing.hashes})
    known = {url_hash: Entry(NOW - rng.choice(AGES), NOW - HOUR_MS) for url_hash in hashes if rng.random() < 0.3}
    return Case(files, known, frozenset(url_hash for url_hash in hashes if rng.random() < 0.05))


async def enter(database: Database, ledger: Ledger, known: dict[int, Entry]) -> None:
    async with database.write() as connection:
        for at in {entry.submitted_at for entry in known.values()}:
            of_then = [Page(h, "-", entry.lastmod) for h, entry in known.items() if entry.submitted_at == at]
            await ledger.enter(connection, Pages.gather(of_then), at=at)


async def feed(chooser: Chooser, case: Case, *, block: int) -> list[FileBacklog | None]:
    """Show the chooser all files, in blocks, as the crawl does; returns how each of those that count stands."""
    backlogs = []
    for number, (fate, listing) in enumerate(case.files):
        file = SitemapFile(f"https://example.com/{number}.xml")
        for start in range(0, len(listing), block):
            part = slice(start, start + block)
            piece = Listing(listing.urls[part], listing.hashes[part], listing.lastmods[part])
            await chooser.consider(piece, file, now=NOW)
        if fate is Fate.TAKEN_BACK:
            chooser.take_back()
        else:
            backlogs.append(chooser.release(believed=fate is Fate.GOOD))
    good = (listing.hashes for fate, listing in case.files if fate is not Fate.TAKEN_BACK)
    chooser.record_read(len(set(chain.from_iterable(good))))
    return backlogs


def check_choice(case: Case, chosen: list[tuple[int, Candidate]], *, size: int, newest: bool) -> None:
    ranks = case.rank_due()
    urls = {h: url for _, listing in case.files for h, url in zip(listing.hashes, listing.urls, strict=True)}
    assert len({url_hash for url_hash, _ in chosen}) == len(chosen) == min(size, len(ranks))
    assert all(candidate.url == urls[url_hash] for url_hash, candidate in chosen)
    assert {url_hash for url_hash, _ in chosen} <= set(ranks)
    if newest:
        best = sorted(ranks.values(), reverse=True)[:size]
        assert [ranks[url_hash] for url_hash, _ in chosen] == best
        assert all(c.lastmod == (NO_LASTMOD if ranks[h] == WITHOUT_LASTMOD else ranks[h]) for h, c in chosen)


@pytest.mark.thorough
@pytest.mark.one_database
@pytest.mark.parametrize("shape", [*SHAPES, "each-file-its-own"])
async def test_choice_is_that_of_a_model_that_reads_sorts_and_takes(database: Database, shape: str) -> None:
    """A8, A10, A12, A30: whatever the lastmods look like, wherever a page stands twice, whatever is known; and alike
    whether the ledger's entries are held in memory or asked for."""
    rng = random.Random(shape)
    for site in range(1, 7):
        case = draw_case(rng, SHAPES.get(shape))
        ledger = Ledger(database, site=site, channel=Channel.BING)
        await enter(database, ledger, case.known)
        for size in SIZES:
            priority = rng.choices(list(PagePriority), weights=[3, 1])[0]
            chooser = Chooser(size, priority=priority, ledger=ledger, rules=RULES, skip=case.skip, seed=rng)
            if rng.random() < 0.5:
                await chooser.load(now=NOW)
            await feed(chooser, case, block=rng.choice(BLOCKS))
            check_choice(case, chooser.choose(size), size=size, newest=priority is PagePriority.NEWEST)
            assert chooser.count_due() == len(case.rank_due())


async def test_each_file_is_given_its_status_at_bing(database: Database) -> None:
    """A9, A12: what is due of it, its oldest entry, and whether anything in it waits for another execution."""
    rng = random.Random("backlog")
    for site in range(1, 21):
        case = draw_case(rng, UTC_SECONDS, twice=[0])
        ledger = Ledger(database, site=site, channel=Channel.BING)
        await enter(database, ledger, case.known)
        chooser = Chooser(50, priority=PagePriority.NEWEST, ledger=ledger, rules=RULES, skip=case.skip)
        await chooser.load(now=NOW)
        backlogs = await feed(chooser, case, block=100)
        counted = [(fate, listing) for fate, listing in case.files if fate is not Fate.TAKEN_BACK]
        for (fate, listing), backlog in zip(counted, backlogs, strict=True):
            assert (backlog and (backlog.due, backlog.oldest, backlog.clean)) == describe(case, fate, listing)


def describe(case: Case, fate: Fate, listing: Listing) -> tuple[int, int | None, bool] | None:
    """The model of a file's backlog; None for one without pages."""
    if not listing:
        return None
    pages = [pair for pair in zip(listing.hashes, listing.lastmods, strict=True) if pair[0] not in case.skip]
    verdicts = {url_hash: case.judge(url_hash, lastmod) for url_hash, lastmod in pages}
    ages = [case.known[url_hash].submitted_at for url_hash in verdicts if verdicts[url_hash] is not DueState.NEW]
    waits = {DueState.TOO_SOON, *([DueState.CHANGED] if fate is Fate.NOT_BELIEVED else [])} & set(verdicts.values())
    return len(list(case.find_due(fate, listing))), min(ages, default=None), not waits


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_that_could_be_chosen_is_passed_over_by_its_text(shape: str) -> None:
    """A30: the look at the text may let too much through, never too little; and "in order" means just that."""
    rng = random.Random(shape)
    floors: list[WriteLastmod] = [*UNIFORM.values(), write_fraction, SHAPES["ends-of-time"]]
    for _ in range(1_500):
        span = rng.choice([90, 7_200, 10**6])
        timestamps = [NOON + timedelta(seconds=rng.uniform(-span, span)) for _ in range(rng.randint(1, 8))]
        lastmods = [lastmod for at_time in timestamps if (lastmod := SHAPES[shape](rng, at_time).encode())]
        floor = rank(rng.choice(floors)(rng, rng.choice(timestamps)).encode())
        form = LastmodForm.find(lastmods, range(len(lastmods)))
        likely = find_likely(lastmods, form, floor=floor)
        later = {at for at, lastmod in enumerate(lastmods) if rank(lastmod) > max(floor, WITHOUT_LASTMOD)}
        assert later <= set(likely), (floor, lastmods)
        ranks = [rank(lastmods[at]) for at in likely if rank(lastmods[at]) != WITHOUT_LASTMOD]
        assert not form.in_order or ranks == sorted(ranks, reverse=True)


@pytest.mark.thorough
async def test_ledger_too_large_to_be_held_gives_the_same_choice(database: Database) -> None:
    """A10, A30: with more entries than are kept in memory, the ledger is asked for each block."""
    ledger = Ledger(database, site=1, channel=Channel.BING)
    others = Pages([b"-"] * (MOST_KNOWN + 1), hash_urls(b"%d" % n for n in range(MOST_KNOWN + 1)))
    others.lastmods.extend([NO_LASTMOD] * len(others))
    async with database.write() as connection:
        await ledger.enter(connection, others, at=NOW - HOUR_MS)
    assert await ledger.list_entries(since=0, most=MOST_KNOWN) is None
    case = draw_case(random.Random(7), UTC_SECONDS)
    await enter(database, ledger, case.known)
    for size in SIZES:
        chooser = Chooser(size, priority=PagePriority.NEWEST, ledger=ledger, rules=RULES, skip=case.skip)
        await chooser.load(now=NOW)
        await feed(chooser, case, block=200)
        check_choice(case, chooser.choose(size), size=size, newest=True)


@pytest.fixture
async def empty_ledger(sqlite_url: str) -> AsyncIterator[Ledger]:
    """For what has nothing to do with the database."""
    opened = open_database(sqlite_url)
    yield Ledger(opened, site=1, channel=Channel.BING)
    await opened.close()


async def choose_from(ledger: Ledger, case: Case, *, size: int, priority: PagePriority) -> set[int]:
    """What an execution chooses, with a chance of its own."""
    chooser = Chooser(size, priority=priority, ledger=ledger, rules=RULES)
    await chooser.load(now=NOW)
    await feed(chooser, case, block=10)
    return {url_hash for url_hash, _ in chooser.choose(size)}


async def test_page_that_stands_twice_takes_one_place_and_is_due_once(empty_ledger: Ledger) -> None:
    """A8, A30: where fewer are due than remain, all of them are chosen, however often each is listed."""
    case = Case([(Fate.GOOD, make_listing([(number // 2, f"2026-11-{20 - number:02d}") for number in range(12)]))])
    chooser = Chooser(6, priority=PagePriority.NEWEST, ledger=empty_ledger, rules=RULES)
    await feed(chooser, case, block=12)
    check_choice(case, chooser.choose(6), size=6, newest=True)
    assert chooser.count_due() == 6


CHANCES = {
    "random": (PagePriority.RANDOM, "2026-11-14T10:00:00Z"),
    "newest-without-lastmod": (PagePriority.NEWEST, ""),
    "newest-with-wrong-lastmod": (PagePriority.NEWEST, "0000-00-00"),
}


@pytest.mark.thorough
@pytest.mark.parametrize(("priority", "lastmod"), CHANCES.values(), ids=CHANCES)
async def test_chance_is_fair_to_every_page(empty_ledger: Ledger, priority: PagePriority, lastmod: str) -> None:
    """A30: 5 of 20 pages, a thousand times: each is chosen about 250 times.

    By Hoeffding, one of 20 fair counts is off by 112 or more with a probability below 40·exp(-2·112²/1000) = 5.1e-10.
    """
    case = Case([(Fate.GOOD, make_listing([(number, lastmod) for number in range(20)]))])
    counts: Counter[int] = Counter()
    for _ in range(1_000):
        counts.update(await choose_from(empty_ledger, case, size=5, priority=priority))
    assert counts.total() == 5_000
    assert all(abs(counts[url_hash] - 250) < 112 for url_hash in case.rank_due())


async def test_dated_pages_come_before_all_others_which_differ_each_time(empty_ledger: Ledger) -> None:
    """A30: 300 with a lastmod, 700 without and 500 left: all of the 300, and 200 others, not twice the same ones."""
    dated = make_listing([(number, "2019-05-05") for number in range(300)])
    others = make_listing([(number, "") for number in range(300, 1_000)])
    case = Case([(Fate.GOOD, others), (Fate.GOOD, dated)])
    first, second = [await choose_from(empty_ledger, case, size=500, priority=PagePriority.NEWEST) for _ in range(2)]
    assert first & second >= set(dated.hashes)
    assert len(first) == len(second) == 500
    assert first != second


async def test_random_priority_differs_each_time(empty_ledger: Ledger) -> None:
    """A30: any of them, with any lastmod, and not twice the same."""
    case = Case([(Fate.GOOD, make_listing([(number, f"2026-11-{number % 9 + 1:02d}") for number in range(500)]))])
    first, second = [await choose_from(empty_ledger, case, size=100, priority=PagePriority.RANDOM) for _ in range(2)]
    assert len(first) == len(second) == 100
    assert first != second


@pytest.fixture
def new_heap() -> Iterator[None]:
    """What is there already is not looked at, and `count_candidates` is quick."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def count_candidates() -> int:
    """How many there are in memory."""
    return sum(type(thing) is Candidate for thing in gc.get_objects())


@pytest.mark.thorough
@pytest.mark.usefixtures("new_heap")
@pytest.mark.parametrize("priority", PagePriority)
async def test_memory_does_not_grow_with_the_site(empty_ledger: Ledger, priority: PagePriority) -> None:
    """A30: of 100,000 pages in the worst order, each later than all before, no more are kept at any time than twice
    those wanted of earlier files, of new pages and of changed ones."""
    size, block = 50, 5_000
    chooser = Chooser(size, priority=priority, ledger=empty_ledger, rules=RULES)
    await chooser.load(now=NOW)
    kept = []
    for number in range(20):
        timestamps = ((number * block + at, YESTERDAY + timedelta(seconds=number * block + at)) for at in range(block))
        listing = make_listing([(page, f"{at_time:%Y-%m-%dT%H:%M:%SZ}") for page, at_time in timestamps])
        await chooser.consider(listing, SitemapFile(f"https://example.com/{number // 3}.xml"), now=NOW)
        kept.append(count_candidates())
        if number % 3 == 2:
            chooser.release(believed=True)
            kept.append(count_candidates())
    assert size <= max(kept) <= 3 * 2 * size


@pytest.mark.usefixtures("new_heap")
@pytest.mark.parametrize("size", [1, 2, 50])
def test_best_are_never_twice_as_many_as_wanted(size: int) -> None:
    """A30: at any time, and in the end they are those that a sort would give."""
    backlog = FileBacklog(SitemapFile("https://example.com/1.xml"))
    best = Best(size)
    ranks = random.Random(size).sample(range(10_000), 2_000)
    for at, own in enumerate(ranks):
        best.add(at, Candidate(own, b"https://example.com/", own, backlog))
        assert at % 100 or count_candidates() < 2 * size
    assert [candidate.rank for _, candidate in best.list()] == sorted(ranks, reverse=True)[:size]
