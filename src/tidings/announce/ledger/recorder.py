"""Records the results of pages in ledger, outbox and statistics, in the caller's guarded transaction."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, time

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.due.hashes import HashSet
from tidings.announce.due.pages import PageKeys
from tidings.announce.ledger.batch_state import BatchState, DayCount, name_day
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.ledger.outbox import ClaimedPages, Outbox, Segment
from tidings.announce.ledger.packing import list_positions, make_bits
from tidings.announce.ledger.seen_pages import SeenPages
from tidings.announce.ledger.statistics import DailyStatistics
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database


@dataclass(slots=True)
class TakenPages:
    """Which pages were taken in one execution, by any engine or channel; each counts once.

    IndexNow's pages of this execution's own batches are known by their batch. Only the other pages are kept here:
    repeats of earlier failures, and pages of channels with a quota.
    """

    # Milliseconds since the epoch.
    started_at: int = 0
    others: HashSet = field(default_factory=HashSet)
    # Repeats of earlier failures, by channel: those that were tried, and those that were taken.
    tried_again: dict[Channel, HashSet] = field(default_factory=lambda: defaultdict(HashSet))
    taken_again: dict[Channel, HashSet] = field(default_factory=lambda: defaultdict(HashSet))

    def count(self, hashes: Iterable[int]) -> int:
        """Mark these as taken. Returns how many were not taken before."""
        return sum(self.others.add(url_hash) for url_hash in hashes)


@dataclass(frozen=True, slots=True)
class TakenCount:
    """Pages that an engine or channel took, and that none took before in this execution."""

    pages: int = 0
    # Those of them that an earlier execution had planned for IndexNow.
    resent: int = 0

    def __add__(self, other: "TakenCount") -> "TakenCount":
        return TakenCount(self.pages + other.pages, self.resent + other.resent)


class Recorder:
    """The tables of one site and channel, as one execution writes to them."""

    def __init__(
        self, database: Database, *, site: int, channel: Channel, execution: int, taken: TakenPages | None = None
    ) -> None:
        """`execution`: its id. `taken` is shared by all recorders of an execution."""
        self.channel = channel
        self.execution = execution
        self.taken = taken or TakenPages()
        self.ledger = Ledger(database, site=site, channel=channel)
        self.outbox = Outbox(database, site=site, channel=channel, execution=execution)
        self.seen_pages = SeenPages(database, site=site, execution=execution)
        self.statistics = DailyStatistics(database, site=site, channel=channel)
        self.indexnow = Ledger(database, site=site, channel=Channel.INDEXNOW)

    async def record_taken(self, connection: AsyncConnection, claimed: ClaimedPages, *, at: datetime) -> TakenCount:
        """An engine took these pages. Returns how many none took before in this execution."""
        counts, day, newly_taken = DayCount(), name_day(at), TakenCount()
        for segment, pages in claimed.list_segments():
            state = await self._read_state(connection, segment, pages, at=at)
            fresh = _pick_fresh(pages, segment, state)
            newly_taken += await self._count_taken(connection, pages, fresh, state)
            await self._enter(connection, fresh, state, at=at)
            state, counted = state.count_taken(segment.positions, day=day)
            await self.outbox.record_taken(connection, segment, state)
            counts += counted
        await self.statistics.add(connection, counts, day=day)
        return newly_taken

    async def _count_taken(
        self, connection: AsyncConnection, pages: PageKeys, fresh: PageKeys, state: BatchState
    ) -> TakenCount:
        """How many pages of a segment no engine or channel took before in this execution. Call it before they are
        entered."""
        others, over_indexnow = self.taken.others, self.channel is Channel.INDEXNOW
        if over_indexnow and state.created_in == self.execution:
            return TakenCount(sum(url_hash not in others for url_hash in fresh.hashes) if others else len(fresh))
        if state.created_in < self.execution:
            self.taken.taken_again[self.channel].update(pages.hashes)
            self.taken.tried_again[self.channel].update(pages.hashes)
        # A change of the same page may have gone out over IndexNow, from a batch of this execution.
        entries = await self.indexnow.read_entries(connection, sorted(pages.hashes))
        known = {url_hash for url_hash, entry in entries.items() if entry.submitted_at >= self.taken.started_at}
        count = self.taken.count(url_hash for url_hash in pages.hashes if url_hash not in known)
        return TakenCount(count, resent=count if over_indexnow else 0)

    async def record_failed(
        self,
        connection: AsyncConnection,
        claimed: ClaimedPages,
        *,
        reason: str,
        attempts: int,
        at: datetime,
        verdict: str | None = None,
    ) -> int:
        """An engine did not take these pages in this number of attempts. Returns how many no engine has taken yet.

        `verdict` is the name of the engine's verdict, so that people see what to do.
        """
        counts, day, untaken = DayCount(), name_day(at), 0
        for segment, pages in claimed.list_segments():
            state = await self._read_state(connection, segment, pages, at=at)
            untaken += (make_bits(segment.positions) & ~state.entered).bit_count()
            if state.created_in < self.execution:
                self.taken.tried_again[self.channel].update(pages.hashes)
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
        if state.created_in == self.execution and state.day == name_day(at):
            # A repeat of the same page, from an earlier batch, may have been counted meanwhile.
            tried, taken = (
                make_bits([place for place, url_hash in _locate(segment, pages) if url_hash in again]) if again else 0
                for again in (self.taken.tried_again[self.channel], self.taken.taken_again[self.channel])
            )
            return state.add_counted(tried=tried, taken=taken)
        # The batch is an earlier one. A later change of a page may have been taken today, from another batch.
        midnight = to_milliseconds(datetime.combine(at.astimezone(UTC).date(), time(), UTC))
        entries = await self.ledger.read_entries(connection, sorted(pages.hashes))
        today = {url_hash for url_hash, entry in entries.items() if entry.submitted_at >= midnight}
        taken = make_bits([place for place, url_hash in _locate(segment, pages) if url_hash in today])
        if state.day != name_day(at):
            state = state.begin_day(name_day(at))
        return state.add_counted(tried=taken, taken=taken)

    async def _enter(self, connection: AsyncConnection, pages: PageKeys, state: BatchState, *, at: datetime) -> None:
        if pages.removed:
            gone = await self.seen_pages.forget(connection, pages.hashes, planned_in=state.created_in)
            await self.ledger.remove(connection, gone)
            return
        # A page may have changed after an earlier execution planned it. This engine gets the change, the others do not,
        # so the page counts as submitted when it was planned.
        is_late = self.channel is Channel.INDEXNOW and state.created_in < self.execution
        await self.ledger.enter(connection, pages, at=state.created_at if is_late else to_milliseconds(at))


def _locate(segment: Segment, pages: PageKeys) -> Iterator[tuple[int, int]]:
    """Each page's place in its batch, and its hash."""
    return zip(segment.positions, pages.hashes, strict=True)


def _pick_fresh(pages: PageKeys, segment: Segment, state: BatchState) -> PageKeys:
    """The segment's pages that no engine had taken."""
    known = make_bits(segment.positions) & state.entered
    if not known:
        return pages
    entered = set(list_positions(known, known.bit_length()))
    return pages.pick([at for at, place in enumerate(segment.positions) if place not in entered])
