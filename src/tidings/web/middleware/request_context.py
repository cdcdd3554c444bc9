"""The outermost middleware. It gives each request an id, security headers, a log line and a metric, and answers 500 if
the code below fails. It is plain ASGI, so that streams stay streams.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidings.core.clock import Clock
from tidings.core.db.sqlite_file import is_damaged
from tidings.core.logs.logger import get_logger
from tidings.core.logs.request_id import request_id_scope
from tidings.web.errors import DAMAGED, DATABASE_ERRORS, INTERNAL, UNAVAILABLE, ProblemResponse
from tidings.web.metrics import HttpMetrics
from tidings.web.middleware.auth import GRANT
from tidings.web.middleware.input import has_body

API_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
REQUEST_ID: Final = "X-Request-ID"
# Key of the connection's scope: the route has logged a more detailed line itself.
HAS_OWN_LINE: Final = "tidings.has_own_line"
# nginx's status for a client that disconnected before the answer.
GONE: Final = 499

_NO_ROUTE: Final = "-"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# `auth` logs the first wrong tokens of an address.
_UNAUTHENTICATED: Final = frozenset({401, 429})
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Log lines a minute about callers without a token or a session.
MOST_LINES: Final = 60
_HEADERS: Final[Sequence[tuple[str, str]]] = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
)

_log = get_logger(__name__)


class RequestContextMiddleware:
    """Wraps every request in its context."""

    def __init__(self, app: ASGIApp, *, clock: Clock, metrics: HttpMetrics) -> None:
        self._app = app
        self._clock = clock
        self._metrics = metrics
        # When the last lines about anonymous callers were written, in monotonic seconds.
        self._lines: deque[float] = deque(maxlen=MOST_LINES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            with request_id_scope(Headers(scope=scope).get(REQUEST_ID)) as request_id:
                await self._handle(_Exchange(scope, receive, send, request_id=request_id))

    async def _handle(self, exchange: "_Exchange") -> None:
        began = self._clock.monotonic()
        try:
            await self._answer(exchange)
        finally:
            self._record(exchange, seconds=self._clock.monotonic() - began)

    async def _answer(self, exchange: "_Exchange") -> None:
        try:
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except DATABASE_ERRORS as error:
            _log.warning("database.unavailable", route=_name_route(exchange.scope), reason=type(error).__name__)
            if exchange.status is None:
                await ProblemResponse(UNAVAILABLE)(exchange.scope, exchange.receive, exchange.send)
        except Exception as error:  # noqa: BLE001 - the client gets an answer and the log the cause
            damaged = is_damaged(error)
            if damaged:
                _log.error("database.damaged", route=_name_route(exchange.scope), reason=type(error).__name__)
            else:
                _log.error("http.failed", route=_name_route(exchange.scope), exc_info=error)
            if exchange.status is None:
                problem = DAMAGED if damaged else INTERNAL
                await ProblemResponse(problem)(exchange.scope, exchange.receive, exchange.send)

    def _record(self, exchange: "_Exchange", *, seconds: float) -> None:
        method = exchange.scope["method"] if exchange.scope["method"] in _METHODS else "other"
        route, status = _name_route(exchange.scope), exchange.status or GONE
        self._metrics.observe(method=method, route=route, status=status, seconds=seconds)
        # Not logged, only counted in the metrics: polling by monitors and floods of wrong tokens would fill the log.
        is_quiet = status in _UNAUTHENTICATED or (method in _READS and status < 400) or HAS_OWN_LINE in exchange.scope
        log = _log.debug if is_quiet or not self._may_write(exchange.scope) else _log.info
        log("http.request", method=method, route=route, status=status, ms=round(seconds * 1000, 1))

    def _may_write(self, scope: Scope) -> bool:
        """Whether this line may be written: a flood of refused requests must not push everything else out of the
        log."""
        if GRANT in scope:
            return True
        now = self._clock.monotonic()
        if len(self._lines) == MOST_LINES and self._lines[0] > now - 60:
            return False
        self._lines.append(now)
        return True


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, request_id: str) -> None:
        self.scope = scope
        self.status: int | None = None
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self._body_waits = has_body(Headers(scope=scope))

    async def receive(self) -> Message:
        message = await self._receive()
        if not message.get("more_body", False):
            self._body_waits = False
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._complete_headers(message)
        await self._send(message)

    def _complete_headers(self, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in _HEADERS:
            headers.setdefault(name, value)
        headers.setdefault("Content-Security-Policy", API_POLICY)
        headers[REQUEST_ID] = self._request_id
        if self._body_waits:
            # Otherwise the server would read a refused body to its end, to reuse the connection.
            headers["Connection"] = "close"


def _name_route(scope: Scope) -> str:
    """The route's template, never the path: a path may hold secrets."""
    return getattr(scope.get("route"), "path", _NO_ROUTE)
