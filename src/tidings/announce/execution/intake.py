"""From the crawl's events to due pages: looks blocks up in the ledger, and hands a file's due pages to the delivery
once the whole file is known to be good. What is due on Bing is found on the same way, by its chooser.
"""

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from tidings.announce.channels.ranking import Chooser
from tidings.announce.due.pages import DistinctCount, Listing, PageFilter, Pages
from tidings.announce.due.rules import DueRules, count_stamped_now, find_due
from tidings.announce.execution.report import Report
from tidings.announce.execution.shipments import FileProgress
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.site.site import Site
from tidings.announce.sitemap.crawl import (
    CrawlEvent,
    FileDropped,
    FileRead,
    FileRestarted,
    FileUnchanged,
    PagesRead,
    SitemapFile,
)
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.logs.logger import get_logger

# Known pages are looked up many at once, which spares the index; new ones have to be kept, so they come in less.
KNOWN_BLOCK = 50_000
NEW_BLOCK = 1_000
# A file is not believed when so many of its pages carry the time of the fetch as lastmod.
STAMPED_SHARE = 0.9
STAMPED_LEAST = 5
REMOVED_BATCH = 10_000

_log = get_logger(__name__)


class Destination(Protocol):
    """Where due pages go: a `Delivery`, or a preview that only lists them."""

    @property
    def ledger(self) -> Ledger:
        """The ledger that decides what is due."""

    @property
    def on_their_way(self) -> set[int]:
        """The hashes of pages that were handed over and are not dealt with yet."""

    async def send(self, pages: Pages, *, file: FileProgress | None = None) -> None:
        """Take these pages. May wait, and raise StopRequestedError."""

    async def settle_file(self, progress: FileProgress) -> None:
        """A file is read, and nothing in it is due."""

    async def note_seen(self, listing: Listing, *, sitemap: str) -> None:
        """These pages stand in the sitemap now."""

    async def list_gone(self, *, unchanged: Sequence[str], after: int | None, limit: int) -> Pages:
        """The next pages that stood in the sitemap before, and do not now."""


