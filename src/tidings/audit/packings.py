"""Ways to pack one stream, known by how it begins, and how each is read: gzip, bzip2 and xz; .lzma and zlib, whose
marks are too short to be believed alone; and those that Python cannot read, with what to do about them. Archives of
several files, and packings within one another, are the business of `archives`.

    Exception
    └── ValueError
        └── DamagedError    what is packed cannot be read any further
"""

import bz2
import gzip
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

_PIECE: Final = 64 * 1024
# Bytes that are not packed come this far by chance once in thousands of times, and only after the right mark.
_ENOUGH: Final = 256
# More than any program that packs asks for; what only looks like xz could ask for all there is.
_MOST_MEMORY: Final = 2 * 1024 * 1024 * 1024
_ZLIB_METHOD: Final = 8
_ZLIB_DICTIONARY: Final = 0x20
_CLOSED: Final = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x02\x21\x4c\x18": "lz4",
    b"\x1f\x9d": "compress",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!": "RAR",
    b"LZIP\x01": "lzip",
    b"\x89LZO\x00\r\n\x1a\n": "lzop",
} | {bytes((0x50 + number, 0x2A, 0x4D, 0x18)): "zstd or lz4" for number in range(16)}
_POSTGRESQL: Final = b"PGDMP"
# The table of contents of a dump as a folder or a tar archive: the rows are in files beside it.
_CONTENTS_ALONE: Final = (b"\x03", b"\x05")


class DamagedError(ValueError):
    """What is packed cannot be read any further."""


class Source(Protocol):
    """What can be read from its beginning to its end."""

    def read1(self, size: int, /) -> bytes:
        """The next bytes, up to so many; none at the end."""


# Of zip files, too: their members are packed in the same ways.
DAMAGE: Final = (
    EOFError,
    DamagedError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    struct.error,
)


def read_piece(stream: Source, size: int) -> tuple[bytes, Exception | None]:
    """The next so many bytes, and why there are no more. What comes before a damage is not lost with it."""
    pieces: list[bytes] = []
    while size > 0:
        try:
            piece = stream.read1(size)
        except DAMAGE as error:
            return b"".join(pieces), error
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces), None


@dataclass(frozen=True, slots=True)
class Packing:
    """How a stream is opened that is packed. Where it is not `certain` that it is, it may be something else as well."""

    unpack: Callable[[Any], Any]
    certain: bool = True


def find_packing(start: bytes) -> Packing | None:
    """How a stream that begins like this is packed; None for one that is not, or not in a way that can be read."""
    for mark, packing in _PACKINGS.items():
        if start.startswith(mark):
            return packing
    return next((packing for seems, packing in _LIKELY.items() if seems(start)), None)


def find_obstacle(start: bytes) -> str | None:
    """Why what begins like this is not looked into, and what to do; None where nothing is in the way."""
    if start.startswith(_POSTGRESQL) and not start.startswith(_CONTENTS_ALONE, 10):
        return "it is a dump of PostgreSQL in its custom format; make a text of it with `pg_restore --file` first"
    program = next((program for mark, program in _CLOSED.items() if start.startswith(mark)), None)
    return None if program is None else f"it is packed with {program}; unpack it first"


class _Inflater:
    """zlib in the manner of `bz2` and `lzma`."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj()

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


class _Unpacked(io.RawIOBase):
    """What is packed in a stream, also several times one after the other. Unlike those of `bz2` and `lzma`, it does not
    keep quiet about something else that follows."""

    def __init__(self, packed: Any, make: Callable[[], Any]) -> None:
        self._packed = packed
        self._make = make
        self._machine = make()
        self._waiting = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def _read(self, size: int) -> bytes:
        while not self._machine.eof or self._begin_next():
            given = self._take() if self._machine.needs_input else b""
            hungry = self._machine.needs_input and not given
            if piece := self._decompress(given, size):
                return piece
            if hungry and not self._machine.eof:
                raise EOFError("it is cut off")
        return b""

    def _begin_next(self) -> bool:
        """Whether something follows. Between the two may be zeros, which fill a block."""
        rest = self._machine.unused_data.lstrip(b"\0")
        while not rest and (piece := self._packed.read(_PIECE)):
            rest = piece.lstrip(b"\0")
        if rest:
            self._machine, self._waiting = self._make(), rest
        return bool(rest)

    def _take(self) -> bytes:
        given, self._waiting = self._waiting or self._packed.read(_PIECE), b""
        return bytes(given)

    def _decompress(self, given: bytes, size: int) -> bytes:
        try:
            return bytes(self._machine.decompress(given, size))
        except (OSError, lzma.LZMAError, zlib.error) as error:
            raise DamagedError(str(error)) from None


def _unpack_with(make: Callable[[], Any]) -> Callable[[Any], io.BufferedReader]:
    return lambda packed: io.BufferedReader(_Unpacked(packed, make), _PIECE)


def _make_lzma() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=_MOST_MEMORY)


def _seems_zlib(start: bytes) -> bool:
    if len(start) < 2 or start[0] & 0x0F != _ZLIB_METHOD or start[1] & _ZLIB_DICTIONARY:
        return False
    if int.from_bytes(start[:2], "big") % 31 != 0:
        return False
    machine = _Inflater()
    size = _try_to_unpack(machine, start)
    # Its end is a checksum.
    return size >= _ENOUGH or (size > 0 and machine.eof)


def _seems_lzma(start: bytes) -> bool:
    machine = _make_lzma()
    size = _try_to_unpack(machine, start)
    return size >= _ENOUGH or (size > 0 and machine.eof and not machine.unused_data)


def _try_to_unpack(machine: Any, start: bytes) -> int:
    try:
        return len(machine.decompress(start, _PIECE))
    except (lzma.LZMAError, zlib.error):
        return 0


_PACKINGS: Final = {
    b"\x1f\x8b": Packing(gzip.open),
    b"BZh": Packing(_unpack_with(bz2.BZ2Decompressor)),
    b"\xfd7zXZ\x00": Packing(_unpack_with(_make_lzma)),
}
_LIKELY: Final = {
    _seems_zlib: Packing(_unpack_with(_Inflater), certain=False),
    _seems_lzma: Packing(_unpack_with(_make_lzma), certain=False),
}
