"""Metrics of executions: counted while one runs, added to a table when it ends, and read from there by any process.

The table holds sums over all sites: a label for each site would cost thousands of series. Its rows are few, because
every label has few values.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import Column, Double, PrimaryKeyConstraint, Table, Text, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.channel import PagesFailed, PagesTaken, RequestAnswered
from tidings.announce.channels.quota.kinds import RANKED_KINDS
from tidings.announce.execution.report import Report
from tidings.announce.execution.results import Result
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.outbox_tables import batches, deliveries
from tidings.announce.site.site import Engine
from tidings.core.db.database import Database, metadata

# Upper bounds in seconds. A request takes 30 s at most, an execution usually 300.
REQUEST_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
EXECUTION_BUCKETS = (1.0, 5.0, 15.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
INFINITY = "+Inf"

announce_metrics = Table(
    "announce_metrics",
    metadata,
    Column("name", Text, nullable=False),
    # The values of its labels, as a JSON list.
    Column("labels", Text, nullable=False),
    Column("value", Double, nullable=False),
    PrimaryKeyConstraint("name", "labels"),
    sqlite_with_rowid=False,
)

_CHANNELS = {kind.engine: kind.channel for kind in RANKED_KINDS}


@dataclass(slots=True)
class ExecutionMetrics:
    """What one execution adds to the counters."""

    values: Counter[tuple[str, tuple[str, ...]]] = field(default_factory=Counter)

    def record(self, result: Result) -> None:
        """Count one result of sending."""
        match result:
            case RequestAnswered(engine, outcome):
                labels = _name_engine(engine)
                self._add("requests", *labels, outcome.verdict.name.lower())
                self._observe("request", outcome.elapsed, *labels, buckets=REQUEST_BUCKETS)
                if outcome.timed_out:
                    self._add("timeouts", *labels)
            case PagesTaken(engine, pages):
                self._add("accepted", *_name_engine(engine), by=pages)
            case PagesFailed(engine, pages, verdict=verdict):
                self._add("failed", *_name_engine(engine), verdict.name.lower(), by=pages)
            case _:
                pass

    def _conclude(self, report: Report) -> None:
        """Count the execution as a whole."""
        self._add("executions", report.status.value)
        self._observe("execution", report.duration, buckets=EXECUTION_BUCKETS)
        self._add("read", by=report.total)
        if report.engines:
            self._add("due", str(Channel.INDEXNOW), by=report.new)
        for channel, ranked in report.ranked.items():
            self._add("due", str(channel), by=ranked.due or 0)
        for sitemap in report.sitemaps:
            self._add("sitemaps", "failed" if sitemap.failure else "submitted" if sitemap.submitted else "unchanged")

    async def save(self, connection: AsyncConnection, report: Report, *, database: Database) -> None:
        """Add them to the table, with the execution as a whole, in the caller's transaction. If that fails, this can be
        repeated.
        """
        whole = ExecutionMetrics(self.values.copy())
        whole._conclude(report)
        # Always in the same order, so that two executions that end at once cannot deadlock.
        rows = [
            {"name": name, "labels": json.dumps(labels), "value": value}
            for (name, labels), value in sorted(whole.values.items())
        ]
        insert = database.insert(announce_metrics).values(rows)
        total = announce_metrics.c.value + insert.excluded.value
        await connection.execute(insert.on_conflict_do_update(index_elements=["name", "labels"], set_={"value": total}))

    def _add(self, name: str, *labels: str, by: float = 1) -> None:
        self.values[name, labels] += by  # type: ignore[assignment]  # a Counter of floats

    def _observe(self, name: str, duration: timedelta, *labels: str, buckets: tuple[float, ...]) -> None:
        seconds = duration.total_seconds()
        bound = next((str(bound) for bound in buckets if seconds <= bound), INFINITY)
        self._add(f"{name}_bucket", *labels, bound)
        self._add(f"{name}_sum", *labels, by=seconds)


def _name_engine(engine: Engine) -> tuple[str, str]:
    return str(_CHANNELS.get(engine, Channel.INDEXNOW)), engine.host


async def read_counters(connection: AsyncConnection) -> dict[str, dict[tuple[str, ...], float]]:
    """The sums so far: name → values of the labels → sum."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for row in await connection.execute(select(announce_metrics)):
        found.setdefault(row.name, {})[tuple(json.loads(row.labels))] = row.value
    return found


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is open in the outbox of one channel."""

    # Pages, counted for each engine.
    pages: int
    # When the oldest of them was planned, in milliseconds.
    oldest_at: int | None


async def read_backlog(connection: AsyncConnection) -> Mapping[Channel, Backlog]:
    """The backlog of every channel, also of one without any."""
    columns = deliveries.c
    sums = select(columns.channel, func.sum(columns.size), func.min(columns.batch)).group_by(columns.channel)
    found: dict[int, tuple[int, int]] = {row[0]: (int(row[1]), row[2]) for row in await connection.execute(sums)}
    # Read only the oldest batches, because the row of a batch holds its pages.
    times = select(batches.c.id, batches.c.created_at).where(batches.c.id.in_([batch for _, batch in found.values()]))
    created: dict[int, int] = {row.id: row.created_at for row in await connection.execute(times)}
    backlogs: dict[Channel, Backlog] = {}
    for channel in Channel:
        pages, batch = found.get(channel.value, (0, 0))
        backlogs[channel] = Backlog(pages, created.get(batch))
    return backlogs
