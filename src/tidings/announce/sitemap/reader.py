"""The sitemap reader: bytes in, pairs of URL and lastmod out, whatever the file is packed, written or shaped in.

Here lives the way of the bytes: undo the codings, turn them into UTF-8, find out what the body is, read it. It does
no input or output of its own. Which URLs are valid, foreign or due is for the caller to judge.
"""

from collections.abc import Iterator

from tidings.announce.sitemap.charset import Utf8Decoder
from tidings.announce.sitemap.content import Content, Kind, Pair, RefusedSitemapError
from tidings.announce.sitemap.inflation import PIECE, Unpacker
from tidings.announce.sitemap.lines import RobotsContent, TextContent
from tidings.announce.sitemap.markup import MarkupContent
from tidings.announce.sitemap.plain import SkimmedMarkupContent

__all__ = ["Kind", "Pair", "RefusedSitemapError", "SitemapReader"]


class SitemapReader:
    """Reads one body that is fed to it.

    `feed`, `stream` and `close` raise RefusedSitemapError for input of which nothing may be used, the pairs given out
    before included; the reader is of no use after that. Malformed XML is no refusal: `fault` says what is wrong, what
    was read before it stands, and what follows is ignored. XML that breaks off before its root is known is refused.
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
        """Prepare to read. Raises RefusedSitemapError for a content encoding that is not understood.

        `limit` holds for the bytes of every layer. `block` is how many bytes are gathered before they are looked at:
        the parser scans an unfinished tag again at each call, so that single bytes would take quadratic time.
        """
        self._unpacker = Unpacker(content_encoding, limit=limit)
        self._decoder = Utf8Decoder()
        self._content: Content | None = RobotsContent() if robots else None
        self._fast = fast
        self._block = block
        self._gathered = bytearray()

    @property
    def kind(self) -> Kind | None:
        """What the body is; known before the first pair is given out."""
        return self._content.kind if self._content else None

    @property
    def fault(self) -> str | None:
        """Why the rest of the body could not be read, in one line."""
        return self._content.fault if self._content else None

    @property
    def too_long(self) -> int:
        """How many URLs were dropped because they have more than 2,048 characters."""
        return self._content.too_long if self._content else 0

    @property
    def skimmed(self) -> int:
        """How many pairs were read by the fast path."""
        return self._content.skimmed if self._content else 0

    def feed(self, data: bytes) -> list[Pair]:
        """Give the pairs that are known with this data."""
        return [pair for pairs in self.stream(data) for pair in pairs]

    def stream(self, data: bytes) -> Iterator[list[Pair]]:
        """Give the same as `feed`, bit by bit: a little gzip can hold a million pairs. To be run to its end."""
        for piece in self._unpacker.unpack(data):
            self._gathered += piece
            if len(self._gathered) >= self._block:
                yield self._read_gathered()

    def close(self) -> list[Pair]:
        """Give the last pairs. The fault is final after this."""
        for piece in self._unpacker.finish():
            self._gathered += piece
        pairs = self._read_gathered(final=True)
        if self._content is None:
            raise RefusedSitemapError(self._decoder.fault or "empty")
        self._content.finish()
        return pairs + self._content.take_pairs()

    def _read_gathered(self, *, final: bool = False) -> list[Pair]:
        text = self._decoder.decode(bytes(self._gathered), final=final)
        self._gathered.clear()
        if self._content is None and text:
            self._content = self._open_content(text)
        if self._content is None:
            return []
        self._content.read(text)
        if self._decoder.fault is not None and self._content.fault is None:
            self._content.break_off(self._decoder.fault)
        return self._content.take_pairs()

    def _open_content(self, text: bytes) -> Content:
        if not text.startswith(b"<"):
            return TextContent()
        return SkimmedMarkupContent() if self._fast else MarkupContent()
