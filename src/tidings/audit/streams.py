"""Files of any size, a piece at a time: unpacked where they are packed, and cut so that whatever lies across two pieces
is still seen once and whole. What is looked for in them is the business of `traces`.
"""

import base64
import bz2
import gzip
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from tidings.audit.report import Notes
from tidings.audit.traces import Trace, TraceFinder

_PIECE: Final = 1024 * 1024
# The longest thing that is found whole; a blob of a backup may be as long.
_OVERLAP: Final = 64 * 1024
_BEFORE: Final = 4
# A small file can be packed so that it unpacks without end.
_MOST: Final = 64 * 1024 * 1024 * 1024
_DAMAGE: Final = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile)
_BLOB: Final = re.compile(rb'"base64":\s?"(?P<value>[A-Za-z0-9+/=]*)"')
_ZIP: Final = b"PK\x03\x04"
_PACKED: Final[dict[bytes, Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
# Packed in ways that Python cannot read.
_CLOSED: Final = {b"\x28\xb5\x2f\xfd": "zstd", b"7z\xbc\xaf\x27\x1c": "7-Zip", b"Rar!": "RAR"}


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of a stream. What begins from `first` on and before `last` belongs to it, and not to its neighbours."""

    data: bytes
    first: int
    last: int


def read_windows(stream: IO[bytes]) -> Iterator[Window]:
    """The whole stream; every position belongs to exactly one window, which shows what follows it, too.

    Of a damaged one all that can be read comes first, then the error.
    """
    kept, first, done, trouble = b"", 0, 0, None
    while trouble is None:
        piece, trouble = _read_piece(stream)
        if not piece:
            break
        data = kept + piece
        last = max(len(data) - _OVERLAP, first)
        if last > first:
            yield Window(data, first, last)
        start = max(last - _BEFORE, 0)
        kept, first = data[start:], last - start
        done += len(piece)
        if done > _MOST:
            raise OSError(f"it unpacks to more than {_MOST >> 30} GB")
    if kept:
        yield Window(kept, first, len(kept))
    if trouble is not None:
        raise trouble


def _read_piece(stream: Any) -> tuple[bytes, Exception | None]:
    """The next bytes, and why there are no more. What comes before a damage is not lost with it."""
    pieces: list[bytes] = []
    size = 0
    while size < _PIECE:
        try:
            piece = stream.read1(_PIECE - size)
        except _DAMAGE as error:
            return b"".join(pieces), error
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces), None


def scan_file(path: Path, finder: TraceFinder, *, strict: bool, notes: Notes, lines: bool = True) -> str | None:
    """Look for secrets in a file, also in a packed one. Returns why it could not be looked into, where that is so.

    A file that is no longer there is nothing: logs are rotated, and SQLite's are removed, at any moment.
    """
    try:
        with path.open("rb") as file:
            for name, stream in _open_layers(file):
                _scan_stream(stream, finder, strict=strict, notes=notes, where=f"{path}{name}", lines=lines)
    except FileNotFoundError:
        return None
    except EOFError:
        notes.warn(path, "the file is cut off; what there is of it was looked at")
    except (OSError, RuntimeError, *_DAMAGE) as error:
        # A zip file with a password is a RuntimeError, and one of an unknown method a kind of it.
        return f"it cannot be looked into ({getattr(error, 'strerror', None) or error})"
    return None


def _open_layers(file: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    """The contents of a file: the file itself, what is packed in it, or each member of an archive."""
    start = file.read(8)
    file.seek(0)
    for magic, program in _CLOSED.items():
        if start.startswith(magic):
            raise OSError(f"it is packed with {program}; unpack it first")
    if start.startswith(_ZIP):
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                with archive.open(member) as stream:
                    yield f" ({member.filename})", stream
        return
    unpack = next((each for magic, each in _PACKED.items() if start.startswith(magic)), None)
    if unpack is None:
        yield "", file
        return
    with unpack(file) as stream:
        yield "", stream


def _scan_stream(
    stream: IO[bytes], finder: TraceFinder, *, strict: bool, notes: Notes, where: str, lines: bool
) -> None:
    passed, line = 0, 1
    for window in read_windows(stream):
        for trace in _find_in_window(window, finder, strict=strict):
            number = line + window.data.count(b"\n", window.first, trace.position)
            at = f"line {number:,}" if lines else f"byte {passed + trace.position - window.first:,}"
            notes.find(f"{where}, {at}", trace.what)
        line += window.data.count(b"\n", window.first, window.last)
        passed += window.last - window.first


def _find_in_window(window: Window, finder: TraceFinder, *, strict: bool) -> Iterator[Trace]:
    for trace in finder.find(window.data, strict=strict):
        if window.first <= trace.position < window.last:
            yield trace
    if b'"base64"' in window.data:
        for match in _BLOB.finditer(window.data):
            if window.first <= match.start() < window.last:
                yield from (Trace(match.start(), each.what) for each in _find_in_blob(match["value"], finder))


def _find_in_blob(value: bytes, finder: TraceFinder) -> Iterator[Trace]:
    """What a backup holds of a column of bytes."""
    try:
        blob = base64.b64decode(value, validate=True)
    except ValueError:
        return
    yield from finder.find(blob, strict=True)
