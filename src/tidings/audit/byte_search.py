"""Searches the bytes of one content for secrets, of any size. Opening files and packings is in `file_scan`; how a
secret looks is in `secret_finder`.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from tidings.audit.foreign_text import FOREIGN_COLUMNS
from tidings.audit.report import CheckBuilder
from tidings.audit.secret_finder import FoundSecret, Patterns, SecretFinder

BACKUP_START: Final = b'{"tidings":"backup"'

_PIECE: Final = 1024 * 1024
# The longest secret that is found where two pieces meet. A blob of a backup may be as long.
_OVERLAP: Final = 64 * 1024
# A cookie's name counts only when no letter precedes it.
_BEFORE: Final = 1
_BLOB: Final = re.compile(rb'"base64":\s?"(?P<value>[A-Za-z0-9+/=]*)"')
_LONGEST_LINE: Final = 64 * 1024 * 1024


class WindowSearch:
    """Searches bytes in overlapping windows. Each position belongs to one window, so each secret is found once."""

    def __init__(
        self, finder: SecretFinder, *, patterns: Patterns, check: CheckBuilder, where: str, lines: bool
    ) -> None:
        self._finder = finder
        self._patterns = patterns
        self._check = check
        self._where = where
        self._lines = lines
        self._data = bytearray()
        self._first = 0
        self._passed, self._line = 0, 1

    def feed(self, piece: bytes) -> None:
        self._data += piece
        if len(self._data) >= _PIECE + _OVERLAP:
            self._search_until(len(self._data) - _OVERLAP)

    def close(self) -> None:
        self._search_until(len(self._data))

    def _search_until(self, last: int) -> None:
        """Search the positions from the first that was not searched to `last`, and keep the rest."""
        data, first = bytes(self._data), self._first
        for found in self._find(data):
            if first <= found.position < last:
                number = self._line + data.count(b"\n", first, found.position)
                at = f"line {number:,}" if self._lines else f"byte {self._passed + found.position - first:,}"
                self._check.find(f"{self._where}, {at}", found.what)
        self._line += data.count(b"\n", first, last)
        self._passed += last - first
        start = max(last - _BEFORE, 0)
        del self._data[:start]
        self._first = last - start

    def _find(self, data: bytes) -> Iterator[FoundSecret]:
        yield from self._finder.find(data, patterns=self._patterns)
        if b'"base64"' in data:
            for match in _BLOB.finditer(data):
                yield from (FoundSecret(match.start(), each.what) for each in self._find_in_blob(match["value"]))

    def _find_in_blob(self, value: bytes) -> Iterator[FoundSecret]:
        """A backup writes bytes as base64."""
        try:
            yield from self._finder.find(base64.b64decode(value, validate=True), patterns=self._patterns)
        except ValueError:
            return


class BackupSearch:
    """Searches a backup of Tidings row by row, because its foreign text is searched for known secrets alone."""

    def __init__(self, ours: WindowSearch, foreign: WindowSearch) -> None:
        self._ours = ours
        self._foreign = foreign
        self._rest = b""
        self._columns: dict[str, list[str]] = {}
        self._places: frozenset[int] = frozenset()

    def feed(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._read_line(line)
        if len(self._rest) > _LONGEST_LINE:
            raise ValueError(f"a line of more than {_LONGEST_LINE:,} bytes")

    def close(self) -> None:
        self._read_line(self._rest)
        self._ours.close()
        self._foreign.close()

    def _read_line(self, line: bytes) -> None:
        ours, foreign = line, b""
        try:
            if line.startswith(b"{"):
                self._read_object(json.loads(line))
            elif self._places and line.startswith(b"["):
                ours, foreign = self._split_row(json.loads(line))
        except (ValueError, TypeError, AttributeError, RecursionError):
            pass  # A line that is not of a backup is searched as a whole.
        self._ours.feed(ours + b"\n")
        self._foreign.feed(foreign + b"\n")

    def _read_object(self, document: dict[str, Any]) -> None:
        """The first line names the columns of all tables, the others the table of the rows that follow."""
        if "tables" in document:
            self._columns = dict(document["tables"])
        foreign = FOREIGN_COLUMNS.get(document.get("table", ""), frozenset())
        names = self._columns.get(document.get("table", ""), [])
        self._places = frozenset(place for place, name in enumerate(names) if name in foreign)

    def _split_row(self, values: list[Any]) -> tuple[bytes, bytes]:
        ours = [value for place, value in enumerate(values) if place not in self._places]
        foreign = [value for place, value in enumerate(values) if place in self._places]
        return json.dumps(ours, ensure_ascii=False).encode(), json.dumps(foreign, ensure_ascii=False).encode()


# Takes the bytes of one content in order, and adds the secrets in them to a check.
Search = WindowSearch | BackupSearch
