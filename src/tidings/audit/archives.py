"""What is packed in a file, down to the last layer: the packings of `packings`, zip and tar, and these within one
another. Every content is handed to a visitor; what cannot be opened, or is too deep or too large to be, is told to a
reporter and never passed over. What is looked for in a content is the business of `streams`.

A zip file is known by its end as well, since a program or another file may stand before it. Whatever else begins in the
midst of other bytes is not looked for.

A layer is opened anew each time it is read, so that none has to be kept; only a zip file within something else, and
what is packed within a tar archive, have to be in memory whole.
"""

import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import IO, Any, Final

from tidings.audit.packings import DAMAGE, Packing, Source, find_obstacle, find_packing, read_piece

_BLOCK: Final = tarfile.BLOCKSIZE
_PIECE: Final = 1024 * 1024
_ZIP: Final = b"PK\x03\x04"
_ZIP_END: Final = struct.Struct("<4s4H2LH")
_ZIP_END_MARK: Final = b"PK\x05\x06"
_ZIP_ENTRY: Final = 46
# The end of a zip file with the longest comment.
_TAIL: Final = _ZIP_END.size + 0xFFFF
# In a tar archive these are a header and nothing else, whatever size it names.
_WITHOUT_DATA: Final = frozenset(
    (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)
)

