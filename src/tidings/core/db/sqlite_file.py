"""Notices that a SQLite file was moved, removed or replaced while it is open, or that it is damaged. SQLite would
continue with an unlinked file, and all later writes would be lost with the process.
"""

import sqlite3
from pathlib import Path

from sqlalchemy.exc import OperationalError


class SqliteFile:
    """The file that stands at `path` now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = _identify(path)

    def check(self) -> None:
        """Raise OperationalError unless the same file still stands there."""
        if self._identity != _identify(self._path):
            reason = f"{self._path} was moved, removed or replaced; put it back, or start Tidings again"
            raise OperationalError(None, None, sqlite3.OperationalError(reason))


def is_damaged(error: BaseException) -> bool:
    """Whether an error, of SQLAlchemy or of the driver, says that SQLite's file is damaged."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
    # The lowest byte; the others say what of the file, such as an index.
    return code is not None and code & 0xFF in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def _identify(path: Path) -> tuple[int, int] | None:
    """Device and number of the file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
