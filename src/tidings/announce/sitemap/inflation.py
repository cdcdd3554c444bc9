"""Undoing gzip and deflate: at most one transport coding and one gzip file, piece by piece, up to a limit.

Here lives everything about compressed bytes: which layers a body has, where it stops being read, what counts as
damaged. Several gzip members in a row are one file, zeros after the last are padding. Anything else after it is
refused: it may be a member whose header was damaged, and pages that it listed would look removed. What the bytes mean
is not known here.
"""

import zlib
from collections.abc import Iterator
from typing import Protocol

from tidings.announce.sitemap.content import RefusedSitemapError

PIECE = 65_536
"""The most bytes that are handed on at once, so that a bomb is noticed before it is in memory."""

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31
_ZLIB_WINDOW = 15
_RAW_WINDOW = -15
# Each member costs a new decompressor: a file of nothing but empty members would keep the CPU busy for minutes.
_MAX_MEMBERS = 10_000


class Layer(Protocol):
    """One coding of a body, undone."""

    def inflate(self, data: bytes) -> Iterator[bytes]:
        """Yield what `data` stands for, in pieces. Raises RefusedSitemapError."""

    def finish(self) -> None:
        """Raise RefusedSitemapError if the end is missing."""


class Meter:
    """Counts bytes and refuses those beyond the limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    def add(self, count: int) -> None:
        self._count += count
        if self._count > self._limit:
            raise RefusedSitemapError(f"larger than {self._limit} bytes")


class Identity:
    """No coding at all: the bytes are only counted."""

    def __init__(self, limit: int) -> None:
        self._size = Meter(limit)

    def inflate(self, data: bytes) -> Iterator[bytes]:
        self._size.add(len(data))
        yield data

    def finish(self) -> None:
        """Nothing can be missing."""


class Gzip:
    """A gzip file of one or more members. The limit holds for the file as well as for what is in it."""

    def __init__(self, limit: int) -> None:
        self._packed, self._size = Meter(limit), Meter(limit)
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        self._members = 1

    def inflate(self, data: bytes) -> Iterator[bytes]:
        self._packed.add(len(data))
        while data:
            if self._member.eof:
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._open_member()
            for piece in _decompress(self._member, data):
                self._size.add(len(piece))
                yield piece
            data = self._member.unused_data

    def finish(self) -> None:
        if not self._member.eof:
            raise RefusedSitemapError("truncated gzip")

    def _open_member(self) -> None:
        self._members += 1
        if self._members > _MAX_MEMBERS:
            raise RefusedSitemapError(f"gzip of more than {_MAX_MEMBERS} members")
        self._member = zlib.decompressobj(_GZIP_WINDOW)


class Deflate:
    """The transport coding `deflate`: zlib as the standard says, or the bare stream that some servers send."""

    def __init__(self, limit: int) -> None:
        self._packed, self._size = Meter(limit), Meter(limit)
        self._start = b""
        self._stream = zlib.decompressobj(_ZLIB_WINDOW)
        self._opened = False

    def inflate(self, data: bytes) -> Iterator[bytes]:
        self._packed.add(len(data))
        if not self._opened:
            self._start += data
            if len(self._start) < 2:
                return
            data, self._opened = self._start, True
            if data[0] & 15 != 8 or int.from_bytes(data[:2], "big") % 31:
                self._stream = zlib.decompressobj(_RAW_WINDOW)
        if not self._stream.eof:
            for piece in _decompress(self._stream, data):
                self._size.add(len(piece))
                yield piece
            data = self._stream.unused_data
        if self._stream.eof and data.strip(b"\0"):
            raise RefusedSitemapError("corrupt deflate: more bytes after its end")

    def finish(self) -> None:
        if not self._stream.eof:
            raise RefusedSitemapError("truncated deflate")


class Unpacker:
    """All layers of one body: the transport coding that the server named, then gzip if the bytes begin like it."""

    def __init__(self, content_encoding: str | None, *, limit: int) -> None:
        self._limit = limit
        self._transport = _open_transport(content_encoding, limit=limit)
        self._file: Layer | None = None
        self._start = b""
        self._inner_start = b""

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """Yield the bare body in pieces. Raises RefusedSitemapError."""
        # zlib copies what it has not used at every call: cutting first keeps that linear for a large `data`.
        for start in range(0, len(data), PIECE):
            for piece in self._transport.inflate(data[start : start + PIECE]):
                yield from self._unpack_file(piece)

    def finish(self) -> Iterator[bytes]:
        """Yield the rest. Raises RefusedSitemapError if a layer has no end."""
        self._transport.finish()
        if self._file is None:
            yield from Identity(self._limit).inflate(self._start)
        else:
            self._file.finish()

    def _unpack_file(self, data: bytes) -> Iterator[bytes]:
        if self._file is None:
            self._start += data
            if len(self._start) < len(_GZIP_MAGIC):
                return
            data, self._start = self._start, b""
            self._file = (Gzip if data.startswith(_GZIP_MAGIC) else Identity)(self._limit)
        for piece in self._file.inflate(data):
            self._refuse_third_layer(piece)
            yield piece

    def _refuse_third_layer(self, piece: bytes) -> None:
        if len(self._inner_start) < len(_GZIP_MAGIC):
            self._inner_start += piece[: len(_GZIP_MAGIC)]
            if self._inner_start.startswith(_GZIP_MAGIC):
                raise RefusedSitemapError("gzip in gzip")


def _open_transport(content_encoding: str | None, *, limit: int) -> Layer:
    match (content_encoding or "").strip().lower():
        case "" | "identity":
            return Identity(limit)
        case "gzip" | "x-gzip":
            return Gzip(limit)
        case "deflate":
            return Deflate(limit)
        case other:
            raise RefusedSitemapError(f"content encoding {other[:40]!r} is not understood")


def _decompress(stream: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
    while True:
        try:
            piece = stream.decompress(data, PIECE)
        except zlib.error as error:
            raise RefusedSitemapError(f"corrupt gzip or deflate: {error}") from None
        yield piece
        data = stream.unconsumed_tail
        if stream.eof or len(piece) < PIECE:
            return
