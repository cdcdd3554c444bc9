"""The outbox: pages that engines did not take so far.

A *batch* holds pages of one site and channel. Each of its *deliveries* names an engine, and which pages of the batch
that engine did not take so far. A page that an engine takes leaves the delivery. An empty delivery is deleted, and so
is a batch without deliveries. After a failure its pages stay open, with reason, attempts and time. If only some pages
of a delivery failed, they move to a delivery of their own.

Bitmaps are Python integers: bit n is the page at position n. All writes happen in the caller's guarded transaction.
"""

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import delete, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.due.hashes import HashSet
from tidings.announce.due.pages import PageKeys, Pages
from tidings.announce.ledger.batch_state import BatchState, name_day
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.outbox_tables import HASHES, batches, deliveries
from tidings.announce.ledger.packing import (
    decode_pages,
    encode_pages,
    list_positions,
    make_bits,
    read_bits,
    read_numbers,
    unpack_keys,
    unpack_urls,
    write_bits,
)
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database

# The most deliveries of one claim: small ones go out together.
MOST_CLAIMED = 100
# Deliveries whose hashes are read at once: 80 kB each at the most.
_OPEN_BLOCK = 20

_batch, _delivery = batches.c, deliveries.c


@dataclass(frozen=True, slots=True)
class Segment:
    """Some pages of one delivery."""

    # Id of the delivery.
    delivery: int
    # Id of its batch.
    batch: int
    # Where the pages stand in the batch, in order.
    positions: Sequence[int]


@dataclass(frozen=True, slots=True)
class ClaimedPages:
    """Pages that one sender claims together, from one or more deliveries of its engine."""

    # The pages of all segments, one segment after the other.
    keys: PageKeys
    segments: tuple[Segment, ...]
    # How many of those that were claimed an earlier execution planned.
    repeated: int
    # The stored pages of each segment's batch, and how many they are: URLs are unpacked only to be sent.
    stored: Sequence[tuple[bytes, int]] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.keys)

    def list_urls(self) -> list[bytes]:
        """The URLs of all pages."""
        found: list[bytes] = []
        for segment, (value, size) in zip(self.segments, self.stored, strict=True):
            urls = unpack_urls(value, size=size)
            found += urls if len(segment.positions) == size else [urls[at] for at in segment.positions]
        return found

    def cut(self, start: int, stop: int) -> "ClaimedPages":
        """The pages from `start` up to `stop`."""
        begin = 0
        segments: list[Segment] = []
        stored: list[tuple[bytes, int]] = []
        for segment, value in zip(self.segments, self.stored, strict=True):
            first, last = max(start - begin, 0), min(stop - begin, len(segment.positions))
            if first < last:
                segments.append(replace(segment, positions=segment.positions[first:last]))
                stored.append(value)
            begin += len(segment.positions)
        return ClaimedPages(self.keys.cut(start, stop), tuple(segments), self.repeated, stored)

    def list_segments(self) -> Iterator[tuple[Segment, PageKeys]]:
        """Each segment with its pages."""
        begin = 0
        for segment in self.segments:
            end = begin + len(segment.positions)
            yield segment, self.keys.cut(begin, end)
            begin = end


