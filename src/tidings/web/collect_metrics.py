"""Prometheus metrics of collect, read from the tables at each scrape. The number of series is bounded: platforms,
statuses and codes are few, and of the keywords the 50 with most notes are named."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Final, TypeVar

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from tidings.collect.candidate_counts import count_candidates
from tidings.collect.feishu.mirror import FeishuMirror
from tidings.collect.status.queries import count_notes, count_threads, find_longest_wait, read_tries
from tidings.collect.write.cookies import CookieRecords
from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.web.metrics import make_gauge

Status = TypeVar("Status", bound=StrEnum)

_MOST_KEYWORDS: Final = 50


@dataclass(frozen=True, slots=True, eq=False)
class CollectionMetrics:
    """Collects the metrics of collect."""

    database: Database
    _: KW_ONLY
    clock: Clock
    cookies: CookieRecords
    mirror: FeishuMirror | None

    async def __call__(self) -> Iterable[Metric]:
        async with self.database.read() as connection:
            candidates = await count_candidates(connection)
            waits = await find_longest_wait(connection)
            tries = await read_tries(connection)
            notes = await count_notes(connection, most=_MOST_KEYWORDS)
            threads = await count_threads(connection)
        cookies = Counter((each.platform, each.state.status.value) for each in await self.cookies.list_all())
        now = self.clock.now()
        due_for = {platform: max(0.0, (now - since).total_seconds()) for platform, since in waits.items()}
        by_status = ("platform", "status")
        return [
            make_gauge(
                "tidings_collect_candidates", "Candidates by platform and status.", _flatten(candidates), *by_status
            ),
            make_gauge(
                "tidings_collect_oldest_pending_seconds",
                "How long the first pending candidate of a platform has been due.",
                due_for,
                "platform",
            ),
            _make_tries(tries),
            make_gauge("tidings_collect_cookies", "Cookies by platform and status.", cookies, *by_status),
            make_gauge(
                "tidings_collect_notes",
                "Notes by the keyword that found them first; an empty keyword is all others.",
                notes,
                "keyword",
            ),
            make_gauge(
                "tidings_collect_comment_threads",
                "Notes whose comments are not all read, by platform and status.",
                _flatten(threads),
                *by_status,
            ),
            *await self._measure_mirror(),
        ]

    async def _measure_mirror(self) -> list[Metric]:
        if self.mirror is None:
            return []
        status = await self.mirror.describe()
        lag = 0.0 if status.oldest is None else (self.clock.now() - status.oldest).total_seconds()
        return [
            GaugeMetricFamily("tidings_mirror_waiting", "Changes that wait for Feishu.", value=status.waiting),
            GaugeMetricFamily(
                "tidings_mirror_lag_seconds", "Age of the oldest change that waits.", value=max(0.0, lag)
            ),
        ]


def _flatten(counts: Mapping[str, Mapping[Status, int]]) -> dict[tuple[str, str], int]:
    """By platform and status."""
    return {(platform, status.value): n for platform, of in counts.items() for status, n in of.items()}


def _make_tries(tries: Iterable[tuple[str, str, int]]) -> Metric:
    counter = CounterMetricFamily(
        "tidings_collect_tries",
        "Tries of notes and pages of comments by error code; OK is a success.",
        labels=("platform", "code"),
    )
    for platform, code, number in tries:
        counter.add_metric((platform, code), number)
    return counter
