"""Which pages are due: the judgement of one page, and of whole listings, held equal to that of one after another."""

import random
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from tidings.announce.due.hashes import HashSet
from tidings.announce.due.pages import Listing, Page, Pages, hash_urls
from tidings.announce.due.rules import DuePages, DueRules, DueState, find_due
from tidings.announce.ledger.ledger import Channel, Entry, Ledger
from tidings.announce.sitemap.lastmod import parse_lastmod
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database

NOW = to_milliseconds(datetime(2026, 11, 15, 12, tzinfo=UTC))
MINUTE = 60 * 1_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
RULES = DueRules(time_to_live=timedelta(days=30), resubmit_gap=timedelta(minutes=10))


def at(lastmod: str) -> int:
    """The latest time that a lastmod can mean."""
    span = parse_lastmod(lastmod.encode())
    assert span is not None
    return span[1]


def make_listing(entries: Iterable[tuple[str, str]]) -> Listing:
    pairs = [(f"https://example.com/{name}".encode(), lastmod.encode()) for name, lastmod in entries]
    return Listing([url for url, _ in pairs], hash_urls(url for url, _ in pairs), [lastmod for _, lastmod in pairs])


def hash_name(name: str) -> int:
    return hash_urls([f"https://example.com/{name}".encode()])[0]


async def enter(
    database: Database, ledger: Ledger, names: Iterable[str], *, at: int, lastmod: int | None = None
) -> None:
    pages = Pages.gather(Page(hash_name(name), f"https://example.com/{name}", lastmod) for name in names)
    async with database.write() as connection:
        await ledger.enter(connection, pages, at=at)


async def find(
    ledger: Ledger, *entries: tuple[str, str], now: int = NOW, rules: DueRules = RULES, planned: Collection[int] = ()
) -> DuePages:
    found_before = HashSet()
    found_before.update(planned)
    return await find_due(
        make_listing(entries), ledger=ledger, rules=rules, now=now, fetched_at=now, planned=found_before
    )


def list_names(pages: Pages) -> list[str]:
    return [page.url.rpartition("/")[2] for page in pages]


@pytest.fixture
def ledger(database: Database) -> Ledger:
    return Ledger(database, site=1, channel=Channel.INDEXNOW)


@pytest.mark.parametrize(
    ("state", "lastmod", "submitted_at", "submitted_lastmod"),
    [
        pytest.param(DueState.NEW, None, None, None, id="never submitted"),
        pytest.param(DueState.NEW, "2026-11-15", None, None, id="never submitted, stamped"),
        pytest.param(DueState.KNOWN, None, NOW - 30 * DAY, None, id="about to expire"),
        pytest.param(DueState.NEW, None, NOW - 30 * DAY - 1, None, id="expired"),
        pytest.param(DueState.NEW, "2020", NOW - 30 * DAY - 1, "2020", id="expired, same lastmod"),
        pytest.param(DueState.KNOWN, "2026-11-15T11:00:00.000Z", at("2026-11-15T11:00:00.000Z"), None, id="at once"),
        pytest.param(DueState.CHANGED, "2026-11-15T11:00:00.001Z", at("2026-11-15T11:00:00.000Z"), None, id="changed"),
        pytest.param(DueState.KNOWN, "2026-11-14T23:00:00Z", NOW - HOUR, None, id="changed before"),
        pytest.param(DueState.CHANGED, "2026-11-15T05:00:00-06:30", NOW - HOUR, None, id="changed, by its zone"),
        pytest.param(DueState.KNOWN, "2026-11-15T17:00:00+06:30", NOW - HOUR, None, id="before, by its zone"),
        pytest.param(DueState.TOO_SOON, "2026-11-15T12:00:00Z", NOW - 10 * MINUTE + 1, None, id="in the gap"),
        pytest.param(DueState.CHANGED, "2026-11-15T12:00:00Z", NOW - 10 * MINUTE, None, id="after the gap"),
        pytest.param(DueState.KNOWN, "2026-11-15", NOW - 2 * HOUR, "2026-11-15", id="today, as submitted"),
        pytest.param(DueState.CHANGED, "2026-11-15", NOW - 2 * HOUR, "2026-11-14", id="today, yesterday before"),
        pytest.param(DueState.CHANGED, "2026-11-15", NOW - DAY, "2026-11-14", id="today, submitted yesterday"),
        pytest.param(DueState.KNOWN, "2026-11-14", NOW - 2 * HOUR, "2026-11-13", id="yesterday, submitted today"),
        pytest.param(DueState.KNOWN, "2027-01-01", NOW - 2 * HOUR, "2027-01-01", id="future, as submitted"),
        pytest.param(DueState.CHANGED, "2027-01-02", NOW - 2 * HOUR, "2027-01-01", id="future, another"),
        pytest.param(DueState.KNOWN, None, NOW - DAY, "2026-11-14", id="lastmod left out later"),
        pytest.param(DueState.CHANGED, "2026-11-15", NOW - DAY, None, id="lastmod appears later"),
        pytest.param(DueState.KNOWN, "2026-11-13", NOW - DAY, None, id="old lastmod appears later"),
        pytest.param(DueState.CHANGED, "2026", NOW - DAY, None, id="this year"),
        pytest.param(DueState.KNOWN, "2025", NOW - DAY, None, id="last year"),
    ],
)
def test_how_a_page_stands(
    state: DueState, lastmod: str | None, submitted_at: int | None, submitted_lastmod: str | None
) -> None:
    """A8, A11, A12: new, expired, changed, too soon or known."""
    entry = None if submitted_at is None else Entry(submitted_at, at(submitted_lastmod) if submitted_lastmod else None)
    assert RULES.judge(at(lastmod) if lastmod else None, entry, now=NOW) is state


