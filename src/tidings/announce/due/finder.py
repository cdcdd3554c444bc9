"""Turns the crawl's events into due pages: looks pages up in the ledger, and releases a file once it is known to be
good. It also selects the pages for channels with a quota. It writes nothing.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidings.announce.channels.quota.ranking import Chooser, FileBacklog, LastmodForm
from tidings.announce.due.hashes import DistinctCount, HashSet
from tidings.announce.due.pages import Dropped, Listing, PageFilter, Pages
from tidings.announce.due.rules import DuePages, DueRules, count_stamped_now, find_due
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.site.site import Site
from tidings.announce.sitemap.events import (
    CrawlEvent,
    FileDropped,
    FileRead,
    FileUnchanged,
    PagesRead,
    SitemapFile,
)
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.logs.logger import get_logger

# Known pages are looked up in large blocks, which saves index reads. New pages stay in memory, so their blocks are
# smaller.
KNOWN_BLOCK = 50_000
NEW_BLOCK = 1_000
# A file's lastmods are not believed if this many of its pages carry the time of the fetch.
STAMPED_SHARE = 0.9
STAMPED_LEAST = 5

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FileCounts:
    """The numbers of pages of one sitemap file."""

    pages: int
    new: int = 0
    changed: int = 0
    # Changed within the least gap between two notices.
    too_soon: int = 0
    # Not due, but an earlier execution left them in the outbox of an engine.
    waiting: int = 0
    # Changes that are not believed, because the file dates every page "now".
    not_believed: int = 0
    dropped: Dropped = field(default_factory=Dropped)
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class DueFile:
    """A sitemap file that was read, and its due pages."""

    file: SitemapFile
    counts: FileCounts
    due: Pages
    # Hashes of due pages that were submitted earlier today.
    taken_today: frozenset[int]
    # All its pages, in blocks; only for sites that announce removals.
    seen: Sequence[Listing]
    # Its oldest entry in the ledger, in milliseconds; the time of planning if none is older.
    oldest: int
    # Channels (a sum) on which all its pages are on record once the due ones are in the outbox; 0: on none.
    channels: int


class DueFinder:
    """Finds the due pages in the sitemap files of one execution. Without a `ledger`, only the choosers get the
    pages."""

    def __init__(
        self,
        site: Site,
        *,
        ledger: Ledger | None,
        choosers: Mapping[Channel, Chooser] | None = None,
        rules: DueRules,
        clock: Clock,
        waiting: Mapping[str, HashSet] | None = None,
    ) -> None:
        """`waiting`: what earlier executions left in the outbox, by engine."""
        # Addresses of files that had not changed.
        self.unchanged: list[str] = []
        # The errors that ended the selection for a channel; the caller takes them out.
        self.chooser_errors: dict[Channel, Exception] = {}
        self._site = site
        self._ledger = ledger
        self._choosers = dict(choosers or {})
        self._rules = rules
        self._clock = clock
        self._filter = PageFilter(site)
        self._distinct = DistinctCount()
        # The same page later in the file, or in another file, is not due again.
        self._planned = HashSet()
        self._waiting = {} if waiting is None else waiting
        # Pages of files that were read: those that wait in the outbox, and those that changed too soon.
        self._read_waiting = HashSet()
        self._read_too_soon = HashSet()
        self._ledger_is_empty: bool | None = None
        self._block_size = NEW_BLOCK
        self._unchanged_pages = 0
        self._forget_file()

    async def take(self, event: CrawlEvent) -> DueFile | None:
        """Handle one event of the crawl. Returns the file once it is read."""
        match event:
            case PagesRead(file, pairs):
                self._block.extend(self._filter.read(pairs))
                if len(self._block) >= self._block_size:
                    await self._look_up(file)
            case FileRead(file):
                await self._look_up(file)
                found = self._release(file)
                self._forget_file()
                return found
            case FileUnchanged(file, pages):
                self.unchanged.append(file.url)
                self._unchanged_pages += pages
            case FileDropped():
                self._take_back()
                self._forget_file()
        return None

    def count_total(self) -> int:
        """How many different pages the sitemap has; unchanged files count as they did last time."""
        read = self._distinct.count()
        for chooser in self._choosers.values():
            chooser.record_read(read)
        return read + self._unchanged_pages

    def count_waiting(self) -> int:
        """How many pages of unchanged files wait in the outbox.

        Those files were not read: waiting pages that are in no other file count as theirs, up to their number of pages.
        """
        if not self._unchanged_pages:
            return 0
        everywhere = HashSet()
        for hashes in self._waiting.values():
            everywhere.update(hashes)
        return min(self._unchanged_pages, len(everywhere) - len(self._read_waiting))

    def close(self) -> None:
        self._distinct.close()

    def _forget_file(self) -> None:
        self._block = Listing()
        self._pages = 0
        self._hashes: list[array[int]] = []
        # Its due pages so far; their hashes are in `_hashes`.
        self._due = DuePages()
        self._seen: list[Listing] = []
        self._file_waiting: set[int] = set()
        self._filter.forget_dropped()

    def _take_back(self) -> None:
        """Drop this file: its pages are not due because of it."""
        for chooser in self._choosers.values():
            chooser.take_back()
        for pages in (self._due.new, self._due.changed):
            self._planned.remove(pages.hashes)

    async def _look_up(self, file: SitemapFile) -> None:
        """Find the due pages of the block, and keep them until the file is done."""
        block, self._block = self._block, Listing()
        if not block:
            return
        now = to_milliseconds(self._clock.now())
        if self._ledger is None:
            self._hashes.append(array("q", sorted(block.hashes)))
            self._due.stamped_now += count_stamped_now(block, fetched_at=file.fetched_at)
        else:
            await self._find_due(block, self._ledger, fetched_at=file.fetched_at, now=now)
        form: LastmodForm | None = None
        for channel, chooser in list(self._choosers.items()):
            try:
                if form is None and chooser.compares_lastmods:
                    floor = min(each.floor for each in self._choosers.values() if each.compares_lastmods)
                    form = LastmodForm.find_above(block.lastmods, floor=floor)
                await chooser.consider(block, file, now=now, form=form)
            except Exception as error:  # noqa: BLE001 - trouble with one channel must not harm the rest
                self._break_chooser(channel, error)
        self._pages += len(block)
        if self._site.announce_removed:
            self._seen.append(block)

    async def _find_due(self, block: Listing, ledger: Ledger, *, fetched_at: int, now: int) -> None:
        if self._ledger_is_empty is None:
            self._ledger_is_empty = await ledger.is_empty()
        due = await find_due(
            block,
            # Pages that this execution adds to an empty ledger were planned by it, or are open in the outbox.
            ledger=None if self._ledger_is_empty else ledger,
            rules=self._rules,
            now=now,
            fetched_at=fetched_at,
            planned=self._planned,
        )
        self._block_size = NEW_BLOCK if due.new else KNOWN_BLOCK
        self._due.extend(due)
        self._hashes.append(due.hashes)
        for hashes in self._waiting.values():
            self._file_waiting.update(url_hash for url_hash in due.hashes if url_hash in hashes)

    def _release(self, file: SitemapFile) -> DueFile:
        """The file is good as far as it was read."""
        for ordered in self._hashes:
            self._distinct.add(ordered)
        believed = self._believe()
        backlogs = self._release_choosers(believed=believed)
        if not believed:
            self._planned.remove(self._due.changed.hashes)
        counts = self._count(file, believed=believed)
        now = to_milliseconds(self._clock.now())
        oldest = now if self._due.oldest is None else self._due.oldest
        channels = self._find_channels(file, believed=believed)
        for channel, backlog in backlogs.items():
            if channels and not backlog.due and backlog.clean:
                channels |= channel
                oldest = min(oldest, now if backlog.oldest is None else backlog.oldest)
        due = self._due.new
        if believed:
            due.extend(self._due.changed)
        return DueFile(file, counts, due, frozenset(self._due.taken_today), self._seen, oldest, channels)

    def _find_channels(self, file: SitemapFile, *, believed: bool) -> int:
        # Changes that have to wait must be found again, and so must pages that another host or key folder would allow.
        waits = self._due.too_soon or self._filter.dropped.by_settings or (self._due.changed and not believed)
        if self._ledger is None or waits or not self._pages or file.fault is not None:
            return 0
        return Channel.INDEXNOW

    def _release_choosers(self, *, believed: bool) -> dict[Channel, FileBacklog]:
        backlogs: dict[Channel, FileBacklog] = {}
        for channel, chooser in list(self._choosers.items()):
            try:
                if (backlog := chooser.release(believed=believed)) is not None:
                    backlogs[channel] = backlog
            except Exception as error:  # noqa: BLE001 - trouble with one channel must not harm the rest
                self._break_chooser(channel, error)
        return backlogs

    def _break_chooser(self, channel: Channel, error: Exception) -> None:
        del self._choosers[channel]
        self.chooser_errors[channel] = error
        _log.exception(f"{channel}.choice_broken", site=self._site.id)

    def _believe(self) -> bool:
        return self._due.stamped_now < STAMPED_LEAST or self._due.stamped_now < STAMPED_SHARE * self._pages

    def _count(self, file: SitemapFile, *, believed: bool) -> FileCounts:
        dropped = self._filter.dropped + Dropped(invalid=file.too_long)
        if dropped.total:
            _log.warning(
                "sitemap.dropped",
                sitemap=str(file),
                invalid=dropped.invalid,
                foreign_host=dropped.foreign_host,
                outside_key_location=dropped.outside_key_location,
            )
        warning = None
        if not believed and self._due.changed:
            warning = (
                f"{file}: {self._due.stamped_now:,} of {self._pages:,} pages carry the time of the fetch as lastmod, "
                f"which is not believed; {len(self._due.changed):,} known pages were not sent again for it"
            )
            _log.warning("sitemap.lastmod_not_believed", sitemap=str(file), stamped_now=self._due.stamped_now)
        return FileCounts(
            pages=self._pages,
            new=len(self._due.new),
            changed=len(self._due.changed) if believed else 0,
            too_soon=len(self._read_too_soon.add_new(self._due.too_soon)),
            waiting=self._count_file_waiting(),
            not_believed=0 if believed else len(self._due.changed),
            dropped=dropped,
            warning=warning,
        )

    def _count_file_waiting(self) -> int:
        """How many pages of the file wait in the outbox, and are neither due nor too soon."""
        found = self._read_waiting.add_new(self._file_waiting)
        return sum(each not in self._planned and each not in self._read_too_soon for each in found)
