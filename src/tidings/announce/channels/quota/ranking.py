"""Chooses the pages for a channel if more are due than its quota allows.

Every page gets a rank: the later its lastmod, the higher. Pages without one have random ranks below all others. The
priority `random` gives every page a random rank. Only the best are kept, so a site of millions takes no more memory
than a small one. Most pages are skipped by comparing the text of their lastmod.
"""

import heapq
import math
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import compress, count
from operator import not_
from typing import NamedTuple

from tidings.announce.due.pages import NO_LASTMOD, Listing
from tidings.announce.due.rules import DueRules, DueState, find_recent
from tidings.announce.ledger.ledger import Entry, Ledger
from tidings.announce.site.channel_settings import PagePriority
from tidings.announce.sitemap.events import SitemapFile
from tidings.announce.sitemap.lastmod import parse_lastmod
from tidings.core.clock import from_milliseconds, to_milliseconds

# The most known pages in memory. If there are more, as with a long resubmission interval, the ledger is queried
# instead.
MOST_KNOWN = 100_000

_DATED = 1 << 64
_BELOW_ALL = -1
_DAY = timedelta(days=1)
_BEGIN = from_milliseconds(0)
# Some days before the end of time, so that no time zone leads beyond it.
_LAST_FLOOR = to_milliseconds(datetime(9999, 12, 20, tzinfo=UTC))
_MANY = 1_000


@dataclass(slots=True, eq=False)
class FileBacklog:
    """How one sitemap file stands with the channel: how many pages are due, and the oldest entry of the others."""

    file: SitemapFile
    due: int = 0
    oldest: int | None = None
    clean: bool = True


class Candidate(NamedTuple):
    """One page that may be chosen."""

    rank: int
    url: bytes
    lastmod: int
    backlog: FileBacklog


class Best:
    """The best `size` of all candidates it was given, each page once."""

    def __init__(self, size: int, *, floor: int = _BELOW_ALL) -> None:
        self.floor = floor
        self._size = size
        self._kept: dict[int, Candidate] = {}

    def add(self, url_hash: int, candidate: Candidate) -> None:
        if candidate.rank <= self.floor or not self._size:
            return
        known = self._kept.get(url_hash)
        if known is None or known.rank < candidate.rank:
            self._kept[url_hash] = candidate
        if len(self._kept) >= 2 * self._size:
            self._prune()

    def merge(self, other: "Best") -> None:
        for url_hash, candidate in other.list():
            self.add(url_hash, candidate)
        # The first file that fills it raises the floor, and most pages of later files are skipped.
        if len(self._kept) >= self._size:
            self._prune()

    def list(self) -> "list[tuple[int, Candidate]]":
        """Those kept, the best first."""
        self._prune()
        return list(self._kept.items())

    def _prune(self) -> None:
        best = heapq.nlargest(self._size, self._kept.items(), key=lambda item: item[1].rank)
        self._kept = dict(best)
        if len(best) == self._size and best:
            self.floor = max(self.floor, best[-1][1].rank)


@dataclass(frozen=True, slots=True)
class LastmodForm:
    """The common form of the lastmods of some pages, found once for all channels that compare them."""

    # Positions of pages with a lastmod and without one.
    dated: Sequence[int]
    undated: Sequence[int]
    # They compare as text, and `dated` has the latest first.
    in_order: bool

    @classmethod
    def find_above(cls, lastmods: Sequence[bytes], *, floor: int) -> "LastmodForm":
        """The form of those that may rank above `floor`: one rough comparison for all channels skips most pages."""
        if floor < _DATED:
            return cls.find(lastmods, range(len(lastmods)))
        return cls.find(lastmods, find_recent(lastmods, since=min(floor - _DATED, _LAST_FLOOR)))

    @classmethod
    def find(cls, lastmods: Sequence[bytes], positions: Sequence[int]) -> "LastmodForm":
        texts, undated = list(map(lastmods.__getitem__, positions)), list[int]()
        if not all(texts):
            undated = [at for at in positions if not lastmods[at]]
            positions = [at for at in positions if lastmods[at]]
            texts = list(filter(None, texts))
        in_order = compare_as_text(texts)
        if in_order:
            positions = sorted(positions, key=lastmods.__getitem__, reverse=True)
        return cls(positions, undated, in_order)


