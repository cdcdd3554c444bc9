"""Prometheus metrics: HTTP requests, the process, and the queue; and GET /metrics.

A collector is an async function that returns current metrics; each scrape calls it. A collector that fails costs its
own metrics only and counts in `tidings_collector_failures_total`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Final, TypeVar

from fastapi import Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, Info, Metric, ProcessCollector, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidings.core.logs.logger import get_logger
from tidings.core.queue.dispatcher import Dispatcher
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import ApiRouter
from tidings.web.middleware.auth import require

# The value of one label, or the values of several.
Labels = TypeVar("Labels", bound=str | tuple[str, ...])
CollectMetrics = Callable[[], Awaitable[Iterable[Metric]]]

_LABELS: Final = ("method", "route", "status")
# The text format that all versions of Prometheus read.
_TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"

_log = get_logger(__name__)


class HttpMetrics:
    """The metrics of one application, in a registry of its own."""

    def __init__(self, *, version: str) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter("tidings_http_requests", "Requests answered.", _LABELS, registry=self.registry)
        self._seconds = Histogram(
            "tidings_http_request_seconds", "Time to the end of the answer.", _LABELS, registry=self.registry
        )
        self._failures = Counter(
            "tidings_collector_failures", "Collectors that failed to return their metrics.", registry=self.registry
        )
        Info("tidings_build", "The release.", registry=self.registry).info({"version": version})
        ProcessCollector(registry=self.registry)

    def observe(self, *, method: str, route: str, status: int, seconds: float) -> None:
        labels = (method, route, str(status))
        self._requests.labels(*labels).inc()
        self._seconds.labels(*labels).observe(seconds)

    async def render(self, collectors: Sequence[CollectMetrics]) -> bytes:
        """All metrics in Prometheus's text format, after calling each collector."""
        collected: list[Metric] = []
        for collect in collectors:
            try:
                collected += await collect()
            except Exception as error:  # noqa: BLE001 - a failure must not cost the other collectors
                self._failures.inc()
                _log.error("metrics.collector_failed", exc_info=error)
        return generate_latest(self.registry) + generate_latest(_Collected(collected))


class _Collected(Collector):
    """Adapts collected metrics to the interface of the renderer."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


class QueueMetrics:
    """Collects the metrics of the queue, over all machines."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def __call__(self) -> Iterable[Metric]:
        living = [worker for worker in await self._dispatcher.list_workers() if not worker.dead]
        queues = await self._dispatcher.list_queues()
        waiting = {each.queue: each.waiting for each in queues}
        oldest = {each.queue: each.oldest.total_seconds() for each in queues}
        processes = len({worker.name for worker in living})
        return [
            GaugeMetricFamily("tidings_workers", "Processes that take jobs.", value=processes),
            make_gauge("tidings_jobs_waiting", "Jobs that no worker has taken yet.", waiting, "queue"),
            make_gauge("tidings_job_oldest_seconds", "Age of the oldest waiting job.", oldest, "queue"),
        ]


def make_gauge(name: str, text: str, values: Mapping[Labels, float], *labels: str) -> Metric:
    """A gauge with a value for each combination of labels."""
    gauge = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        gauge.add_metric([str(key)] if isinstance(key, str) else key, value)
    return gauge


def make_metrics_router(metrics: HttpMetrics, *, collectors: Sequence[CollectMetrics]) -> ApiRouter:
    router = ApiRouter(tags=["operations"])

    @router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
    async def read_metrics(_grant: Annotated[Grant, require(Scope.METRICS)]) -> Response:
        return Response(await metrics.render(collectors), headers={"Content-Type": _TEXT_FORMAT})

    return router
