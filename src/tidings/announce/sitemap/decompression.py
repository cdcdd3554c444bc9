"""Decodes gzip and deflate: at most one transport coding and one gzip file, piece by piece, up to a size limit.

Several gzip members in a row are one file, and zeros after the last are padding. Other bytes after it refuse the file:
they may be a member with a damaged header, and its pages would look removed.
"""

import zlib
from collections.abc import Iterator

from tidings.announce.sitemap.body import RefusedSitemapError

PIECE = 131_072
"""The most bytes per piece, so that a bomb is noticed before it is in memory."""

_GZIP_MAGIC = b"\x1f\x8b"
_RAW_WINDOW = -15
# Each member needs a new decompressor, so a file of empty members would keep the CPU busy for minutes.
_MAX_MEMBERS = 10_000


class SizeLimit:
    """Counts bytes. Raises RefusedSitemapError beyond the limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    def add(self, count: int) -> None:
        self._count += count
        if self._count > self._limit:
            raise RefusedSitemapError(f"larger than {self._limit} bytes")


class Identity:
    """No coding: only counts the bytes."""

    def __init__(self, limit: int) -> None:
        self._size = SizeLimit(limit)

    def decode(self, data: bytes) -> Iterator[bytes]:
        """The decoded data, in pieces. Raises RefusedSitemapError."""
        self._size.add(len(data))
        yield data

    def finish(self) -> None:
        """Raises RefusedSitemapError if the end is missing; without a coding, any end is a good one."""


class Gzip(Identity):
    """A gzip file of one or more members. The limit holds for both compressed and decompressed bytes."""

    _name, _window = "gzip", 31

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._input = SizeLimit(limit)
        self._stream = zlib.decompressobj(self._window)
        self._members = 1

    def decode(self, data: bytes) -> Iterator[bytes]:
        self._input.add(len(data))
        while data:
            if self._stream.eof:
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._open_member()
            for piece in _decompress(self._stream, data):
                self._size.add(len(piece))
                yield piece
            data = self._stream.unused_data

    def finish(self) -> None:
        if not self._stream.eof:
            raise RefusedSitemapError(f"truncated {self._name}")

    def _open_member(self) -> None:
        self._members += 1
        if self._members > _MAX_MEMBERS:
            raise RefusedSitemapError(f"gzip of more than {_MAX_MEMBERS} members")
        self._stream = zlib.decompressobj(self._window)


class Deflate(Gzip):
    """The transport coding `deflate`: one stream of zlib by the standard, or the raw one that some servers send."""

    _name, _window = "deflate", 15

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._start: bytes | None = b""

    def decode(self, data: bytes) -> Iterator[bytes]:
        if self._start is not None:
            self._start += data
            if len(self._start) < 2:
                return
            data, self._start = self._start, None
            if data[0] & 15 != 8 or int.from_bytes(data[:2], "big") % 31:
                self._stream = zlib.decompressobj(_RAW_WINDOW)
        yield from super().decode(data)

    def _open_member(self) -> None:
        raise RefusedSitemapError("corrupt deflate: more bytes after its end")


class Decompressor:
    """Decodes one body: the transport coding of the response, then gzip if the bytes start like it."""

    def __init__(self, content_encoding: str | None, *, limit: int) -> None:
        self._limit = limit
        self._transport = _open_transport(content_encoding, limit=limit)
        self._file: Identity | None = None
        self._start = b""
        self._inner_start = b""

    def decode(self, data: bytes) -> Iterator[bytes]:
        """The decoded body, in pieces. Raises RefusedSitemapError."""
        # zlib copies its unused input at every call. Small pieces keep that linear.
        for start in range(0, len(data), PIECE):
            for piece in self._transport.decode(data[start : start + PIECE]):
                yield from self._decode_file(piece)

    def finish(self) -> Iterator[bytes]:
        """The rest of the body. Raises RefusedSitemapError if a coding has no end."""
        self._transport.finish()
        if self._file is None:
            yield from Identity(self._limit).decode(self._start)
        else:
            self._file.finish()

    def _decode_file(self, data: bytes) -> Iterator[bytes]:
        if self._file is None:
            self._start += data
            if len(self._start) < len(_GZIP_MAGIC):
                return
            data, self._start = self._start, b""
            self._file = (Gzip if data.startswith(_GZIP_MAGIC) else Identity)(self._limit)
        for piece in self._file.decode(data):
            self._refuse_third_coding(piece)
            yield piece

    def _refuse_third_coding(self, piece: bytes) -> None:
        if len(self._inner_start) < len(_GZIP_MAGIC):
            self._inner_start += piece[: len(_GZIP_MAGIC)]
            if self._inner_start.startswith(_GZIP_MAGIC):
                raise RefusedSitemapError("gzip in gzip")


def _open_transport(content_encoding: str | None, *, limit: int) -> Identity:
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
