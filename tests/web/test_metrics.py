"""Metrics: those of the pipelines are collected at each scrape."""

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from tests.web.conftest import StageMaker
from tests.web.stage import FIXED, Stage
from tidings.core.secrets.scopes import Scope


async def read_figures(stage: Stage) -> dict[str, float]:
    answer = await stage.ask("GET", "/metrics", token=FIXED[Scope.METRICS].reveal())
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(answer.body.decode())
    return {sample.name: sample.value for family in families for sample in family.samples}


async def test_collectors_are_asked_at_each_scrape_and_one_that_fails_costs_only_itself(make_stage: StageMaker) -> None:
    """Present numbers, and a figure that tells of the failure."""
    sites = [3.0, 4.0]

    async def count_sites() -> Iterable[Metric]:
        return [GaugeMetricFamily("tidings_sites", "Sites.", value=sites.pop(0))]

    async def fail() -> Iterable[Metric]:
        raise RuntimeError("broken")

    stage = make_stage(collectors=[fail, count_sites])
    first, second = await read_figures(stage), await read_figures(stage)
    assert [each["tidings_sites"] for each in (first, second)] == [3.0, 4.0]
    assert [each["tidings_collector_failures_total"] for each in (first, second)] == [1.0, 2.0]
    assert first["process_resident_memory_bytes"] > 0
    assert first["tidings_build_info"] == 1.0


async def test_each_application_counts_for_itself(make_stage: StageMaker) -> None:
    """No metrics are shared through the process."""
    one, other = make_stage(), make_stage()
    await one.ask("GET", "/health/live")
    assert "tidings_http_requests_total" in await read_figures(one)
    assert "tidings_http_requests_total" not in await read_figures(other)
