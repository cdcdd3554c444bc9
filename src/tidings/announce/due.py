"""Which pages are due: new, expired, or changed since they were last submitted."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto

from tidings.announce.ledger import Entry, Ledger
from tidings.announce.pages import NO_LASTMOD, Pages

_MILLISECOND = timedelta(milliseconds=1)


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
    """What some pages came to: which of them (by position) are new or changed.

    `too_soon` changed a moment ago, `busy` are on their way; `oldest` is the oldest submission of those that are known.
    """

    new: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    too_soon: int = 0
    busy: int = 0
    oldest: int | None = None


async def find_due(pages: Pages, *, ledger: Ledger, rules: DueRules, now: int, busy: Collection[int]) -> DuePages:
    """Which of these pages are due, each once. `busy` are hashes of pages that are on their way already."""
    # Read before the ledger is asked: what is entered meanwhile leaves `busy`, and would be in neither.
    on_their_way = {url_hash for url_hash in pages.hashes if url_hash in busy}
    hashes = sorted(set(pages.hashes))
    older_than = max(rules.expired_before(now), max(pages.lastmods, default=NO_LASTMOD))
    look = await ledger.look_up(hashes, older_than=older_than)
    due = DuePages(oldest=look.oldest)
    suspects = set(look.suspects)
    if not suspects:
        return due
    entries = await ledger.find_entries(look.suspects)
    for position, (url_hash, stamp) in enumerate(zip(pages.hashes, pages.lastmods, strict=True)):
        if url_hash not in suspects:
            continue
        suspects.discard(url_hash)
        if url_hash in on_their_way:
            due.busy += 1
            continue
        lastmod = None if stamp == NO_LASTMOD else stamp
        standing = rules.judge(lastmod, entries.get(url_hash), now=now)
        if standing is Standing.NEW:
            due.new.append(position)
        elif standing is Standing.CHANGED:
            due.changed.append(position)
        elif standing is Standing.TOO_SOON:
            due.too_soon += 1
    return due