def test_without_a_gap_a_change_is_due_at_once() -> None:
    """A12: 0 turns the gap off."""
    rules = DueRules(resubmit_gap=timedelta(0))
    assert rules.judge(NOW, Entry(NOW - 1, None), now=NOW) is DueState.CHANGED


async def test_a_change_inside_the_gap_is_sent_after_it(database: Database, ledger: Ledger) -> None:
    """A12: it is counted, not forgotten: the same listing is due once the gap is over."""
    await enter(database, ledger, ["a"], at=NOW - 5 * MINUTE, lastmod=at("2026-11-14"))
    soon = await find(ledger, ("a", "2026-11-15T11:58:00Z"))
    assert (list_names(soon.changed), len(soon.too_soon)) == ([], 1)
    later = await find(ledger, ("a", "2026-11-15T11:58:00Z"), now=NOW + 5 * MINUTE)
    assert (list_names(later.changed), len(later.too_soon)) == (["a"], 0)


async def test_due_pages_come_in_order_with_their_lastmods(database: Database, ledger: Ledger) -> None:
    """A8, A12: new and changed apart; a wrong lastmod counts as missing."""
    await enter(database, ledger, ["known", "changed"], at=NOW - HOUR)
    entries = [("z", "2026-13-45"), ("changed", "2026-11-15T11:30Z"), ("a", "2026-11"), ("known", "2026-11-15T10:30Z")]
    due = await find(ledger, *entries)
    listed = [Page(hash_name(name), f"https://example.com/{name}") for name in ("z", "a", "changed")]
    assert list(due.new) == [listed[0], listed[1]._replace(lastmod=at("2026-11"))]
    assert list(due.changed) == [listed[2]._replace(lastmod=at("2026-11-15T11:30Z"))]
    assert list(due.hashes) == sorted(hash_name(name) for name, _ in entries)
    assert due.oldest == NOW - HOUR


async def test_an_empty_listing_is_nothing_due(database: Database, ledger: Ledger) -> None:
    """A8: as is one whose pages are all known."""
    await enter(database, ledger, ["a"], at=NOW - HOUR)
    for entries in ([], [("a", "")], [("a", "2026-11-01")]):
        due = await find(ledger, *entries)
        assert (len(due.new), len(due.changed), len(due.too_soon), due.stamped_now) == (0, 0, 0, 0)


async def test_a_page_that_is_listed_twice_is_due_once(database: Database, ledger: Ledger) -> None:
    """A8: whether it is new, changed or changed too soon; the first place counts for the order."""
    await enter(database, ledger, ["changed"], at=NOW - HOUR)
    await enter(database, ledger, ["soon"], at=NOW - MINUTE)
    once = [("new", ""), ("changed", "2026-11-15T11:59:00Z"), ("soon", "2026-11-15T12:00:00Z"), ("late", "")]
    due = await find(ledger, *once, *reversed(once), *once)
    assert (list_names(due.new), list_names(due.changed), len(due.too_soon)) == (["new", "late"], ["changed"], 1)


