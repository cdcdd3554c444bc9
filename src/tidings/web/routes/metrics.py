"""Figures for Prometheus: requests, the process, and what the pipelines tell when they are asked.

A collector is an async function that gives its present figures; it is asked at each scrape. One that fails costs its
own figures and counts in `tidings_collector_failures_total`, the rest are answered.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, Info, Metric, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from tidings.core.logs.logger import get_logger
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.middleware.auth import require

Collect = Callable[[], Awaitable[Iterable[Metric]]]

METRICS_PATH: Final = "/metrics"

_LABELS: Final = ("method", "route", "status")
_log = get_logger(__name__)


class HttpMetrics:
    """The figures of one application, in a registry of its own."""

    def __init__(self, *, version: str) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter("tidings_http_requests", "Requests answered.", _LABELS, registry=self.registry)
        self._seconds = Histogram(
            "tidings_http_request_seconds", "Time to the end of the answer.", _LABELS, registry=self.registry
        )
        self._failures = Counter(
            "tidings_collector_failures", "Collectors that could not give their figures.", registry=self.registry
        )
        Info("tidings_build", "The release.", registry=self.registry).info({"version": version})
        ProcessCollector(registry=self.registry)

    def observe(self, *, method: str, route: str, status: int, seconds: float) -> None:
        labels = (method, route, str(status))
        self._requests.labels(*labels).inc()
        self._seconds.labels(*labels).observe(seconds)

    async def render(self, collectors: Sequence[Collect]) -> bytes:
        """All figures as Prometheus's text, the collectors' freshly asked."""
        told: list[Metric] = []
        for collect in collectors:
            try:
                told += await collect()
            except Exception as error:  # noqa: BLE001 - one that fails must not cost the others
                self._failures.inc()
                _log.error("metrics.collector_failed", exc_info=error)
        return generate_latest(self.registry) + generate_latest(_Told(told))


class _Told(Collector):
    """Figures that were gathered before, in the form that the renderer asks for."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def make_metrics_router(metrics: HttpMetrics, *, collectors: Sequence[Collect]) -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get(METRICS_PATH, summary="Figures for Prometheus", response_class=PlainTextResponse)
    async def read_metrics(_grant: Annotated[Grant, require(Scope.METRICS)]) -> Response:
        return Response(await metrics.render(collectors), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    return router
