"""Turns errors into answers. All problems have one form (RFC 9457). Under the paths of `envelope.ENVELOPED` they are
envelopes instead, and bad input is a 422.

A route calls `problem(409, "already_running", "…")`, or lets an exception of its pipeline pass and adds a row for it.
No answer repeats input, because input may hold a key. `middleware.input` refuses a body that is too large, too slow or
malformed with the same shape.

    Exception
    └── ProblemError   carries the Problem that becomes the answer
"""

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final, NoReturn

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from tidings.collect.crawl.envelope import DATABASE_AWAY, Meta, make_error, wrap_error
from tidings.collect.errors import ErrorCode
from tidings.core.logs.logger import get_logger
from tidings.core.logs.request_id import NO_REQUEST, current_request_id
from tidings.web.description import API_PATHS, PROBLEM_TYPE, list_body_fields
from tidings.web.envelope import EnvelopeResponse, is_enveloped

_log = get_logger(__name__)

# Our field names have no digits; a key that was sent as a field name nearly always has one.
_FIELD_NAME: Final = re.compile(r"[A-Za-z][A-Za-z_]{0,39}")
_HIDDEN_NAME: Final = "…"
_MOST_ERRORS: Final = 20
_CODES: Final = {
    401: ErrorCode.UNAUTHORIZED,
    403: ErrorCode.UNAUTHORIZED,
    404: ErrorCode.NOT_FOUND,
    408: ErrorCode.TIMEOUT_ERROR,
    409: ErrorCode.LOCK_LOST,
    429: ErrorCode.UNAUTHORIZED,
}
_DETAILS: Final = {404: "there is nothing at this path", 405: "this path does not take this method"}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field or parameter that breaks a rule."""

    # The path to the field, such as `sitemapUrls[0]`.
    field: str
    # The rule, for people.
    message: str


@dataclass(frozen=True, slots=True)
class Problem:
    """An answer that is not a success."""

    # The HTTP status.
    status: int
    # The stable code for programs.
    code: str
    # For people.
    detail: str
    errors: Sequence[FieldError] = ()
    # Further HTTP headers.
    headers: Mapping[str, str] = field(default_factory=dict)
    # The running execution that prevents the request.
    execution_id: str | None = None


class ProblemError(Exception):
    """Ends a request with this problem as its answer."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.status} {problem.code}: {problem.detail}")
        self.problem = problem


ProblemRow = tuple[type[Exception], Callable[[Any], Problem]]

INTERNAL: Final = Problem(
    500, "internal_error", "the server failed on this request; its log has the cause, under the request id"
)


# If the database is busy or away, the same request can succeed later. PostgreSQL's internal errors are those of a
# session that ended within a transaction, and of a server that only reads after a failover.
UNAVAILABLE: Final = Problem(503, "database_unavailable", DATABASE_AWAY, headers={"Retry-After": "5"})
DAMAGED: Final = Problem(
    503, "database_damaged", "the database file is damaged; the administrator has to restore the last backup"
)
DATABASE_ERRORS: Final = (OperationalError, InterfaceError, InternalError, PoolTimeoutError, sqlite3.OperationalError)


def problem(status: int, code: str, detail: str) -> NoReturn:
    """End this request with a problem. Raises ProblemError."""
    raise ProblemError(Problem(status, code, detail))


class ProblemBody(BaseModel):
    """The shape of every problem answer, as JSON."""

    model_config = {"alias_generator": to_camel, "populate_by_name": True, "title": "Problem"}

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldError] | None = None
    execution_id: str | None = None
    request_id: str


def asks_for_page(scope: Scope) -> bool:
    """Whether a browser asks for a page, or sends one's form."""
    return not scope["path"].startswith(API_PATHS) and "text/html" in Headers(scope=scope).get("accept", "")


