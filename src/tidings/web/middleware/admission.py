"""Checks route, method and scope before the body is read, and sets the body's maximum size. FastAPI reads and parses a
body before it checks the scope. A client could make the service parse megabytes for a route that does not exist, or
that the token does not allow.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tidings.core.secrets.hook_signatures import find_signature
from tidings.web.description import list_scopes
from tidings.web.errors import ProblemResponse
from tidings.web.middleware.auth import GRANT, refuse_scope
from tidings.web.middleware.input import HOOKS, IS_STRANGER, LARGEST_BODY, LARGEST_NOTES, MOST_BYTES, has_body

# A form without a session, and a body that the route does not use.
LARGEST_UNUSED: Final = 64 * 1024

_NOTES_PATHS: Final = frozenset({"/workflow/sources", "/workflow/candidates/settle"})


@dataclass(frozen=True, slots=True)
class _Route:
    """One route: its path, its methods, and what the description says about each method."""

    path: re.Pattern[str]
    methods: frozenset[str]
    # By method in lower case; empty for pages.
    operations: dict[str, dict[str, Any]]


class AdmissionMiddleware:
    """Sets the largest body of a request. 404 and 405 are left to the routing, which reads no body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._routes: Sequence[_Route] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not has_body(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        self._routes = self._routes or _list_routes(scope["app"])
        route = self._find_route(scope)
        operation = None if route is None else route.operations.get(scope["method"].lower())
        refusal = refuse_scope(scope.get(GRANT), list_scopes(operation)) if operation else None
        if refusal is not None:
            await ProblemResponse(refusal)(scope, receive, send)
            return
        scope[IS_STRANGER] = GRANT not in scope
        scope[MOST_BYTES] = None if route is None else _find_limit(scope, operation)
        await self._app(scope, receive, send)

    def _find_route(self, scope: Scope) -> _Route | None:
        fitting = (route for route in self._routes if scope["method"] in route.methods)
        return next((route for route in fitting if route.path.match(scope["path"])), None)


def _list_routes(app: FastAPI) -> list[_Route]:
    paths = app.openapi()["paths"]
    return [
        _Route(route.path_regex, frozenset(route.methods), paths.get(route.path_format, {}))
        for route in iter_route_contexts(app.routes)
        if route.methods
    ]


def _find_limit(scope: Scope, operation: dict[str, Any] | None) -> int:
    if scope["path"].startswith(HOOKS):
        # A push of many commits is long. Its body is read only with a signature.
        return LARGEST_BODY if find_signature(Headers(scope=scope)) else LARGEST_UNUSED
    if GRANT not in scope or (operation is not None and "requestBody" not in operation):
        return LARGEST_UNUSED
    return LARGEST_NOTES if scope["path"] in _NOTES_PATHS else LARGEST_BODY