class Chooser:
    """Follows one crawl and keeps the best due pages of one channel. The pages of a file count once the file is known
    to be good (`release`); before that they can be taken back.
    """

    def __init__(
        self,
        size: int,
        *,
        priority: PagePriority,
        ledger: Ledger,
        rules: DueRules,
        skip: Collection[int] = (),
        seed: random.Random | None = None,
    ) -> None:
        self._size = size
        self._by_lastmod = priority is PagePriority.NEWEST
        self._ledger = ledger
        self._rules = rules
        self._skip = frozenset(skip)
        self._random = seed or random.SystemRandom()
        self._best = Best(size)
        self._read = 0
        # Pages that were read and are not due, and those among them that became due by another entry of the sitemap.
        self._quiet: set[int] = set()
        self._loud: set[int] = set()
        # Pages that changed within the least gap between two notices.
        self._soon: set[int] = set()
        self._known: dict[int, Entry] | None = None
        self._apart = self._skip
        self.take_back()

    async def load(self, *, now: int) -> None:
        """Read the submitted pages, if they are few enough to be kept in memory."""
        self._known = await self._ledger.list_entries(since=self._rules.expired_before(now), most=MOST_KNOWN)
        self._apart = self._skip.union(self._known or ())

    def take_back(self) -> None:
        """Drop the pages of the present file."""
        self._backlog: FileBacklog | None = None
        self._file_quiet: set[int] = set()
        self._file_loud: set[int] = set()
        self._file_soon: set[int] = set()
        self._new = Best(self._size, floor=self._best.floor)
        self._changed = Best(self._size, floor=self._best.floor)

    @property
    def floor(self) -> int:
        """Pages of at most this rank are not kept."""
        return min(self._new.floor, self._changed.floor)

    @property
    def compares_lastmods(self) -> bool:
        """Whether `consider` needs the form of a block's lastmods."""
        return self._by_lastmod and self._size > 0

    async def consider(self, listing: Listing, file: SitemapFile, *, now: int, form: LastmodForm | None = None) -> None:
        """Look at a block of the present file's pages. `form`: of its lastmods above `floor`, where it is known."""
        backlog = self._backlog = self._backlog or FileBacklog(file)
        known = self._known
        if known is None:
            known = await self._ask_ledger(listing.hashes, now=now)
        apart = self._skip.union(known) if known is not self._known else self._apart
        positions = list(compress(count(), map(apart.__contains__, listing.hashes))) if apart else []
        self._judge_known(listing, positions, known, backlog, now=now)
        backlog.due += len(listing) - len(positions)
        self._offer(listing, range(len(listing)), self._new, backlog, apart=apart, form=form)

    def release(self, *, believed: bool) -> FileBacklog | None:
        """The file is good as far as it was read; without `believed`, its lastmods make no known page due."""
        backlog = self._backlog
        if backlog is not None:
            self._best.merge(self._new)
            self._quiet |= self._file_quiet
            self._soon |= self._file_soon
            if believed:
                backlog.due += len(self._file_loud)
                self._loud |= self._file_loud
                self._best.merge(self._changed)
            elif self._file_loud:
                backlog.clean = False
        self.take_back()
        return backlog

    def record_read(self, pages: int) -> None:
        """Set the number of different pages that were read."""
        self._read = pages

    def count_due(self) -> int:
        """How many different pages are due, without those that were excluded from the start."""
        return max(0, self._read - len(self._quiet - self._loud))

    def count_too_soon(self) -> int:
        """How many pages changed within the least gap between two notices."""
        return len(self._soon - self._loud)

    def choose(self, count: int) -> list[tuple[int, Candidate]]:
        """The best `count`, the best first."""
        return self._best.list()[:count]

    async def _ask_ledger(self, hashes: Sequence[int], *, now: int) -> dict[int, Entry]:
        """The entries of those that were submitted and have not expired."""
        expired_before = self._rules.expired_before(now)
        entries = await self._ledger.find_entries(sorted(hashes))
        return {h: entry for h, entry in entries.items() if entry.submitted_at >= expired_before}

    def _judge_known(
        self, listing: Listing, positions: Sequence[int], known: dict[int, Entry], backlog: FileBacklog, *, now: int
    ) -> None:
        """Handle the pages at `positions`, which were submitted before or are excluded from the start."""
        changed = []
        for at in positions:
            url_hash = listing.hashes[at]
            self._file_quiet.add(url_hash)
            if url_hash in self._skip:
                continue
            entry = known[url_hash]
            backlog.oldest = min(entry.submitted_at, backlog.oldest or entry.submitted_at)
            span = parse_lastmod(listing.lastmods[at])
            verdict = self._rules.judge(span and span[1], entry, now=now)
            if verdict is DueState.TOO_SOON:
                backlog.clean = False
                self._file_soon.add(url_hash)
            if verdict is DueState.CHANGED:
                changed.append(at)
        self._file_loud.update(listing.hashes[at] for at in changed)
        self._offer(listing, changed, self._changed, backlog)

    def _offer(
        self,
        listing: Listing,
        positions: Sequence[int],
        best: Best,
        backlog: FileBacklog,
        *,
        apart: Collection[int] = (),
        form: LastmodForm | None = None,
    ) -> None:
        """Offer the pages at these positions, but for those whose hashes are in `apart`."""
        offer = _Offer(listing, best, backlog, apart, self._random)
        if self.compares_lastmods:
            offer.offer_latest(form or LastmodForm.find(listing.lastmods, positions))
        elif self._size:
            offer.offer_random(positions)


