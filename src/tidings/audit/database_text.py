"""Searches every text and binary column of every table, through SQL, on SQLite and PostgreSQL alike."""

from collections.abc import Mapping, Sequence
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

from tidings.audit.foreign_text import FOREIGN_COLUMNS
from tidings.audit.report import CheckBuilder
from tidings.audit.secret_finder import Patterns, SecretFinder

_BATCH: Final = 200
# SQLite accepts text in a column of numbers, too; the search of its file finds known secrets there.
_CANNOT_HOLD: Final = (WholeNumber, Numeric, Boolean, DateTime, Date)


def reflect_tables(connection: Connection) -> dict[str, Table]:
    """All tables of the database, also those that this release does not know."""
    found = MetaData()
    found.reflect(connection)
    return dict(found.tables)


async def scan_tables(
    connection: AsyncConnection, tables: Mapping[str, Table], finder: SecretFinder, *, check: CheckBuilder
) -> int:
    """Search every row. Returns the number of rows with text."""
    return sum([await _scan_table(connection, table, finder, check=check) for table in tables.values()])


async def _scan_table(connection: AsyncConnection, table: Table, finder: SecretFinder, *, check: CheckBuilder) -> int:
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
                foreign = column.name in FOREIGN_COLUMNS.get(table.name, ())
                patterns = Patterns.NONE if foreign else Patterns.STRICT
                for row in _find_rows(batch, number, finder, patterns=patterns):
                    where = f"{table.name}.{column.name}, row {_name_row(row[: len(keys)])}"
                    for found in finder.find(_to_bytes(row[number]), patterns=patterns):
                        check.find(where, found.what)
    return count


def _as_bytes(column: Column[Any], dialect: str) -> Any:
    """The stored bytes of the column, before its type converts them."""
    if dialect == "sqlite":
        return cast(column, LargeBinary)
    return column if isinstance(column.type, LargeBinary) else cast(column, Text)


def _find_rows(
    batch: Sequence[Row[Any]], number: int, finder: SecretFinder, *, patterns: Patterns
) -> Sequence[Row[Any]]:
    """The rows to search one by one. A first search over all of them is faster, and usually finds nothing."""
    together = b"\n".join(_to_bytes(row[number]) for row in batch)
    return batch if next(finder.find(together, patterns=patterns), None) is not None else ()


def _name_row(values: Sequence[Any]) -> str:
    return " ".join(_to_bytes(value).decode("utf-8", "replace")[:100] for value in values)


def _to_bytes(value: Any) -> bytes:
    if value is None:
        return b""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
