"""Which rows differ from what is known to stand in Feishu, found by reading our own tables and nothing else: what was
changed while the mirror was off, by a process that knows nothing of it, or before a field was made anew. Block by
block, so that memory stays the same however long a table is; what differs is marked, and delivered as any change is.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Table, select, tuple_

from tidings.collect.feishu.fields import Key
from tidings.collect.feishu.ledger import TABLES, Ledger
from tidings.collect.tables import candidates, mirror_records, sources
from tidings.core.db.database import ReadableDatabase

# A note may be long.
BLOCKS: Final[Mapping[str, int]] = {candidates.name: 1_000, sources.name: 100, mirror_records.name: 1_000}


async def mark_differences(database: ReadableDatabase, ledger: Ledger) -> None:
    """Mark each row that differs, is missing in Feishu, or stands there although it is gone here.

    Raises ExecutionLostError.
    """
    table = TABLES[ledger.table_name]
    async for rows in _read_blocks(database, table):
        await ledger.check()
        known = {Key(row.platform, row.note_id): row.digest for row in await _look_up(database, ledger, rows)}
        shown = await ledger.show(rows)
        await ledger.mark([key for key, row in shown.items() if known.get(key) != row.digest])
    async for records in _read_blocks(database, mirror_records, mirror_records.c.table_name == ledger.table_name):
        await ledger.check()
        keys = [Key(row.platform, row.note_id) for row in records]
        async with database.read() as connection:
            there = await ledger.read_rows(connection, table, keys, table.c.platform, table.c.note_id)
        kept = {Key(row.platform, row.note_id) for row in there}
        await ledger.mark([key for key in keys if key not in kept])


async def _look_up(database: ReadableDatabase, ledger: Ledger, rows: Sequence[Row[Any]]) -> Sequence[Row[Any]]:
    keys = [Key(row.platform, row.note_id) for row in rows]
    async with database.read() as connection:
        return await ledger.read_rows(connection, mirror_records, keys)


async def _read_blocks(
    database: ReadableDatabase, table: Table, *conditions: ColumnElement[bool]
) -> AsyncIterator[Sequence[Row[Any]]]:
    """All of a table in the order of its primary key, a block at a time; no transaction is open in between."""
    order = [column for column in table.primary_key if column.name != "table_name"]
    everything = select(table).where(*conditions).order_by(*order).limit(BLOCKS[table.name])
    chosen = everything
    while True:
        async with database.read() as connection:
            rows = (await connection.execute(chosen)).all()
        if not rows:
            return
        yield rows
        last = [getattr(rows[-1], column.name) for column in order]
        chosen = everything.where(tuple_(*order) > tuple_(*last))