async def test_the_latest_lastmod_of_a_page_that_is_listed_twice_counts(database: Database, ledger: Ledger) -> None:
    """A8, A12: in whichever order the two stand, a change is not missed."""
    await enter(database, ledger, ["a"], at=NOW - HOUR)
    before, after = ("a", "2026-11-15T10:59Z"), ("a", "2026-11-15T11:30Z")
    for entries in ([after, before], [before, after]):
        due = await find(ledger, *entries)
        assert [page.lastmod for page in due.changed] == [at("2026-11-15T11:30Z")]


async def test_pages_on_their_way_are_left_out(database: Database, ledger: Ledger) -> None:
    """A8: what another file brought is not sent twice; those of them that are new here are counted."""
    await enter(database, ledger, ["changed", "also-changed", "known"], at=NOW - HOUR)
    await enter(database, ledger, ["expired", "also-expired"], at=NOW - 31 * DAY)
    lastmod = "2026-11-15T11:59:00Z"
    names = ["new", "also-new", "changed", "also-changed", "expired", "also-expired"]
    planned = {hash_name(name) for name in ("new", "changed", "expired", "known", "of-another-file")}
    due = await find(ledger, *[(name, lastmod) for name in names], ("known", ""), ("new", lastmod), planned=planned)
    assert list_names(due.new) == ["also-new", "also-expired"]
    assert list_names(due.changed) == ["also-changed"]


NEAR_THE_FETCH = {
    "2026-11-15T12:00:00Z": True,
    "2026-11-15T11:50:00Z": True,
    "2026-11-15T11:49:58Z": False,
    "2026-11-15T12:10:00Z": True,
    "2026-11-15T12:10:01Z": False,
    "2026-11-15T20:00+08:00": True,
    "2026-11-15T12:00+08:00": False,
    "2026-11-15": True,
    "2026-11-16": False,
    "2026-11-14": False,
    "2026-11": False,
    "2026": False,
    "": False,
    "now": False,
}


async def test_a_lastmod_counts_as_now_near_the_time_of_the_fetch(database: Database, ledger: Ledger) -> None:
    """A12: to ten minutes, or to today's date; this is what the guard against such sitemaps goes by."""
    await enter(database, ledger, ["known"], at=NOW - HOUR)
    counted = {}
    for lastmod in NEAR_THE_FETCH:
        due = await find(ledger, ("known", lastmod), ("new", lastmod), ("old", "2020-01-01"))
        counted[lastmod] = due.stamped_now
    assert counted == {lastmod: 2 * counts for lastmod, counts in NEAR_THE_FETCH.items()}


async def test_new_pages_count_as_stamped_now_too(ledger: Ledger) -> None:
    """A12: the guard looks at a whole file, in which new and known pages may lie in different blocks."""
    due = await find(ledger, ("a", "2026-11-15T12:00:00Z"))
    assert (len(due.new), due.stamped_now, due.oldest) == (1, 1, None)


