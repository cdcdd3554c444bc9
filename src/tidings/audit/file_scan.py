"""Searches one file for secrets. Opens gzip, zip and tar, also within one another, by how a file begins. Reports other
packings instead of opening them, so that a packed file never passes unseen. Which files are searched is decided by the
callers; the search itself is in `byte_search`.
"""

import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tidings.audit.byte_search import BACKUP_START, BackupSearch, Search, WindowSearch
from tidings.audit.report import CheckBuilder
from tidings.audit.secret_finder import Patterns, SecretFinder

_PIECE: Final = 1024 * 1024
_GZIP: Final = b"\x1f\x8b"
_ZIP: Final = b"PK\x03\x04"
_UNREADABLE: Final = {
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x5d\x00\x00": "lzma",
    b"\x78\x01": "zlib",
    b"\x78\x9c": "zlib",
    b"\x78\xda": "zlib",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x02\x21\x4c\x18": "lz4",
    b"\x1f\x9d": "compress",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!": "RAR",
    b"LZIP\x01": "lzip",
    b"\x89LZO": "lzop",
    b"PGDMP": "pg_dump (`pg_restore --file` makes a text of it)",
} | {bytes((0x50 + number, 0x2A, 0x4D, 0x18)): "zstd or lz4" for number in range(16)}
# An encrypted zip file raises RuntimeError.
_DAMAGE: Final = (OSError, RuntimeError, ValueError, zlib.error, zipfile.BadZipFile, tarfile.TarError)

Opener = Callable[[], AbstractContextManager[Any]]
Reporter = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackLimits:
    """How far one file is unpacked. A small file can unpack without end."""

    # Packings within one another.
    layers: int = 8
    # Bytes of a zip file inside another packing. Zip is read from its end, so it has to be in memory.
    in_memory: int = 64 * 1024 * 1024
    # Unpacked bytes of the whole file.
    total: int = 64 * 1024 * 1024 * 1024


DEFAULT_LIMITS: Final = UnpackLimits()


def scan_file(
    path: Path,
    finder: SecretFinder,
    *,
    patterns: Patterns,
    check: CheckBuilder,
    report: Reporter,
    lines: bool = True,
    limits: UnpackLimits = DEFAULT_LIMITS,
) -> None:
    """Add each secret of a file to the check, with its line or byte. `report` gets the parts that cannot be opened.

    A missing file is ignored, because logs are rotated and SQLite removes its files at any time.
    """

    def make_search(patterns: Patterns, where: str) -> WindowSearch:
        return WindowSearch(finder, patterns=patterns, check=check, where=where, lines=lines)

    def start_search(start: bytes, where: str) -> Search:
        if start.startswith(BACKUP_START):
            return BackupSearch(make_search(patterns, where), make_search(Patterns.NONE, where))
        return make_search(patterns, where)

    scan = _FileScan(start_search, report=report, warn=check.warn, limits=limits, left=limits.total)
    scan.open(partial(path.open, "rb"), str(path), layer=0)


class _Peekable:
    """A stream whose first bytes can be seen before they are read. `tee` gets everything that is read."""

    def __init__(self, source: Any, *, tee: Callable[[bytes], None]) -> None:
        self._source = source
        self._tee = tee
        self._head = b""

    def peek(self, size: int) -> bytes:
        try:
            while len(self._head) < size and (piece := self._source.read1(size)):
                self._head += piece
        except (EOFError, *_DAMAGE):
            pass  # It is raised again where reading gets there.
        return self._head[:size]

    def read1(self, size: int, /) -> bytes:
        piece: bytes = self._head[:size] or self._source.read1(size)
        self._head = self._head[size:]
        self._tee(piece)
        return piece

    def read(self, size: int, /) -> bytes:
        pieces = []
        while size > 0 and (piece := self.read1(size)):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


