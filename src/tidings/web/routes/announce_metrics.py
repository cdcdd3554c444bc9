"""What announce tells Prometheus. Figures are of the whole installation: a label for each of thousands of sites would
cost more than all the rest."""

from collections.abc import Iterable
from datetime import UTC

from prometheus_client import Metric
from prometheus_client.metrics_core import GaugeMetricFamily

from tidings.announce.ledger.statistics import read_days
from tidings.wiring import Installation


async def collect_announce(installation: Installation) -> Iterable[Metric]:
    """The present figures."""
    today = installation.clock.now().astimezone(UTC).date()
    counts = (await read_days(installation.database, today=today, days=1))[today]
    urls = GaugeMetricFamily(
        "tidings_urls_today", "Different URLs attempted, and taken, since midnight UTC.", labels=["channel", "outcome"]
    )
    for channel, count in counts.items():
        urls.add_metric([str(channel), "attempted"], count.total)
        urls.add_metric([str(channel), "taken"], count.successful)
    return [
        urls,
        _gauge("tidings_sites", "Sites that are set up.", await installation.sites.count()),
        _gauge("tidings_executions_running", "Executions that run now.", await installation.executions.count_running()),
        _gauge(
            "tidings_sites_late", "Sites that have not run for two periods.", await installation.schedules.count_late()
        ),
        _gauge("tidings_alerts_open", "Alerts that hold now.", await installation.alerts.count_open()),
    ]


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
