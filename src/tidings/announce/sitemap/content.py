"""What the body of a sitemap can be and what every kind of body gives: pairs of URL and stamp, a kind, a fault.

Here live the terms that the readers of markup, of plain text and of robots.txt share. How each of them reads is in
its own file; gzip and character sets are undone before any of them sees a byte.

    Exception
    └── RefusedSitemapError     the body is not used at all, not even what was given out before
"""

from abc import ABC, abstractmethod
from enum import StrEnum

Pair = tuple[bytes, bytes]
"""The URL in UTF-8, and its lastmod in ASCII or `b""`."""

MAX_LOC = 2_048
"""The most characters of a URL that is given out."""


class RefusedSitemapError(Exception):
    """The body is no sitemap, or one that must not be read; the message is one line that says why."""


class Kind(StrEnum):
    """What a body turned out to be. The pairs of `INDEX` and `ROBOTS` are sitemaps, those of the others are pages."""

    URLSET = "urlset"
    INDEX = "index"
    FEED = "feed"
    TEXT = "text"
    ROBOTS = "robots"


class Content(ABC):
    """A body that is read piece by piece, in UTF-8, without a byte order mark or white space at its start."""

    def __init__(self) -> None:
        self.kind: Kind | None = None
        self.fault: str | None = None
        self.too_long = 0
        self.skimmed = 0
        self._pairs: list[Pair] = []

    @abstractmethod
    def read(self, data: bytes) -> None:
        """Read on. After a fault nothing more is read. Raises RefusedSitemapError."""

    @abstractmethod
    def finish(self) -> None:
        """Read what was held back and take note of an early end. Raises RefusedSitemapError."""

    @abstractmethod
    def break_off(self, reason: str) -> None:
        """Read what was held back, then stop for good: what follows cannot be decoded. Raises RefusedSitemapError."""

    def take_pairs(self) -> list[Pair]:
        """Give out what was read since the last call."""
        pairs, self._pairs = self._pairs, []
        return pairs
