"""Which pages are due: new, expired, or changed since they were last submitted."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from itertools import compress, count

from tidings.announce.due.hashes import HashSet
from tidings.announce.due.pages import Listing, Pages
from tidings.announce.ledger.ledger import MOST_AHEAD, Entry, Ledger
from tidings.announce.sitemap.lastmod import parse_lastmod
from tidings.core.clock import from_milliseconds

NOW_WITHIN_MS = 10 * 60 * 1000

_MILLISECOND = timedelta(milliseconds=1)
_DAY = timedelta(days=1)


class DueState(Enum):
    """Whether a page is due, and why."""

    NEW = auto()
    CHANGED = auto()
    TOO_SOON = auto()
    KNOWN = auto()


@dataclass(frozen=True, slots=True)
class DueRules:
    """When a page that was announced is due again."""

    # How long an entry in the ledger counts.
    time_to_live: timedelta = timedelta(days=30)
    # The least time between two notices of one page.
    resubmit_gap: timedelta = timedelta(minutes=10)

    def expired_before(self, now: int) -> int:
        """Entries from before this time no longer count. Both in milliseconds."""
        return now - self.time_to_live // _MILLISECOND

    def judge(self, lastmod: int | None, entry: Entry | None, *, now: int) -> DueState:
        """Whether a page with this lastmod is due.

        `lastmod` is the latest time that it can mean: a page with today's date may have changed after it was submitted
        this morning. A lastmod equal to the submitted one is no change, however late it is.
        """
        if entry is None or entry.submitted_at < self.expired_before(now):
            return DueState.NEW
        if lastmod is None or lastmod == entry.lastmod:
            return DueState.KNOWN
        if entry.submitted_at > now + MOST_AHEAD:
            # The clock was ahead at that time, so only the two lastmods can be compared.
            return DueState.CHANGED if entry.lastmod is None or lastmod > entry.lastmod else DueState.KNOWN
        if lastmod <= entry.submitted_at:
            return DueState.KNOWN
        if now - entry.submitted_at < self.resubmit_gap // _MILLISECOND:
            return DueState.TOO_SOON
        return DueState.CHANGED


@dataclass(slots=True)
class DuePages:
    """The due pages of a listing, and other facts about it."""

    # All hashes of the listing, in order.
    hashes: "array[int]" = field(default_factory=lambda: array("q"))
    # Not in the ledger, or expired there.
    new: Pages = field(default_factory=Pages)
    # With a later lastmod than their last submission.
    changed: Pages = field(default_factory=Pages)
    # Hashes of changed pages that were submitted earlier on the same UTC day.
    taken_today: set[int] = field(default_factory=set)
    # Hashes of pages that changed within the least gap between two notices.
    too_soon: set[int] = field(default_factory=set)
    # Pages that carry the time of the fetch as lastmod.
    stamped_now: int = 0
    # The oldest submission of a known page, in milliseconds; None without any.
    oldest: int | None = None

    def extend(self, other: "DuePages") -> None:
        """Add the pages of the file's next block."""
        self.new.extend(other.new)
        self.changed.extend(other.changed)
        self.taken_today |= other.taken_today
        self.too_soon |= other.too_soon
        self.stamped_now += other.stamped_now
        if other.oldest is not None:
            self.oldest = other.oldest if self.oldest is None else min(self.oldest, other.oldest)


async def find_due(
    listing: Listing, *, ledger: Ledger | None, rules: DueRules, now: int, fetched_at: int, planned: HashSet
) -> DuePages:
    """Which pages of a listing are due, each once. `ledger`: None where it has nothing of this site.

    `planned` has the hashes of pages that were found due before; those found now are added.
    """
    due = DuePages(hashes=array("q", sorted(listing.hashes)))
    if ledger is None:
        unknown = set(due.hashes)
    else:
        look = await ledger.look_up(due.hashes, older_than=rules.expired_before(now))
        unknown, due.oldest = set(look.suspects), look.oldest
    due.new = listing.pick(_find_positions(listing, set(planned.add_new(unknown))))
    recent = find_recent(listing.lastmods, since=fetched_at if due.oldest is None else min(due.oldest, fetched_at))
    due.stamped_now = _count_stamped_now([listing.lastmods[at] for at in recent], fetched_at)
    if ledger is not None and due.oldest is not None:
        known = {listing.hashes[at] for at in recent} - unknown
        wanted = {url_hash for url_hash in known if url_hash not in planned}
        await _find_changed(listing, recent, due, ledger=ledger, rules=rules, now=now, wanted=wanted)
        planned.update(due.changed.hashes)
    return due


def count_stamped_now(listing: Listing, *, fetched_at: int) -> int:
    """How many of these carry the time of the fetch as lastmod."""
    recent = find_recent(listing.lastmods, since=fetched_at)
    return _count_stamped_now([listing.lastmods[at] for at in recent], fetched_at)


def _find_positions(listing: Listing, wanted: set[int]) -> Sequence[int]:
    """The first position of each of the wanted hashes."""
    if len(wanted) == len(listing):
        return range(len(listing))
    positions = []
    for position, url_hash in enumerate(listing.hashes) if wanted else ():
        if url_hash in wanted:
            wanted.discard(url_hash)
            positions.append(position)
    return positions


def find_recent(lastmods: Sequence[bytes], *, since: int) -> list[int]:
    """The positions of lastmods that could be later than `since`: a rough comparison, without parsing them.

    Dates compare as text, up to a day for the time zone; a year or a month alone is always included.
    """
    day = (from_milliseconds(since) - _DAY).strftime("%Y-%m-%d").encode()
    if min(map(len, filter(None, lastmods)), default=len(day)) >= len(day):
        # True for most files, and cheaper than checking each; most files have no recent lastmod.
        return list(compress(count(), map(day.__le__, lastmods))) if max(lastmods, default=b"") >= day else []
    return [at for at, lastmod in enumerate(lastmods) if lastmod >= day or 0 < len(lastmod) < len(day)]


def _count_stamped_now(lastmods: list[bytes], fetched_at: int) -> int:
    spans = [span for lastmod in lastmods if (span := parse_lastmod(lastmod))]
    return sum(
        latest - earliest < _DAY // _MILLISECOND and earliest - NOW_WITHIN_MS <= fetched_at <= latest + NOW_WITHIN_MS
        for earliest, latest in spans
    )


async def _find_changed(
    listing: Listing,
    recent: list[int],
    due: DuePages,
    *,
    ledger: Ledger,
    rules: DueRules,
    now: int,
    wanted: set[int],
) -> None:
    """Judge the wanted pages, which have a recent lastmod, by their entries in the ledger."""
    if not wanted:
        return
    entries = await ledger.find_entries(sorted(wanted))
    midnight = now - now % (_DAY // _MILLISECOND)
    changed = []
    for at in recent:
        url_hash = listing.hashes[at]
        if url_hash not in wanted:
            continue
        span = parse_lastmod(listing.lastmods[at])
        entry = entries.get(url_hash)
        state = rules.judge(span[1] if span else None, entry, now=now)
        if state is not DueState.KNOWN:
            wanted.discard(url_hash)
        if state is DueState.CHANGED:
            changed.append(at)
            if entry is not None and entry.submitted_at >= midnight:
                due.taken_today.add(url_hash)
        if state is DueState.TOO_SOON:
            due.too_soon.add(url_hash)
    due.changed = listing.pick(changed)