class ProblemResponse(JSONResponse):
    """A problem as an answer; middleware calls it as an ASGI application. It is JSON, an envelope, or for browsers a
    page.
    """

    media_type = PROBLEM_TYPE

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        body = ProblemBody(
            type="about:blank",
            title=HTTPStatus(problem.status).phrase,
            status=problem.status,
            detail=problem.detail,
            code=problem.code,
            errors=list(problem.errors) or None,
            execution_id=problem.execution_id,
            request_id=current_request_id() or NO_REQUEST,
        )
        content = body.model_dump(by_alias=True, exclude_none=True)
        super().__init__(content, status_code=problem.status, headers=dict(problem.headers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The application keeps the dashboard in its state, if it has pages.
        dashboard = getattr(scope["app"].state, "dashboard", None) if "app" in scope else None
        if is_enveloped(scope["path"]):
            await _envelop(self._problem)(scope, receive, send)
        elif dashboard is not None and asks_for_page(scope):
            page = await dashboard.render_problem(Request(scope), self._problem)
            await page(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _envelop(problem: Problem) -> EnvelopeResponse:
    status = 422 if problem.status == 400 else problem.status
    code = _CODES.get(status, ErrorCode.INVALID_INPUT if status < 500 else ErrorCode.INTERNAL_ERROR)
    meta = Meta(request_id=current_request_id() or NO_REQUEST, latency_ms=0, cookie_used=None)
    error = make_error(code, problem.detail)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        error = replace(error, retryable=True, asked=False)
    envelope = wrap_error(error, meta=meta)
    return EnvelopeResponse(envelope, status_code=status, headers=dict(problem.headers))


def install_problems(app: FastAPI, rows: Sequence[ProblemRow]) -> None:
    """Answer these exceptions and their subclasses with their problems; the nearest class counts."""
    away = [(kind, lambda _error: UNAVAILABLE) for kind in DATABASE_ERRORS]
    for kind, translate in ((ProblemError, lambda error: error.problem), *away, *rows):
        app.add_exception_handler(kind, _make_handler(translate))
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(RequestValidationError, _answer_bad_input)


def _make_handler(translate: Callable[[Any], Problem]) -> Callable[[Request, Exception], Any]:
    async def handle(_request: Request, error: Exception) -> ProblemResponse:
        answer = translate(error)
        if answer is UNAVAILABLE:
            _log.warning("database.unavailable", reason=type(error).__name__)
        return ProblemResponse(answer)

    return handle


async def _answer_http_error(request: Request, error: Exception) -> ProblemResponse:
    """Answer refusals of the framework: no such route, no such method."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
    status = HTTPStatus(error.status_code)
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = {"Allow": ", ".join(list_methods(request))}
    return ProblemResponse(
        Problem(status.value, status.name.lower(), _DETAILS.get(status.value, status.description), (), headers)
    )


def list_methods(request: Request) -> list[str]:
    """The methods of all routes at this path; the framework would list only the first route's."""
    methods: set[str] = set()
    for route in iter_route_contexts(request.app.routes):
        if route.methods and route.path_regex.match(request.scope["path"]):
            methods |= route.methods
    return sorted(methods)


async def _answer_bad_input(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for nothing else
    known = list_body_fields(request)
    found = error.errors()
    return ProblemResponse(
        refuse_input([_read_error(each, known=known) for each in found[:_MOST_ERRORS]], count=len(found))
    )


def refuse_field(field: str, rule: str) -> NoReturn:
    """End this request with a 400 that names one field. Raises ProblemError."""
    raise ProblemError(refuse_input([FieldError(field, rule)]))


def refuse_input(errors: Sequence[FieldError], *, count: int | None = None) -> Problem:
    """A 400 that names each field; the detail shows the first. `count`: the number of all errors, if these are only the
    first."""
    count = len(errors) if count is None else count
    more = f" (and {count - 1} more)" if count > 1 else ""
    detail = f"{errors[0].field}: {errors[0].message}{more}"
    return Problem(400, "invalid_input", detail, errors[:_MOST_ERRORS])


def _read_error(error: Mapping[str, Any], *, known: Sequence[str]) -> FieldError:
    where = error["loc"]
    return FieldError(name_field(where), _word_error(error, known=known if len(where) == 2 else ()))


def name_field(where: Sequence[str | int]) -> str:
    """A field's path, such as `sitemapUrls[0]`. The first part (body, query or path) is omitted unless it is the only
    one."""
    name = ""
    for part in where[1:] or where:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            shown = part if _FIELD_NAME.fullmatch(part) else _HIDDEN_NAME
            name += f".{shown}" if name else shown
    return name


def word_unknown(known: Iterable[str]) -> str:
    """The rule for a name that is not among the known ones."""
    names = ", ".join(known)
    return f"it is not known; allowed are {names}" if names else "it is not known"


def _word_error(error: Mapping[str, Any], *, known: Sequence[str]) -> str:
    match error["type"]:
        case "extra_forbidden":
            return word_unknown(known)
        case "missing":
            return "it is required"
        case "union_tag_invalid":
            # The library's own message would repeat the input.
            return f"its kind must be one of {error['ctx']['expected_tags']}"
        case "value_error":
            return str(error["msg"]).removeprefix("Value error, ")
    return str(error["msg"])