class Chance:
    """Random times and lastmods that crowd around midnight and the widest time zones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick_time(self) -> int:
        """Milliseconds, often within two minutes of midnight or of a month's or a year's end."""
        day = self.random.choice(["2026-11-15", "2026-12-01", "2027-01-01", "2024-02-29", "2024-03-01"])
        midnight = to_milliseconds(datetime.fromisoformat(day).replace(tzinfo=UTC))
        near = self.random.choice([0, 1, -1, self.random.randint(-2 * MINUTE, 2 * MINUTE)])
        return midnight + self.random.choice([near, near, self.random.randint(-DAY, DAY)])

    def write_lastmod(self, at: int) -> str:
        """A lastmod of any form around a time, now and then malformed or missing."""
        shift = self.random.choice([0, self.random.randint(-3, 3), self.random.randint(-3 * DAY, 3 * DAY)])
        offset = self.random.choice([0, 1_439, -1_439, 840, -720, self.random.randint(-1_439, 1_439)])
        local = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at + shift, minutes=offset)
        zone = f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02}:{abs(offset) % 60:02}"
        zone = self.random.choice([zone, "Z"]) if offset == 0 else zone
        day, time = f"{local:%Y-%m-%d}", f"{local:%Y-%m-%dT%H:%M}"
        fraction = f"{local:%f}"[: self.random.randint(1, 6)]
        forms = [
            day[:4],
            day[:7],
            day,
            f"{time}{zone}",
            f"{time}:{local:%S}{zone}",
            f"{time}:{local:%S}.{fraction}{zone}",
            f"{time}:{local:%S}.{local:%f}{zone}",
        ]
        return self._spoil(self.random.choice(forms))

    def _spoil(self, lastmod: str) -> str:
        if self.random.random() > 0.1:
            return lastmod
        place = self.random.randrange(len(lastmod))
        broken = [
            lastmod[:place],
            lastmod[place:],
            f"{lastmod[:place]}9{lastmod[place + 1 :]}",
            f" {lastmod}",
            lastmod.lower(),
            "",
            "~",
        ]
        return self.random.choice(broken)


def judge_naively(lastmod: str, entry: Entry | None, *, rules: DueRules, now: int) -> DueState:
    span = parse_lastmod(lastmod.encode())
    return rules.judge(span[1] if span else None, entry, now=now)


@pytest.mark.thorough
async def test_random_listings_are_judged_as_one_page_after_another_would_be(database: Database) -> None:
    """A8, A12: no rough comparison of dates ever misses a changed page, in any form of lastmod and any time zone."""
    chance = Chance(12)
    seen: Counter[DueState] = Counter()
    for site in range(1, 101):
        ledger = Ledger(database, site=site, channel=Channel.INDEXNOW)
        seen += await check_random_listing(database, ledger, chance)
    assert min(seen[state] for state in DueState) > 100


async def check_random_listing(database: Database, ledger: Ledger, chance: Chance) -> Counter[DueState]:
    rules = DueRules(resubmit_gap=chance.random.choice([timedelta(0), timedelta(minutes=10), timedelta(days=1)]))
    submissions = sorted(chance.pick_time() for _ in range(chance.random.choice([1, 1, 2])))
    now = submissions[-1] + chance.random.choice([0, MINUTE, HOUR, DAY, 29 * DAY, 30 * DAY, 30 * DAY + 1])
    names = (f"page-{number}" for number in count())
    lastmods = {next(names): chance.write_lastmod(submissions[0]) for _ in range(6)}
    entries: dict[str, Entry] = {}
    for submitted_at in submissions:
        for lastmod_too in (False, True):
            known = {next(names): chance.write_lastmod(submitted_at) for _ in range(15)}
            span = parse_lastmod(next(iter(known.values())).encode()) if lastmod_too else None
            entry = Entry(submitted_at, span[1] if span else None)
            await enter(database, ledger, known, at=submitted_at, lastmod=entry.lastmod)
            lastmods |= known
            entries |= dict.fromkeys(known, entry)
    return await compare(ledger, chance, lastmods, entries, rules=rules, now=now)


async def compare(
    ledger: Ledger, chance: Chance, lastmods: dict[str, str], entries: dict[str, Entry], *, rules: DueRules, now: int
) -> Counter[DueState]:
    listed = list(lastmods) + chance.random.choices(list(lastmods), k=10)
    chance.random.shuffle(listed)
    planned = set(chance.random.sample(sorted(lastmods), k=chance.random.choice([0, 5])))
    states = {
        name: judge_naively(lastmods[name], entries.get(name), rules=rules, now=now) for name in dict.fromkeys(listed)
    }

    def expect(state: DueState) -> list[str]:
        return [name for name, found in states.items() if found is state and name not in planned]

    due = await find(
        ledger, *[(name, lastmods[name]) for name in listed], now=now, rules=rules, planned=set(map(hash_name, planned))
    )
    assert list_names(due.new) == expect(DueState.NEW)
    assert list_names(due.changed) == expect(DueState.CHANGED)
    assert len(due.too_soon) == len(expect(DueState.TOO_SOON))
    assert due.oldest == min(entry.submitted_at for entry in entries.values())
    return Counter(states.values())
