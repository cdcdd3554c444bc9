"""Stranded pages: no engine took them, and they wait only for engines that the site no longer has.

Such pages count as planned, so the sitemap is not read for them again. They go to the engines that the site has now. A
page that another engine took stays in its old delivery, and is sent if that engine comes back.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.outbox_tables import batches, deliveries
from tidings.announce.ledger.packing import read_bits, write_bits
from tidings.announce.site.site import Site
from tidings.core.db.database import Database

Transaction = Callable[[], AbstractAsyncContextManager[AsyncConnection]]

_batch, _delivery = batches.c, deliveries.c


async def redirect_stranded(database: Database, site: Site, *, transaction: Transaction) -> None:
    """Move the site's stranded pages into deliveries of its present engines, as if they were just planned."""
    engines = [engine.endpoint for engine in site.engines]
    stranded = await _find_stranded(database, site.number, engines)
    if not stranded:
        return
    async with transaction() as connection:
        for batch, pages in stranded.items():
            elsewhere = select(deliveries).where(_delivery.batch == batch, _delivery.engine.not_in(engines))
            for row in (await connection.execute(elsewhere)).all():
                await _take_out(connection, row.id, rest=read_bits(row.pending) & ~pages)
            values = {"pending": write_bits(pages), "size": pages.bit_count(), "batch": batch, "attempts": 0}
            values |= {"site": site.number, "channel": Channel.INDEXNOW.value}
            await connection.execute(insert(deliveries), [{**values, "engine": engine} for engine in engines])


async def _find_stranded(database: Database, site: int, engines: Collection[str]) -> Mapping[int, int]:
    """The bitmap of the stranded pages of each batch that has any."""
    ours = (_delivery.site == site, _delivery.channel == Channel.INDEXNOW.value)
    elsewhere = select(_delivery.batch).where(*ours, _delivery.engine.not_in(engines))
    statement = (
        select(_delivery.batch, _delivery.engine, _delivery.pending, _batch.entered)
        .join(batches, _batch.id == _delivery.batch)
        .where(_delivery.batch.in_(elsewhere))
    )
    waiting: dict[int, int] = {}
    cared_for: dict[int, int] = {}
    async with database.read_once() as connection:
        for row in await connection.execute(statement):
            pages = cared_for if row.engine in engines else waiting
            pages[row.batch] = pages.get(row.batch, 0) | read_bits(row.pending)
            cared_for[row.batch] = cared_for.get(row.batch, 0) | read_bits(row.entered)
    found = {batch: pages & ~cared_for[batch] for batch, pages in waiting.items()}
    return {batch: pages for batch, pages in found.items() if pages}


async def _take_out(connection: AsyncConnection, number: int, *, rest: int) -> None:
    """Leave only these pages in the delivery."""
    this = _delivery.id == number
    if rest:
        values = {"pending": write_bits(rest), "size": rest.bit_count()}
        await connection.execute(update(deliveries).where(this).values(values))
    else:
        await connection.execute(delete(deliveries).where(this))
