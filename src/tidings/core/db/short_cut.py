"""Reads one small result from SQLite with one trip to the driver's thread. A transaction needs about nine.

Use it through `Database.look_up`. docs/decisions.md has the measurements.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiosqlite
from sqlalchemy import Select

from tidings.core.db.direct_statement import NAMED_SQLITE, DirectStatement, raise_as_sqlalchemy
from tidings.core.db.sqlite_file import SqliteFile


class ShortCut:
    """One reading connection to the SQLite file `uri`, opened at the first use."""

    def __init__(self, uri: str, *, file: SqliteFile, pragmas: Sequence[str]) -> None:
        self._uri = uri
        self._file = file
        self._pragmas = pragmas
        self._connection: aiosqlite.Connection | None = None
        self._opening = asyncio.Lock()
        self._statements: dict[Select[Any], DirectStatement] = {}

    async def look_up(self, statement: Select[Any], values: Mapping[str, Any]) -> list[Any]:
        """The rows of a statement. It is compiled once; a single statement sees one consistent state.

        Raises SQLAlchemy's errors.
        """
        if statement not in self._statements:
            self._statements[statement] = DirectStatement(statement)
        self._file.check()
        connection = self._connection or await self._open()
        return await self._statements[statement].run_on(connection, NAMED_SQLITE, values)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _open(self) -> aiosqlite.Connection:
        async with self._opening:
            if self._connection is None:
                async with AsyncExitStack() as opening:
                    with raise_as_sqlalchemy(self._uri):
                        opened = await aiosqlite.connect(self._uri, uri=True, isolation_level=None)
                        # Its thread would live on without it.
                        opening.push_async_callback(opened.close)
                        for pragma in self._pragmas:
                            await opened.execute_fetchall(f"PRAGMA {pragma}")
                    opening.pop_all()
                self._connection = opened
            return self._connection
