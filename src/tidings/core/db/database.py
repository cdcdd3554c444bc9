"""Engines and transactions for SQLite and PostgreSQL.

`Database.write()` is a transaction that may write. The database itself refuses writes in `Database.read()`. Code that
must never write gets a `ReadableDatabase`, which has `read` alone. On SQLite a process has one writing connection. Its
transactions begin IMMEDIATE, so nothing comes between a check and its write; reads continue (WAL). Modules define their
tables on the `metadata` of this module; `revisions` creates them and brings them up to date.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import (
    BigInteger,
    Column,
    Executable,
    Integer,
    MetaData,
    Select,
    Table,
)
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from tidings.core.db.direct_statement import DirectStatement
from tidings.core.db.engines import (
    SQLITE_READERS,
    make_short_cut,
    make_single,
    open_postgresql_reader,
    open_postgresql_writer,
    open_sqlite_reader,
    open_sqlite_writer,
)

if TYPE_CHECKING:
    # Imported where it is used: an installation on SQLite saves 2 MB.
    from sqlalchemy.dialects.postgresql import Insert as PostgresqlInsert

metadata = MetaData()

# SQLite numbers rows by itself only in a column that is declared INTEGER.
RowId = BigInteger().with_variant(Integer, "sqlite")

Dialect = Literal["sqlite", "postgresql"]

# The most connections of a process for writing, and the most for reading.
CONNECTIONS = 15
# The crawl API holds a connection for every cookie in use.
_POSTGRESQL_ONLY_READERS = 30


class DatabaseUrlError(ValueError):
    """The database URL is not one that Tidings can use."""


class ReadableDatabase:
    """A database that can only be read. `open_read_only_database` builds it, `close` closes it.

    `most_readers` is how many `read` blocks can be open at once; one more waits.
    """

    def __init__(self, reader: AsyncEngine, *, dialect: Dialect, url: URL, most_readers: int) -> None:
        self.dialect = dialect
        self.url = url
        self.most_readers = most_readers
        self._reader = reader

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction with one consistent view. The database refuses a write in it."""
        async with _begin(self._reader) as connection:
            yield connection

    async def open_session(self) -> AsyncConnection:
        """A connection outside of any transaction, for locks of PostgreSQL's sessions. The caller closes it."""
        connection = await self._reader.connect()
        return await connection.execution_options(isolation_level="AUTOCOMMIT", postgresql_readonly=False)

    async def close(self) -> None:
        await self._reader.dispose()


class Database(ReadableDatabase):
    """A database that can be read and written. `open_database` builds it, `close` closes it."""

    def __init__(
        self, writer: AsyncEngine, reader: AsyncEngine, *, dialect: Dialect, url: URL, most_readers: int
    ) -> None:
        super().__init__(reader, dialect=dialect, url=url, most_readers=most_readers)
        self._writer = writer
        self._single_writer = make_single(writer, dialect=dialect)
        self._single_reader = make_single(reader, dialect=dialect)
        self._short_cut = make_short_cut(url) if dialect == "sqlite" else None
        self._inserts: dict[tuple[str, ...], DirectStatement] = {}

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that commits when the block ends, and rolls back when it raises."""
        async with _begin(self._writer) as connection:
            yield connection

    @asynccontextmanager
    async def read_once(self) -> AsyncIterator[AsyncConnection]:
        """As `read`, for one statement: on PostgreSQL it needs no BEGIN and no COMMIT, which are round trips."""
        async with _begin(self._single_reader) as connection:
            yield connection

    @asynccontextmanager
    async def write_once(self) -> AsyncIterator[AsyncConnection]:
        """As `write`, for one statement: on PostgreSQL it is a transaction by itself, in one round trip."""
        async with _begin(self._single_writer) as connection:
            yield connection

    async def fetch(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """The rows of one statement that reads."""
        async with self.read_once() as connection:
            return (await connection.execute(statement, values)).all()

    async def fetch_row(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Any:
        """The first row; None if there is none."""
        rows = await self.fetch(statement, values)
        return rows[0] if rows else None

    async def fetch_value(self, statement: Executable) -> Any:
        """The first column of the first row; None if there is none."""
        row = await self.fetch_row(statement)
        return None if row is None else row[0]

    async def change(self, statement: Executable, values: Mapping[str, Any] | None = None) -> int:
        """Execute one statement that writes. Returns how many rows it changed."""
        async with self.write_once() as connection:
            return (await connection.execute(statement, values)).rowcount

    def bind_numbers(self, values: Sequence[int]) -> str | list[int]:
        """Many integers as one bound value; `numbers_sql` is the SQL that reads it."""
        # Python writes a list of integers as JSON does, in half the time of its encoder.
        return str(list(values)) if self.dialect == "sqlite" else list(values)

    def numbers_sql(self, parameter: str, *, column: str) -> str:
        """A subquery with the integers of a parameter bound by `bind_numbers`, in one column."""
        if self.dialect == "sqlite":
            return f"(SELECT value AS {column} FROM json_each(:{parameter}))"
        return f"(SELECT unnest(CAST(:{parameter} AS bigint[])) AS {column})"

    def insert(self, table: Table) -> "SqliteInsert | PostgresqlInsert":
        """An INSERT with ON CONFLICT, which SQLAlchemy offers only in its dialects."""
        if self.dialect == "sqlite":
            return SqliteInsert(table)
        from sqlalchemy.dialects.postgresql import Insert

        return Insert(table)

    async def store(
        self, connection: AsyncConnection, table: Table, *, key: Mapping[str, Any], values: Mapping[str, Any]
    ) -> None:
        """In the caller's transaction: insert a row, or replace these values of the row with this key."""
        insert = self.insert(table).values({**key, **values})
        await connection.execute(insert.on_conflict_do_update(index_elements=list(key), set_=dict(values)))

    def insert_new(self, table: Table, *returning: Column[Any]) -> DirectStatement:
        """The INSERT of a table for many rows. An existing row stays as it is, and is not returned."""
        key = (table.name, *(each.name for each in returning))
        if key not in self._inserts:
            statement = self.insert(table).on_conflict_do_nothing()
            self._inserts[key] = DirectStatement(statement.returning(*returning) if returning else statement)
        return self._inserts[key]

    async def look_up(self, statement: Select[Any], values: Mapping[str, Any]) -> Sequence[Any]:
        """The rows of one statement that runs often and needs no transaction.

        Build the statement once, as a constant of its module: what was compiled is kept for as long as the database. On
        SQLite the values are the driver's own: a boolean is 0 or 1.
        """
        if self._short_cut is not None:
            return await self._short_cut.look_up(statement, values)
        async with self.read_once() as connection:
            return list(await connection.execute(statement, values))

    async def close(self) -> None:
        if self._short_cut is not None:
            await self._short_cut.close()
        await super().close()
        await self._writer.dispose()


