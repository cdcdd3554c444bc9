"""From due pages to the engines' lanes and into the record.

Pages are gathered into shipments and handed to every lane. What an engine takes is entered in the ledger in one
guarded transaction, together with what the other engines have yet to take, before the lane goes on: after a crash no
more than the requests under way are repeated, and nothing is lost.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.indexnow import Outcome
from tidings.announce.channels.lanes import Lane, Means
from tidings.announce.due.pages import Listing, Pages
from tidings.announce.due.rules import DueRules
from tidings.announce.execution.report import Report
from tidings.announce.execution.shipments import FileProgress, Shipment
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.ledger.statistics import DailyCount
from tidings.announce.ledger.undelivered import Undelivered
from tidings.announce.site.site import Engine, Site
from tidings.announce.sitemap.memory import BrokenEngines, PageMemory, SitemapMemory
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database
from tidings.core.executions import Execution, Executions

# After a stop, requests under way may end within this time; what has no answer then is sent again next time.
GRACE = timedelta(seconds=5)


class Delivery:
    """All lanes of one execution over IndexNow. Used as a context, so that no lane outlives it."""

    def __init__(
        self,
        site: Site,
        execution: Execution,
        *,
        engines: Sequence[Engine],
        absent: Sequence[Engine],
        database: Database,
        executions: Executions,
        means: Means,
        rules: DueRules,
        report: Report,
        on_progress: Callable[[Report], None],
    ) -> None:
        self.ledger = Ledger(database, site=site.number, channel=Channel.INDEXNOW)
        self.on_their_way: set[int] = set()
        self._site = site
        self._execution = execution
        self._executions = executions
        self._means = means
        self._rules = rules
        self._report = report
        self._on_progress = on_progress
        self._undelivered = Undelivered(database, site=site.number, channel=Channel.INDEXNOW, execution=execution.id)
        self._broken = BrokenEngines(database, site=site, channel=Channel.INDEXNOW)
        self._sitemaps = SitemapMemory(database, site=site.number)
        self._pages = PageMemory(database, site=site.number, execution=execution.id)
        self._daily = DailyCount(
            database, site=site.number, channel=Channel.INDEXNOW, execution=execution.id, clock=means.clock
        )
        self._moved = asyncio.Event()
        self._lanes = {
            engine.endpoint: Lane(
                site, engine, means=means, record=self, report=report.add_engine(engine), moved=self._moved
            )
            for engine in engines
        }
        # Engines of the site that are not asked now, because they refuse its key: they get everything later.
        self._absent = [engine.endpoint for engine in absent]
        self._tasks: list[asyncio.Task[None]] = []
        self._gathered = Pages()
        self._gathered_from: list[FileProgress | None] = []
        self._shipments = 0

    async def __aenter__(self) -> Self:
        """Let the lanes begin, with what their engines failed to take before."""
        await self._sweep()
        await self._daily.begin()
        self._tasks = [asyncio.create_task(lane.run()) for lane in self._lanes.values()]
        for task in self._tasks:
            task.add_done_callback(lambda _: self._moved.set())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cancel_lanes()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def send(self, pages: Pages, *, file: FileProgress | None = None) -> None:
        """Hand pages over. Waits while no lane has room. Raises StopRequestedError."""
        size = next(iter(self._lanes.values())).batch_size
        if pages.removed != self._gathered.removed:
            await self._ship_gathered()
            self._gathered.removed = pages.removed
        start = 0
        while start < len(pages):
            part = pages.cut(start, start + size - len(self._gathered))
            start += len(part)
            self._gathered.extend(part)
            self._gathered_from += [file] * len(part)
            if len(self._gathered) >= size:
                await self._ship_gathered()

    async def finish(self) -> None:
        """Send the rest and wait for the lanes; after a stop, only for requests that are under way."""
        if not self._means.stop.requested:
            await self._ship_gathered()
        for lane in self._lanes.values():
            lane.end()
        watchdog = asyncio.create_task(self._cancel_after_stop())
        try:
            results = await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            watchdog.cancel()
        for result in results:
            if isinstance(result, Exception):
                raise result
        await self._sweep()
        async with self._executions.guard(self._execution) as connection:
            self._report.failed = await self._undelivered.count_failed(
                connection, expired_before=self._rules.expired_before(self._now())
            )

    async def settle_file(self, progress: FileProgress) -> None:
        """Remember a file's validators, where all its pages are accepted."""
        if not progress.accepted or not progress.file.validators or progress.oldest is None:
            return
        async with self._executions.guard(self._execution) as connection:
            await self._sitemaps.remember(
                connection,
                progress.file.url,
                validators=progress.file.validators,
                pages=progress.pages,
                oldest=progress.oldest,
                channels=progress.channels,
            )

    async def purge(self, connection: AsyncConnection, *, before: int) -> int:
        """Delete what no longer counts; returns how many entries of the ledger."""
        await self._daily.purge(connection)
        return await self.ledger.purge(connection, before=before)

    async def note_seen(self, listing: Listing, *, sitemap: str) -> None:
        """These pages stand in the sitemap now."""
        async with self._executions.guard(self._execution) as connection:
            await self._pages.note_seen(connection, listing, sitemap=sitemap)

    async def list_gone(self, *, unchanged: Sequence[str], after: int | None, limit: int) -> Pages:
        """The next pages that stood in the sitemap before, and do not now."""
        return await self._pages.list_gone(unchanged=unchanged, after=after, limit=limit)

    # What lanes ask for and tell.

    async def list_debts(self, lane: Lane, *, removed: bool, earlier_only: bool, after: int | None) -> Shipment | None:
        pages = await self._undelivered.list_open(
            lane.engine.endpoint, removed=removed, earlier_only=earlier_only, after=after, limit=lane.batch_size
        )
        if not pages:
            return None
        if earlier_only:
            self._report.repeated += len(pages)
        return self._make_shipment(pages, engines={lane.engine.endpoint}, from_earlier=True)

    async def accept(self, lane: Lane, shipment: Shipment, pages: Pages) -> None:
        async with shipment.lock:
            others = [engine for engine in (*shipment.waiting, *self._absent) if engine != lane.engine.endpoint]
            async with self._executions.guard(self._execution) as connection:
                if shipment.from_earlier and not pages.removed:
                    # Another engine may have taken it since this was read from the record.
                    shipment.entered.update(await self._read_known(connection, pages))
                fresh = pages.without(shipment.entered)
                await self._daily.note_taken(
                    connection,
                    pages.hashes,
                    attempted=shipment.failed,
                    taken=() if shipment.from_earlier else shipment.entered,
                    look=shipment.from_earlier,
                )
                if fresh.removed:
                    # One that came back meanwhile stands in the sitemap, and in the ledger, by right.
                    await self.ledger.remove(connection, await self._pages.forget(connection, fresh.hashes))
                else:
                    await self.ledger.enter(connection, fresh, at=self._now())
                await self._undelivered.owe(connection, fresh, engines=others)
                if shipment.from_earlier or len(fresh) < len(pages):
                    await self._undelivered.settle(connection, pages.hashes, engine=lane.engine.endpoint)
            shipment.entered.update(fresh.hashes)
        lane.report.succeeded += len(pages)
        self._report.submitted += len(fresh)
        self._on_progress(self._report)

    async def fail(self, lane: Lane, shipment: Shipment, pages: Pages, outcome: Outcome, *, attempts: int) -> None:
        async with shipment.lock, self._executions.guard(self._execution) as connection:
            await self._daily.note_failed(
                connection,
                pages.hashes,
                attempted=shipment.failed | shipment.entered,
                look=shipment.from_earlier,
            )
            await self._undelivered.fail(
                connection,
                pages,
                engine=lane.engine.endpoint,
                reason=outcome.reason,
                attempts=attempts,
                at=self._now(),
            )
        shipment.accepted_everywhere = False
        shipment.failed.update(pages.hashes)
        lane.report.failed += len(pages)
        self._on_progress(self._report)

    async def break_engine(self, lane: Lane, outcome: Outcome) -> None:
        async with self._executions.guard(self._execution) as connection:
            await self._broken.mark(connection, lane.engine.endpoint, reason=outcome.reason, at=self._now())

    async def finish_shipment(self, lane: Lane, shipment: Shipment) -> None:
        if lane.closed_by is None and not self._means.stop.requested:
            shipment.waiting.discard(lane.engine.endpoint)
        shipment.unfinished -= 1
        if shipment.unfinished == 0:
            await self._complete(shipment)
        async with self._executions.guard(self._execution) as connection:
            await self._executions.save_progress(
                connection,
                self._execution,
                processed=self._report.submitted,
                failed=self._report.failed,
                progress=self._report.to_json(),
            )

    async def _read_known(self, connection: AsyncConnection, pages: Pages) -> set[int]:
        """The hashes of those that stand in the ledger."""
        expired_before = self._rules.expired_before(self._now())
        entries = await self.ledger.read_entries(connection, sorted(pages.hashes))
        return {url_hash for url_hash, entry in entries.items() if entry.submitted_at >= expired_before}

    # Between the pages and the lanes.

    async def _ship_gathered(self) -> None:
        """Group what was gathered by the engines that are to get it, and offer each group to their lanes."""
        pages, sources = self._gathered, self._gathered_from
        self._gathered, self._gathered_from = Pages(removed=pages.removed), []
        if not pages:
            return
        seen_to = await self._undelivered.find_engines(sorted(pages.hashes), engines=list(self._lanes))
        groups: defaultdict[frozenset[str], list[int]] = defaultdict(list)
        for position, url_hash in enumerate(pages.hashes):
            groups[frozenset(self._lanes) - seen_to.get(url_hash, frozenset())].append(position)
        for engines, positions in groups.items():
            files = Counter(file for at in positions if (file := sources[at]) is not None)
            shipment = self._make_shipment(pages.pick(positions), engines=set(engines), files=files)
            if len(engines) < len(self._lanes):
                shipment.accepted_everywhere = False
            await (self._offer(shipment) if engines else self._complete(shipment))

    def _make_shipment(
        self,
        pages: Pages,
        *,
        engines: set[str],
        files: Counter[FileProgress] | None = None,
        from_earlier: bool = False,
    ) -> Shipment:
        self._shipments += 1
        return Shipment(
            number=self._shipments,
            pages=pages,
            waiting=engines,
            files=files or Counter(),
            from_earlier=from_earlier,
        )

    async def _offer(self, shipment: Shipment) -> None:
        """Put it into every lane. One without room, while another has nothing to do, gets it later, from the record."""
        full = [self._lanes[engine] for engine in shipment.waiting]
        while True:
            self._raise_lane_errors()
            full = [lane for lane in full if not lane.take(shipment)]
            if not full:
                return
            if any(lane.idle for lane in self._lanes.values() if lane not in full):
                break
            self._moved.clear()
            await self._means.stop.wait_for(self._moved.wait())
        for lane in full:
            async with self._executions.guard(self._execution) as connection:
                await self._undelivered.owe(connection, shipment.pages, engines=[lane.engine.endpoint])
            shipment.accepted_everywhere = False
            await self.finish_shipment(lane, shipment)

    async def _complete(self, shipment: Shipment) -> None:
        self._report.failed += len(shipment.failed - shipment.entered)
        if shipment.from_earlier:
            return
        self.on_their_way.difference_update(shipment.pages.hashes)
        for progress, count in shipment.files.items():
            progress.outstanding -= count
            progress.clean = progress.clean and shipment.accepted_everywhere
            await self.settle_file(progress)

    async def _sweep(self) -> None:
        async with self._executions.guard(self._execution) as connection:
            await self._undelivered.sweep(connection)

    async def _cancel_after_stop(self) -> None:
        await self._means.stop.wait()
        await self._means.clock.sleep(GRACE)
        self._report.cut_short = True
        self._cancel_lanes()

    def _cancel_lanes(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _raise_lane_errors(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error

    def _now(self) -> int:
        return to_milliseconds(self._means.clock.now())
