"""SQLAlchemy's engines as Tidings needs them: SQLite's file in WAL mode, PostgreSQL's pools; writers and readers."""

import os
import select
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DisconnectionError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tidings.core.db.short_cut import ShortCut
from tidings.core.db.sqlite_file import SqliteFile

_BUSY_MILLISECONDS = 30_000
_WAL_ATTEMPTS = 500
_WAL_PAUSE_SECONDS = 0.02
_READ_CACHE_KIB = 2_048
# 64 MB. A batch of 10,000 new pages touches most of the ledger's index; each page of it is then copied from the log to
# the file once for several batches. SQLite's own 1,000 would copy it after each.
_CHECKPOINT_PAGES = 16_000
SQLITE_READERS = 4
_KEPT_CONNECTIONS = 5
# Milliseconds that an open transaction may idle before the server ends it.
_LONGEST_IDLE = 15_000
# Seconds. A connection that rested for longer is asked whether it still works: a router may have forgotten it.
_ASK_AFTER = 30.0
_READ_PRAGMAS = ("query_only=ON", f"busy_timeout={_BUSY_MILLISECONDS}", f"cache_size=-{_READ_CACHE_KIB}")


def open_sqlite_writer(path: Path) -> AsyncEngine:
    """The one writing connection of a process. Creates the file (0600) if it is missing."""
    # SQLite gives its -wal and -shm files the mode of the database itself.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    _turn_to_wal(path)
    pragmas = (
        f"busy_timeout={_BUSY_MILLISECONDS}",
        "synchronous=FULL",
        "foreign_keys=ON",
        f"wal_autocheckpoint={_CHECKPOINT_PAGES}",
    )
    return _create_sqlite_engine(
        path, mode="rw", begin="BEGIN IMMEDIATE", pragmas=pragmas, pool_size=1, max_overflow=0, pool_timeout=120
    )


def _turn_to_wal(path: Path) -> None:
    """Switch the file to WAL. SQLite does not wait if another process is switching a new file at the same time."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for attempts_left in reversed(range(_WAL_ATTEMPTS)):
            try:
                connection.execute("PRAGMA journal_mode=WAL").close()
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or not attempts_left:
                    raise
            time.sleep(_WAL_PAUSE_SECONDS)


def open_sqlite_reader(path: Path) -> AsyncEngine:
    return _create_sqlite_engine(
        path, mode="ro", begin="BEGIN", pragmas=_READ_PRAGMAS, pool_size=2, max_overflow=SQLITE_READERS - 2
    )


class _SqliteConnection(sqlite3.Connection):
    """Rolls back before it closes.

    A task that is cancelled within a statement leaves its cursor open. SQLite keeps the lock of a connection that is
    closed like that, and every other writer would wait for it in vain.
    """

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self.rollback()
        super().close()


def _create_sqlite_engine(path: Path, *, mode: str, begin: str, pragmas: Sequence[str], **options: int) -> AsyncEngine:
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=_name_sqlite(path), query={"mode": mode, "uri": "true"}),
        connect_args={"isolation_level": None, "factory": _SqliteConnection},
        hide_parameters=True,
        **options,
    )

    @event.listens_for(engine.sync_engine, "connect")
    def set_pragmas(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    file = SqliteFile(path)

    # The driver would begin transactions by itself, deferred, and only before some statements.
    @event.listens_for(engine.sync_engine, "begin")
    def begin_transaction(connection: Any) -> None:
        file.check()
        try:
            # One trip to the driver's thread instead of SQLAlchemy's three, which are a fifth of a short transaction.
            connection.connection.dbapi_connection.run_async(lambda driver: driver.execute_fetchall(begin))
        except (sqlite3.Error, ValueError) as error:
            raise OperationalError(begin, None, error) from error

    return engine


def make_short_cut(url: URL) -> ShortCut:
    path = Path(str(url.database))
    return ShortCut(f"{_name_sqlite(path)}?mode=ro", file=SqliteFile(path), pragmas=_READ_PRAGMAS)


def make_single(engine: AsyncEngine, *, dialect: str) -> AsyncEngine:
    """The same engine, on the same pool, for single statements. SQLite's transactions cost no round trips."""
    return engine if dialect == "sqlite" else engine.execution_options(isolation_level="AUTOCOMMIT")


def _name_sqlite(path: Path) -> str:
    return f"file:{quote(str(path.absolute()))}"


def open_postgresql_writer(url: URL, *, connections: int) -> AsyncEngine:
    # A frozen process must not keep its locks: others take over what it did.
    option = f"-c idle_in_transaction_session_timeout={_LONGEST_IDLE}"
    return _create_postgresql_engine(url, connections=connections, option=option)


def open_postgresql_reader(url: URL, *, connections: int) -> AsyncEngine:
    return _create_postgresql_engine(
        url,
        connections=connections,
        option="-c default_transaction_read_only=on",
        isolation_level="REPEATABLE READ",
        # Repeated at every BEGIN: a SET could change the default for the session.
        execution_options={"postgresql_readonly": True},
    )


def _create_postgresql_engine(url: URL, *, connections: int, option: str, **options: Any) -> AsyncEngine:
    # Imported here: an installation on SQLite does not need it.
    from tidings.core.db.terse_connection import TerseConnection, list_limits

    # Some connections stay open, the others are opened when they are needed.
    kept = min(_KEPT_CONNECTIONS, connections)
    engine = create_async_engine(
        url.set(drivername="postgresql+psycopg"),
        hide_parameters=True,
        pool_size=kept,
        max_overflow=connections - kept,
        connect_args={
            **list_limits(url),
            "options": _add_option(url, option),
            "async_creator_fn": TerseConnection.connect,
        },
        **options,
    )
    _replace_lost_connections(engine)
    return engine


def _replace_lost_connections(engine: AsyncEngine) -> None:
    """A connection of the pool that the server closed, as in a restart, is replaced before it is used.

    SQLAlchemy's own check, `pool_pre_ping`, costs each transaction a round trip. The socket tells without one: the
    server says nothing on a connection at rest, except that it ends.
    """
    dialect = engine.sync_engine.dialect

    @event.listens_for(engine.sync_engine, "checkin")
    def record_rest(_connection: Any, record: Any) -> None:
        record.info["rests_since"] = time.monotonic()

    @event.listens_for(engine.sync_engine, "checkout")
    def check(connection: Any, record: Any, _proxy: Any) -> None:
        rests_since = record.info.get("rests_since")
        if rests_since is None:
            return
        if connection.closed or _has_input(connection.driver_connection.fileno()):
            raise DisconnectionError
        if time.monotonic() - rests_since > _ASK_AFTER:
            try:
                dialect.do_ping(connection)
            except dialect.loaded_dbapi.Error as error:
                raise DisconnectionError from error


def _has_input(descriptor: int) -> bool:
    """Whether the server sent something or closed the connection."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _add_option(url: URL, option: str) -> str:
    """Append an option to those of the URL. If a parameter occurs twice, the last value counts."""
    given = url.query.get("options", ())
    return " ".join([*((given,) if isinstance(given, str) else given), option])
