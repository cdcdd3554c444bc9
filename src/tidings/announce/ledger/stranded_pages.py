"""Stranded pages: no engine took them, and they wait only for engines that the site no longer has.

Such pages count as planned, so the sitemap is not read for them again. They go to the engines that the site has now. A
page that another engine took stays in its old delivery, and is sent if that engine comes back.
"""

from collections.abc import Collection, Mapping

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.outbox_tables import batches, deliveries
from tidings.announce.ledger.packing import read_bits, write_bits
from tidings.core.db.database import Database

_batch, _delivery = batches.c, deliveries.c


class StrandedPages:
    """Those of one site and channel. `engines`: the endpoints that the site has now."""

    def __init__(self, database: Database, *, site: int, channel: Channel, engines: Collection[str]) -> None:
        self._database = database
        self._names = {"site": site, "channel": channel.value}
        self._ours = (_delivery.site == site, _delivery.channel == channel.value)
        self._engines = engines

    async def find(self) -> Mapping[int, int]:
        """The bitmap of the stranded pages of each batch that has any."""
        elsewhere = select(_delivery.batch).where(*self._ours, _delivery.engine.not_in(self._engines))
        statement = (
            select(_delivery.batch, _delivery.engine, _delivery.pending, _batch.entered)
            .join(batches, _batch.id == _delivery.batch)
            .where(_delivery.batch.in_(elsewhere))
        )
        waiting: dict[int, int] = {}
        cared_for: dict[int, int] = {}
        async with self._database.read_once() as connection:
            for row in await connection.execute(statement):
                pages = cared_for if row.engine in self._engines else waiting
                pages[row.batch] = pages.get(row.batch, 0) | read_bits(row.pending)
                cared_for[row.batch] = cared_for.get(row.batch, 0) | read_bits(row.entered)
        found = {batch: pages & ~cared_for[batch] for batch, pages in waiting.items()}
        return {batch: pages for batch, pages in found.items() if pages}

    async def redirect(self, connection: AsyncConnection, stranded: Mapping[int, int]) -> None:
        """Move the pages that `find` found into deliveries of the present engines, as if they were just planned."""
        for batch, pages in stranded.items():
            elsewhere = select(deliveries).where(_delivery.batch == batch, _delivery.engine.not_in(self._engines))
            for row in (await connection.execute(elsewhere)).all():
                await self._take_out(connection, row.id, rest=read_bits(row.pending) & ~pages)
            values = {**self._names, "batch": batch, "pending": write_bits(pages), "size": pages.bit_count()}
            rows = [{**values, "engine": engine, "attempts": 0} for engine in self._engines]
            await connection.execute(insert(deliveries), rows)

    async def _take_out(self, connection: AsyncConnection, number: int, *, rest: int) -> None:
        """Leave only these pages in the delivery."""
        this = _delivery.id == number
        if rest:
            values = {"pending": write_bits(rest), "size": rest.bit_count()}
            await connection.execute(update(deliveries).where(this).values(values))
        else:
            await connection.execute(delete(deliveries).where(this))
