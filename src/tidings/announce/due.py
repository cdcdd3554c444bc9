"""Which pages are due: new, expired, or changed since they were last submitted."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto

from tidings.announce.ledger import Entry, Ledger
from tidings.announce.pages import NO_LASTMOD, Block, Page

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
    """What a block's pages came to. `oldest` is the oldest submission among those that are known."""

    new: list[Page] = field(default_factory=list)
    changed: list[Page] = field(default_factory=list)
    too_soon: int = 0
    busy: int = 0
    oldest: int | None = None


async def find_due(block: Block, *, ledger: Ledger, rules: DueRules, now: int, busy: Collection[int]) -> DuePages:
    """The due pages of a block, each once. `busy` are hashes of pages that are on their way already."""
    # Read before the ledger is asked: what is entered meanwhile leaves `busy`, and would be in neither.
    on_their_way = set(busy).intersection(block.hashes)
    hashes = sorted(set(block.hashes))
    older_than = max(rules.expired_before(now), max(block.lastmods, default=NO_LASTMOD))
    look = await ledger.look_up(hashes, older_than=older_than)
    due = DuePages(oldest=look.oldest)
    suspects = set(look.suspects)
    if not suspects:
        return due
    entries = await ledger.find_entries(look.suspects)
    for url, url_hash, stamp in zip(block.urls, block.hashes, block.lastmods, strict=True):
        if url_hash not in suspects:
            continue
        suspects.discard(url_hash)
        if url_hash in on_their_way:
            due.busy += 1
            continue
        lastmod = None if stamp == NO_LASTMOD else stamp
        standing = rules.judge(lastmod, entries.get(url_hash), now=now)
        if standing is Standing.NEW:
            due.new.append(Page(url_hash, url.decode(), lastmod))
        elif standing is Standing.CHANGED:
            due.changed.append(Page(url_hash, url.decode(), lastmod))
        elif standing is Standing.TOO_SOON:
            due.too_soon += 1
    return due