@dataclass(slots=True)
class _FileScan:
    """Opens one file and everything packed in it. Each content goes to a search of its own."""

    start_search: Callable[[bytes, str], Search]
    _: KW_ONLY
    # Gets the parts that cannot be opened.
    report: Reporter
    # Gets the parts that are cut off.
    warn: Reporter
    limits: UnpackLimits
    # Bytes that may still be unpacked.
    left: int

    def open(self, opener: Opener, where: str, *, layer: int) -> None:
        """Search a content, and report what is wrong with it. Raises nothing because of the content."""
        try:
            with opener() as source:
                self._open(source, where, layer=layer)
        except FileNotFoundError:
            return
        except EOFError:
            self.warn(where, "it is cut off; the part that is there was searched")
        except _DAMAGE as error:
            self.report(where, f"it cannot be opened ({getattr(error, 'strerror', None) or error})")

    def _open(self, source: Any, where: str, *, layer: int) -> None:
        stream = _Peekable(source, tee=self._spend)
        start = stream.peek(tarfile.BLOCKSIZE)
        if layer >= self.limits.layers and _is_packed(start):
            raise OSError(f"it is packed more than {self.limits.layers} times; unpack it first")
        if (packing := _find_unreadable(start)) is not None:
            raise OSError(f"it is packed with {packing}; unpack it first")
        if start.startswith(_GZIP):
            with gzip.GzipFile(fileobj=stream, mode="rb") as unpacked:  # type: ignore[call-overload]
                self._open(unpacked, where, layer=layer + 1)
        elif start.startswith(_ZIP):
            self._open_zip(source if layer == 0 else self._load(stream), where, layer=layer)
        elif _is_tar(start):
            self._open_tar(stream, where, layer=layer)
        else:
            search = self.start_search(start, where)
            _search_rest(_Peekable(stream, tee=search.feed), search)

    def _open_zip(self, body: Any, where: str, *, layer: int) -> None:
        with zipfile.ZipFile(body) as archive:
            for member in archive.infolist():
                self.open(partial(archive.open, member), f"{where} ({member.filename})", layer=layer + 1)

    def _open_tar(self, stream: _Peekable, where: str, *, layer: int) -> None:
        """Search the archive as it is, which covers names and plain members, and open its packed members."""
        search = self.start_search(b"", where)
        raw = _Peekable(stream, tee=search.feed)
        try:
            # By default, `tarfile` would stop where a second archive was appended.
            with tarfile.open(fileobj=raw, mode="r|", ignore_zeros=True) as archive:  # type: ignore[call-overload]
                for member in archive:
                    content = archive.extractfile(member) if member.isfile() else None
                    if content is not None and _is_packed(content.peek(tarfile.BLOCKSIZE)):
                        self.open(partial(nullcontext, content), f"{where} ({member.name})", layer=layer + 1)
        finally:
            _search_rest(raw, search)

    def _load(self, stream: _Peekable) -> io.BytesIO:
        most = self.limits.in_memory
        body = stream.read(most + 1)
        if len(body) > most:
            raise OSError(f"it is a zip file of more than {most:,} bytes inside another packing; unpack it first")
        return io.BytesIO(body)

    def _spend(self, piece: bytes) -> None:
        self.left -= len(piece)
        if self.left < 0:
            raise OSError(f"the file unpacks to more than {self.limits.total:,} bytes")


def _search_rest(stream: _Peekable, search: Search) -> None:
    """Read a stream, which feeds the search, to its end."""
    try:
        while stream.read1(_PIECE):
            pass
    finally:
        search.close()


def _find_unreadable(start: bytes) -> str | None:
    return next((packing for mark, packing in _UNREADABLE.items() if start.startswith(mark)), None)


def _is_packed(start: bytes) -> bool:
    return start.startswith((_GZIP, _ZIP)) or _find_unreadable(start) is not None or _is_tar(start)


def _is_tar(start: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(start[: tarfile.BLOCKSIZE], "utf-8", "replace")
    except tarfile.HeaderError:
        return False
    return True
