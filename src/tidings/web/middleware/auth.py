"""Authentication: a bearer token in the Authorization header, or the session cookie of a signed-in person.

The middleware asks for one of them before it reads anything else of a request, at every path but the open ones. Each
route then names with `require` the scopes that it takes. Tokens from the settings and those of the database
(`core.secrets.tokens`) have the same rights. A session may read everything that its token may read, but it changes
something only through the forms of pages, which carry the session's form key.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Request, Security
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from tidings.core.clock import Clock
from tidings.core.logs.logger import get_logger
from tidings.core.net.addresses import Network
from tidings.core.secrets.scopes import Grant, Scope
from tidings.core.secrets.secret import Secret
from tidings.core.secrets.sessions import Sessions, WebSession
from tidings.core.secrets.tokens import Tokens, digest_token, is_made_token
from tidings.web.errors import Problem, ProblemError, ProblemResponse, asks_for_page, problem
from tidings.web.middleware.callers import WrongTries, find_caller, is_secure
from tidings.web.middleware.input import HOOKS, check_query

_log = get_logger(__name__)

GRANT: Final = "tidings.grant"
SESSION: Final = "tidings.session"
SIGN_IN: Final = "/sign-in"

# The beginning of a cookie's name that browsers keep to one host.
_HOST: Final = "__Host-"
# Open without a token or a session.
_OPEN_PAGES: Final = (SIGN_IN, "/preferences", "/static/")
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_ASK_FOR_TOKEN: Final = {"WWW-Authenticate": 'Bearer realm="tidings"'}
_MISSING: Final = Problem(401, "token_missing", "send the header `Authorization: Bearer TOKEN`", headers=_ASK_FOR_TOKEN)
_WRONG: Final = Problem(401, "token_wrong", "this token is not known, or was revoked", headers=_ASK_FOR_TOKEN)


class Authenticator:
    """Finds the grant of a token, and counts wrong ones by the caller's address."""

    def __init__(
        self, tokens: Tokens, *, fixed: Mapping[Scope, Secret], clock: Clock, trusted_proxies: Sequence[Network]
    ) -> None:
        self.tries = WrongTries(clock=clock)
        self._tokens = tokens
        self._trusted_proxies = trusted_proxies
        self._fixed = [
            (digest_token(fixed[scope].reveal()), Grant(scope=scope, name="settings"))
            for scope in Scope
            if scope in fixed
        ]

    async def identify(self, token: str) -> Grant | None:
        """The token's grant; the strongest, if the settings have one token for several scopes."""
        return self._find_fixed(digest_token(token)) or await self._tokens.find(token)

    async def identify_digest(self, digest: str) -> Grant | None:
        """The grant of the token with this digest, for a session that it opened; None once it is revoked."""
        return self._find_fixed(digest) or await self._tokens.find_digest(digest)

    def find_caller(self, connection: Connection) -> str:
        return find_caller(connection, trusted_proxies=self._trusted_proxies)

    def name_session_cookie(self, connection: Connection) -> str:
        """The session cookie's name. Browsers keep a `__Host-` cookie to https, this host and the path `/`."""
        secure = is_secure(connection, trusted_proxies=self._trusted_proxies)
        return f"{_HOST}tidings-session" if secure else "tidings-session"

    def _find_fixed(self, digest: str) -> Grant | None:
        # Compares all, each in constant time, so that the duration reveals nothing.
        matches = [grant for known, grant in self._fixed if hmac.compare_digest(known, digest)]
        return matches[0] if matches else None


