"""Pages that a caller names instead of a sitemap: they count as changed just now, and are planned like a sitemap."""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime

from tidings.announce.site.errors import SiteError
from tidings.announce.sitemap.crawl import CrawlEvent, CrawlResult, FileRead, PagesRead, SitemapFile
from tidings.core.clock import to_text

MOST_GIVEN = 10_000


class GivenPages:
    """A crawl of one made-up file. Raises SiteError if there are no URLs, or too many."""

    def __init__(self, urls: Sequence[str], *, at: datetime) -> None:
        if not 1 <= len(urls) <= MOST_GIVEN:
            raise SiteError("urls", f"1 to {MOST_GIVEN:,} URLs can be given at once")
        self.result = CrawlResult(files=0, roots_read=1)
        self._pairs = [(url.strip().encode("utf-8", "replace"), to_text(at).encode()) for url in urls]

    async def events(self) -> AsyncGenerator[CrawlEvent]:
        """The events that a sitemap with these pages would give."""
        file = SitemapFile("given")
        yield PagesRead(file, self._pairs)
        yield FileRead(file)
