"""Files of any size, a piece at a time, cut so that whatever lies across two pieces is still seen once and whole. They
are unpacked by `archives`, and what is looked for in them is the business of `traces`.
"""

import base64
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidings.audit.archives import DEFAULT_BOUNDS, Bounds, Unpacker
from tidings.audit.packings import Source, read_piece
from tidings.audit.report import Notes
from tidings.audit.traces import Trace, TraceFinder

_PIECE: Final = 1024 * 1024
# The longest thing that is found whole; a blob of a backup may be as long.
_OVERLAP: Final = 64 * 1024
_BEFORE: Final = 4
_BLOB: Final = re.compile(rb'"base64":\s?"(?P<value>[A-Za-z0-9+/=]*)"')


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of a stream. What begins from `first` on and before `last` belongs to it, and not to its neighbours."""

    data: bytes
    first: int
    last: int


def read_windows(stream: Source) -> Iterator[Window]:
    """The whole stream; every position belongs to exactly one window, which shows what follows it, too.

    Of a damaged one all that can be read comes first, then the error.
    """
    kept, first, trouble = b"", 0, None
    while trouble is None:
        piece, trouble = read_piece(stream, _PIECE)
        if not piece:
            break
        data = kept + piece
        last = max(len(data) - _OVERLAP, first)
        if last > first:
            yield Window(data, first, last)
        start = max(last - _BEFORE, 0)
        kept, first = data[start:], last - start
    if kept:
        yield Window(kept, first, len(kept))
    if trouble is not None:
        raise trouble


def scan_file(
    path: Path,
    finder: TraceFinder,
    *,
    strict: bool,
    notes: Notes,
    report: Callable[[str, str], None],
    lines: bool = True,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> None:
    """Look for secrets in a file, also in a packed one. `report` is told what could not be looked into, and why.

    A file that is no longer there is nothing: logs are rotated, and SQLite's are removed, at any moment.
    """

    def visit(stream: Source, where: str) -> None:
        _scan_stream(stream, finder, strict=strict, notes=notes, where=where, lines=lines)

    try:
        with path.open("rb") as file:
            Unpacker(visit=visit, report=report, warn=notes.warn, bounds=bounds).unpack(file, where=str(path))
    except FileNotFoundError:
        return
    except OSError as error:
        report(str(path), f"it cannot be looked into ({error.strerror})")


def _scan_stream(stream: Source, finder: TraceFinder, *, strict: bool, notes: Notes, where: str, lines: bool) -> None:
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
