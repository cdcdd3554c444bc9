"""A backup as a file: gzip, with one JSON value a line. `backup` decides which rows go into it, and restores them.

    {"tidings": "backup", "format": 1, "release": …, "revision": …, "made_at": …, "tables": {"sites": ["number", …], …}}
    {"table": "sites", "rows": 2}
    [1, "example.com", …, {"base64": "…"}]
    [2, "example.org", …, null]
    …
    {"rows": {"sites": 2, …}, "counters": {"sites": 2, …}, "sha256": "…"}

The checksum is over everything before the last line, so a file that was cut off or altered anywhere is no backup.

    BackupError
    ├── DamagedBackupError    not a backup, or not all of one
    ├── NewerBackupError      made by a newer release
    └── (backup)
"""

import base64
import fcntl
import glob
import gzip
import hashlib
import io
import json
import os
import secrets
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from tidings.core.clock import parse_timestamp, to_text
from tidings.core.secrets.master_key import sync_directory

FORMAT: Final = 1

_MOST_TOGETHER: Final = 10_000
_LONGEST_HEADER: Final = 1024 * 1024
# A backup consists mostly of hashes, which do not compress.
_EFFORT: Final = 3


class BackupError(Exception):
    """A backup cannot be made or restored; the message is one line, and nothing was changed."""


class DamagedBackupError(BackupError):
    """The file is not a backup, or not all of one."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the file is not a complete backup ({reason}); nothing was changed")


class NewerBackupError(BackupError):
    """The backup was made by a newer release."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the backup is of {what}, which this release does not know; use the newer release")


@dataclass(frozen=True, slots=True)
class Header:
    """The first line. `tables` has the columns of each table, in the order of its rows' values."""

    release: str
    revision: str
    made_at: datetime
    tables: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Totals:
    """The last line: the number of rows of each table, and the highest row id that each table with ids has used."""

    rows: Mapping[str, int]
    counters: Mapping[str, int]

    @property
    def all_rows(self) -> int:
        return sum(self.rows.values())


class BackupWriter:
    """Writes the lines. A backup is complete once `finish` was called."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._rows: Counter[str] = Counter()

    def begin(self, header: Header) -> None:
        self._rows.update(dict.fromkeys(header.tables, 0))
        self._write(
            {
                "tidings": "backup",
                "format": FORMAT,
                "release": header.release,
                "revision": header.revision,
                "made_at": to_text(header.made_at),
                "tables": header.tables,
            }
        )

    def write_rows(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        self._rows[table] += len(rows)
        self._write({"table": table, "rows": len(rows)}, *map(list, rows))

    def finish(self, counters: Mapping[str, int]) -> Totals:
        self._write({"rows": self._rows, "counters": counters, "sha256": self._digest.hexdigest()})
        return Totals(dict(self._rows), dict(counters))

    def _write(self, *values: object) -> None:
        lines = "".join(f"{_encode(value)}\n" for value in values).encode()
        self._digest.update(lines)
        self._file.write(lines)


@contextmanager
def create_backup(path: Path) -> Iterator[BackupWriter]:
    """A backup that gets its name when the block has succeeded, complete and synced to disk; its mode is 0600.

    Until then, an older file of this name stays as it is. Raises BackupError and OSError.
    """
    path = path.resolve()
    _check_replaceable(path)
    _remove_leftovers(path)
    draft, descriptor = _create_draft(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            # The umask may have removed the owner's rights, too.
            os.fchmod(descriptor, 0o600)
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_EFFORT) as packed:
                yield BackupWriter(packed)
            file.flush()
            os.fsync(descriptor)
            # While the lock is held: another backup removes a draft without one.
            draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _create_draft(path: Path) -> tuple[Path, int]:
    """A new locked file beside the backup, which keeps it from other backups of this name."""
    while True:
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Another backup may have removed it before it was locked.
            if os.fstat(descriptor).st_nlink:
                return draft, descriptor
        except BaseException:
            os.close(descriptor)
            draft.unlink(missing_ok=True)
            raise
        os.close(descriptor)


def _check_replaceable(path: Path) -> None:
    """Only a backup is replaced: the user may have typed the name of the database, or of a key."""
    if not path.exists() or (path.is_file() and path.stat().st_size == 0):
        return
    try:
        with open_backup(path):
            pass
    except NewerBackupError:
        pass
    except (DamagedBackupError, IsADirectoryError):
        raise BackupError(f"{path} is there already and is not a backup; name another file") from None


def _remove_leftovers(path: Path) -> None:
    """Delete temporary files that killed backups of this name left. A file that is still being written is locked."""
    for draft in path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 8}.part"):
        with suppress(OSError), draft.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()


class BackupReader:
    """An open backup. Each pass over its rows checks it, and raises DamagedBackupError if it is not whole."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self.header = _parse_header(next(self._lines()))
        self._totals: Totals | None = None

    def check(self, on_progress: Callable[[int, int], None] = lambda done, size: None) -> Totals:
        """Read the whole file and check it, unless that was done before. `on_progress` gets the bytes read and the
        total."""
        if self._totals is None:
            for _ in self.batches():
                on_progress(self._file.tell(), self._size)
        assert self._totals is not None  # noqa: S101 - the last line set it, or the loop has raised
        return self._totals

    def batches(self) -> Iterator[tuple[str, list[bytes]]]:
        """All rows in batches: the table, and its lines for `decode_row`."""
        lines = self._lines()
        digest = hashlib.sha256(next(lines))
        counts = Counter(dict.fromkeys(self.header.tables, 0))
        for line in lines:
            document = _parse(line)
            if "sha256" in document:
                self._totals = _parse_totals(document, digest=digest.hexdigest(), counts=counts)
                break
            table, count = _parse_batch(document, known=self.header.tables)
            rows = list(islice(lines, count))
            digest.update(line + b"".join(rows))
            counts[table] += len(rows)
            yield table, rows
        else:
            raise DamagedBackupError("its end is missing")
        if next(lines, None) is not None:
            raise DamagedBackupError("something follows its end")

    def _lines(self) -> Iterator[bytes]:
        self._file.seek(0)
        try:
            with gzip.GzipFile(fileobj=self._file, mode="rb") as packed:
                lines = io.BufferedReader(packed)
                yield lines.readline(_LONGEST_HEADER)
                yield from lines
        except EOFError:
            raise DamagedBackupError("it was cut off") from None
        except gzip.BadGzipFile as error:
            is_other = str(error).startswith("Not a gzipped file")
            raise DamagedBackupError("it is not gzip" if is_other else "its checksum is another one") from None
        except zlib.error:
            raise DamagedBackupError("its packed bytes are damaged") from None