@dataclass(frozen=True, slots=True)
class _Offer:
    """A block of pages that are candidates for the best of their file."""

    listing: Listing
    best: Best
    backlog: FileBacklog
    apart: Collection[int]
    random: random.Random

    def offer_latest(self, form: LastmodForm) -> None:
        lastmods, best = self.listing.lastmods, self.best
        if form.undated:
            self.offer_random(form.undated)
        likely = find_likely(lastmods, form, floor=best.floor - _DATED)
        if not form.in_order and len(likely) > _MANY:
            # The last days first: after them, the floor lets little of the rest through.
            latest, others = split_latest(lastmods, likely)
            self._offer_dated(sorted(latest, key=lastmods.__getitem__, reverse=True))
            likely = find_likely(lastmods, LastmodForm.find(lastmods, others), floor=best.floor - _DATED)
        self._offer_dated(likely, in_order=form.in_order)

    def offer_random(self, positions: Sequence[int]) -> None:
        """Offer them with random ranks. Pages that would stay below the floor are skipped many at a time."""
        place = -1
        while (chance := 1 - (self.best.floor + 1) / _DATED) > 0:
            place += 1 if chance == 1 else 1 + int(math.log(1 - self.random.random()) / math.log1p(-chance))
            if place >= len(positions):
                return
            span = parse_lastmod(self.listing.lastmods[positions[place]])
            rank = self.random.randrange(self.best.floor + 1, _DATED)
            self._add(positions[place], rank, NO_LASTMOD if span is None else span[1])

    def _offer_dated(self, likely: Sequence[int], *, in_order: bool = False) -> None:
        wrong = []
        for at in likely:
            if (span := parse_lastmod(self.listing.lastmods[at])) is None:
                wrong.append(at)
            elif _DATED + span[1] > self.best.floor:
                self._add(at, _DATED + span[1], span[1])
            elif in_order:
                break
        self.offer_random(wrong)

    def _add(self, at: int, rank: int, lastmod: int) -> None:
        url_hash = self.listing.hashes[at]
        if url_hash not in self.apart:
            self.best.add(url_hash, Candidate(rank, self.listing.urls[at], lastmod, self.backlog))


def find_likely(lastmods: Sequence[bytes], form: LastmodForm, *, floor: int) -> Sequence[int]:
    """The dated pages whose lastmod may be later than `floor` (milliseconds), by a look at the text alone.

    Lastmods that are not in order compare up to a day, and a year or a month alone is always included.
    """
    if form.in_order or floor < 0:
        return form.dated
    least = f"{_BEGIN + timedelta(milliseconds=min(floor, _LAST_FLOOR)) - _DAY:%Y-%m-%d}".encode()
    return [at for at in form.dated if lastmods[at] >= least or len(lastmods[at]) < len(least)]


def split_latest(lastmods: Sequence[bytes], positions: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Those of the last days, as far as their text tells, and the others."""
    span = parse_lastmod(max(map(lastmods.__getitem__, positions)))
    if span is None:
        return [], positions
    least = f"{_BEGIN + timedelta(milliseconds=min(max(0, span[0]), _LAST_FLOOR)) - 2 * _DAY:%Y-%m-%d}".encode()
    flags = [lastmods[at] >= least for at in positions]
    return list(compress(positions, flags)), list(compress(positions, map(not_, flags)))


def compare_as_text(texts: Sequence[bytes]) -> bool:
    """Whether these lastmods have one length and one time zone, so that a later one is greater as a text."""
    if not texts or len(set(map(len, texts))) > 1:
        return False
    first = texts[0]
    zone = 0 if len(first) == len("2026-11-15") else 1 if first.endswith(b"Z") else len("+00:00")
    return not zone or len({text[-zone:] for text in texts}) == 1
