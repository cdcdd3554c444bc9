"""GET /metrics, for Prometheus. The metrics themselves are in `web.metrics`."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.metrics import CollectMetrics, HttpMetrics
from tidings.web.middleware.auth import require


def make_metrics_router(metrics: HttpMetrics, *, collectors: Sequence[CollectMetrics]) -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
    async def read_metrics(_grant: Annotated[Grant, require(Scope.METRICS)]) -> Response:
        return Response(await metrics.render(collectors), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    return router
