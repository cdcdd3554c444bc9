"""Bodies made of lines: a text sitemap (one URL per line) and robots.txt (its `Sitemap:` lines). A line that is longer
than any URL is never kept in memory as a whole.
"""

import re
from abc import abstractmethod

from tidings.announce.sitemap.body import MAX_LOC, RefusedSitemapError, SitemapBody, SitemapKind

# Enough for the longest URL in four-byte characters, and for the text around it.
_MAX_LINE = 16_384
_URL = re.compile(rb"https?://[^\x00-\x20\x7f<>]+", re.IGNORECASE)
_SITEMAP = re.compile(rb"[ \t]*sitemap[ \t]*:[ \t]*([^ \t#]+)", re.IGNORECASE)


class LineBody(SitemapBody):
    """Splits a body into lines and passes each to `read_line`."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = b""

    def read(self, data: bytes) -> None:
        lines = (self._rest + data).splitlines(keepends=True)
        self._rest = b""
        if lines and not lines[-1].endswith((b"\n", b"\r")):
            # One byte more than the limit is enough to drop the line later.
            self._rest = lines.pop()[: _MAX_LINE + 1]
        for line in lines:
            self.read_line(line.strip())

    def finish(self) -> None:
        self.read_line(self._rest.strip())

    def break_off(self, reason: str) -> None:
        raise RefusedSitemapError(reason)

    @abstractmethod
    def read_line(self, line: bytes) -> None:
        """Read one line, stripped and possibly empty. Raises RefusedSitemapError."""

    def add_url(self, loc: bytes) -> None:
        """Add a URL, or count it as too long. Raises RefusedSitemapError if it is not UTF-8."""
        if len(loc) > MAX_LOC and len(loc.decode(errors="ignore")) > MAX_LOC:
            self.too_long += 1
            return
        try:
            loc.decode()
        except UnicodeDecodeError:
            raise RefusedSitemapError("a URL that is not UTF-8") from None
        self._pairs.append((loc, b""))


class TextBody(LineBody):
    """A text sitemap. A line that is not a URL refuses the whole body."""

    def __init__(self) -> None:
        super().__init__()
        self._number = 0

    def read_line(self, line: bytes) -> None:
        if not line:
            return
        self._number += 1
        if not _URL.fullmatch(line):
            raise RefusedSitemapError(f"not a sitemap: neither XML nor a list of URLs (entry {self._number})")
        self.kind = SitemapKind.TEXT
        self.add_url(line)


class RobotsBody(LineBody):
    """A robots.txt. One without a `Sitemap:` line is valid and lists nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = SitemapKind.ROBOTS
        self._begun = False

    def read(self, data: bytes) -> None:
        if not self._begun and data.startswith(b"<"):
            raise RefusedSitemapError("an HTML page instead of a robots.txt")
        self._begun = self._begun or bool(data)
        super().read(data)

    def read_line(self, line: bytes) -> None:
        if found := _SITEMAP.match(line):
            self.add_url(found[1])
