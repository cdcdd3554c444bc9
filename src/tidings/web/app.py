"""Builds the application: the middleware in its order, the routes of every installation, and the routers it is given.

From the outside in: request context (id, headers, log), authentication, admission (route, scope), input checks,
streams, then FastAPI's routing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.telemetry import TelemetryConfig
from starlette.middleware import Middleware

from tidings.core.clock import Clock
from tidings.core.net.addresses import Network
from tidings.core.secrets.scopes import Grant, Scope
from tidings.core.secrets.secret import Secret
from tidings.core.secrets.tokens import Tokens
from tidings.core.stop import Stop
from tidings.web.description import ApiRouter, check_guarded, finish_description
from tidings.web.errors import ProblemBody, ProblemRow, install_problems
from tidings.web.metrics import CollectMetrics, HttpMetrics, make_metrics_router
from tidings.web.middleware.admission import AdmissionMiddleware
from tidings.web.middleware.auth import Authenticator, AuthMiddleware, require
from tidings.web.middleware.input import SLOWEST_BODY, InputMiddleware
from tidings.web.middleware.request_context import RequestContextMiddleware
from tidings.web.middleware.streams import StreamMiddleware
from tidings.web.pages.pages import PAGE_ROUTERS
from tidings.web.pages.view.routing import Dashboard
from tidings.web.routes.announce.hooks import HOOK_PATH
from tidings.web.routes.health import LIVE_PATH, READY_PATH, Check, make_health_router

OPEN_PATHS: Final = frozenset({LIVE_PATH, READY_PATH})
# Open without a token; the last one checks a signature.
_UNGUARDED: Final = OPEN_PATHS | {HOOK_PATH}

# FastAPI's telemetry would export requests without redaction, and environment variables could switch it on.
_NO_TELEMETRY: Final[TelemetryConfig] = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


@dataclass(frozen=True, slots=True)
class WebServices:
    """Services that the application itself uses; each router brings its own."""

    tokens: Tokens
    clock: Clock
    # The stop signal that `server.serve` waits for; open streams end with it.
    stop: Stop
    # The release, for metrics and the description.
    version: str
    # The checks of /health/ready, by name.
    checks: Mapping[str, Check]
    routers: Sequence[APIRouter] = ()
    # Tokens from the settings, beside those in the database.
    fixed_tokens: Mapping[Scope, Secret] = field(default_factory=dict)
    # Proxies whose X-Forwarded-For is believed.
    trusted_proxies: Sequence[Network] = ()
    # The dashboard; None for a service without pages.
    dashboard: Dashboard | None = None
    # The problem for each exception.
    problems: Sequence[ProblemRow] = ()
    # Called at each scrape of /metrics.
    collectors: Sequence[CollectMetrics] = ()
    # The time limit of a request body.
    slowest_body: timedelta = SLOWEST_BODY


class Api(FastAPI):
    """FastAPI with a description that includes our problem answers."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            finish_description(super().openapi(), problem=ProblemBody)
        assert self.openapi_schema is not None  # noqa: S101 - FastAPI has just set it
        return self.openapi_schema


def create_app(services: WebServices) -> FastAPI:
    """The whole application. Raises UnguardedRouteError if a route does not say who may use it."""
    metrics = HttpMetrics(version=services.version)
    authenticator = Authenticator(
        services.tokens,
        fixed=services.fixed_tokens,
        clock=services.clock,
        trusted_proxies=services.trusted_proxies,
    )
    app = Api(
        title="Tidings",
        version=services.version,
        openapi_url=None,
        redirect_slashes=False,
        middleware=_stack_layers(services, metrics=metrics, authenticator=authenticator),
        telemetry=_NO_TELEMETRY,
    )
    install_problems(app, services.problems)
    routers = [
        make_health_router(services.checks),
        *services.routers,
        make_metrics_router(metrics, collectors=services.collectors),
        _make_description_router(),
    ]
    if services.dashboard is not None:
        routers += PAGE_ROUTERS
        app.state.dashboard, app.state.authenticator = services.dashboard, authenticator
    for router in routers:
        # `include_router` would build each route a second time: 4 MB, and 0.2 s of every start.
        app.router.routes.extend(router.routes)
    check_guarded(app.openapi(), open_paths=_UNGUARDED)
    return app


def _make_description_router() -> ApiRouter:
    """The description for programs. For people, the dashboard shows it as the page /docs."""
    router = ApiRouter(tags=["operations"])

    @router.get("/openapi.json", summary="This API as OpenAPI", response_class=JSONResponse)
    async def read_description(request: Request, _grant: Annotated[Grant, require(*Scope)]) -> JSONResponse:
        return JSONResponse(request.app.openapi())

    return router


def _stack_layers(services: WebServices, *, metrics: HttpMetrics, authenticator: Authenticator) -> list[Middleware]:
    return [
        Middleware(RequestContextMiddleware, clock=services.clock, metrics=metrics),
        Middleware(
            AuthMiddleware,
            authenticator=authenticator,
            sessions=None if services.dashboard is None else services.dashboard.sessions,
            open_paths=OPEN_PATHS,
        ),
        Middleware(AdmissionMiddleware),
        Middleware(InputMiddleware, slowest=services.slowest_body),
        Middleware(StreamMiddleware, stop=services.stop),
    ]