@contextmanager
def open_backup(path: Path) -> Iterator[BackupReader]:
    """Open a backup and read only its first line. Raises BackupError and OSError."""
    with path.open("rb") as file:
        yield BackupReader(file)


def encode_row(values: Sequence[Any]) -> bytes:
    """The line of a row. Raises TypeError for a value that a backup cannot hold."""
    return f"{_encode(list(values))}\n".encode()


def decode_row(line: bytes, *, width: int) -> list[Any]:
    """The values of a row, as the database takes them. Raises DamagedBackupError."""
    try:
        values = [base64.b64decode(each["base64"]) if type(each) is dict else each for each in json.loads(line)]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DamagedBackupError("a row that cannot be read") from None
    if len(values) != width:
        raise DamagedBackupError("a row of another width")
    return values


class RowSum:
    """The sum over the rows of one table, by which two sets of rows are compared without holding either.

    Databases sort texts differently, so the order of rows does not count. Each row becomes a digest: one row that is
    missing, doubled or changed in one value changes the sum.
    """

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


def _encode_blob(value: object) -> dict[str, str]:
    if not isinstance(value, bytes):
        raise TypeError(f"a backup cannot hold {type(value).__name__}")
    return {"base64": base64.b64encode(value).decode()}


# Made once: json.dumps would make one for each row.
_encode = json.JSONEncoder(separators=(",", ":"), default=_encode_blob).encode


def _parse(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        raise DamagedBackupError("a line that is not JSON") from None
    if not isinstance(document, dict):
        raise DamagedBackupError("a line that is not an object")
    return document


def _parse_header(line: bytes) -> Header:
    document = _parse(line)
    if document.get("tidings") != "backup":
        raise DamagedBackupError("another program's file")
    try:
        if document["format"] > FORMAT:
            raise NewerBackupError(f"format {document['format']}")
        made_at = parse_timestamp(document["made_at"])
        tables = {str(name): list(map(str, columns)) for name, columns in document["tables"].items()}
        revision, release = str(document["revision"]), str(document["release"])
    except (KeyError, TypeError, AttributeError):
        raise DamagedBackupError("its first line") from None
    if made_at is None:
        raise DamagedBackupError("its first line")
    return Header(release, revision, made_at, tables)


def _parse_batch(document: Mapping[str, Any], *, known: Collection[str]) -> tuple[str, int]:
    table, count = document.get("table"), document.get("rows")
    if table not in known or not isinstance(count, int) or not 0 < count <= _MOST_TOGETHER:
        raise DamagedBackupError("rows of an unknown kind")
    return str(table), count


def _parse_totals(document: Mapping[str, Any], *, digest: str, counts: Mapping[str, int]) -> Totals:
    if document["sha256"] != digest:
        raise DamagedBackupError("its checksum is another one")
    if document.get("rows") != counts or not isinstance(counters := document.get("counters"), dict):
        raise DamagedBackupError("rows are missing")
    return Totals(dict(counts), counters)
