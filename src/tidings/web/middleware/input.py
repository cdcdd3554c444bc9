"""Checks a request before its route sees it: the body's size, speed and JSON, and the names in the query.

The middleware reads the whole body, at most 1 MiB (16 MiB on routes that take notes), and passes it on as one message.
"""

import asyncio
import json
import math
import re
from datetime import timedelta
from typing import Any, Final, NoReturn

from fastapi import Request
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
# A batch of long articles is larger, and its driver sends it as the crawl API answered it.
LARGEST_NOTES: Final = 16 * LARGEST_BODY
SLOWEST_BODY: Final = timedelta(seconds=30)
DEEPEST: Final = 32

_NOTES_PATHS: Final = frozenset({"/workflow/sources", "/workflow/candidates/settle"})
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


class _DisconnectedError(Exception):
    """The client disconnected before its request was complete."""


class InputMiddleware:
    """Reads the body within its limits and passes it on. Answers a body that breaks a rule."""

    def __init__(self, app: ASGIApp, *, slowest: timedelta = SLOWEST_BODY) -> None:
        self._app = app
        self._slowest = slowest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            check_target(scope)
            body = await self._read_body(scope, receive)
            if not _is_form(scope):
                check_body(body, content_type=Headers(scope=scope).get("content-type", ""))
        except ProblemError as refused:
            await ProblemResponse(refused.problem)(scope, receive, send)
        except _DisconnectedError:
            return
        else:
            await self._app(scope, _replay(body, receive), send)

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        length, largest = Headers(scope=scope).get("content-length", "0"), _find_limit(scope)
        if not length.isascii() or not length.isdigit() or len(length) > 12 or int(length) > largest:
            _refuse_large(largest)
        try:
            async with asyncio.timeout(self._slowest.total_seconds()):
                return await _collect(receive, largest=largest)
        except TimeoutError:
            seconds = f"{self._slowest.total_seconds():g}"
            problem(408, "body_too_slow", f"the body was not complete after {seconds} s")


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


def _find_limit(scope: Scope) -> int:
    return LARGEST_NOTES if scope["path"] in _NOTES_PATHS else LARGEST_BODY


def _refuse_large(largest: int) -> NoReturn:
    problem(413, "body_too_large", f"a body may have at most {largest:,} bytes")


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body as one message; after it the server's messages, such as a disconnect."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _is_form(scope: Scope) -> bool:
    """Whether this is a form of a page, which `pages.forms` reads."""
    kind = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/x-www-form-urlencoded" and not scope["path"].startswith(API_PATHS)


def check_target(scope: Scope) -> None:
    """Refuse NUL in path and query: no database stores it as text. Raises ProblemError."""
    if _UNSTORABLE.search(scope["path"]) or b"%00" in scope["query_string"]:
        problem(400, "invalid_target", "the path and the query may not hold a NUL character")


def check_body(body: bytes, *, content_type: str) -> None:
    """Refuse a body that is not JSON that every parser reads alike. Raises ProblemError."""
    if not body:
        return
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json":
        problem(415, "not_json", "send the body as `Content-Type: application/json`")
    try:
        check_value(json.loads(body.decode("utf-8"), parse_constant=_refuse_constant))
    except UnicodeDecodeError:
        _refuse_json("it is not UTF-8")
    except RecursionError:
        _refuse_json(f"it is more than {DEEPEST} levels deep")
    except json.JSONDecodeError as error:
        _refuse_json(f"{error.msg}, at line {error.lineno}, column {error.colno}")
    except ValueError as error:
        _refuse_json(str(error))


def _refuse_json(reason: str) -> NoReturn:
    problem(400, "invalid_json", f"the body is not valid JSON: {reason}")


def _refuse_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not allowed")


def check_value(document: Any) -> None:
    """Refuse infinite numbers, text that cannot be stored, and deep nesting. Raises ValueError."""
    level = [document]
    for _ in range(DEEPEST + 1):
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
        raise ValueError("a number is too large")
    if isinstance(value, str) and _UNSTORABLE.search(value):
        raise ValueError("text may hold neither a NUL character nor half a surrogate pair")


def check_query(request: Request) -> None:
    """Refuse query parameters that the route does not know, or that repeat and are no list. Raises ProblemError."""
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
