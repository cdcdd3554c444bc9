"""Checks a request before its route sees it: the body's size, speed and JSON, and the names in the query.

The middleware reads the whole body, as large as `admission` allows, and passes it on as one message. It parses a large
body in a thread, and hands the document on, so that `DocumentRoute` need not parse it again.
"""

import asyncio
import json
import math
import re
import sys
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from datetime import timedelta
from itertools import islice
from typing import Any, Final, NoReturn

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidings.web.description import API_PATHS, find_operation, list_query
from tidings.web.errors import (
    FieldError,
    ProblemError,
    ProblemResponse,
    name_field,
    problem,
    refuse_input,
    word_unknown,
)

LARGEST_BODY: Final = 1024 * 1024
# For a batch of long articles, which a driver sends as the crawl API returned it.
LARGEST_NOTES: Final = 16 * LARGEST_BODY
SLOWEST_BODY: Final = timedelta(seconds=30)
DEEPEST: Final = 32
MOST_NAMES: Final = 200
MOST_VALUES: Final = 200_000
# The most names in all objects. The parser holds the interpreter lock until an object is complete, so they are counted
# before.
_MOST_NAMES_IN_ALL: Final = 50_000
_NAME_END: Final = re.compile(rb"\"\s*+:")
# A string, also one without an end, or a sign that a value begins after. Linear: no sign is looked at twice.
_QUOTE: Final = ord('"')
_VALUE_START: Final = re.compile(rb"\"(?:[^\"\\]++|\\.)*+\"?|[,\[{]", re.DOTALL)
# Deploy hooks, which a signature opens instead of a token.
HOOKS: Final = "/hooks/"
# Key of the connection's scope: the largest body in bytes; None if the body is not read.
MOST_BYTES: Final = "tidings.most_bytes"
# Key of the connection's scope: whether the caller has neither a token nor a session.
IS_STRANGER: Final = "tidings.is_stranger"
# The most bodies that are being received at once, with a share of its own for anonymous callers. The oldest is ended
# for a new one.
MOST_BODIES: Final = 64

_DOCUMENT: Final = "tidings.document"
# A larger body is parsed in a thread, because that would block the event loop too long.
_LARGE: Final = 128 * 1024
# Bodies of notes that are in memory at once.
_MOST_LARGE_BODIES: Final = 4
_TOO_LARGE: Final = "a number is too large"
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


class _DisconnectedError(Exception):
    """The client disconnected before its request was complete."""


class InputMiddleware:
    """Reads the body within its limits and passes it on. Answers a body that breaks a rule. The body of a hook is only
    checked against its signature, so any is passed on."""

    def __init__(self, app: ASGIApp, *, slowest: timedelta = SLOWEST_BODY) -> None:
        self._app = app
        self._slowest = slowest
        self._large_bodies = asyncio.Semaphore(_MOST_LARGE_BODIES)
        # The time limits of bodies being received, of known and of anonymous callers, the oldest first.
        self._under_way: dict[bool, dict[asyncio.Timeout, None]] = {False: {}, True: {}}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        largest = scope.get(MOST_BYTES, LARGEST_BODY)
        async with self._large_bodies if (largest or 0) > LARGEST_BODY else nullcontext():
            try:
                check_target(scope)
                body = b"" if largest is None else await self._read_body(scope, receive, largest=largest)
                if not (_is_form(scope) or scope["path"].startswith(HOOKS)):
                    scope[_DOCUMENT] = await _check_body(body, scope)
            except ProblemError as refused:
                await ProblemResponse(refused.problem)(scope, receive, send)
            except _DisconnectedError:
                return
            else:
                await self._app(scope, _replay(body, receive), send)

    async def _read_body(self, scope: Scope, receive: Receive, *, largest: int) -> bytes:
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isascii() or not length.isdigit() or len(length) > 12 or int(length) > largest:
            _refuse_large(largest)
        under_way = self._under_way[scope.get(IS_STRANGER, False)]
        while len(under_way) >= MOST_BODIES:
            oldest = next(iter(under_way))
            del under_way[oldest]
            if not oldest.expired():
                oldest.reschedule(asyncio.get_running_loop().time())
        limit = asyncio.timeout(self._slowest.total_seconds())
        try:
            async with limit:
                under_way[limit] = None
                return await _collect(receive, largest=largest)
        except TimeoutError:
            seconds = f"{self._slowest.total_seconds():g}"
            problem(408, "body_too_slow", f"the body was not complete after {seconds} s, or others came meanwhile")
        finally:
            under_way.pop(limit, None)


