"""Pages that failed at an engine or channel and are open: the outbox's failures as a list for users."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.outbox_tables import HASHES, batches, deliveries
from tidings.announce.ledger.packing import decode_pages, list_positions, read_bits, read_numbers
from tidings.core.clock import from_milliseconds
from tidings.core.db.database import Database

_batch, _delivery = batches.c, deliveries.c


@dataclass(frozen=True, slots=True)
class FailedPage:
    """One page that an engine did not take."""

    url: str
    channel: Channel
    # The engine's endpoint, or `bing`.
    engine: str
    # The engine's own words.
    reason: str
    # The name of the engine's verdict, such as `bad_urls`; None for failures from before verdicts were stored.
    verdict: str | None
    # Requests that carried it, over all executions.
    attempts: int
    failed_at: datetime


class FailedPages:
    """The failed pages of one site: of one channel, or of all."""

    def __init__(self, database: Database, *, site: int, channel: Channel | None = None) -> None:
        self._database = database
        of_channel = () if channel is None else (_delivery.channel == channel.value,)
        self._ours = (_delivery.site == site, *of_channel, _delivery.failed_at.is_not(None))

    async def count(self) -> int:
        """How many there are; a page that failed at two engines counts twice."""
        statement = select(func.sum(_delivery.size)).where(*self._ours)
        return int(await self._database.fetch_value(statement) or 0)

    async def list(self, *, limit: int = 100) -> list[FailedPage]:
        """The newest failures first."""
        statement = (
            select(deliveries, _batch.pages, _batch.size.label("batch_size"))
            .join(batches, _batch.id == _delivery.batch)
            .where(*self._ours)
            .order_by(_delivery.failed_at.desc(), _delivery.id)
        )
        found: list[FailedPage] = []
        # The loop may end early, and then PostgreSQL's cursor has to be closed.
        async with self._database.read() as connection, connection.stream(statement) as rows:
            async for row in rows:
                pages = decode_pages(row.pages, size=row.batch_size)
                positions = list_positions(read_bits(row.pending), row.batch_size)[: limit - len(found)]
                channel, failed_at = Channel(row.channel), from_milliseconds(row.failed_at)
                found += [
                    FailedPage(page.url, channel, row.engine, row.reason, row.verdict, row.attempts, failed_at)
                    for page in pages.pick(positions)
                ]
                if len(found) >= limit:
                    break
        return found

    async def list_hashes(self) -> AsyncIterator[Sequence[int]]:
        """The hashes of all of them, delivery by delivery."""
        statement = (
            select(_delivery.pending, _batch.size, HASHES)
            .join(batches, _batch.id == _delivery.batch)
            .where(*self._ours)
        )
        async with self._database.read() as connection, connection.stream(statement) as rows:
            async for row in rows:
                numbers = read_numbers(row.hashes)
                yield [numbers[at] for at in list_positions(read_bits(row.pending), row.size)]
