"""Pages from a caller's list instead of a sitemap. They count as just changed, and are planned like a sitemap."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import datetime
from itertools import islice

from tidings.announce.site.errors import SiteError
from tidings.announce.sitemap.events import CrawlEvent, CrawlResult, FileRead, PagesRead, SitemapFile
from tidings.core.clock import to_text

MOST_GIVEN = 10_000
# A list of any length is read in blocks.
_BLOCK = 1_000


class GivenPages:
    """A crawl of one made-up file. `urls` are read once, block by block, in a thread: they may come from a file."""

    def __init__(self, urls: Iterable[str], *, at: datetime) -> None:
        self.result = CrawlResult(files=0, roots_read=1, given=True)
        self._urls = iter(urls)
        self._at = to_text(at).encode()

    @classmethod
    def of_request(cls, urls: Sequence[str], *, at: datetime) -> "GivenPages":
        """The pages of one request. Raises SiteError if there are no URLs, or too many."""
        if not 1 <= len(urls) <= MOST_GIVEN:
            raise SiteError("urls", f"1 to {MOST_GIVEN:,} URLs can be given at once")
        return cls(urls, at=at)

    async def events(self) -> AsyncGenerator[CrawlEvent]:
        """The events that a sitemap with these pages would give."""
        file = SitemapFile("given")
        while block := await asyncio.to_thread(lambda: list(islice(self._urls, _BLOCK))):
            yield PagesRead(file, [(url.strip().encode("utf-8", "replace"), self._at) for url in block])
        yield FileRead(file)
