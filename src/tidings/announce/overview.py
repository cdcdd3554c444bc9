"""All sites at a glance: condition, last and next execution, 30 days of statistics, quota. A page of sites costs three
queries, however many sites there are. Status of one site in detail is in `status`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import CTE, ColumnElement, case, exists, func, literal, or_, select, true
from sqlalchemy.sql.elements import Label

from tidings.announce.channels.broken_engines import broken_engines
from tidings.announce.channels.quota import bing_quota
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.statistics import DayCount, daily_stats
from tidings.announce.schedule.table import EVERYTHING, schedules
from tidings.announce.site.site import ANNOUNCE, DEFAULT_BING_QUOTA, WORKFLOW_PREFIX
from tidings.announce.site.table import sites
from tidings.core.clock import Clock, from_milliseconds, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.execution_table import ExecutionStatus, executions

DAYS: Final = 30
# A scheduled execution may wait this long for a free place before its site counts as overdue.
GRACE: Final = timedelta(minutes=15)


class SiteCondition(StrEnum):
    """A site's condition, the most urgent first."""

    BROKEN = "broken"
    OVERDUE = "overdue"
    PARTIAL = "partial"
    RUNNING = "running"
    NEW = "new"
    OK = "ok"
    PAUSED = "paused"


NEEDS_ATTENTION: Final = (SiteCondition.BROKEN, SiteCondition.OVERDUE, SiteCondition.PARTIAL)


class SiteOrder(StrEnum):
    URGENT = "urgent"
    NAME = "name"
    LAST_RUN = "last"
    NEXT_RUN = "next"


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """A channel's quota of today."""

    used: int
    limit: int
    # The channel itself said that it takes nothing more today.
    full: bool = False


