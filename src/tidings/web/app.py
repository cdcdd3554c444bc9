"""The application: the layers in their order, the routes that every installation has, and those that are handed in.

From the outside in: envelope (request id, headers, log), auth, limits, streams, then FastAPI's own routing. What the
routes work with is theirs to know; here is only what the foundation needs.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.middleware import Middleware

from tidings.core.clock import Clock
from tidings.core.net.addresses import Network
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.core.secrets.tokens import Tokens
from tidings.core.stop import Stop
from tidings.web.description import (
    OF_EVERY_ROUTE,
    OF_GUARDED_ROUTES,
    check_guarded,
    finish_description,
    name_operation,
    problem_answers,
)
from tidings.web.errors import ProblemBody, ProblemRow, install_problems
from tidings.web.metrics import CollectMetrics, HttpMetrics
from tidings.web.middleware.auth import Authenticator, AuthMiddleware
from tidings.web.middleware.callers import WrongTries
from tidings.web.middleware.input import SLOWEST_BODY, InputMiddleware
from tidings.web.middleware.request_context import RequestContextMiddleware
from tidings.web.middleware.streams import StreamMiddleware
from tidings.web.routes.docs import make_docs_router
from tidings.web.routes.health import LIVE_PATH, READY_PATH, Check, make_health_router
from tidings.web.routes.metrics import make_metrics_router

OPEN_PATHS: Final = frozenset({LIVE_PATH, READY_PATH})

# FastAPI's own would send what clients sent past the redactor, and would be switched on by the environment.
_NO_TELEMETRY: Final[TelemetryConfig] = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


@dataclass(frozen=True, slots=True)
class WebServices:
    """What the foundation needs. `stop` is the one that `server.serve` waits for."""

    tokens: Tokens
    clock: Clock
    stop: Stop
    version: str
    checks: Mapping[str, Check]
    routers: Sequence[APIRouter] = ()
    fixed_tokens: Mapping[Scope, Secret] = field(default_factory=dict)
    trusted_proxies: Sequence[Network] = ()
    problems: Sequence[ProblemRow] = ()
    collectors: Sequence[CollectMetrics] = ()
    lifespan: Callable[[], AbstractAsyncContextManager[object]] = nullcontext
    slowest_body: timedelta = SLOWEST_BODY


class Api(FastAPI):
    """FastAPI with a description that tells the truth about problems."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            finish_description(super().openapi(), problem=ProblemBody)
        assert self.openapi_schema is not None  # noqa: S101 - FastAPI has just set it
        return self.openapi_schema


def create_app(services: WebServices) -> FastAPI:
    """The whole application. Raises UnguardedRouteError where a described route does not say who may use it."""
    metrics = HttpMetrics(version=services.version)
    app = Api(
        title="Tidings",
        version=services.version,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_make_lifespan(services),
        middleware=_stack_layers(services, metrics=metrics),
        generate_unique_id_function=name_operation,
        telemetry=_NO_TELEMETRY,
    )
    install_problems(app, services.problems)
    app.include_router(make_health_router(services.checks))
    own = (make_metrics_router(metrics, collectors=services.collectors), make_docs_router())
    for router in (*services.routers, *own):
        app.include_router(router, responses=problem_answers(*OF_EVERY_ROUTE, *OF_GUARDED_ROUTES))
    check_guarded(app.openapi(), open_paths=OPEN_PATHS)
    return app


def _make_lifespan(services: WebServices) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def run_lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with services.lifespan():
            yield

    return run_lifespan


def _stack_layers(services: WebServices, *, metrics: HttpMetrics) -> list[Middleware]:
    return [
        Middleware(RequestContextMiddleware, clock=services.clock, metrics=metrics),
        Middleware(
            AuthMiddleware,
            authenticator=Authenticator(services.tokens, fixed=services.fixed_tokens),
            tries=WrongTries(clock=services.clock),
            trusted_proxies=services.trusted_proxies,
            open_paths=OPEN_PATHS,
        ),
        Middleware(InputMiddleware, slowest=services.slowest_body),
        Middleware(StreamMiddleware, stop=services.stop),
    ]
