"""Bodies made of lines: a text sitemap (one URL a line) and robots.txt (its `Sitemap:` lines).

Here lives how lines are cut from pieces, what of a line counts, and what makes a text no sitemap. A line longer than
any URL is never held as a whole.
"""

import re
from abc import abstractmethod

from tidings.announce.sitemap.content import MAX_LOC, Content, Kind, RefusedSitemapError

# Room for the longest URL in four-byte characters, and for what stands around it.
_MAX_LINE = 16_384
_URL = re.compile(rb"https?://[^\x00-\x20\x7f<>]+", re.IGNORECASE)
_SITEMAP = re.compile(rb"[ \t]*sitemap[ \t]*:[ \t]*([^ \t#]+)", re.IGNORECASE)


class LineContent(Content):
    """Cuts lines and gives each to `read_line`."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = b""

    def read(self, data: bytes) -> None:
        lines = (self._rest + data).splitlines(keepends=True)
        self._rest = b""
        if lines and not lines[-1].endswith((b"\n", b"\r")):
            # Cut, but still too long: the middle of a line that will be dropped is not kept.
            self._rest = lines.pop()[: _MAX_LINE + 1]
        for line in lines:
            self.read_line(line.strip())

    def finish(self) -> None:
        self.read_line(self._rest.strip())

    def break_off(self, reason: str) -> None:
        raise RefusedSitemapError(reason)

    @abstractmethod
    def read_line(self, line: bytes) -> None:
        """Read one line, which comes without white space around it and may be empty. Raises RefusedSitemapError."""

    def give_out(self, loc: bytes) -> None:
        """Add a URL, unless it is too long. Raises RefusedSitemapError if it is not UTF-8."""
        if len(loc) > MAX_LOC and len(loc.decode(errors="ignore")) > MAX_LOC:
            self.too_long += 1
            return
        try:
            loc.decode()
        except UnicodeDecodeError:
            raise RefusedSitemapError("a URL that is not UTF-8") from None
        self._pairs.append((loc, b""))


class TextContent(LineContent):
    """A text sitemap. One line that is no URL and it is none."""

    def __init__(self) -> None:
        super().__init__()
        self._number = 0

    def read_line(self, line: bytes) -> None:
        if not line:
            return
        self._number += 1
        if not _URL.fullmatch(line):
            raise RefusedSitemapError(f"not a sitemap: neither XML nor a list of URLs (entry {self._number})")
        self.kind = Kind.TEXT
        self.give_out(line)


class RobotsContent(LineContent):
    """A robots.txt. Without a `Sitemap:` line it gives nothing, and that is no fault."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = Kind.ROBOTS
        self._begun = False

    def read(self, data: bytes) -> None:
        if not self._begun and data.startswith(b"<"):
            raise RefusedSitemapError("an HTML page instead of a robots.txt")
        self._begun = self._begun or bool(data)
        super().read(data)

    def read_line(self, line: bytes) -> None:
        if found := _SITEMAP.match(line):
            self.give_out(found[1])
