"""Searches one watched keyword: all its pages, with retries by the table of errors."""

from collections.abc import Collection, Coroutine, Iterable
from typing import Any

from tidings.collect.crawl.envelope import Envelope, make_error
from tidings.collect.crawl.platforms.protocol import SearchPage
from tidings.collect.errors import ErrorCode
from tidings.collect.run.report import SearchReport
from tidings.collect.run.tries import Tries
from tidings.collect.write.keywords import Keyword
from tidings.collect.write.values import NewCandidate, list_uses
from tidings.collect.write.writer import REFUSALS
from tidings.core.logs.logger import get_logger

_log = get_logger(__name__)


async def search_keyword(tries: Tries, keyword: Keyword) -> SearchReport:
    """Search a keyword and store its candidates. Hits that cannot be stored are reported and raise nothing."""
    try:
        return await _search_pages(tries, keyword)
    except REFUSALS:
        _log.exception("search.failed", platform=keyword.platform, keyword=keyword.keyword)
        error = make_error(ErrorCode.INTERNAL_ERROR, "the hits cannot be stored; the log has the cause")
        await tries.writer.add_candidates(tries.execution, [], keyword_id=keyword.id, error=error)
        return SearchReport(platform=keyword.platform, keyword=keyword.keyword, code=error.code, message=error.message)


async def _search_pages(tries: Tries, keyword: Keyword) -> SearchReport:
    """All pages. The candidates are stored at the end, so that the keyword's counts are of the whole search."""
    platform, words = keyword.platform, keyword.keyword
    found: dict[str, NewCandidate] = {}
    page = 0

    def ask_page(refused: Collection[str]) -> Coroutine[Any, Any, Envelope[SearchPage]]:
        return tries.crawler.search(platform, words, page=page, exclude_cookies=refused)

    while True:
        page += 1
        answer = await tries.ask(ask_page)
        if answer.data is not None:
            found |= {each.note_id: each for each in _read_hits(answer.data, keyword)}
        error, uses = answer.error, list_uses(answer.meta.cookie_used, answer.error)
        if answer.data is None or not answer.data.has_more or page >= keyword.pages:
            break
        await tries.writer.count_cookie_uses(tries.execution, uses)
    added = await tries.writer.add_candidates(
        tries.execution, list(found.values()), keyword_id=keyword.id, platform=platform, error=error, uses=uses
    )
    return SearchReport(
        platform=platform,
        keyword=words,
        found=len(found),
        created=added.created,
        code=None if error is None else error.code,
        message=None if error is None else error.message,
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
