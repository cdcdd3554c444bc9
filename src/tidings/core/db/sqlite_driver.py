"""SQLite's driver with fewer trips. The driver does its work in a thread, and SQLAlchemy goes there four times for one
statement: for a cursor, to run it, for its rows, and to close it. That costs more than a small statement does, so here
it goes there once, and comes back with everything.
"""

import sqlite3
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

import aiosqlite

# So many rows are brought along with a statement. Those of a longer answer are fetched when they are asked for: whoever
# streams millions of them must not get them all at once.
_BROUGHT_ALONG: Final = 1_000
_CHUNK: Final = 64
_SHORT_PAUSE: Final = 0.02
_MOST_PAUSES: Final = 500


class QuickCursor(aiosqlite.Cursor):
    """A cursor that brings its first rows along, and is closed in the driver as soon as it has no more."""

    def __init__(self, connection: "QuickConnection") -> None:
        self._owner = connection
        self._open: sqlite3.Cursor | None = None
        self._rows: deque[Any] = deque()
        self._description: Any = None
        self._rowcount = -1
        self._lastrowid: int | None = None
        self._arraysize = 1

    async def execute(self, sql: str, parameters: Iterable[Any] | None = None) -> "QuickCursor":
        await self._owner.do(self._run, sql, parameters or ())
        return self

    async def executemany(self, sql: str, parameters: Iterable[Iterable[Any]]) -> "QuickCursor":
        await self._owner.do(self._run_many, sql, parameters)
        return self

    async def fetchone(self) -> Any:
        rows = await self.fetchmany(1)
        return rows[0] if rows else None

    async def fetchmany(self, size: int | None = None) -> list[Any]:
        wanted = self._arraysize if size is None else size
        if len(self._rows) < wanted and self._open is not None:
            await self._owner.do(self._bring, max(wanted, _BROUGHT_ALONG))
        return [self._rows.popleft() for _ in range(min(wanted, len(self._rows)))]

    async def fetchall(self) -> Sequence[Any]:
        if self._open is not None:
            await self._owner.do(self._bring, None)
        rows, self._rows = self._rows, deque()
        return rows

    async def close(self) -> None:
        self._rows.clear()
        if self._open is not None:
            await self._owner.do(self._end)

    @property
    def rowcount(self) -> int:
        return self._rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._lastrowid

    @property
    def description(self) -> Any:
        return self._description

    @property
    def arraysize(self) -> int:
        return self._arraysize

    @arraysize.setter
    def arraysize(self, value: int) -> None:
        self._arraysize = value

    def _run(self, sql: str, parameters: Any) -> None:
        """In the driver's thread, as all that follows."""
        self._begin(self._owner.driver.execute(sql, parameters))
        if self._description is not None:
            self._bring(_BROUGHT_ALONG)
        else:
            self._end()

    def _run_many(self, sql: str, parameters: Any) -> None:
        self._begin(self._owner.driver.executemany(sql, parameters))
        self._end()

    def _begin(self, cursor: sqlite3.Cursor) -> None:
        self._end()
        self._open, self._description, self._lastrowid = cursor, cursor.description, cursor.lastrowid
        self._rowcount = cursor.rowcount
        self._rows.clear()

    def _bring(self, most: int | None) -> None:
        cursor = self._open
        if cursor is None:
            return
        rows = cursor.fetchall() if most is None else cursor.fetchmany(most)
        self._rows.extend(rows)
        # What RETURNING has changed is only counted once all its rows were read.
        self._rowcount = cursor.rowcount
        if most is None or len(rows) < most:
            self._end()

    def _end(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class QuickConnection(aiosqlite.Connection):
    """A connection with such cursors."""

    @property
    def driver(self) -> sqlite3.Connection:
        return self._conn

    async def do(self, work: Any, *arguments: Any) -> Any:
        """Do this in the driver's thread."""
        return await self._execute(work, *arguments)  # type: ignore[no-untyped-call] # the driver's own has no types

    def cursor(self) -> QuickCursor:  # type: ignore[override] # there is no trip to be awaited; it is only entered
        return QuickCursor(self)


async def connect(uri: str, *, pragmas: Sequence[str] = ()) -> QuickConnection:
    """A connection to the file that a `file:` URI names, with these pragmas; it begins no transactions of its own."""
    connection = QuickConnection(lambda: _open(uri, pragmas), _CHUNK)
    # A process that is told to end must not wait for a connection that nobody closed.
    connection._thread.daemon = True
    return await connection  # type: ignore[return-value] # the base class names itself


def _open(uri: str, pragmas: Sequence[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        for pragma in pragmas:
            _set_patiently(connection, pragma)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_patiently(connection: sqlite3.Connection, pragma: str) -> None:
    """SQLite does not wait by itself while another process turns a new file to WAL at the same moment."""
    for pause in [_SHORT_PAUSE] * _MOST_PAUSES:
        try:
            connection.execute(f"PRAGMA {pragma}").close()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            time.sleep(pause)
    connection.execute(f"PRAGMA {pragma}").close()
