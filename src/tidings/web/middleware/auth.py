"""Authentication by the Authorization header alone: no cookie and no query parameter grants anything.

The middleware asks for a valid token before it reads the rest of a request, at every path but the open ones. Each route
names its scopes with `require`. Tokens from the settings and from the database are equal.
"""

import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import Request, Security
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from tidings.core.logs.logger import get_logger
from tidings.core.net.addresses import Network
from tidings.core.secrets.scopes import Grant, Scope
from tidings.core.secrets.secret import Secret
from tidings.core.secrets.tokens import Tokens, digest_token
from tidings.web.errors import Problem, ProblemResponse, problem
from tidings.web.middleware.callers import WrongTries, find_caller
from tidings.web.middleware.input import check_query

_log = get_logger(__name__)

_GRANT: Final = "tidings.grant"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_ASK_FOR_TOKEN: Final = {"WWW-Authenticate": 'Bearer realm="tidings"'}
_MISSING: Final = Problem(401, "token_missing", "send the header `Authorization: Bearer TOKEN`", headers=_ASK_FOR_TOKEN)
_WRONG: Final = Problem(401, "token_wrong", "this token is not known, or was revoked", headers=_ASK_FOR_TOKEN)


class Authenticator:
    """Finds the grant of a token."""

    def __init__(self, tokens: Tokens, *, fixed: Mapping[Scope, Secret]) -> None:
        self._tokens = tokens
        self._fixed = [
            (digest_token(fixed[scope].reveal()), Grant(scope=scope, name="settings"))
            for scope in Scope
            if scope in fixed
        ]

    async def identify(self, token: str) -> Grant | None:
        """The token's grant; the strongest, if the settings have one token for several scopes."""
        return self._find_fixed(digest_token(token)) or await self._tokens.find(token)

    def _find_fixed(self, digest: str) -> Grant | None:
        # Compares all, each in constant time, so that the duration reveals nothing.
        matches = [grant for known, grant in self._fixed if hmac.compare_digest(known, digest)]
        return matches[0] if matches else None


class AuthMiddleware:
    """Passes a request with a valid token, or to an open path. Limits wrong tokens per address.

    A valid token always passes, so that nobody can lock out others behind the same address.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        tries: WrongTries,
        trusted_proxies: Sequence[Network],
        open_paths: frozenset[str],
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._tries = tries
        self._trusted_proxies = trusted_proxies
        self._open_paths = open_paths

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        if connection["type"] != "http" or connection["path"] in self._open_paths:
            await self._app(connection, receive, send)
            return
        token = _read_token(connection)
        grant = await self._authenticator.identify(token) if token else None
        if grant is None:
            refusal = self._refuse(connection) if token else _MISSING
            await ProblemResponse(refusal)(connection, receive, send)
            return
        connection[_GRANT] = grant
        await self._app(connection, receive, send)

    def _refuse(self, connection: Connection) -> Problem:
        caller = find_caller(connection, trusted_proxies=self._trusted_proxies)
        wait = self._tries.add(caller)
        if wait is not None:
            detail = f"too many wrong tokens from this address; try again in {wait} s"
            return Problem(429, "too_many_wrong_tokens", detail, headers={"Retry-After": str(wait)})
        _log.warning("auth.wrong_token", caller=caller)
        return _WRONG


def _read_token(connection: Connection) -> str | None:
    """The bearer token; None if there is none, or if several headers could disagree."""
    values = Headers(scope=connection).getlist("authorization")
    if len(values) != 1:
        return None
    scheme, _, token = values[0].partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


class Requirement(HTTPBearer):
    """Gives a route its grant if that has one of these scopes or is an admin's, and checks the query parameters.

    It is a security scheme only for the description; the middleware has checked the token. One dependency does all of
    this, because FastAPI's cost per dependency is higher than that of the checks.
    """

    def __init__(self, scopes: Sequence[Scope], *, changes_state: bool | None) -> None:
        super().__init__(scheme_name="token", description="Shown by `tidings serve` at its first start.")
        self._scopes = scopes
        self._changes_state = changes_state

    async def __call__(self, request: Request) -> Grant:  # type: ignore[override]  # routes need the grant
        grant: Grant = request.scope[_GRANT]
        if not grant.allows(self._scopes):
            needed = " or ".join(dict.fromkeys([Scope.ADMIN, *self._scopes]))
            problem(403, "scope_missing", f"this token is for {grant.scope}; this route needs one for {needed}")
        if self._is_change(request):
            _refuse_cross_site(request)
        check_query(request)
        return grant

    def _is_change(self, request: Request) -> bool:
        return request.method not in _SAFE_METHODS if self._changes_state is None else self._changes_state


def require(*scopes: Scope, changes_state: bool | None = None) -> Any:
    """Names the scopes of a route: `grant: Annotated[Grant, require(Scope.CRAWL)]`, or in a router's `dependencies`.

    A request from another site's page is refused if it changes state: with every method but GET, HEAD and OPTIONS, and
    with those if `changes_state`.
    """
    return Security(Requirement(scopes, changes_state=changes_state), scopes=[scope.value for scope in scopes])


def _refuse_cross_site(request: Request) -> None:
    if request.headers.get("sec-fetch-site") == "cross-site":
        problem(403, "cross_site", "a page of another site may not do this")