class Outbox:
    """The outbox of one site and channel, as one execution uses it."""

    def __init__(self, database: Database, *, site: int, channel: Channel, execution: int = 0) -> None:
        self._database = database
        self._names = {"site": site, "channel": channel.value}
        self._execution = execution
        self._ours = (_delivery.site == site, _delivery.channel == channel.value)

    # Planning.

    async def add(
        self,
        connection: AsyncConnection,
        pages: Pages,
        *,
        engines: Sequence[str],
        at: datetime,
        counted: Collection[int] = (),
    ) -> None:
        """Add a batch with a delivery for each engine. `counted`: hashes of pages that were taken earlier today."""
        size = len(pages)
        known = 0
        if counted:
            known = make_bits([at for at, url_hash in enumerate(pages.hashes) if url_hash in counted])
        values = {
            **self._names,
            "removed": pages.removed,
            "size": size,
            "pages": encode_pages(pages),
            "entered": b"",
            "day": name_day(at),
            "tried": write_bits(known),
            "taken": write_bits(known),
            "created_at": to_milliseconds(at),
            "created_in": self._execution,
        }
        batch = (await connection.execute(insert(batches).values(values).returning(_batch.id))).scalar_one()
        pending = write_bits((1 << size) - 1)
        rows = [
            {**self._names, "batch": batch, "engine": engine, "pending": pending, "size": size, "attempts": 0}
            for engine in engines
        ]
        await connection.execute(insert(deliveries), rows)

    async def list_open(self, engines: Collection[str]) -> dict[bool, dict[str, HashSet]]:
        """The hashes of all pages that are open at these engines: of changed pages (False) and removed ones (True).

        Engines without any are left out.
        """
        found: dict[bool, dict[str, HashSet]] = {False: {}, True: {}}
        last, rows = 0, await self._read_open(engines, after=0)
        while rows:
            for row in rows:
                numbers = read_numbers(row.hashes)
                hashes = found[row.removed].setdefault(row.engine, HashSet())
                hashes.update(numbers[at] for at in list_positions(read_bits(row.pending), row.size))
                last = row.id
            rows = await self._read_open(engines, after=last) if len(rows) == _OPEN_BLOCK else ()
        return found

    async def _read_open(self, engines: Collection[str], *, after: int) -> Sequence[Any]:
        """The next deliveries by their ids: most outboxes are empty or small, and read in one round trip."""
        statement = (
            select(_delivery.id, _delivery.engine, _delivery.pending, _batch.size, _batch.removed, HASHES)
            .join(batches, _batch.id == _delivery.batch)
            .where(*self._ours, _delivery.engine.in_(engines), _delivery.id > after)
            .order_by(_delivery.id)
            .limit(_OPEN_BLOCK)
        )
        return await self._database.fetch(statement)

    async def list_pages(self) -> AsyncIterator[Pages]:
        """Every open page, batch by batch: pages that at least one engine did not take so far."""
        statement = (
            select(_batch.id, _batch.pages, _batch.size, _batch.removed, _delivery.pending)
            .join(deliveries, _delivery.batch == _batch.id)
            .where(*self._ours)
            .order_by(_batch.id)
        )
        last: Any = None
        pending = 0
        async with self._database.read() as connection:
            async for row in await connection.stream(statement):
                if last is not None and last.id != row.id:
                    yield _decode(last).pick(list_positions(pending, last.size))
                    pending = 0
                last, pending = row, pending | read_bits(row.pending)
        if last is not None:
            yield _decode(last).pick(list_positions(pending, last.size))

    async def drop_since(self, connection: AsyncConnection, *, since: int) -> None:
        """Delete batches created at or after `since` (milliseconds); their pages are due by the ledger again."""
        those = select(_batch.id).where(
            _batch.site == self._names["site"],
            _batch.channel == self._names["channel"],
            _batch.created_at >= since,
        )
        await connection.execute(delete(deliveries).where(_delivery.batch.in_(those)))
        await connection.execute(delete(batches).where(_batch.id.in_(those)))

    # Sending.

    async def claim(self, engine: str, *, failed: bool, limit: int, busy: Collection[int] = ()) -> ClaimedPages | None:
        """The next pages for `engine`, at most `limit`, or None.

        With `failed`, deliveries that failed in an earlier execution, the oldest failure first; otherwise those that
        were never tried, in the order they were planned. Several small deliveries are taken together. `busy` are ids
        of deliveries that are being sent.
        """
        heads = await self._list_heads(engine, failed=failed, busy=busy)
        chosen: list[Segment] = []
        wanted, repeated = limit, 0
        for row in heads:
            # Changed and removed pages are claimed separately: the ledger enters the first and deletes the others.
            if not wanted or row.removed != heads[0].removed:
                break
            positions = list_positions(read_bits(row.pending), row.batch_size)[:wanted]
            chosen.append(Segment(row.id, row.batch, positions))
            wanted -= len(positions)
            repeated += len(positions) if row.created_in < self._execution else 0
        if not chosen:
            return None
        stored = await self._read_pages(chosen)
        keys = PageKeys(removed=heads[0].removed)
        for segment, (value, size) in zip(chosen, stored, strict=True):
            stored_keys = unpack_keys(value, size=size)
            keys.extend(stored_keys if len(segment.positions) == size else stored_keys.pick(segment.positions))
        return ClaimedPages(keys, tuple(chosen), repeated, stored)

    async def _list_heads(self, engine: str, *, failed: bool, busy: Collection[int]) -> Sequence[Any]:
        statement = (
            select(
                _delivery.id,
                _delivery.batch,
                _delivery.pending,
                _batch.size.label("batch_size"),
                _batch.removed,
                _batch.created_in,
            )
            .join(batches, _batch.id == _delivery.batch)
            .where(*self._ours, _delivery.engine == engine, _delivery.id.not_in(list(busy)))
            .limit(MOST_CLAIMED)
        )
        if failed:
            statement = statement.where(_delivery.failed_at.is_not(None), _delivery.attempted_in != self._execution)
            statement = statement.order_by(_delivery.failed_at, _delivery.id)
        else:
            statement = statement.where(_delivery.failed_at.is_(None)).order_by(_delivery.id)
        return await self._database.fetch(statement)

    async def _read_pages(self, segments: Sequence[Segment]) -> list[tuple[bytes, int]]:
        statement = select(_batch.id, _batch.pages, _batch.size)
        wanted = {segment.batch for segment in segments}
        rows = await self._database.fetch(statement.where(_batch.id.in_(wanted)))
        found = {row.id: (row.pages, row.size) for row in rows}
        return [found[segment.batch] for segment in segments]

    async def read_state(self, connection: AsyncConnection, segment: Segment) -> BatchState:
        """What is known of the segment's pages beyond this delivery."""
        columns = (_batch.id, _batch.entered, _batch.day, _batch.tried, _batch.taken, _batch.created_in)
        statement = select(*columns, _batch.created_at).where(_batch.id == segment.batch)
        row = (await connection.execute(statement)).one()
        return BatchState(
            batch=row.id,
            entered=read_bits(row.entered),
            day=row.day,
            tried=read_bits(row.tried),
            taken=read_bits(row.taken),
            created_in=row.created_in,
            created_at=row.created_at,
        )

    async def record_taken(self, connection: AsyncConnection, segment: Segment, state: BatchState) -> None:
        """The engine took the segment's pages: they leave the delivery. `state` is the batch's after that."""
        row = await self._read_delivery(connection, segment.delivery)
        pending = read_bits(row.pending) & ~make_bits(segment.positions)
        if not await self._keep_pending(connection, segment, pending):
            await self._store_state(connection, state)

    async def record_failed(
        self,
        connection: AsyncConnection,
        segment: Segment,
        state: BatchState,
        *,
        reason: str,
        verdict: str | None,
        attempts: int,
        at: int,
    ) -> None:
        """The engine did not take the segment's pages in this number of attempts; they are not claimed again in this
        execution."""
        row = await self._read_delivery(connection, segment.delivery)
        failure = {
            "reason": reason,
            "verdict": verdict,
            "attempts": row.attempts + attempts,
            "failed_at": at,
            "attempted_in": self._execution,
        }
        moved = make_bits(segment.positions)
        rest = read_bits(row.pending) & ~moved
        same = await self._find_same_failure(connection, row, failure)
        if same is not None:
            moved |= read_bits(same.pending)
            await self._update(connection, same.id, pending=write_bits(moved), size=moved.bit_count(), failed_at=at)
        elif not rest:
            await self._update(connection, row.id, **failure)
        else:
            own = {"batch": row.batch, "engine": row.engine, "pending": write_bits(moved), "size": moved.bit_count()}
            await connection.execute(insert(deliveries).values({**self._names, **own, **failure}))
        if same is not None or rest:
            await self._keep_pending(connection, segment, rest)
        await self._store_state(connection, state)

    async def _find_same_failure(self, connection: AsyncConnection, row: Any, failure: dict[str, Any]) -> Any:
        """The delivery of the same batch and engine that failed like this in this execution."""
        statement = select(_delivery.id, _delivery.pending).where(
            _delivery.batch == row.batch,
            _delivery.engine == row.engine,
            _delivery.id != row.id,
            *(deliveries.c[name] == failure[name] for name in ("reason", "attempts", "attempted_in")),
        )
        return (await connection.execute(statement.limit(1))).first()

    async def _read_delivery(self, connection: AsyncConnection, number: int) -> Any:
        return (await connection.execute(select(deliveries).where(_delivery.id == number))).one()

    async def _keep_pending(self, connection: AsyncConnection, segment: Segment, pending: int) -> bool:
        """Leave these pages in the delivery; delete it if there are none, and a batch without deliveries.

        Returns whether the batch was deleted.
        """
        if pending:
            values = {"pending": write_bits(pending), "size": pending.bit_count()}
            await self._update(connection, segment.delivery, **values)
            return False
        await connection.execute(delete(deliveries).where(_delivery.id == segment.delivery))
        others = exists().where(_delivery.batch == segment.batch)
        gone = await connection.execute(delete(batches).where(_batch.id == segment.batch, ~others))
        return bool(gone.rowcount)

    async def _update(self, connection: AsyncConnection, number: int, **values: Any) -> None:
        await connection.execute(update(deliveries).where(_delivery.id == number).values(**values))

    async def _store_state(self, connection: AsyncConnection, state: BatchState) -> None:
        values = {
            "entered": write_bits(state.entered),
            "day": state.day,
            "tried": write_bits(state.tried),
            "taken": write_bits(state.taken),
        }
        await connection.execute(update(batches).where(_batch.id == state.batch).values(values))

    # Counting and showing.

    async def count_open(self) -> dict[str, int]:
        """How many pages are open at each engine, without those that failed in this execution."""
        statement = (
            select(_delivery.engine, func.sum(_delivery.size))
            .where(*self._ours, func.coalesce(_delivery.attempted_in, -1) != self._execution)
            .group_by(_delivery.engine)
        )
        return {engine: int(pages) for engine, pages in await self._database.fetch(statement)}

    async def count_untaken(self) -> int:
        """How many pages failed in this execution and were taken by no engine at all."""
        statement = (
            select(_batch.id, _batch.entered, _delivery.pending)
            .join(batches, _batch.id == _delivery.batch)
            .where(*self._ours, _delivery.attempted_in == self._execution)
        )
        failed: dict[int, int] = {}
        for row in await self._database.fetch(statement):
            pages = read_bits(row.pending) & ~read_bits(row.entered)
            failed[row.id] = failed.get(row.id, 0) | pages
        return sum(bits.bit_count() for bits in failed.values())


def _decode(row: Any) -> Pages:
    return decode_pages(row.pages, size=row.size, removed=row.removed)
