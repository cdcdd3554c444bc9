"""Prometheus metrics of announce, read from the tables at each scrape: counters of all executions on every machine, and
the present state of sites, quotas and the outbox.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, date
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from sqlalchemy import and_, null, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.quota.backlog import channel_backlogs
from tidings.announce.channels.quota.kinds import RANKED_KINDS
from tidings.announce.channels.quota.quota import QuotaState
from tidings.announce.channels.quota.ranked import RankedKind
from tidings.announce.channels.quota.site_columns import join_quota, read_quota
from tidings.announce.execution_metrics import EXECUTION_BUCKETS, INFINITY, REQUEST_BUCKETS, read_backlog, read_counters
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.statistics import read_days
from tidings.announce.schedule.table import Schedules
from tidings.announce.site.table import SiteRecords, sites
from tidings.core.alerts.service import Alerts
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.executions import Executions
from tidings.web.metrics import make_gauge

Values = Mapping[tuple[str, ...], float]

# The most engines with a label of their own, because sites may name any number of endpoints.
MOST_ENGINES: Final = 30


@dataclass(frozen=True, slots=True)
class _CounterSpec:
    """One counter of the table, as Prometheus sees it."""

    # In the table, and for Prometheus, without `_total`.
    name: str
    shown: str
    text: str
    labels: tuple[str, ...] = ()


_ENGINE = ("channel", "engine")
_COUNTERS: Final = (
    _CounterSpec("executions", "tidings_announce_executions", "Executions that ended.", ("status",)),
    _CounterSpec("read", "tidings_announce_pages_read", "Pages that sitemaps listed, over all executions."),
    _CounterSpec(
        "due", "tidings_announce_pages_due", "Pages that were due; one that failed is due again.", ("channel",)
    ),
    _CounterSpec("accepted", "tidings_announce_pages_accepted", "Pages that an engine took.", _ENGINE),
    _CounterSpec("failed", "tidings_announce_pages_failed", "Pages that an engine did not take.", (*_ENGINE, "reason")),
    _CounterSpec("requests", "tidings_announce_requests", "Requests to engines.", (*_ENGINE, "outcome")),
    _CounterSpec("timeouts", "tidings_announce_timeouts", "Requests without an answer in time.", _ENGINE),
    _CounterSpec("sitemaps", "tidings_announce_sitemaps", "Sitemaps submitted to Google.", ("outcome",)),
)

_QUOTA_GAUGES: Final = (
    ("tidings_announce_quota_used", "Pages of today's quota, used."),
    ("tidings_announce_quota_left", "Pages of today's quota, left."),
    ("tidings_announce_quota_backlog_pages", "Pages that were due and not taken when their site last ran."),
    ("tidings_announce_quota_unused_pages", "Those of them that today's quota of their own site still covers."),
)


@dataclass(frozen=True, slots=True, eq=False)
class AnnounceMetrics:
    """Collects the metrics of announce, summed over all sites: a label per site would cost thousands of series."""

    database: Database
    _: KW_ONLY
    clock: Clock
    sites: SiteRecords
    schedules: Schedules
    executions: Executions
    alerts: Alerts

    async def __call__(self) -> Iterable[Metric]:
        async with self.database.read() as connection:
            counters = await read_counters(connection)
            backlog = await self._measure_backlog(connection)
            quotas = await self._measure_quotas(connection)
        return [*_make_counters(counters), *backlog, *quotas, *await self._measure_sites()]

    async def _measure_sites(self) -> list[Metric]:
        today = self.clock.now().astimezone(UTC).date()
        counts = (await read_days(self.database, today=today, days=1))[today]
        urls: dict[tuple[str, str], int] = {}
        for channel, count in counts.items():
            urls |= {(str(channel), "attempted"): count.total, (str(channel), "taken"): count.successful}
        running, late = await self.executions.count_running(), await self.schedules.count_late()
        about = "Distinct URLs attempted and taken since midnight UTC."
        return [
            make_gauge("tidings_urls_today", about, urls, "channel", "outcome"),
            GaugeMetricFamily("tidings_sites", "Sites that are set up.", value=await self.sites.count()),
            GaugeMetricFamily("tidings_executions_running", "Executions that run now.", value=running),
            GaugeMetricFamily("tidings_sites_late", "Sites that have not run for two periods.", value=late),
            make_gauge("tidings_alerts_open", "Open alerts.", await self.alerts.count_by_level(), "level"),
        ]

    async def _measure_backlog(self, connection: AsyncConnection) -> list[Metric]:
        now = to_milliseconds(self.clock.now())
        backlogs = await read_backlog(connection)
        pages = {str(channel): backlog.pages for channel, backlog in backlogs.items()}
        ages = {str(channel): max(0, now - (backlog.oldest_at or now)) / 1000 for channel, backlog in backlogs.items()}
        oldest = "tidings_announce_oldest_delivery_age_seconds"
        return [
            make_gauge(
                "tidings_announce_backlog_pages", "Pages that wait in the outbox, for each engine.", pages, "channel"
            ),
            make_gauge(oldest, "Age of the oldest open delivery.", ages, "channel"),
        ]

    async def _measure_quotas(self, connection: AsyncConnection) -> Sequence[Metric]:
        """The quota of each channel's present day, over all sites that use it."""
        families = [GaugeMetricFamily(name, text, labels=["channel"]) for name, text in _QUOTA_GAUGES]
        now = self.clock.now()
        for kind in RANKED_KINDS:
            day = kind.find_day(now)
            tables, quota = join_quota(sites, kind, day=day.isoformat())
            backlog = channel_backlogs.alias()
            is_its_backlog = and_(backlog.c.site == sites.c.number, backlog.c.channel == kind.channel.value)
            # Skip sites whose JSON does not switch the channel on: usually most of them.
            is_on = or_(*(sites.c.settings.contains(f'"{kind.fields.enabled}": {on}') for on in ("true", '"')))
            project = sites.c.google_project if kind.shared else null()
            statement = (
                select(sites.c.number, project.label("project"), sites.c.settings, *quota, backlog.c.pages)
                .select_from(tables.outerjoin(backlog, is_its_backlog))
                .where(sites.c.removed_at.is_(None), is_on)
            )
            quotas = _gather_quotas(kind, (await connection.execute(statement)).all(), day=day)
            used, left = (sum(getattr(each, name) for each, _ in quotas) for name in ("used", "remaining"))
            waiting = sum(pages for _, pages in quotas)
            unused = sum(min(each.remaining, pages) for each, pages in quotas)
            for family, value in zip(families, (used, left, waiting, unused), strict=True):
                family.add_metric([str(kind.channel)], value)
        return families


