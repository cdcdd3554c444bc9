"""GET /metrics, for Prometheus. The metrics themselves are in `web.metrics`."""

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Response
from fastapi.responses import PlainTextResponse

from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import ApiRouter
from tidings.web.metrics import CollectMetrics, HttpMetrics
from tidings.web.middleware.auth import require

# The format that every Prometheus reads.
_TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"


def make_metrics_router(metrics: HttpMetrics, *, collectors: Sequence[CollectMetrics]) -> ApiRouter:
    router = ApiRouter(tags=["operations"])

    @router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
    async def read_metrics(_grant: Annotated[Grant, require(Scope.METRICS)]) -> Response:
        return Response(await metrics.render(collectors), headers={"Content-Type": _TEXT_FORMAT})

    return router
