"""The open web: entries of RSS and Atom feeds, and article pages. Every URL passes the guard and the site's robots.txt,
also after a redirect. Each site has its own pace. No cookie is ever sent.

A search looks for words in the configured feeds, or in the feed whose URL precedes the words:
`https://example.org/feed.xml coffee`. The URL of a page works too, if the page links its feed.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from tidings.collect.crawl.platforms.client import (
    Meaning,
    blame_input,
    blame_platform,
    decode_body,
    judge_failure,
    read_retry_after,
)
from tidings.collect.crawl.platforms.open_web.feeds import FeedEntry
from tidings.collect.crawl.platforms.open_web.robots import DEFAULT_RETRY_AFTER, Robots, name_pace_key
from tidings.collect.crawl.platforms.protocol import Hit, NoteReference, PlatformTools, SearchPage, check_search
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import Note, read_note
from tidings.core.isolation.pool import ChildError, ChildKilledError, ChildLimitError, ChildPool
from tidings.core.logs.logger import get_logger
from tidings.core.net.addresses import Url, UrlError, join_url, parse_url
from tidings.core.net.client import MAX_REDIRECTS, Answer, FetchError
from tidings.core.net.redirects import REDIRECTS
from tidings.core.secrets.secret import Secret

PAGE_SIZE: Final = 20

_LONGEST_PAGE: Final = 4 * 1024 * 1024
# The parsers take up to five seconds for this many tags; real pages have a tenth of it.
_MOST_TAGS: Final = 60_000
_READERS: Final = 2
_READ_ARTICLE: Final = "tidings.collect.crawl.platforms.open_web.articles:describe_article"
_LIST_ENTRIES: Final = "tidings.collect.crawl.platforms.open_web.feeds:list_entries"
_FIND_FEED: Final = "tidings.collect.crawl.platforms.open_web.feeds:find_feed"
# At most this share of a search's time limit is reserved for answering with partial results.
_RESERVE: Final = timedelta(seconds=1)
_ACCEPT: Final = "text/html,application/xhtml+xml,application/rss+xml,application/atom+xml,application/xml;q=0.9"
_GONE: Final = blame_input("the page does not exist")
_NO_FEED: Final = blame_input("there is no feed")
_NO_ARTICLE: Final = blame_input("there is no article on the page")
_NO_PAGE: Final = blame_input("it is not a page")
_TOO_LARGE: Final = blame_input("the page is too large")
_UNREADABLE: Final = blame_input("the page cannot be read")
_TOO_COSTLY: Final = blame_input("reading the page takes too long or too much memory")
_INTERRUPTED: Final = blame_platform("reading the page was interrupted")
_BUSY: Final = blame_platform("the site asks us to wait")
# Statuses under 500 that may differ at the next request.
_PASSING: Final = frozenset({408, 409, 421, 423, 425})
_EMPTY: Final = blame_platform("the answer is empty")
_PAGE_TYPES: Final = ("text/", "application/xhtml", "application/xml")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Page:
    url: Url
    content_type: str
    body: bytes = field(repr=False)


# Why the open web cannot be searched.
NO_FEED = (
    "the open web needs a feed: write its address first, such as https://example.com/feed coffee, or set TIDINGS_FEEDS"
)


class Web:
    """See `Platform`."""

    name = "web"
    needs_cookie = False

    def __init__(self, tools: PlatformTools) -> None:
        self._tools = tools
        # Pages, feeds and robots.txt are read in child processes: a hostile one must not stop the service.
        self._readers = ChildPool(_READERS)
        self._robots = Robots(tools, self._readers)

    async def close(self) -> None:
        """End the processes that read pages, also those at work."""
        await self._readers.close()

    async def search(self, keyword: str, *, page: int, cookie: Secret | None) -> SearchPage:
        feeds, words = self._read_question(check_search(keyword, page=page))
        entries = await self._read_feeds(feeds)
        fitting = [entry for entry in entries if all(word in entry.words for word in words)]
        start = (page - 1) * PAGE_SIZE
        hits = tuple(_make_hit(entry) for entry in fitting[start : start + PAGE_SIZE])
        return SearchPage(hits=hits, page=page, has_more=start + PAGE_SIZE < len(fitting), total=len(fitting))

    async def detail(self, reference: NoteReference, *, cookie: Secret | None) -> Note:
        url = _parse_address(reference.url or reference.note_id)
        page = await self._fetch(url)
        if not page.content_type.lower().startswith(_PAGE_TYPES):
            raise _refuse(_NO_PAGE, page.url)
        # The note id comes from the requested URL, so that a redirect does not make another note.
        name, address = name_page(url.text), url.text
        described = await self._read(
            page, _READ_ARTICLE, platform=self.name, note_id=name, url=address, content_type=page.content_type
        )
        if described is None:
            raise _refuse(_NO_ARTICLE, page.url)
        return read_note(described)

    def check_keyword(self, keyword: str) -> None:
        """Raises CrawlError if there is no feed to search in."""
        self._read_question(check_search(keyword, page=1))

    def _read_question(self, keyword: str) -> tuple[Sequence[Url], Sequence[str]]:
        """The feeds to search, and the words to look for."""
        first, *rest = keyword.split()
        if "://" in first:
            return [_parse_address(first)], [word.casefold() for word in rest]
        if not self._tools.feeds:
            raise CrawlError(ErrorCode.INVALID_INPUT, NO_FEED)
        return [_parse_address(feed) for feed in self._tools.feeds], keyword.casefold().split()

    async def _read_feeds(self, feeds: Sequence[Url]) -> list[FeedEntry]:
        """The entries of all feeds, each once, in the order of the feeds. Feeds are read in parallel. A failed feed is
        left out, unless all fail."""
        limit = self._tools.search_limit
        until = asyncio.get_running_loop().time() + (limit - min(_RESERVE, limit / 10)).total_seconds()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._try_feed(feed, until=until)) for feed in feeds]
        answers = [task.result() for task in tasks]
        failures = [answer for answer in answers if isinstance(answer, CrawlError)]
        if len(failures) == len(feeds):
            # The search is retryable if one of the feeds is.
            raise next((failure for failure in failures if failure.retryable), failures[0])
        read = (answer for answer in answers if not isinstance(answer, CrawlError))
        return list({entry.url: entry for entries in read for entry in entries}.values())

    async def _try_feed(self, feed: Url, *, until: float) -> Sequence[FeedEntry] | CrawlError:
        """The entries of a feed, or the error. `until` is a time of the loop's clock."""
        try:
            async with asyncio.timeout_at(until):
                return await self._read_feed(feed)
        except TimeoutError:
            failure = CrawlError(ErrorCode.TIMEOUT_ERROR, f"{feed}: the time was up before the feed was read")
        except CrawlError as error:
            failure = error
        _log.warning("feed.failed", feed=str(feed), code=failure.code, reason=failure.message)
        return failure

    async def _read_feed(self, address: Url) -> Sequence[FeedEntry]:
        page = await self._fetch(address)
        if (entries := await self._parse_feed(page)) is not None:
            return entries
        found = await self._read(page, _FIND_FEED, url=page.url.text)
        entries = None if found is None else await self._parse_feed(await self._fetch(_parse_address(found)))
        if entries is None:
            raise _refuse(_NO_FEED, address)
        return entries

    async def _parse_feed(self, page: _Page) -> tuple[FeedEntry, ...] | None:
        entries = await self._read(page, _LIST_ENTRIES, url=page.url.text, content_type=page.content_type)
        return None if entries is None else tuple(FeedEntry(*entry) for entry in entries)

    async def _read(self, page: _Page, function: str, **arguments: str) -> Any:
        """Read a page in a child process, which is killed at the caller's time limit."""
        try:
            return await self._readers.run(function, page.body, **arguments)
        except ChildError as error:
            _log.warning("page.unreadable", page=str(page.url), reason=str(error))
            raise _refuse(_judge_reading(error), page.url) from None

    async def _fetch(self, url: Url) -> _Page:
        """Fetch a page and follow its redirects; robots.txt is checked at every step."""
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._ask(url)
            location = answer.headers.get("Location")
            if answer.status not in REDIRECTS or location is None:
                return self._read_page(answer)
            try:
                url = join_url(url, location)
            except UrlError as error:
                raise CrawlError(ErrorCode.INVALID_INPUT, f"{url} redirects to an invalid URL: {error}") from None
        raise CrawlError(ErrorCode.INVALID_INPUT, f"{url}: more than {MAX_REDIRECTS} redirects")

    async def _ask(self, url: Url) -> Answer:
        if left := self._robots.find_wait(url):
            raise _BUSY.as_error(platform=str(url), sign="nothing was asked", retry_after=left)
        least = await self._robots.admit(url)
        await self._tools.pace.wait_turn(name_pace_key(url), least=least)
        try:
            return await self._tools.client.request(
                "GET", url.text, headers={"Accept": _ACCEPT}, timeout=self._tools.timeout, limit=_LONGEST_PAGE
            )
        except FetchError as error:
            raise judge_failure(error, refused=ErrorCode.INVALID_INPUT) from None

    def _read_page(self, answer: Answer) -> _Page:
        if answer.status in (404, 410):
            raise _refuse(_GONE, answer.url, f"HTTP {answer.status}")
        if answer.status != 200:
            raise self._judge_status(answer)
        body = decode_body(answer, platform=self.name, limit=_LONGEST_PAGE)
        if not body.strip():
            raise _refuse(_EMPTY, answer.url)
        if body.count(b"<") > _MOST_TAGS:
            raise _refuse(_TOO_LARGE, answer.url)
        return _Page(answer.url, answer.headers.get("Content-Type", "text/html"), body)

    def _judge_status(self, answer: Answer) -> CrawlError:
        """Raise the error of a status. If the site asks us to wait, no request is sent before that. A refused page is
        an error of that page alone."""
        sign, asked = f"HTTP {answer.status}", read_retry_after(answer.headers, clock=self._tools.clock)
        if answer.status == 429 or (answer.status == 503 and asked is not None):
            wait = DEFAULT_RETRY_AFTER if asked is None else asked
            self._robots.close(answer.url, wait)
            return _BUSY.as_error(platform=str(answer.url), sign=sign, retry_after=wait)
        if answer.status >= 500 or answer.status in _PASSING:
            return _refuse(blame_platform("the site has an error"), answer.url, sign)
        return _refuse(blame_input("the site refuses the request"), answer.url, sign)


def _judge_reading(error: ChildError) -> Meaning:
    match error:
        case ChildLimitError():
            return _TOO_COSTLY
        case ChildKilledError():
            return _INTERRUPTED
        case _:
            return _UNREADABLE


def name_page(url: str) -> str:
    """The note id of a URL: short, and usable in a path."""
    return hashlib.blake2b(url.encode(), digest_size=12).hexdigest()


def _make_hit(entry: FeedEntry) -> Hit:
    return Hit(platform=Web.name, note_id=name_page(entry.url), url=entry.url, title=entry.title)


def _parse_address(text: str) -> Url:
    try:
        return parse_url(text)
    except UrlError as error:
        raise CrawlError(ErrorCode.INVALID_INPUT, f"not a URL that can be fetched: {error}") from None


def _refuse(meaning: Meaning, url: Url, sign: str = "") -> CrawlError:
    return meaning.as_error(platform=str(url), sign=sign or "HTTP 200")
