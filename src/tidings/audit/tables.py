"""The database as SQL shows it: every value of every column that can hold text or bytes, on SQLite and PostgreSQL
alike, some rows at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Date,
    DateTime,
    LargeBinary,
    MetaData,
    Numeric,
    Row,
    Table,
    Text,
    cast,
    select,
)
from sqlalchemy import Integer as WholeNumber
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.audit.report import Notes
from tidings.audit.traces import TraceFinder

_BATCH: Final = 200
# SQLite lets text into a column of numbers, too; there the look at its file finds it.
_CANNOT_HOLD: Final = (WholeNumber, Numeric, Boolean, DateTime, Date)


def reflect_tables(connection: Connection) -> dict[str, Table]:
    """All tables there are, also those that this release does not know."""
    found = MetaData()
    found.reflect(connection)
    return dict(found.tables)


async def scan_tables(
    connection: AsyncConnection, tables: Mapping[str, Table], finder: TraceFinder, *, notes: Notes
) -> int:
    """Look for secrets in every row; returns how many rows were looked at."""
    return sum([await _scan_table(connection, table, finder, notes=notes) for table in tables.values()])


async def _scan_table(connection: AsyncConnection, table: Table, finder: TraceFinder, *, notes: Notes) -> int:
    columns = [column for column in table.c if not isinstance(column.type, _CANNOT_HOLD)]
    if not columns:
        return 0
    keys, dialect, count = list(table.primary_key), connection.dialect.name, 0
    wanted = select(
        *(_as_bytes(column, dialect).label(f"c{number}") for number, column in enumerate((*keys, *columns)))
    )
    async with connection.stream(wanted.execution_options(yield_per=_BATCH)) as rows:
        async for batch in rows.partitions():
            count += len(batch)
            for number, column in enumerate(columns, start=len(keys)):
                _scan_values(batch, number, finder, notes=notes, place=f"{table.name}.{column.name}", keys=len(keys))
    return count


def _as_bytes(column: Column[Any], dialect: str) -> Any:
    """The column as it lies there, past whatever its type would make of it."""
    if dialect == "sqlite":
        return cast(column, LargeBinary)
    return column if isinstance(column.type, LargeBinary) else cast(column, Text)


def _scan_values(
    batch: Sequence[Row[Any]], number: int, finder: TraceFinder, *, notes: Notes, place: str, keys: int
) -> None:
    # Hardly ever is there anything, so all are looked at together first.
    if next(finder.find(b"\n".join(_to_bytes(row[number]) for row in batch), strict=True), None) is None:
        return
    for row in batch:
        for trace in finder.find(_to_bytes(row[number]), strict=True):
            notes.find(f"{place}, row {' '.join(_name_row(row[:keys]))}", trace.what)


def _name_row(values: Sequence[Any]) -> Iterator[str]:
    return (_to_bytes(value).decode("utf-8", "replace")[:100] for value in values)


def _to_bytes(value: Any) -> bytes:
    if value is None:
        return b""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
