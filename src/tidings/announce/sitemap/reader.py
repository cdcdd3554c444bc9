"""Reads one sitemap: bytes in, pairs of URL and lastmod out, for every compression, charset and format. No network. The
caller decides which URLs are valid, foreign or due.
"""

from collections.abc import Iterator
from zlib import crc32

from tidings.announce.sitemap.body import Pair, RefusedSitemapError, SitemapBody, SitemapKind
from tidings.announce.sitemap.charset import Utf8Decoder
from tidings.announce.sitemap.decompression import PIECE, Decompressor
from tidings.announce.sitemap.fast_xml import FastXmlBody
from tidings.announce.sitemap.text_body import RobotsBody, TextBody
from tidings.announce.sitemap.xml_body import XmlBody

__all__ = ["Pair", "RefusedSitemapError", "SitemapKind", "SitemapReader"]


class SitemapReader:
    """Reads one body, in pieces.

    `feed`, `stream` and `close` raise RefusedSitemapError when nothing of the body may be used, including the pairs
    given before. Malformed XML sets `fault` instead: the pairs before the fault are valid, the rest is ignored. XML
    that ends before its root is refused.
    """

    def __init__(
        self,
        *,
        limit: int = 52_428_800,
        content_encoding: str | None = None,
        robots: bool = False,
        fast: bool = True,
        block: int = PIECE,
    ) -> None:
        """Raises RefusedSitemapError for an unknown content encoding.

        `limit`: the most bytes, before and after each decoding. `robots`: the body is a robots.txt. `fast`: use the
        fast path. `block`: bytes per call of the parser, which scans an unfinished tag again at each call.
        """
        self._decompressor = Decompressor(content_encoding, limit=limit)
        self._decoder = Utf8Decoder()
        self._body: SitemapBody | None = RobotsBody() if robots else None
        self._fast = fast
        self._block = block
        self._gathered = bytearray()
        # A checksum of the decoded body so far.
        self.digest = 0

    @property
    def kind(self) -> SitemapKind | None:
        """The format; known before the first pair."""
        return self._body.kind if self._body else None

    @property
    def fault(self) -> str | None:
        """Why the rest of the body could not be read, in one line. Final after `close`."""
        return self._body.fault if self._body else None

    @property
    def too_long(self) -> int:
        """The number of URLs that were dropped because they have more than 2,048 characters."""
        return self._body.too_long if self._body else 0

    @property
    def skimmed(self) -> int:
        """The number of pairs that the fast path read."""
        return self._body.skimmed if self._body else 0

    def feed(self, data: bytes) -> list[Pair]:
        """The pairs that this data completes."""
        return [pair for pairs in self.stream(data) for pair in pairs]

    def stream(self, data: bytes) -> Iterator[list[Pair]]:
        """The same as `feed`, in parts, because a small gzip can hold a million pairs. Must be read to its end."""
        for piece in self._decompressor.decode(data):
            self._gathered += piece
            if len(self._gathered) >= self._block:
                yield self._read_gathered()

    def close(self) -> list[Pair]:
        """The last pairs."""
        for piece in self._decompressor.finish():
            self._gathered += piece
        pairs = self._read_gathered(final=True)
        if self._body is None:
            raise RefusedSitemapError(self._decoder.fault or "empty")
        self._body.finish()
        return pairs + self._body.take_pairs()

    def _read_gathered(self, *, final: bool = False) -> list[Pair]:
        self.digest = crc32(self._gathered, self.digest)
        text = self._decoder.decode(bytes(self._gathered), final=final)
        self._gathered.clear()
        if self._body is None and text:
            self._body = self._open_body(text)
        if self._body is None:
            return []
        self._body.read(text)
        if self._decoder.fault is not None and self._body.fault is None:
            self._body.break_off(self._decoder.fault)
        return self._body.take_pairs()

    def _open_body(self, text: bytes) -> SitemapBody:
        if not text.startswith(b"<"):
            return TextBody()
        return FastXmlBody() if self._fast else XmlBody()