@dataclass(frozen=True, slots=True, eq=False)
class AuthMiddleware:
    """Passes a request with a valid token, or to an open path. Limits wrong tokens per address. After too many, tokens
    that a person chose are refused for a minute without a check. Tokens made by Tidings still pass: they cannot be
    guessed, and their holders must not be locked out by another client at the same address.
    """

    app: ASGIApp
    _: KW_ONLY
    authenticator: Authenticator
    open_paths: frozenset[str]
    sessions: Sessions | None = None

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        if connection["type"] != "http" or self._is_open(connection):
            await self.app(connection, receive, send)
            return
        token = _read_token(connection)
        refusal = await (self._accept_token(connection, token) if token else self._accept_session(connection))
        if refusal is None:
            await self.app(connection, receive, send)
        elif refusal is _MISSING and self.sessions and connection["method"] == "GET" and asks_for_page(connection):
            await RedirectResponse(_locate_sign_in(connection), status_code=303)(connection, receive, send)
        else:
            await ProblemResponse(refusal)(connection, receive, send)

    def _is_open(self, connection: Connection) -> bool:
        """Whether no token is needed: for open paths, and for hooks, which are signed instead."""
        path, method = connection["path"], connection["method"]
        return path in self.open_paths or (method == "POST" and path.startswith(HOOKS))

    async def _accept_token(self, connection: Connection, token: str) -> Problem | None:
        caller = self.authenticator.find_caller(connection)
        wait = self.authenticator.tries.find_wait(caller)
        looks = wait is None or is_made_token(token)
        grant = await self.authenticator.identify(token) if looks else None
        if grant is not None:
            connection[GRANT] = grant
            return None
        return self._refuse(caller)

    async def _accept_session(self, connection: Connection) -> Problem | None:
        session_id = HTTPConnection(connection).cookies.get(self.authenticator.name_session_cookie(connection))
        session = await self.sessions.find(session_id) if self.sessions and session_id else None
        grant = None if session is None else await self.authenticator.identify_digest(session.token_digest)
        if grant is not None:
            connection[GRANT], connection[SESSION] = grant, session
            return None
        return None if self.sessions and connection["path"].startswith(_OPEN_PAGES) else _MISSING

    def _refuse(self, caller: str) -> Problem:
        wait = self.authenticator.tries.add(caller)
        if wait is not None:
            detail = f"too many wrong tokens from this address; try again in {wait} s"
            return Problem(429, "too_many_wrong_tokens", detail, headers={"Retry-After": str(wait)})
        _log.warning("auth.wrong_token", caller=caller)
        return _WRONG


def is_host_bound(cookie: str) -> bool:
    """Whether browsers take and delete this cookie only with the attribute Secure."""
    return cookie.startswith(_HOST)


def _locate_sign_in(connection: Connection) -> str:
    query = connection["query_string"].decode("latin-1")
    wanted = quote(connection["path"]) + (f"?{query}" if query else "")
    return SIGN_IN if wanted == "/" else f"{SIGN_IN}?next={quote(wanted, safe='')}"


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
        grant: Grant = request.scope[GRANT]
        if refusal := refuse_scope(grant, self._scopes):
            raise ProblemError(refusal)
        changes_state = request.method not in _SAFE_METHODS if self._changes_state is None else self._changes_state
        if changes_state:
            _refuse_session(request)
            refuse_cross_site(request)
        check_query(request)
        return grant


def refuse_scope(grant: Grant | None, scopes: Sequence[str]) -> Problem | None:
    """The refusal of a grant that has none of these scopes. An open route has no scopes, and its caller no grant."""
    wanted = [Scope(scope) for scope in scopes]
    if grant is None or grant.allows(wanted):
        return None
    needed = " or ".join(dict.fromkeys([Scope.ADMIN, *wanted]))
    return Problem(403, "scope_missing", f"this token is for {grant.scope}; this route needs one for {needed}")


def require(*scopes: Scope, changes_state: bool | None = None) -> Any:
    """Names the scopes of a route: `grant: Annotated[Grant, require(Scope.CRAWL)]`, or in a router's `dependencies`.

    A request from another site's page is refused if it changes state: with every method but GET, HEAD and OPTIONS, and
    with those if `changes_state`.
    """
    return Security(Requirement(scopes, changes_state=changes_state), scopes=[scope.value for scope in scopes])


# The grants that most routes ask for.
AdminGrant = Annotated[Grant, require()]
ViewerGrant = Annotated[Grant, require(Scope.VIEWER)]
WorkflowGrant = Annotated[Grant, require(Scope.WORKFLOW)]


def comes_from_elsewhere(request: Request) -> bool:
    """Whether the browser says that a page of another site made it send this."""
    # A header that is sent twice is ambiguous.
    return "cross-site" in ",".join(request.headers.getlist("sec-fetch-site")).lower()


def refuse_cross_site(request: Request) -> None:
    """Raises a 403 problem for what a page of another site made the browser send."""
    if comes_from_elsewhere(request):
        problem(403, "cross_site", "a page of another site may not do this")


def _refuse_session(request: Request) -> None:
    """A session changes something only through the forms of pages: they carry its form key."""
    session: WebSession | None = request.scope.get(SESSION)
    if session is not None:
        problem(403, "token_needed", "send this with a token in the Authorization header, or use the dashboard")
