"""Searches one watched keyword: all its pages, with retries by the table of errors."""

from collections.abc import Iterable

from tidings.collect.crawl.crawler import Crawler
from tidings.collect.crawl.envelope import Envelope
from tidings.collect.crawl.platforms.protocol import SearchPage
from tidings.collect.errors import ErrorCode
from tidings.collect.run.report import SearchReport
from tidings.collect.run.tries import FindDelay, ask_with_retries
from tidings.collect.write.keywords import Keyword
from tidings.collect.write.values import Failure, NewCandidate, list_uses
from tidings.collect.write.writer import REFUSALS, Writer
from tidings.core.executions import Execution
from tidings.core.logs.logger import get_logger
from tidings.core.stop import Stop

_log = get_logger(__name__)


class KeywordSearcher:
    """Turns keywords into candidates."""

    def __init__(self, crawler: Crawler, writer: Writer, *, find_delay: FindDelay) -> None:
        self._crawler = crawler
        self._writer = writer
        self._find_delay = find_delay

    async def search(self, execution: Execution, keyword: Keyword, *, stop: Stop) -> SearchReport:
        """Search a keyword and store its candidates. Hits that cannot be stored are reported and raise nothing."""
        try:
            return await self._search_pages(execution, keyword, stop=stop)
        except REFUSALS:
            _log.exception("search.failed", platform=keyword.platform, keyword=keyword.keyword)
            message = "the hits cannot be stored; the log has the cause"
            failure = Failure(code=ErrorCode.INTERNAL_ERROR, message=message)
            await self._writer.add_candidates(execution, [], keyword_id=keyword.id, failure=failure)
            return SearchReport(
                platform=keyword.platform, keyword=keyword.keyword, code=failure.code, message=failure.message
            )

    async def _search_pages(self, execution: Execution, keyword: Keyword, *, stop: Stop) -> SearchReport:
        """All pages. The candidates are stored at the end, so that the keyword's counts are of the whole search."""
        found: dict[str, NewCandidate] = {}
        page = 0
        while True:
            page += 1
            answer = await self._ask_page(execution, keyword, page=page, stop=stop)
            if answer.data is not None:
                found |= {each.note_id: each for each in _read_hits(answer.data, keyword)}
            failure = None if answer.error is None else Failure.read(answer.error)
            uses = list_uses(answer.meta.cookie_used, failure)
            if answer.data is None or not answer.data.has_more or page >= keyword.pages:
                break
            await self._writer.count_cookie_uses(execution, uses)
        added = await self._writer.add_candidates(
            execution,
            list(found.values()),
            keyword_id=keyword.id,
            platform=keyword.platform,
            failure=failure,
            uses=uses,
        )
        return SearchReport(
            platform=keyword.platform,
            keyword=keyword.keyword,
            found=len(found),
            created=added.created,
            code=None if failure is None else failure.code,
            message=None if failure is None else failure.message,
        )

    async def _ask_page(self, execution: Execution, keyword: Keyword, *, page: int, stop: Stop) -> Envelope[SearchPage]:
        return await ask_with_retries(
            lambda refused: self._crawler.search(keyword.platform, keyword.keyword, page=page, exclude_cookies=refused),
            execution=execution,
            writer=self._writer,
            find_delay=self._find_delay,
            stop=stop,
        )


def _read_hits(page: SearchPage, keyword: Keyword) -> Iterable[NewCandidate]:
    for hit in page.hits:
        yield NewCandidate(
            platform=keyword.platform,
            note_id=hit.note_id,
            note_url=hit.url,
            title=hit.title,
            source_keyword=keyword.keyword,
        )
