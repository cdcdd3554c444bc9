"""Planning: writes due pages to the outbox, in batches, while the crawl goes on. It never waits for an engine.

A file's validators are stored in the transaction that plans its last page. A page that is open at an engine is not
planned again for that engine.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.channel import ExecutionContext
from tidings.announce.due.finder import DueFile
from tidings.announce.due.hashes import HashSet
from tidings.announce.due.pages import Pages
from tidings.announce.execution.results import RemovalsPlanned
from tidings.announce.ledger.ledger import Channel
from tidings.announce.sitemap.validators import SitemapValidators

REMOVED_BLOCK = 10_000


@dataclass(slots=True, eq=False)
class _Buffer:
    """Pages that wait for the next batch of some engines."""

    engines: tuple[str, ...]
    pages: Pages
    # Hashes of pages that were taken earlier today.
    taken_today: set[int] = field(default_factory=set)
    # How many pages were added to it so far, and how many of them are in the outbox.
    added: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class _WaitingFile:
    """A file whose validators are stored once each buffer has written this many pages."""

    file: DueFile
    targets: Sequence[tuple[_Buffer, int]]

    def is_written(self) -> bool:
        return all(buffer.written >= target for buffer, target in self.targets)


class Planner:
    """Plans the pages of one execution over IndexNow. `wake` is called after each batch."""

    def __init__(self, context: ExecutionContext, *, batch_size: int) -> None:
        # Senders set it, once there are any.
        self.wake: Callable[[], None] = lambda: None
        self._context = context
        self._batch_size = batch_size
        # Engines that refuse the key get their pages once the site has another one.
        self._engines = tuple(engine.endpoint for engine in context.site.engines)
        self._recorder = context.open_recorder(Channel.INDEXNOW)
        self._validators = SitemapValidators(context.database, site=context.site.number)
        # Pages of earlier executions that are open at each engine; engines without any are left out.
        self._open: dict[bool, dict[str, HashSet]] = {False: {}, True: {}}
        self._buffers: dict[tuple[bool, tuple[str, ...]], _Buffer] = {}
        self._waiting: list[_WaitingFile] = []

    async def open(self) -> None:
        """Read what is open in the outbox."""
        self._open = await self._recorder.outbox.list_open(self._engines)

    @property
    def waiting(self) -> Mapping[str, HashSet]:
        """By engine: pages that earlier executions left in its outbox. Filled by `open`."""
        return self._open[False]

    async def add_file(self, file: DueFile) -> None:
        """Plan a file's due pages."""
        for listing in file.seen:
            async with self._context.transaction() as connection:
                await self._recorder.seen_pages.record_seen(connection, listing, sitemap=file.file.url)
        parts = self._split(file.due)
        if file.channels and file.file.validators:
            targets = [(buffer, buffer.added + len(pages)) for buffer, pages in parts]
            self._waiting.append(_WaitingFile(file, targets))
        for buffer, pages in parts:
            await self._gather(buffer, pages, taken_today=file.taken_today)
        if not parts:
            await self._store_validators()

    async def add_removed(self, *, unchanged: Sequence[str]) -> None:
        """Plan the removal of pages that left the sitemap. Only after a complete crawl."""
        after = None
        while pages := await self._recorder.seen_pages.list_gone(unchanged=unchanged, after=after, limit=REMOVED_BLOCK):
            after = pages.hashes[-1]
            for buffer, part in self._split(pages):
                self._context.emit(RemovalsPlanned(len(part)))
                await self._gather(buffer, part)

    async def flush(self) -> None:
        """Plan the pages that still wait for a full batch."""
        for buffer in self._buffers.values():
            if buffer.pages:
                await self._write(buffer)

    def _split(self, pages: Pages) -> list[tuple[_Buffer, Pages]]:
        """Group pages by the engines that need them. A page that every engine has is left out."""
        opened = self._open[pages.removed]
        if not pages:
            return []
        if not opened:
            return [(self._find_buffer(self._engines, removed=pages.removed), pages)]
        groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for at, url_hash in enumerate(pages.hashes):
            groups[tuple(each for each in self._engines if url_hash not in opened.get(each, ()))].append(at)
        return [
            (self._find_buffer(engines, removed=pages.removed), pages.pick(positions))
            for engines, positions in groups.items()
            if engines
        ]

    def _find_buffer(self, engines: tuple[str, ...], *, removed: bool) -> _Buffer:
        return self._buffers.setdefault((removed, engines), _Buffer(engines, Pages(removed=removed)))

    async def _gather(self, buffer: _Buffer, pages: Pages, *, taken_today: frozenset[int] = frozenset()) -> None:
        if len(pages) > self._batch_size:
            # Each batch then touches one part of the ledger's index, instead of all of it.
            pages = pages.gather_near()
        start = 0
        while start < len(pages):
            part = pages.cut(start, start + self._batch_size - len(buffer.pages))
            start += len(part)
            buffer.pages.extend(part)
            buffer.added += len(part)
            buffer.taken_today |= taken_today
            if len(buffer.pages) >= self._batch_size:
                await self._write(buffer)

    async def _write(self, buffer: _Buffer) -> None:
        """Put a batch into the outbox, with the validators of the files whose planning it completes."""
        pages, counted = buffer.pages, buffer.taken_today
        buffer.pages, buffer.taken_today = Pages(removed=pages.removed), set()
        buffer.written += len(pages)
        async with self._context.transaction() as connection:
            await self._recorder.outbox.add(
                connection, pages, engines=buffer.engines, at=self._context.clock.now(), counted=counted
            )
            await self._store_files(connection)
        self.wake()

    async def _store_validators(self) -> None:
        if any(waiting.is_written() for waiting in self._waiting):
            async with self._context.transaction() as connection:
                await self._store_files(connection)

    async def _store_files(self, connection: AsyncConnection) -> None:
        written = [waiting.file for waiting in self._waiting if waiting.is_written()]
        self._waiting = [waiting for waiting in self._waiting if not waiting.is_written()]
        for file in written:
            await self._validators.store(
                connection, file.file, pages=file.counts.pages, oldest=file.oldest, channels=file.channels
            )
