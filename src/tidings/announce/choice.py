"""Which pages go to Bing, where more are due than its quota allows.

Every page gets a rank: the later its lastmod the higher, and below all of those a random one for pages without.
(`random` gives all of them random ranks.) Only the best are kept, so a site of millions takes no more memory than a
small one, and most pages are passed over by a look at the text of their lastmod.
"""

import heapq
import random
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from tidings.announce.due import DueRules, Standing
from tidings.announce.ledger import Entry, Ledger
from tidings.announce.pages import NO_LASTMOD, Listing
from tidings.announce.sitemap.crawl import SitemapFile
from tidings.announce.sitemap.lastmod import parse_lastmod
from tidings.announce.sites import BingPriority
from tidings.core.clock import from_milliseconds

# So many known pages are held in memory; beyond that, which takes a long time to live, the ledger is asked each time.
MOST_KNOWN = 100_000

_DATED = 1 << 64
_BELOW_ALL = -1
_DAY = timedelta(days=1)
_BEGIN = from_milliseconds(0)
_OFFSET = re.compile(rb"Z?|(?P<hours>(?P<sign>[+-])\d\d):(?P<minutes>\d\d)")


@dataclass(slots=True, eq=False)
class FileStanding:
    """How one sitemap file stands with Bing: how many of its pages are due, and the oldest entry of the others."""

    file: SitemapFile
    due: int = 0
    oldest: int | None = None
    clean: bool = True


class Candidate(NamedTuple):
    """One page that may be chosen."""

    rank: int
    url: bytes
    lastmod: int
    standing: FileStanding


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

    def list(self) -> "list[tuple[int, Candidate]]":
        """Those kept, the best first."""
        self._prune()
        return list(self._kept.items())

    def _prune(self) -> None:
        best = heapq.nlargest(self._size, self._kept.items(), key=lambda item: item[1].rank)
        self._kept = dict(best)
        if len(best) == self._size and best:
            self.floor = max(self.floor, best[-1][1].rank)


