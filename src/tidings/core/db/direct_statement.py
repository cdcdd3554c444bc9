"""Statements that run for every record: compiled once and given to the driver, which takes a third of the CPU of
SQLAlchemy's own execution. benchmarks/leases.md has the measurement. All others go through SQLAlchemy.
"""

import json
from collections import namedtuple
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Dialect, Insert, exc
from sqlalchemy.dialects.sqlite.aiosqlite import SQLiteDialect_aiosqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

# The errors of PEP 249. Each driver has a class of its own for each of them.
_ERRORS = (
    *("DataError", "IntegrityError", "InternalError", "NotSupportedError", "OperationalError", "ProgrammingError"),
    *("DatabaseError", "InterfaceError"),
)
NAMED_SQLITE: Final = SQLiteDialect_aiosqlite(paramstyle="named")


class DirectStatement:
    """A statement that SQLAlchemy compiles and the driver runs. Values are the driver's own: SQLite has no booleans."""

    def __init__(self, statement: Any) -> None:
        self._statement = statement
        self._make_row = _name_columns(statement)
        # The SQL and its constants, by dialect.
        self._compiled: dict[str, tuple[str, Mapping[str, Any]]] = {}

    async def run(self, connection: AsyncConnection, values: Mapping[str, Any]) -> list[Any]:
        """Its rows, in the caller's transaction. Raises SQLAlchemy's errors, also if a value is missing."""
        driver = (await connection.get_raw_connection()).driver_connection
        return await self.run_on(driver, connection.dialect, values)

    async def run_on(self, driver: Any, dialect: Dialect, values: Mapping[str, Any]) -> list[Any]:
        """As `run`, on the driver's own connection."""
        if dialect.name not in self._compiled:
            self._compiled[dialect.name] = self._compile(dialect, values)
        sql, constants = self._compiled[dialect.name]
        with raise_as_sqlalchemy(sql):
            if dialect.name == "sqlite":
                rows = await driver.execute_fetchall(sql, {**constants, **values})
            else:
                cursor = await driver.execute(sql, {**constants, **values})
                rows = await cursor.fetchall() if cursor.description else ()
        return [self._make_row(*row) for row in rows]

    async def run_each(self, connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Its rows for several sets of values. SQLAlchemy sends more than one set together."""
        if len(rows) == 1:
            return await self.run(connection, rows[0])
        result = await connection.execute(self._statement, rows) if rows else None
        return list(result) if result is not None and result.returns_rows else []

    def _compile(self, dialect: Dialect, values: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        columns = list(values) if isinstance(self._statement, Insert) else None
        # SQLAlchemy's default for SQLite is positional parameters; `values` are passed by name.
        named = NAMED_SQLITE if dialect.name == "sqlite" else dialect
        compiled = self._statement.compile(dialect=named, column_keys=columns)
        # A parameter without a value must not become NULL.
        return str(compiled), {
            name: each for name, each in compiled.params.items() if not compiled.binds[name].required
        }


class among(FunctionElement[bool]):  # noqa: N801 - it reads as SQL
    """`among(column, bindparam(…))`: whether the column has one of the texts of `bind_texts`. The SQL does not depend
    on their number.

    It has no type: SQLAlchemy compares a boolean with 1 on SQLite, and then no index finds the rows.
    """

    inherit_cache = True


@compiles(among, "sqlite")
def _write_sqlite(element: among, compiler: Any, **options: Any) -> str:
    column, texts = (compiler.process(each, **options) for each in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({texts}))"


@compiles(among, "postgresql")
def _write_postgresql(element: among, compiler: Any, **options: Any) -> str:
    column, texts = (compiler.process(each, **options) for each in element.clauses)
    return f"{column} = ANY(ARRAY(SELECT json_array_elements_text(CAST({texts} AS json))))"


def bind_texts(texts: Collection[str]) -> str:
    """The value of a parameter of `among`."""
    return json.dumps(list(texts), ensure_ascii=False)


def _name_columns(statement: Any) -> Callable[..., Any]:
    """The class of its rows. A textual statement has no columns, and must return no rows here."""
    columns = getattr(statement, "exported_columns", None)
    return namedtuple("Row", () if columns is None else columns.keys())


@contextmanager
def raise_as_sqlalchemy(sql: str) -> Iterator[None]:
    """Raise the driver's errors as SQLAlchemy's classes, without values in their messages."""
    try:
        yield
    except Exception as error:
        names = {each.__name__ for each in type(error).__mro__}
        found = next((name for name in _ERRORS if name in names), None)
        if found is None:
            raise
        raise getattr(exc, found)(sql, None, error, hide_parameters=True) from error