Opener = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far a file is unpacked: so many layers, so many bytes of one that has to be in memory, and so many in all. A
    small file can be packed so that it unpacks without end."""

    layers: int = 8
    in_memory: int = 64 * 1024 * 1024
    in_all: int = 64 * 1024 * 1024 * 1024


DEFAULT_BOUNDS: Final = Bounds()


class _Metered:
    """A stream of which every byte counts towards the bounds, and the last ones are kept."""

    def __init__(self, stream: Any, *, spend: Callable[[int], None]) -> None:
        self._stream = stream
        self._spend = spend
        self.tail = b""

    def read1(self, size: int, /) -> bytes:
        piece: bytes = self._stream.read1(size)
        self._spend(len(piece))
        self.tail = _keep_tail(self.tail, piece)
        return piece


class Unpacker:
    """Goes through one file. `visit` gets each content and where it is; `report` where something is that could not be
    looked into, and why; `warn` the same where only the end is missing."""

    def __init__(
        self,
        *,
        visit: Callable[[Source, str], None],
        report: Callable[[str, str], None],
        warn: Callable[[str, str], None],
        bounds: Bounds = DEFAULT_BOUNDS,
    ) -> None:
        self._visit = visit
        self._report = report
        self._warn = warn
        self._bounds = bounds
        self._left = bounds.in_all

    def unpack(self, file: IO[bytes], *, where: str) -> None:
        """Visit all that is in a file. Raises nothing for what the file holds."""
        self._try(where, partial(self._look_into, partial(_rewind, file), where, layer=0))

    def _try(self, where: str, look: Callable[[], None]) -> None:
        try:
            look()
        except EOFError:
            self._warn(where, "the file is cut off; what there is of it was looked at")
        except (OSError, RuntimeError, ValueError, *DAMAGE) as error:
            # A zip file with a password is a RuntimeError, and one of an unknown method a kind of it.
            self._report(where, f"it cannot be looked into ({getattr(error, 'strerror', None) or error})")

    def _look_into(self, opener: Opener, where: str, *, layer: int) -> None:
        self._spend(0)
        with opener() as stream:
            start, _ = read_piece(stream, _BLOCK)
        if layer >= self._bounds.layers and _is_packed(start):
            raise self._too_deep()
        if (obstacle := find_obstacle(start)) is not None:
            raise OSError(obstacle)
        if start.startswith(_ZIP):
            self._look_into_zip(opener, where, layer=layer)
        elif _read_header(start) is not None:
            self._look_into_tar(opener, where, layer=layer)
        elif (packing := find_packing(start)) is not None:
            self._look_into_packed(opener, packing, where, layer=layer)
        elif _ends_zip(self._look_at(opener, where)):
            if layer >= self._bounds.layers:
                raise self._too_deep()
            self._look_into_zip(opener, where, layer=layer)

    def _too_deep(self) -> OSError:
        return OSError(f"it is packed more than {self._bounds.layers} times over; unpack it first")

    def _look_at(self, opener: Opener, where: str) -> bytes:
        """Have the content visited, and tell how it ends."""
        with opener() as stream:
            metered = _Metered(stream, spend=self._spend)
            self._visit(metered, where)
        return metered.tail

    def _look_into_packed(self, opener: Opener, packing: Packing, where: str, *, layer: int) -> None:
        if not packing.certain:
            self._look_at(opener, where)
        self._look_into(partial(_open_packed, opener, packing.unpack), where, layer=layer + 1)

    def _look_into_zip(self, opener: Opener, where: str, *, layer: int) -> None:
        """Each member, and what is before the first one: that may be packed as well, such as another zip file."""
        with opener() as stream:
            body = stream if layer == 0 else BytesIO(self._load(stream))
            with zipfile.ZipFile(body) as archive:
                members = archive.infolist()
                if before := min((member.header_offset for member in members), default=0):
                    start = partial(_open_start, body, before)
                    self._try(where, partial(self._look_into, start, where, layer=layer + 1))
                for member in members:
                    name = f"{where} ({member.filename})"
                    self._try(name, partial(self._look_into, partial(archive.open, member), name, layer=layer + 1))

    def _look_into_tar(self, opener: Opener, where: str, *, layer: int) -> None:
        """Each member that is packed; and the archive as it is, with names, gaps and all, for the others. It is this
        second reading that tells of a damage."""
        try:
            with opener() as stream:
                for name, part in _list_parts(stream):
                    inner = f"{where} ({name})"
                    self._try(inner, partial(self._look_into_part, part, inner, layer=layer + 1))
        finally:
            self._look_at(opener, where)

    def _look_into_part(self, part: "_Part", where: str, *, layer: int) -> None:
        start, _ = read_piece(part, _BLOCK)
        if _is_packed(start):
            body = self._load(part, start=start)
            self._look_into(lambda: BytesIO(body), where, layer=layer)
        elif _ends_zip(_read_tail(part, start)):
            raise OSError("a zip file stands behind something else in it; unpack it first")

    def _load(self, stream: Source, *, start: bytes = b"") -> bytes:
        most = self._bounds.in_memory
        body = start + read_piece(stream, most + 1 - len(start))[0]
        self._spend(len(body))
        if len(body) > most:
            raise OSError(f"packed within something else, it has more than {most:,} bytes; unpack it first")
        return body

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise OSError(f"the file unpacks to more than {self._bounds.in_all:,} bytes")


class _Part:
    """The next so many bytes of a stream."""

    def __init__(self, stream: Source, *, size: int) -> None:
        self._stream = stream
        self._left = size

    def read1(self, size: int, /) -> bytes:
        piece = self._stream.read1(min(size, self._left)) if self._left else b""
        self._left -= len(piece)
        return piece

    def read(self, size: int, /) -> bytes:
        return read_piece(self, size)[0]


@contextmanager
def _rewind(file: IO[bytes]) -> Iterator[Any]:
    file.seek(0)
    yield file


@contextmanager
def _open_start(file: Any, size: int) -> Iterator[Any]:
    file.seek(0)
    yield _Part(file, size=size)


@contextmanager
def _open_packed(opener: Opener, unpack: Any) -> Iterator[Any]:
    with opener() as packed, unpack(packed) as stream:
        yield stream


def _list_parts(stream: Source) -> Iterator[tuple[str, _Part]]:
    """The members of a tar archive, each to be read before the next. Unlike `tarfile`, it goes on after a block that is
    no header, since another archive may follow there, and keeps no header in memory, however long it says it is."""
    while block := read_piece(stream, _BLOCK)[0]:
        header = _read_header(block)
        if header is None or header.type in _WITHOUT_DATA:
            continue
        part = _Part(stream, size=max(header.size, 0))
        yield header.name, part
        while read_piece(part, _PIECE)[0]:
            pass
        read_piece(stream, -max(header.size, 0) % _BLOCK)


def _read_header(block: bytes) -> tarfile.TarInfo | None:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "replace")
    except tarfile.HeaderError:
        return None


def _is_packed(start: bytes) -> bool:
    if start.startswith(_ZIP) or find_obstacle(start) is not None:
        return True
    return _read_header(start) is not None or find_packing(start) is not None


def _keep_tail(tail: bytes, piece: bytes) -> bytes:
    return piece[-_TAIL:] if len(piece) >= _TAIL else (tail + piece)[-_TAIL:]


def _read_tail(stream: Source, tail: bytes) -> bytes:
    while piece := read_piece(stream, _PIECE)[0]:
        tail = _keep_tail(tail, piece)
    return tail


def _ends_zip(tail: bytes) -> bool:
    """Whether this is the end of a zip file that has something in it. The mark alone could be in any text."""
    position = tail.rfind(_ZIP_END_MARK)
    if position < 0 or len(tail) - position < _ZIP_END.size:
        return False
    _, disk, first_disk, here, entries, size, _, comment = _ZIP_END.unpack_from(tail, position)
    fits = size >= entries * _ZIP_ENTRY and comment <= len(tail) - position - _ZIP_END.size
    return bool(disk == first_disk and here == entries > 0 and fits)
