"""Records what became of pages: ledger, outbox and statistics, in the caller's guarded transaction."""

from dataclasses import dataclass
from datetime import UTC, datetime, time

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.due.pages import PageKeys
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.ledger.outbox import (
    BatchState,
    ClaimedPages,
    DayCounts,
    Outbox,
    Segment,
    name_day,
)
from tidings.announce.ledger.packing import list_positions, make_bits
from tidings.announce.ledger.seen_pages import SeenPages
from tidings.announce.ledger.statistics import DailyStatistics
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database


@dataclass(frozen=True, slots=True)
class Recorder:
    """The tables of one site and channel, as one execution writes to them."""

    channel: Channel
    ledger: Ledger
    outbox: Outbox
    seen_pages: SeenPages
    statistics: DailyStatistics

    @classmethod
    def open(cls, database: Database, *, site: int, channel: Channel, execution: int) -> "Recorder":
        return cls(
            channel,
            Ledger(database, site=site, channel=channel),
            Outbox(database, site=site, channel=channel, execution=execution),
            SeenPages(database, site=site, execution=execution),
            DailyStatistics(database, site=site, channel=channel),
        )

    async def record_taken(
        self, connection: AsyncConnection, claimed: ClaimedPages, *, start: int, stop: int, at: datetime
    ) -> int:
        """An engine took the claimed pages from `start` to `stop`. Returns how many no engine had taken before."""
        counts, day, fresh_pages = DayCounts(), name_day(at), 0
        for segment, first in claimed.locate(start, stop):
            pages = claimed.keys.cut(first, first + len(segment.positions))
            state = await self._read_state(connection, segment, pages, at=at)
            fresh = _pick_fresh(pages, segment, state)
            await self._enter(connection, fresh, planned_in=state.created_in, at=at)
            state, counted = state.count_taken(segment.positions, day=day)
            await self.outbox.record_taken(connection, segment, state)
            counts += counted
            fresh_pages += len(fresh)
        await self.statistics.add(connection, counts, day=day)
        return fresh_pages

    async def record_failed(
        self,
        connection: AsyncConnection,
        claimed: ClaimedPages,
        *,
        start: int,
        stop: int,
        reason: str,
        attempts: int,
        at: datetime,
        verdict: str | None = None,
    ) -> int:
        """An engine did not take these pages in so many attempts. Returns how many no engine has taken yet.

        `verdict` is the name of the engine's verdict, so that a person can be told what to do.
        """
        counts, day, untaken = DayCounts(), name_day(at), 0
        for segment, first in claimed.locate(start, stop):
            pages = claimed.keys.cut(first, first + len(segment.positions))
            state = await self._read_state(connection, segment, pages, at=at)
            untaken += (make_bits(segment.positions) & ~state.entered).bit_count()
            state, counted = state.count_tried(segment.positions, day=day)
            await self.outbox.record_failed(
                connection, segment, state, reason=reason, verdict=verdict, attempts=attempts, at=to_milliseconds(at)
            )
            counts += counted
        await self.statistics.add(connection, counts, day=day)
        return untaken

    async def _read_state(
        self, connection: AsyncConnection, segment: Segment, pages: PageKeys, *, at: datetime
    ) -> BatchState:
        state = await self.outbox.read_state(connection, segment)
        if state.day == name_day(at):
            return state
        # The batch is from an earlier day. A later change of a page may have been taken today, from another batch.
        midnight = to_milliseconds(datetime.combine(at.astimezone(UTC).date(), time(), UTC))
        entries = await self.ledger.read_entries(connection, sorted(pages.hashes))
        today = {url_hash for url_hash, entry in entries.items() if entry.submitted_at >= midnight}
        taken = make_bits(
            [place for place, url_hash in zip(segment.positions, pages.hashes, strict=True) if url_hash in today]
        )
        return state.begin_day(name_day(at), taken=taken)

    async def _enter(self, connection: AsyncConnection, pages: PageKeys, *, planned_in: int, at: datetime) -> None:
        if pages.removed:
            gone = await self.seen_pages.forget(connection, pages.hashes, planned_in=planned_in)
            await self.ledger.remove(connection, gone)
        else:
            await self.ledger.enter(connection, pages, at=to_milliseconds(at))


def _pick_fresh(pages: PageKeys, segment: Segment, state: BatchState) -> PageKeys:
    """The segment's pages that no engine had taken."""
    known = make_bits(segment.positions) & state.entered
    if not known:
        return pages
    entered = set(list_positions(known, known.bit_length()))
    return pages.pick([at for at, place in enumerate(segment.positions) if place not in entered])
