"""Routes of the crawl API. They only read; every answer is an envelope, and its HTTP status follows from its code."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from tidings.collect.crawl.crawler import Crawler
from tidings.collect.crawl.envelope import Envelope
from tidings.collect.errors import ErrorCode
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import problem_answers
from tidings.web.middleware.auth import require
from tidings.web.models.crawler import BatchAnswer, BatchBody, DetailAnswer, DetailBody, SearchAnswer, SearchBody

STATUSES: Final[Mapping[ErrorCode, int]] = MappingProxyType(
    {
        ErrorCode.INVALID_INPUT: 422,
        ErrorCode.COOKIE_EXHAUSTED: 503,
        ErrorCode.COOKIE_INVALID: 502,
        ErrorCode.PLATFORM_ERROR: 502,
        ErrorCode.NETWORK_ERROR: 502,
        ErrorCode.TIMEOUT_ERROR: 504,
    }
)

# Whoever drives a workflow drives this, and needs no second token for it.
Caller = Annotated[Grant, require(Scope.CRAWL, Scope.WORKFLOW)]

_FAILURES: Final = problem_answers(502, 503, 504)


def make_crawler_router(crawler: Crawler) -> APIRouter:
    router = APIRouter(prefix="/crawler", tags=["crawler"])

    # The envelope is sent as it is: to check one's own answers would cost more than all else that is done here.
    @router.post("/search", summary="Search a keyword", response_model=SearchAnswer, responses=_FAILURES)
    async def search_notes(body: SearchBody, _grant: Caller) -> JSONResponse:
        return _answer(await crawler.search(body.platform, body.keyword, page=body.page))

    @router.post("/detail", summary="Read a note", response_model=DetailAnswer, responses=_FAILURES)
    async def read_note(body: DetailBody, _grant: Caller) -> JSONResponse:
        return _answer(await crawler.detail(body.platform, body.wanted))

    @router.post("/detail/batch", summary="Read many notes", response_model=BatchAnswer)
    async def read_notes(body: BatchBody, _grant: Caller) -> JSONResponse:
        """The answer is a 200 also where items failed; each item says what became of it."""
        envelope = await crawler.details(body.platform, [item.wanted for item in body.items])
        return JSONResponse(envelope.to_json())

    return router


def _answer(envelope: Envelope[Any]) -> JSONResponse:
    status = 200 if envelope.error is None else STATUSES.get(envelope.error.code, 500)
    return JSONResponse(envelope.to_json(), status_code=status)
