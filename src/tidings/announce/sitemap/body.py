"""The terms that all formats share: a body gives pairs of URL and lastmod, its kind, and a fault. Each format reads its
bodies in a file of its own. Compression and charset are decoded before.

    Exception
    └── RefusedSitemapError     nothing of the body may be used, not even the pairs given before
"""

from abc import ABC, abstractmethod
from enum import StrEnum

Pair = tuple[bytes, bytes]
"""The URL in UTF-8, and its lastmod in ASCII or `b""`."""

MAX_LOC = 2_048
"""The most characters of a URL. A longer one is dropped."""


class RefusedSitemapError(Exception):
    """The body is not a sitemap, or must not be read. The message is the reason, in one line."""


class SitemapKind(StrEnum):
    """The format of a body. `INDEX` and `ROBOTS` list sitemaps, the others list pages."""

    URLSET = "urlset"
    INDEX = "index"
    FEED = "feed"
    TEXT = "text"
    ROBOTS = "robots"


class SitemapBody(ABC):
    """Reads a body piece by piece. It is UTF-8 and starts without byte order mark and white space."""

    def __init__(self) -> None:
        # None until the format is known, which is before the first pair.
        self.kind: SitemapKind | None = None
        # Why reading stopped early. The pairs before it are valid.
        self.fault: str | None = None
        # URLs that were dropped because of their length.
        self.too_long = 0
        # Pairs that the fast path read.
        self.skimmed = 0
        self._pairs: list[Pair] = []

    @abstractmethod
    def read(self, data: bytes) -> None:
        """Read the next piece. Ignores it after a fault. Raises RefusedSitemapError."""

    @abstractmethod
    def finish(self) -> None:
        """Read the rest at the end of the body. An early end is a fault. Raises RefusedSitemapError."""

    @abstractmethod
    def break_off(self, reason: str) -> None:
        """Read the rest, and end with this fault of decoding. Raises RefusedSitemapError."""

    def take_pairs(self) -> list[Pair]:
        """The pairs since the last call."""
        pairs, self._pairs = self._pairs, []
        return pairs
