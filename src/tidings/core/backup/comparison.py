"""Compares two sets of rows without holding either: what a file has, and what a database gives back.

Databases sort texts differently, so the order of rows does not count. Each row becomes a digest, and a table the sum of
them: one row that is missing, doubled or changed in one value changes the sum.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from tidings.core.backup.file import encode_row


class RowSum:
    """The sum over the rows of one table."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            digest = hashlib.blake2b(encode_row(row), digest_size=16).digest()
            self._sum = (self._sum + int.from_bytes(digest)) % (1 << 128)
            self.rows += 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowSum) and (self.rows, self._sum) == (other.rows, other._sum)

    __hash__ = None  # type: ignore[assignment]