class Intake:
    """One execution's way from sitemap files to due pages."""

    def __init__(
        self,
        site: Site,
        *,
        destination: Destination | None,
        chooser: Chooser | None = None,
        rules: DueRules,
        clock: Clock,
        report: Report,
    ) -> None:
        self._site = site
        self._destination = destination
        self._chooser = chooser
        self._rules = rules
        self._clock = clock
        self._report = report
        self._filter = PageFilter(site)
        self._distinct = DistinctCount()
        self._block_size = NEW_BLOCK
        self._unchanged: list[str] = []
        self._unchanged_pages = 0
        self._forget_file()

    async def take(self, event: CrawlEvent) -> None:
        """Deal with one event of the crawl. Raises StopRequestedError."""
        match event:
            case PagesRead(file, pairs):
                self._block.extend(self._filter.read(pairs))
                if len(self._block) >= self._block_size:
                    await self._look_up(file)
            case FileRead(file):
                await self._look_up(file)
                await self._release(file)
                self._forget_file()
            case FileUnchanged(file, pages):
                self._unchanged.append(file.url)
                self._unchanged_pages += pages
            case FileRestarted() | FileDropped():
                self._take_back()
                self._forget_file()

    async def send_removed(self) -> None:
        """Announce the pages that stood in the sitemap before and are gone. Only after a complete crawl."""
        if self._destination is None:
            return
        after = None
        while pages := await self._destination.list_gone(unchanged=self._unchanged, after=after, limit=REMOVED_BATCH):
            after = pages.hashes[-1]
            self._report.removed += len(pages)
            await self._destination.send(pages)

    def count_total(self) -> int:
        """How many different pages stand in the sitemap; those of unchanged files as they were counted last time."""
        read = self._distinct.count()
        if self._chooser is not None:
            self._chooser.note_read(read)
        return read + self._unchanged_pages

    def close(self) -> None:
        self._distinct.close()

    def _forget_file(self) -> None:
        self._block = Listing()
        self._pages = 0
        self._hashes: list[array[int]] = []
        self._new = Pages()
        self._changed = Pages()
        self._seen: list[Listing] = []
        self._stamped_now = 0
        self._too_soon = 0
        self._busy = 0
        self._oldest: int | None = None
        self._filter.forget_dropped()

    def _take_back(self) -> None:
        """What came of this file does not count: its pages are not on their way after all."""
        if self._chooser is not None:
            self._chooser.take_back()
        if self._destination is not None:
            for pages in (self._new, self._changed):
                self._destination.on_their_way.difference_update(pages.hashes)

    async def _look_up(self, file: SitemapFile) -> None:
        """Find out what of the block is due, and keep that until the file is done."""
        block, self._block = self._block, Listing()
        if not block:
            return
        now = to_milliseconds(self._clock.now())
        if self._destination is None:
            self._hashes.append(array("q", sorted(block.hashes)))
            self._stamped_now += count_stamped_now(block, fetched_at=file.fetched_at)
        else:
            await self._find_due(block, self._destination, fetched_at=file.fetched_at, now=now)
        if self._chooser is not None:
            with self._keep_harmless():
                await self._chooser.consider(block, file, now=now)
        self._pages += len(block)
        if self._site.announce_removed:
            self._seen.append(block)

    @contextmanager
    def _keep_harmless(self) -> Iterator[None]:
        """Whatever goes wrong in the choice for Bing, the rest of the execution goes on without it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see above
            self._chooser = None
            if self._report.bing is not None:
                self._report.bing.note_broken(error)
            _log.exception("bing.choice_broken", site=self._site.id)

    async def _find_due(self, block: Listing, destination: Destination, *, fetched_at: int, now: int) -> None:
        due = await find_due(
            block,
            ledger=destination.ledger,
            rules=self._rules,
            now=now,
            fetched_at=fetched_at,
            busy=destination.on_their_way,
        )
        self._block_size = NEW_BLOCK if due.new else KNOWN_BLOCK
        for pages, held in ((due.new, self._new), (due.changed, self._changed)):
            # From here on they count as on their way: the same page further down, or in another file, is not due again.
            destination.on_their_way.update(pages.hashes)
            held.extend(pages)
        self._hashes.append(due.hashes)
        self._stamped_now += due.stamped_now
        self._too_soon += due.too_soon
        self._busy += due.busy
        if due.oldest is not None:
            self._oldest = due.oldest if self._oldest is None else min(self._oldest, due.oldest)

    async def _release(self, file: SitemapFile) -> None:
        """The file is good as far as it was read: count it, and send what is due."""
        believed = self._believe(file)
        self._count(file, believed=believed)
        standing = None
        if self._chooser is not None:
            with self._keep_harmless():
                standing = self._chooser.release(believed=believed)
        if self._destination is None:
            return
        for listing in self._seen:
            await self._destination.note_seen(listing, sitemap=file.url)
        progress = FileProgress(
            file,
            pages=self._pages,
            outstanding=len(self._new) + (len(self._changed) if believed else 0),
            oldest=self._oldest,
            # A change that waits must be seen again, and so must a page that another file's batch may still lose.
            # So must what another host or key folder would let in.
            clean=not (self._too_soon or self._busy or self._filter.dropped.by_settings)
            and (believed or not self._changed),
        )
        if standing is not None and not standing.due and standing.clean:
            progress.channels |= Channel.BING
            progress.note_oldest(standing.oldest)
        await self._hand_over(progress, self._destination, believed=believed)

    async def _hand_over(self, progress: FileProgress, destination: Destination, *, believed: bool) -> None:
        if not progress.outstanding:
            await destination.settle_file(progress)
        if not believed:
            destination.on_their_way.difference_update(self._changed.hashes)
        if progress.outstanding:
            progress.note_oldest(to_milliseconds(self._clock.now()))
            await destination.send(self._new, file=progress)
            await destination.send(self._changed if believed else Pages(), file=progress)

    def _believe(self, file: SitemapFile) -> bool:
        if self._stamped_now < STAMPED_LEAST or self._stamped_now < STAMPED_SHARE * self._pages:
            return True
        if self._changed:
            self._report.not_believed += len(self._changed)
            self._report.warnings.append(
                f"{file}: {self._stamped_now:,} of {self._pages:,} pages carry the time of the fetch as lastmod, "
                f"which is not believed; {len(self._changed):,} known pages were not sent again for it"
            )
            _log.warning("sitemap.lastmod_not_believed", sitemap=str(file), stamped_now=self._stamped_now)
        return False

    def _count(self, file: SitemapFile, *, believed: bool) -> None:
        for ordered in self._hashes:
            self._distinct.add(ordered)
        changed = len(self._changed) if believed else 0
        self._report.new += len(self._new) + changed
        self._report.changed += changed
        self._report.too_soon += self._too_soon
        self._report.total += self._pages
        dropped = self._filter.dropped
        self._report.dropped.add(dropped)
        self._report.dropped.invalid += file.too_long
        if dropped.total or file.too_long:
            _log.warning(
                "sitemap.dropped",
                sitemap=str(file),
                invalid=dropped.invalid + file.too_long,
                foreign_host=dropped.foreign_host,
                outside_key_location=dropped.outside_key_location,
            )
