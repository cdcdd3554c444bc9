"""Reads one small result from SQLite with one trip to the driver's thread. A transaction needs about nine.

Use it through `Database.look_up`. docs/decisions.md has the measurements.
"""

import asyncio
import sqlite3
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiosqlite
from sqlalchemy import Select
from sqlalchemy.dialects.sqlite.aiosqlite import SQLiteDialect_aiosqlite
from sqlalchemy.exc import OperationalError

from tidings.core.db.sqlite_file import SqliteFile

_Compiled = tuple[str, Mapping[str, Any], Callable[..., Any]]


class ShortCut:
    """One reading connection to the SQLite file `uri`, opened at the first use."""

    def __init__(self, uri: str, *, file: SqliteFile, pragmas: Sequence[str]) -> None:
        self._uri = uri
        self._file = file
        self._pragmas = pragmas
        self._connection: aiosqlite.Connection | None = None
        self._opening = asyncio.Lock()
        self._compiled: dict[Select[Any], _Compiled] = {}

    async def look_up(self, statement: Select[Any], values: Mapping[str, Any]) -> list[Any]:
        """The rows of a statement. It is compiled once; a single statement sees one consistent state.

        Raises OperationalError.
        """
        if statement not in self._compiled:
            self._compiled[statement] = _compile(statement)
        sql, constants, make_row = self._compiled[statement]
        self._file.check()
        try:
            connection = self._connection or await self._open()
            rows = await connection.execute_fetchall(sql, {**constants, **values})
        except sqlite3.Error as error:
            raise OperationalError(sql, None, error) from error
        return [make_row(*row) for row in rows]

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _open(self) -> aiosqlite.Connection:
        async with self._opening:
            if self._connection is None:
                opened = await aiosqlite.connect(self._uri, uri=True, isolation_level=None)
                for pragma in self._pragmas:
                    await opened.execute_fetchall(f"PRAGMA {pragma}")
                self._connection = opened
            return self._connection


def _compile(statement: Select[Any]) -> _Compiled:
    """The SQL text, its constant parameters, and the class of its rows."""
    compiled = statement.compile(dialect=SQLiteDialect_aiosqlite(paramstyle="named"))
    return str(compiled), compiled.params, namedtuple("Row", statement.selected_columns.keys())
