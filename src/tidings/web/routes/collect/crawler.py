"""Routes of the crawl API. They only read. Every answer is an envelope; its error code decides the HTTP status."""

from dataclasses import replace
from typing import Annotated, Any, Final

from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from tidings.collect.crawl.crawler import Crawler
from tidings.collect.crawl.envelope import BatchEnvelope, Envelope
from tidings.collect.crawl.platforms.protocol import CommentPage, SearchPage
from tidings.collect.notes import Note
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import ApiRouter, problem_answers
from tidings.web.envelope import STATUSES, EnvelopeResponse
from tidings.web.middleware.auth import require
from tidings.web.middleware.request_context import HAS_OWN_LINE
from tidings.web.models.crawler import (
    BatchBody,
    CommentPageDocument,
    CommentsBody,
    DetailBody,
    NoteDocument,
    SearchBody,
)

# A driver of the writer's routes needs these too, with the same token.
CrawlGrant = Annotated[Grant, require(Scope.CRAWL, Scope.WORKFLOW)]

_FAILURES: Final = problem_answers(502, 503, 504)


class CrawlResponse(EnvelopeResponse):
    """The answer to a crawl, which the crawler has already logged under the same request id."""

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        connection[HAS_OWN_LINE] = True
        await super().__call__(connection, receive, send)


def make_crawler_router(crawler: Crawler) -> ApiRouter:
    router = ApiRouter(prefix="/crawler", tags=["crawler"])

    @router.post("/search", summary="Search a keyword", response_model=Envelope[SearchPage], responses=_FAILURES)
    async def search_notes(body: SearchBody, _grant: CrawlGrant) -> CrawlResponse:
        excluded = body.exclude_cookies
        return _send(await crawler.search(body.platform, body.keyword, page=body.page, exclude_cookies=excluded))

    @router.post("/detail", summary="Read a note", response_model=Envelope[NoteDocument], responses=_FAILURES)
    async def read_note(body: DetailBody, _grant: CrawlGrant) -> CrawlResponse:
        envelope = await crawler.detail(body.platform, body.wanted, exclude_cookies=body.exclude_cookies)
        return _send(replace(envelope, data=_describe(envelope.data)))

    @router.post("/detail/batch", summary="Read many notes", response_model=BatchEnvelope[NoteDocument])
    async def read_notes(body: BatchBody, _grant: CrawlGrant) -> CrawlResponse:
        """The status is 200 also if items failed; each item has its own error."""
        wanted = [item.wanted for item in body.items]
        envelope = await crawler.details(body.platform, wanted, exclude_cookies=body.exclude_cookies)
        items = [replace(item, data=_describe(item.data)) for item in envelope.items]
        return CrawlResponse(replace(envelope, items=items))

    @router.post(
        "/comments", summary="Read comments", response_model=Envelope[CommentPageDocument], responses=_FAILURES
    )
    async def read_comments(body: CommentsBody, _grant: CrawlGrant) -> CrawlResponse:
        """One page of the comments of a note."""
        envelope = await crawler.comments(
            body.platform, body.wanted, cursor=body.cursor, exclude_cookies=body.exclude_cookies
        )
        return _send(replace(envelope, data=_describe_page(envelope.data)))

    return router


def _send(envelope: Envelope[Any]) -> CrawlResponse:
    error = envelope.error
    # An error of the server that a later request may not meet: its database is away.
    default = 503 if error is not None and error.retryable else 500
    status = 200 if error is None else STATUSES.get(error.code, default)
    return CrawlResponse(envelope, status_code=status)


def _describe_page(page: CommentPage | None) -> Any:
    if page is None:
        return None
    return {"comments": [each.describe() for each in page.comments], "cursor": page.cursor}


def _describe(note: Note | None) -> Any:
    return None if note is None else note.describe()