def _gather_quotas(kind: RankedKind, rows: Sequence[Any], *, day: date) -> Sequence[tuple[QuotaState, int]]:
    """The quotas of these sites, each with the pages that wait for it. A shared quota occurs once, with the highest
    limit of its sites."""
    quotas: dict[str | int, tuple[QuotaState, int]] = {}
    for row in rows:
        quota, key = read_quota(row, kind, json.loads(row.settings), day=day), row.project or row.number
        known, pages = quotas.get(key, (quota, 0))
        quotas[key] = replace(quota, limit=max(known.limit, quota.limit)), pages + (row.pages or 0)
    return list(quotas.values())


def _make_counters(counters: Mapping[str, Values]) -> Iterable[Metric]:
    named = _choose_engines(counters.get("request_sum", {}))
    for spec in _COUNTERS:
        family = CounterMetricFamily(spec.shown, spec.text, labels=spec.labels)
        values = counters.get(spec.name, {})
        for labels, value in (_fold_engines(values, named) if "engine" in spec.labels else values).items():
            family.add_metric(labels, value)
        yield family
    yield _make_histogram(
        "tidings_announce_execution_duration_seconds",
        "Time of an execution.",
        counters,
        "execution",
        bounds=EXECUTION_BUCKETS,
        labels=(),
        named=named,
    )
    yield _make_histogram(
        "tidings_announce_request_duration_seconds",
        "Time to the end of an engine's answer.",
        counters,
        "request",
        bounds=REQUEST_BUCKETS,
        labels=_ENGINE,
        named=named,
    )


def _choose_engines(values: Values) -> frozenset[str]:
    """The engines with a name of their own: channels with a quota, and then by name, so that they stay the same."""
    own = {str(channel) for channel in Channel if channel.has_quota}
    engines = sorted({labels[1] for labels in values}, key=lambda engine: (engine not in own, engine))
    return frozenset(engines[:MOST_ENGINES])


def _fold_engines(values: Values, named: frozenset[str]) -> dict[tuple[str, ...], float]:
    """The values by channel and engine; engines without a name of their own are `other`."""
    folded: dict[tuple[str, ...], float] = {}
    for (channel, engine, *rest), value in values.items():
        key = (channel, engine if engine in named else "other", *rest)
        folded[key] = folded.get(key, 0) + value
    return folded


def _make_histogram(
    shown: str,
    text: str,
    counters: Mapping[str, Values],
    name: str,
    *,
    bounds: tuple[float, ...],
    labels: tuple[str, ...],
    named: frozenset[str],
) -> Metric:
    family = HistogramMetricFamily(shown, text, labels=labels)
    counts, sums = counters.get(f"{name}_bucket", {}), counters.get(f"{name}_sum", {})
    if labels:
        counts, sums = _fold_engines(counts, named), _fold_engines(sums, named)
    for key, total in sums.items():
        buckets, seen = [], 0.0
        for bound in (*map(str, bounds), INFINITY):
            seen += counts.get((*key, bound), 0)
            buckets.append((bound, seen))
        family.add_metric(key, buckets, total)
    return family