class Chooser:
    """Goes along with one crawl and keeps the best of what is due on Bing.

    What a file brings counts once the file is known to be good (`release`); before that it can be taken back.
    """

    def __init__(
        self,
        size: int,
        *,
        priority: BingPriority,
        ledger: Ledger,
        rules: DueRules,
        skip: Collection[int] = (),
        seed: random.Random | None = None,
    ) -> None:
        self._size = size
        self._by_lastmod = priority is BingPriority.NEWEST
        self._ledger = ledger
        self._rules = rules
        self._skip = frozenset(skip)
        self._factor = (seed or random.SystemRandom()).getrandbits(64) | 1
        self._best = Best(size)
        self._read = 0
        # Pages that were read and need nothing, and those of them that another listing of theirs makes due.
        self._quiet: set[int] = set()
        self._loud: set[int] = set()
        self._known: dict[int, Entry] | None = None
        self.take_back()

    async def load(self, *, now: int) -> None:
        """Read what has been submitted, where that is little enough to be held."""
        self._known = await self._ledger.list_entries(since=self._rules.expired_before(now), most=MOST_KNOWN)

    def take_back(self) -> None:
        """What came of the present file does not count."""
        self._standing: FileStanding | None = None
        self._file_quiet: set[int] = set()
        self._file_loud: set[int] = set()
        self._new = Best(self._size, floor=self._best.floor)
        self._changed = Best(self._size, floor=self._best.floor)

    async def consider(self, listing: Listing, file: SitemapFile, *, now: int) -> None:
        """Look at a block of the present file's pages."""
        standing = self._standing = self._standing or FileStanding(file)
        known = await self._find_known(listing.hashes, now=now)
        fresh: Sequence[int] = range(len(listing))
        if known or self._skip:
            fresh = [at for at, h in enumerate(listing.hashes) if h not in known and h not in self._skip]
            self._judge_known(listing, known, standing, now=now)
            self._file_quiet.update(self._skip.intersection(listing.hashes))
        standing.due += len(fresh)
        self._offer(listing, fresh, self._new, standing)

    def release(self, *, believed: bool) -> FileStanding | None:
        """The file is good as far as it was read; without `believed`, its lastmods make no known page due."""
        standing = self._standing
        if standing is not None:
            self._best.merge(self._new)
            self._quiet |= self._file_quiet
            if believed:
                standing.due += len(self._file_loud)
                self._loud |= self._file_loud
                self._best.merge(self._changed)
            elif self._file_loud:
                standing.clean = False
        self.take_back()
        return standing

    def note_read(self, pages: int) -> None:
        """So many different pages were read in all."""
        self._read = pages

    def count_due(self) -> int:
        """How many different pages are due, those that were left out from the start not counted."""
        return max(0, self._read - len(self._quiet - self._loud))

    def choose(self, count: int) -> list[tuple[int, Candidate]]:
        """The best `count`, the best first."""
        return self._best.list()[:count]

    async def _find_known(self, hashes: Sequence[int], *, now: int) -> dict[int, Entry]:
        """The entries of those that were submitted and have not expired."""
        if self._known is not None:
            held = self._known
            return {h: held[h] for h in hashes if h in held} if held else {}
        expired_before = self._rules.expired_before(now)
        entries = await self._ledger.find_entries(sorted(hashes))
        return {h: entry for h, entry in entries.items() if entry.submitted_at >= expired_before}

    def _judge_known(self, listing: Listing, known: dict[int, Entry], standing: FileStanding, *, now: int) -> None:
        changed = []
        for at, url_hash in enumerate(listing.hashes) if known else ():
            entry = known.get(url_hash)
            if entry is None or url_hash in self._skip:
                continue
            standing.oldest = min(entry.submitted_at, standing.oldest or entry.submitted_at)
            moment = parse_lastmod(listing.lastmods[at])
            verdict = self._rules.judge(moment and moment[1], entry, now=now)
            standing.clean = standing.clean and verdict is not Standing.TOO_SOON
            if verdict is Standing.CHANGED:
                changed.append(at)
            self._file_quiet.add(url_hash)
        self._file_loud.update(listing.hashes[at] for at in changed)
        self._offer(listing, changed, self._changed, standing)

    def _offer(self, listing: Listing, positions: Sequence[int], best: Best, standing: FileStanding) -> None:
        if not self._size:
            return
        if self._by_lastmod:
            self._offer_latest(listing, positions, best, standing)
        else:
            self._offer_random(listing, positions, best, standing)

    def _offer_latest(self, listing: Listing, positions: Sequence[int], best: Best, standing: FileStanding) -> None:
        lastmods = listing.lastmods
        dated = [at for at in positions if lastmods[at]]
        if len(dated) < len(positions) and best.floor < _DATED:
            self._offer_random(listing, [at for at in positions if not lastmods[at]], best, standing)
        latest = 0
        likely, in_order = find_likely(lastmods, dated, floor=best.floor - _DATED)
        for at in likely:
            if (moment := parse_lastmod(lastmods[at])) is None:
                self._offer_random(listing, [at], best, standing)
                continue
            best.add(listing.hashes[at], Candidate(_DATED + moment[1], listing.urls[at], moment[1], standing))
            latest += 1
            if in_order and latest == self._size:
                break

    def _offer_random(self, listing: Listing, positions: Sequence[int], best: Best, standing: FileStanding) -> None:
        hashes, factor, floor = listing.hashes, self._factor, best.floor
        for at in [at for at in positions if (hashes[at] * factor) % _DATED > floor]:
            moment = parse_lastmod(listing.lastmods[at])
            rank = (hashes[at] * factor) % _DATED
            best.add(
                hashes[at], Candidate(rank, listing.urls[at], NO_LASTMOD if moment is None else moment[1], standing)
            )


def find_likely(lastmods: Sequence[bytes], positions: Sequence[int], *, floor: int) -> tuple[Sequence[int], bool]:
    """Those whose lastmod may be later than `floor` (milliseconds), by a look at the text alone.

    Stamps of one form and one time zone compare as text: then they come with the latest first, and True. Others
    compare up to a day, and a year or a month alone is always looked at closely.
    """
    texts = [lastmods[at] for at in positions]
    offset = find_common_offset(texts)
    if floor >= 0:
        moment = _BEGIN + timedelta(milliseconds=floor)
        if offset is None:
            least = f"{moment - _DAY:%Y-%m-%d}".encode()
            return [at for at, text in zip(positions, texts, strict=True) if text >= least or len(text) < 10], False
        least = f"{moment + offset:%Y-%m-%dT%H:%M:%S}"[: len(texts[0])].encode()
        positions = [at for at, text in zip(positions, texts, strict=True) if text >= least]
    if offset is None:
        return positions, False
    return sorted(positions, key=lastmods.__getitem__, reverse=True), True


def find_common_offset(texts: Sequence[bytes]) -> timedelta | None:
    """The time zone's offset that all these stamps share, where they are of one length too; else None."""
    if not texts or len(set(map(len, texts))) > 1:
        return None
    first = texts[0]
    tail = b"" if len(first) == 10 else first[-1:] if first.endswith(b"Z") else first[-6:]
    found = _OFFSET.fullmatch(tail)
    if found is None or any(not text.endswith(tail) for text in texts):
        return None
    if found["hours"] is None:
        return timedelta()
    return timedelta(hours=int(found["hours"]), minutes=int(found["sign"] + found["minutes"]))