@asynccontextmanager
async def _begin(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A transaction. A task that is cancelled in it ends as cancelled, even if the connection is lost.

    psycopg closes a connection if it was cancelled before the server began its statement. Nothing is left to roll back
    then, and the error of the rollback would replace the cancellation. So would the error of a server that ends while
    psycopg cancels the statement, as when a machine shuts down.
    """
    cancelled: asyncio.CancelledError | None = None
    task = asyncio.current_task()
    requests = task.cancelling() if task else 0
    try:
        async with engine.begin() as connection:
            try:
                yield connection
            except asyncio.CancelledError as error:
                cancelled = error
                raise
    except DBAPIError:
        if cancelled is None and task and task.cancelling() > requests:
            cancelled = asyncio.CancelledError()
        if cancelled is None:
            raise
        raise cancelled from None


def open_database(url: str, *, connections: int = CONNECTIONS) -> Database:
    """Open `sqlite:///path` or `postgresql://…`. Creates no tables, only a missing SQLite file (0600).

    `connections`: on PostgreSQL, the most for writing, and as many again for reading.
    """
    parsed = _parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        path = Path(str(parsed.database))
        writer, reader = open_sqlite_writer(path), open_sqlite_reader(path)
        return Database(writer, reader, dialect="sqlite", url=parsed, most_readers=SQLITE_READERS)
    writer = open_postgresql_writer(parsed, connections=connections)
    reader = open_postgresql_reader(parsed, connections=connections)
    return Database(writer, reader, dialect="postgresql", url=parsed, most_readers=connections)


def open_read_only_database(url: str, *, connections: int = _POSTGRESQL_ONLY_READERS) -> ReadableDatabase:
    """Open a database that another process has prepared, without any way to write to it. Creates nothing.

    SQLite's file is opened with `mode=ro`. On PostgreSQL every transaction begins read-only; a role that may only
    SELECT is enough. Raises DatabaseUrlError, also if SQLite's file is missing.
    """
    parsed = _parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        if not (path := Path(str(parsed.database))).is_file():
            raise DatabaseUrlError(
                "there is no SQLite file at this path; `tidings serve` creates it when it first starts"
            )
        reader = open_sqlite_reader(path)
        return ReadableDatabase(reader, dialect="sqlite", url=parsed, most_readers=SQLITE_READERS)
    reader = open_postgresql_reader(parsed, connections=connections)
    return ReadableDatabase(reader, dialect="postgresql", url=parsed, most_readers=connections)


def _parse_url(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # The URL may hold a password, so it is not repeated.
        raise DatabaseUrlError("it is not a database URL; use sqlite:///path or postgresql://user@host/name") from None
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise DatabaseUrlError(f"{parsed.get_backend_name()} is not supported; use sqlite:///path or postgresql://…")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise DatabaseUrlError("a SQLite database needs a file, or nothing would survive; use sqlite:///path")
    return parsed