async def _collect(receive: Receive, *, largest: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _DisconnectedError
        body += message.get("body", b"")
        if len(body) > largest:
            _refuse_large(largest)
        if not message.get("more_body", False):
            return bytes(body)


async def _check_body(body: bytes, scope: Scope) -> Any:
    content_type = Headers(scope=scope).get("content-type", "")
    if len(body) <= _LARGE:
        return check_body(body, content_type=content_type)
    return await asyncio.to_thread(check_body, body, content_type=content_type)


class DocumentRoute(APIRoute):
    """A route for large bodies: it takes the document that the middleware has parsed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_parsed(request: Request) -> Response:
            return await handle(_ParsedRequest(request.scope, request.receive))

        return handle_parsed


class _ParsedRequest(Request):
    async def json(self) -> Any:
        return self.scope[_DOCUMENT]


def _refuse_large(largest: int) -> NoReturn:
    problem(413, "body_too_large", f"a body may have at most {largest:,} bytes")


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return the body as one message, then the server's further messages, such as a disconnect."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def has_body(headers: Headers) -> bool:
    """Whether a body follows these headers of a request."""
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _is_form(scope: Scope) -> bool:
    """Whether this is a form of a page, which `pages.forms` reads."""
    kind = _read_kind(Headers(scope=scope).get("content-type", ""))
    return kind == "application/x-www-form-urlencoded" and not scope["path"].startswith(API_PATHS)


def _read_kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def check_target(scope: Scope) -> None:
    """Refuse NUL in path and query: no database stores it as text. Raises ProblemError."""
    if _UNSTORABLE.search(scope["path"]) or b"%00" in scope["query_string"]:
        problem(400, "invalid_target", "the path and the query may not hold a NUL character")


def check_body(body: bytes, *, content_type: str) -> Any:
    """The document of a body; None for an empty one. Raises ProblemError for JSON that parsers read differently."""
    if not body:
        return None
    if _read_kind(content_type) != "application/json":
        problem(415, "not_json", "send the body as `Content-Type: application/json`")
    try:
        if any(True for _ in islice(_NAME_END.finditer(body), _MOST_NAMES_IN_ALL, None)):
            raise ValueError(f"it has more than {_MOST_NAMES_IN_ALL:,} names")
        _check_value_starts(body)
        document = json.loads(
            body.decode("utf-8"),
            parse_int=_read_integer,
            parse_constant=_refuse_constant,
            object_pairs_hook=_build_object,
        )
        check_value(document)
        return document
    except UnicodeDecodeError:
        _refuse_json("it is not UTF-8")
    except RecursionError:
        _refuse_json(f"it is more than {DEEPEST} levels deep")
    except json.JSONDecodeError as error:
        _refuse_json(f"{error.msg}, at line {error.lineno}, column {error.colno}")
    except ValueError as error:
        _refuse_json(str(error))


def _check_value_starts(body: bytes) -> None:
    """Refuse too many values before they are parsed: 16 MiB of `{}` would need half a gigabyte. Raises ValueError."""
    if sum(map(body.count, (b",", b"[", b"{"))) <= MOST_VALUES:
        return
    starts = (True for found in _VALUE_START.finditer(body) if body[found.start()] != _QUOTE)
    if any(islice(starts, MOST_VALUES, None)):
        raise ValueError(f"it has more than {MOST_VALUES:,} values")


def _refuse_json(reason: str) -> NoReturn:
    problem(400, "invalid_json", f"the body is not valid JSON: {reason}")


def _read_integer(digits: str) -> int:
    # Python's own refusal of so many digits is worded for programmers.
    if len(digits) > sys.int_info.default_max_str_digits:
        raise ValueError(_TOO_LARGE)
    return int(digits)


def _refuse_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not allowed")


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) < len(pairs):
        raise ValueError("a name appears twice in one object")
    if len(pairs) > MOST_NAMES:
        raise ValueError(f"an object has more than {MOST_NAMES} names")
    return built


def check_value(document: Any) -> None:
    """Refuse infinite numbers, text that cannot be stored, deep nesting, and too many values. Raises ValueError."""
    level = [document]
    count = 0
    for _ in range(DEEPEST + 1):
        count += len(level)
        if count > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES:,} values")
        if not level:
            return
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += [*value.keys(), *value.values()]
            elif isinstance(value, list):
                below += value
            else:
                _check_scalar(value)
        level = below
    raise ValueError(f"it is more than {DEEPEST} levels deep")


def _check_scalar(value: object) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(_TOO_LARGE)
    if isinstance(value, str) and _UNSTORABLE.search(value):
        raise ValueError("text may hold neither a NUL character nor half a surrogate pair")


def check_query(request: Request) -> None:
    """Refuse query parameters that the route does not know, or that repeat without being a list. Raises
    ProblemError."""
    operation = find_operation(request) if request.scope["query_string"] else None
    if operation is None:
        return
    known = list_query(operation)
    errors = []
    for name in request.query_params:
        if name not in known:
            errors.append(FieldError(name_field(("query", name)), word_unknown(known)))
        elif not known[name] and len(request.query_params.getlist(name)) > 1:
            errors.append(FieldError(name, "it may be given only once"))
    if errors:
        raise ProblemError(refuse_input(errors))
