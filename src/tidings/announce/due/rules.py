"""Which pages are due: new, expired, or changed since they were last submitted."""

from array import array
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto

from tidings.announce.due.pages import Listing, Pages
from tidings.announce.ledger.ledger import Entry, Ledger
from tidings.announce.sitemap.lastmod import parse_lastmod
from tidings.core.clock import from_milliseconds

NOW_WITHIN_MS = 10 * 60 * 1000

_MILLISECOND = timedelta(milliseconds=1)
_DAY = timedelta(days=1)


class Standing(Enum):
    """How a page stands with the ledger."""

    NEW = auto()
    CHANGED = auto()
    TOO_SOON = auto()
    KNOWN = auto()


@dataclass(frozen=True, slots=True)
class DueRules:
    """How long an entry counts, and the least time between two notices of one page."""

    time_to_live: timedelta = timedelta(days=30)
    resubmit_gap: timedelta = timedelta(minutes=10)

    def expired_before(self, now: int) -> int:
        """Entries from before this moment no longer count."""
        return now - self.time_to_live // _MILLISECOND

    def judge(self, lastmod: int | None, entry: Entry | None, *, now: int) -> Standing:
        """How a page with this lastmod stands.

        `lastmod` is the latest moment that its stamp can mean: a page stamped with today's date may have changed after
        it was submitted this morning. The stamp that was submitted itself tells nothing new, however late it is.
        """
        if entry is None or entry.submitted_at < self.expired_before(now):
            return Standing.NEW
        if lastmod is None or lastmod <= entry.submitted_at or lastmod == entry.lastmod:
            return Standing.KNOWN
        if now - entry.submitted_at < self.resubmit_gap // _MILLISECOND:
            return Standing.TOO_SOON
        return Standing.CHANGED


@dataclass(slots=True)
class DuePages:
    """What a listing came to.

    `too_soon` changed a moment ago, `busy` are on their way already, `stamped_now` carry the time of the fetch as
    lastmod; `oldest` is the oldest submission of those that are known, `hashes` are all hashes in order.
    """

    hashes: "array[int]"
    new: Pages = field(default_factory=Pages)
    changed: Pages = field(default_factory=Pages)
    too_soon: int = 0
    busy: int = 0
    stamped_now: int = 0
    oldest: int | None = None


async def find_due(
    listing: Listing, *, ledger: Ledger, rules: DueRules, now: int, fetched_at: int, busy: Collection[int]
) -> DuePages:
    """Which pages of a listing are due, each once. `busy` are hashes of pages that are on their way already."""
    # Read before the ledger is asked: what is entered meanwhile leaves `busy`, and would be in neither.
    on_their_way = {url_hash for url_hash in listing.hashes if url_hash in busy} if busy else set()
    due = DuePages(hashes=array("q", sorted(listing.hashes)))
    look = await ledger.look_up(due.hashes, older_than=rules.expired_before(now))
    due.oldest = look.oldest
    unknown = set(look.suspects)
    due.busy = len(unknown & on_their_way)
    due.new = listing.pick(_find_positions(listing, unknown - on_their_way))
    recent = _find_recent(listing.lastmods, since=fetched_at if look.oldest is None else min(look.oldest, fetched_at))
    due.stamped_now = _count_stamped_now([listing.lastmods[at] for at in recent], fetched_at)
    if look.oldest is not None:
        await _find_changed(listing, recent, due, ledger=ledger, rules=rules, now=now, skip=unknown | on_their_way)
    return due


def count_stamped_now(listing: Listing, *, fetched_at: int) -> int:
    """How many of these carry the time of the fetch as lastmod."""
    recent = _find_recent(listing.lastmods, since=fetched_at)
    return _count_stamped_now([listing.lastmods[at] for at in recent], fetched_at)


def _find_positions(listing: Listing, wanted: set[int]) -> list[int]:
    """Where each of the wanted hashes stands first."""
    positions = []
    for position, url_hash in enumerate(listing.hashes) if wanted else ():
        if url_hash in wanted:
            wanted.discard(url_hash)
            positions.append(position)
    return positions


def _find_recent(lastmods: list[bytes], *, since: int) -> list[int]:
    """Where a lastmod stands that could be later than `since`: a rough look, without reading them.

    Dates compare as text, up to a day for the time zone; a year or a month alone is always looked at closely.
    """
    day = (from_milliseconds(since) - _DAY).strftime("%Y-%m-%d").encode()
    return [at for at, lastmod in enumerate(lastmods) if lastmod >= day or 0 < len(lastmod) < len(day)]


def _count_stamped_now(lastmods: list[bytes], fetched_at: int) -> int:
    moments = [moment for lastmod in lastmods if (moment := parse_lastmod(lastmod))]
    return sum(
        latest - earliest < _DAY // _MILLISECOND and earliest - NOW_WITHIN_MS <= fetched_at <= latest + NOW_WITHIN_MS
        for earliest, latest in moments
    )


async def _find_changed(
    listing: Listing,
    recent: list[int],
    due: DuePages,
    *,
    ledger: Ledger,
    rules: DueRules,
    now: int,
    skip: set[int],
) -> None:
    """Judge those with a recent lastmod by what the ledger has of them."""
    wanted = {listing.hashes[at] for at in recent} - skip
    if not wanted:
        return
    entries = await ledger.find_entries(sorted(wanted))
    changed = []
    for at in recent:
        url_hash = listing.hashes[at]
        if url_hash not in wanted:
            continue
        moment = parse_lastmod(listing.lastmods[at])
        standing = rules.judge(moment[1] if moment else None, entries.get(url_hash), now=now)
        if standing is not Standing.KNOWN:
            wanted.discard(url_hash)
        if standing is Standing.CHANGED:
            changed.append(at)
        due.too_soon += standing is Standing.TOO_SOON
    due.changed = listing.pick(changed)