@dataclass(frozen=True, slots=True)
class SiteSummary:
    """One site in the list."""

    id: str
    number: int
    condition: SiteCondition
    # Why the condition is what it is, in the engine's or Tidings' own words; None where the condition says it all.
    reason: str | None
    # The last execution that ended; None for a new site.
    last_at: datetime | None
    last_status: ExecutionStatus | None
    last_result: Mapping[str, Any]
    # The running execution's id and saved progress.
    running_id: str | None
    running_since: datetime | None
    next_at: datetime | None
    # The channels that the site has switched on.
    channels: tuple[Channel, ...]
    bing_quota: QuotaUse | None
    # For each channel, one count per day, the oldest first.
    days: Mapping[Channel, Sequence[DayCount]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SitePage:
    """A page of the list, and how many sites there are of each condition."""

    sites: tuple[SiteSummary, ...]
    # Sites that fit search and filter.
    found: int
    counts: Mapping[SiteCondition, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def attention(self) -> int:
        return sum(self.counts.get(each, 0) for each in NEEDS_ATTENTION)


async def list_sites(
    database: Database,
    *,
    clock: Clock,
    site: int | None = None,
    search: str = "",
    conditions: Sequence[SiteCondition] = (),
    order: SiteOrder = SiteOrder.URGENT,
    offset: int = 0,
    limit: int = 25,
) -> SitePage:
    """One page of sites. `site` asks for one alone, `search` is a part of the id, no `conditions` means all of them."""
    now = clock.now()
    known = _select_conditions(now, site=site)
    fits = _make_filter(known, search=search, conditions=conditions)
    async with database.read() as connection:
        counted = await connection.execute(select(known.c.condition, func.count()).group_by(known.c.condition))
        counts = {SiteCondition(condition): int(number) for condition, number in counted}
        found = sum(counts.values())
        if search or conditions:
            found = int((await connection.execute(select(func.count()).select_from(known).where(fits))).scalar_one())
        rows = (
            await connection.execute(
                _select_page(known, now).where(fits).order_by(*_sort(known, order)).offset(offset).limit(limit)
            )
        ).all()
        days = await _read_days(connection, [row.number for row in rows], today=now.astimezone(UTC).date())
    return SitePage(tuple(_read_summary(row, days.get(row.number, {}), now) for row in rows), found, counts)


def _select_conditions(now: datetime, *, site: int | None) -> CTE:
    """Every site with its condition; the rows that make it up are found by index."""
    everything, last = schedules.alias("everything"), executions.alias("last")
    workflow = literal(WORKFLOW_PREFIX) + sites.c.id
    running_id = (
        select(executions.c.id)
        .where(executions.c.workflow_name == workflow, executions.c.status == ExecutionStatus.RUNNING.value)
        .scalar_subquery()
    )
    newest = executions.alias("newest")
    last_id = (
        select(newest.c.id)
        .where(
            newest.c.workflow_name == workflow,
            newest.c.kind == ANNOUNCE,
            newest.c.status != ExecutionStatus.RUNNING.value,
        )
        .order_by(newest.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    is_broken = exists().where(broken_engines.c.site == sites.c.number)
    condition = case(
        (
            or_(~sites.c.enabled, schedules.c.paused_at.is_not(None), everything.c.paused_at.is_not(None)),
            SiteCondition.PAUSED.value,
        ),
        (is_broken, SiteCondition.BROKEN.value),
        (running_id.is_not(None), SiteCondition.RUNNING.value),
        (schedules.c.next_at < to_milliseconds(now - GRACE), SiteCondition.OVERDUE.value),
        (last.c.status.is_(None), SiteCondition.NEW.value),
        (
            last.c.status.in_([ExecutionStatus.FAILED.value, ExecutionStatus.TIMEOUT.value]),
            SiteCondition.BROKEN.value,
        ),
        (last.c.status != ExecutionStatus.SUCCEEDED.value, SiteCondition.PARTIAL.value),
        else_=SiteCondition.OK.value,
    )
    return (
        select(
            sites.c.number,
            sites.c.id,
            condition.label("condition"),
            running_id.label("running_row"),
            last.c.id.label("last_row"),
            schedules.c.next_at,
        )
        .select_from(
            sites.outerjoin(schedules, schedules.c.site == sites.c.number)
            .outerjoin(everything, everything.c.site == EVERYTHING)
            .outerjoin(last, last.c.id == last_id)
        )
        .where(sites.c.removed_at.is_(None), true() if site is None else sites.c.number == site)
        .cte("known")
    )


def _make_filter(known: CTE, *, search: str, conditions: Sequence[SiteCondition]) -> ColumnElement[bool]:
    fits: ColumnElement[bool] = true()
    if search:
        fits = fits & known.c.id.contains(search.lower(), autoescape=True)
    if conditions:
        fits = fits & known.c.condition.in_([condition.value for condition in conditions])
    return fits


def _sort(known: CTE, order: SiteOrder) -> tuple[ColumnElement[Any], ...]:
    match order:
        case SiteOrder.NAME:
            return (known.c.id,)
        case SiteOrder.LAST_RUN:
            return (known.c.last_row.is_(None), known.c.last_row.desc(), known.c.id)
        case SiteOrder.NEXT_RUN:
            return (known.c.next_at.is_(None), known.c.next_at, known.c.id)
        case SiteOrder.URGENT:
            ranks = {condition.value: rank for rank, condition in enumerate(SiteCondition)}
            return (case(ranks, value=known.c.condition), known.c.id)


def _select_page(known: CTE, now: datetime) -> Any:
    last, running, today = executions.alias("last"), executions.alias("running"), bing_quota.alias("today")
    reason: Label[Any] = (
        select(broken_engines.c.reason)
        .where(broken_engines.c.site == known.c.number)
        .limit(1)
        .scalar_subquery()
        .label("refusal")
    )
    return select(
        known.c.number,
        known.c.id,
        known.c.condition,
        known.c.next_at,
        sites.c.settings,
        reason,
        last.c.started_at.label("last_at"),
        last.c.status.label("last_status"),
        last.c.result.label("last_result"),
        running.c.public_id.label("running_id"),
        running.c.started_at.label("running_since"),
        today.c.used.label("quota_used"),
        today.c.full.label("quota_full"),
    ).select_from(
        known.join(sites, sites.c.number == known.c.number)
        .outerjoin(last, last.c.id == known.c.last_row)
        .outerjoin(running, running.c.id == known.c.running_row)
        .outerjoin(
            today,
            (today.c.site == known.c.number) & (today.c.day == now.astimezone(UTC).date().isoformat()),
        )
    )


async def _read_days(
    connection: Any, numbers: Sequence[int], *, today: date
) -> dict[int, dict[Channel, list[DayCount]]]:
    """30 days of every channel of these sites, in one query."""
    if not numbers:
        return {}
    first = today - timedelta(days=DAYS - 1)
    columns = daily_stats.c
    statement = select(columns.site, columns.channel, columns.day, columns.total, columns.successful).where(
        columns.site.in_(numbers), columns.day >= first.isoformat(), columns.day <= today.isoformat()
    )
    found: dict[int, dict[Channel, list[DayCount]]] = {}
    for site, channel, day, total, successful in await connection.execute(statement):
        series = found.setdefault(site, {}).setdefault(Channel(channel), [DayCount()] * DAYS)
        series[(date.fromisoformat(day) - first).days] = DayCount(int(total), int(successful))
    return found


def _read_summary(row: Any, days: Mapping[Channel, Sequence[DayCount]], now: datetime) -> SiteSummary:
    settings = json.loads(row.settings)
    result = json.loads(row.last_result or "{}")
    with_bing = bool(settings.get("bingEnabled", False))
    condition = SiteCondition(row.condition)
    limit = settings.get("bingDailyQuota", DEFAULT_BING_QUOTA)
    return SiteSummary(
        id=row.id,
        number=row.number,
        condition=condition,
        reason=_find_reason(condition, refusal=row.refusal, result=result),
        last_at=None if row.last_at is None else from_milliseconds(row.last_at),
        last_status=None if row.last_status is None else ExecutionStatus(row.last_status),
        last_result=result,
        running_id=row.running_id,
        running_since=None if row.running_since is None else from_milliseconds(row.running_since),
        next_at=None if row.next_at is None or condition is SiteCondition.PAUSED else from_milliseconds(row.next_at),
        channels=(Channel.INDEXNOW, Channel.BING) if with_bing else (Channel.INDEXNOW,),
        bing_quota=QuotaUse(row.quota_used or 0, limit, bool(row.quota_full)) if with_bing else None,
        days=days,
    )


def _find_reason(condition: SiteCondition, *, refusal: str | None, result: Mapping[str, Any]) -> str | None:
    if condition is SiteCondition.BROKEN and refusal:
        return refusal
    if condition in NEEDS_ATTENTION:
        told = [*result.get("errors", ()), *result.get("warnings", ())]
        return str(told[0]) if told else None
    return None
