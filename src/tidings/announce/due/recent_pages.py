"""The pages of a sitemap whose lastmod is recent: for machines that keep no ledger, such as a CI job."""

from collections.abc import AsyncGenerator
from datetime import datetime

from tidings.announce.sitemap.crawl import Crawl
from tidings.announce.sitemap.events import CrawlEvent, CrawlResult, FileRead, PagesRead, Validators
from tidings.announce.sitemap.lastmod import parse_lastmod
from tidings.core.clock import to_milliseconds, to_text


class RecentPages:
    """A crawl that passes on only pages whose lastmod is `since` or later. A page without one is left out."""

    def __init__(self, crawl: Crawl, *, since: datetime) -> None:
        self._crawl = crawl
        self._since = since
        self._listed = 0
        self._older = 0
        self._undated = 0

    @property
    def result(self) -> CrawlResult:
        return self._crawl.result

    async def events(self) -> AsyncGenerator[CrawlEvent]:
        """The events of the crawl. A file that was read in part is not on record: it gets no validators."""
        async for event in self._crawl.events():
            if isinstance(event, PagesRead):
                yield PagesRead(event.file, [pair for pair in event.pairs if self._is_recent(pair[1])])
                continue
            if isinstance(event, FileRead):
                event.file.validators = Validators()
            yield event
        self._conclude()

    def _is_recent(self, lastmod: bytes) -> bool:
        self._listed += 1
        span = parse_lastmod(lastmod)
        if span is None:
            self._undated += 1
        elif span[1] < to_milliseconds(self._since):
            self._older += 1
        else:
            return True
        return False

    def _conclude(self) -> None:
        result = self.result
        if not self._listed:
            return
        # Only a part of the sitemap counts, so its number of pages is not that of the sitemap.
        result.files = result.unchanged = 0
        left_out = self._older + self._undated
        if left_out == self._listed == self._undated:
            result.add_trouble("no page has a lastmod, so none is known to be recent; announce it without --since")
        elif left_out:
            missing = f", {self._undated:,} without a lastmod" if self._undated else ""
            result.warnings.append(
                f"{left_out:,} of {self._listed:,} pages were left out: older than {to_text(self._since)}{missing}"
            )
