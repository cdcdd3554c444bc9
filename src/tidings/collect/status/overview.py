"""Collection at a glance, for the dashboard: candidates and cookies by platform, keywords, success rate, the mirror's
lag. Two queries, however many candidates there are. `status` has the parts for commands and for the monitor.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import and_, case, func, literal, or_, select, text, union_all

from tidings.collect.crawl.cookies.states import CookieStatus, utc_day
from tidings.collect.crawl.cookies.table import cookies
from tidings.collect.mirror_tables import mirror_outbox
from tidings.collect.status.queries import count_minutes
from tidings.collect.tables import CandidateStatus, candidates, collect_minutes, watched_keywords
from tidings.core.clock import Clock, read_timestamp, to_milliseconds
from tidings.core.db.database import ReadableDatabase

RATE_WINDOW: Final = timedelta(minutes=10)
RECENT: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class PlatformSummary:
    """One platform."""

    # Candidates that are pending, and those that are processing.
    pending: int = 0
    processing: int = 0
    # Candidates that were collected or given up within the last 24 hours.
    collected: int = 0
    failed: int = 0
    # All cookies, and those that can be leased.
    cookies: int = 0
    usable: int = 0
    keywords: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionSummary:
    """Collection as a whole."""

    platforms: Mapping[str, PlatformSummary] = field(default_factory=dict)
    # All keywords, and those that are watched.
    keywords: int = 0
    watched: int = 0
    last_search_at: datetime | None = None
    # Tries of the last ten minutes.
    succeeded: int = 0
    failed: int = 0
    # Rows that the mirror has not delivered yet, and since when the oldest has been waiting.
    mirror_rows: int = 0
    mirror_since: datetime | None = None

    @property
    def success_rate(self) -> float | None:
        """From 0 to 1; None if nothing was tried."""
        tries = self.succeeded + self.failed
        return self.succeeded / tries if tries else None

    @property
    def is_empty(self) -> bool:
        """Whether there are no keywords, and no data of any platform."""
        return not (self.platforms or self.keywords)


async def read_collection(database: ReadableDatabase, *, clock: Clock) -> CollectionSummary:
    """The present summary."""
    now = clock.now()
    async with database.read() as connection:
        rows = (await connection.execute(_select_platforms(now))).all()
        totals = (await connection.execute(_select_totals(now))).one()
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        found.setdefault(row.platform, {})[row.name] = int(row.number)
    return CollectionSummary(
        platforms={platform: PlatformSummary(**numbers) for platform, numbers in sorted(found.items())},
        keywords=totals.keywords,
        watched=totals.watched or 0,
        last_search_at=read_timestamp(totals.last_search),
        succeeded=int(totals.succeeded or 0),
        failed=int(totals.failed or 0),
        mirror_rows=totals.mirror_rows,
        mirror_since=read_timestamp(totals.mirror_since),
    )


def _select_platforms(now: datetime) -> Any:
    """Rows of platform, name of a number, and the number.

    Statuses are literals: with bound values the databases would not use the partial index of each status.
    """
    since = to_milliseconds(now - RECENT)
    # An expression: with the bare column SQLite would scan the primary key instead of the index by time.
    platform = (candidates.c.platform + "").label("platform")
    parts = [
        select(platform, literal(status.value).label("name"), func.count().label("number"))
        .where(text(f"tbl_candidate.status = '{status.value}'"), *conditions)
        .group_by(platform)
        for status, conditions in (
            (CandidateStatus.PENDING, ()),
            (CandidateStatus.PROCESSING, ()),
            (CandidateStatus.COLLECTED, (candidates.c.updated_at >= since,)),
            (CandidateStatus.FAILED, (candidates.c.updated_at >= since,)),
        )
    ]
    has_cooled = and_(cookies.c.status == CookieStatus.COOLING.value, cookies.c.cooling_until <= to_milliseconds(now))
    is_usable = and_(
        or_(cookies.c.status == CookieStatus.ACTIVE.value, has_cooled),
        or_(cookies.c.daily_used < cookies.c.daily_limit, cookies.c.used_on < utc_day(now).isoformat()),
    )
    for name, number in (("cookies", func.count()), ("usable", func.sum(case((is_usable, 1), else_=0)))):
        parts.append(select(cookies.c.platform, literal(name), number).group_by(cookies.c.platform))
    words = watched_keywords.c
    parts.append(select(words.platform, literal("keywords"), func.count()).group_by(words.platform))
    return union_all(*parts)


def _select_totals(now: datetime) -> Any:
    words, is_recent = watched_keywords.c, collect_minutes.c.minute > count_minutes(now - RATE_WINDOW)
    return select(
        select(func.count()).select_from(watched_keywords).scalar_subquery().label("keywords"),
        select(func.sum(case((words.enabled, 1), else_=0))).scalar_subquery().label("watched"),
        select(func.max(words.last_run_at)).scalar_subquery().label("last_search"),
        select(func.sum(collect_minutes.c.succeeded)).where(is_recent).scalar_subquery().label("succeeded"),
        select(func.sum(collect_minutes.c.failed)).where(is_recent).scalar_subquery().label("failed"),
        select(func.count()).select_from(mirror_outbox).scalar_subquery().label("mirror_rows"),
        select(func.min(mirror_outbox.c.created_at)).scalar_subquery().label("mirror_since"),
    )
