"""The list of all sites: condition, last and next execution, 30 days of statistics, quota. A page of sites costs three
queries, however many sites there are; one site costs two. Status of one site in detail is in `status`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    CompoundSelect,
    FromClause,
    Select,
    case,
    cast,
    exists,
    func,
    literal,
    null,
    or_,
    select,
    true,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.broken_engines import broken_engines
from tidings.announce.channels.quota.kinds import RANKED_KINDS
from tidings.announce.channels.quota.quota import QuotaState
from tidings.announce.channels.quota.site_columns import join_quota, read_quota
from tidings.announce.ledger.batch_state import DayCount
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.statistics import read_series
from tidings.announce.schedule.table import EVERYTHING, schedules
from tidings.announce.site.site import ANNOUNCE, WORKFLOW_PREFIX
from tidings.announce.site.table import select_count, sites
from tidings.core.alerts.conditions import SELECT_OPEN_COUNT
from tidings.core.clock import Clock, read_timestamp, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.execution_table import ExecutionStatus, executions, last_executions
from tidings.core.queue.workers import select_worker_name

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


# In SQL a condition is its place in the order of urgency: numbers sort faster than words.
_RANKS: Final = {condition: rank for rank, condition in enumerate(SiteCondition)}
_CONDITIONS: Final = tuple(SiteCondition)
# The last execution ended so: nothing was announced.
_FAILED: Final = (ExecutionStatus.FAILED.value, ExecutionStatus.TIMEOUT.value)
NEEDS_ATTENTION: Final = (SiteCondition.BROKEN, SiteCondition.OVERDUE, SiteCondition.PARTIAL)


class SiteOrder(StrEnum):
    URGENT = "urgent"
    NAME = "name"
    LAST_RUN = "last"
    NEXT_RUN = "next"


@dataclass(frozen=True, slots=True)
class SiteSummary:
    """One site in the list."""

    id: str
    number: int
    group: str | None
    condition: SiteCondition
    # Why the condition is what it is, in the engine's or Tidings' own words; None if the condition is enough.
    reason: str | None
    # The last execution that ended; None for a new site.
    last_at: datetime | None
    last_status: ExecutionStatus | None
    last_result: Mapping[str, Any]
    # The running execution's id and saved progress.
    running_id: str | None
    running_since: datetime | None
    # The name of the worker that runs it; None while it waits for one, or if a command runs it.
    running_worker: str | None
    next_at: datetime | None
    # Whether it is paused, alone or together with all others.
    paused: bool
    # The channels that the site has switched on.
    channels: tuple[Channel, ...]
    # Today's quota of each channel that has one and is switched on.
    quotas: Mapping[Channel, QuotaState]
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


@dataclass(frozen=True, slots=True)
class FleetCounts:
    """Numbers that every page shows."""

    # Configured sites; of one group, if only that was asked for.
    sites: int
    # Of all sites.
    open_alerts: int


async def list_sites(
    database: Database,
    *,
    clock: Clock,
    search: str = "",
    group: str | None = None,
    conditions: Sequence[SiteCondition] = (),
    order: SiteOrder = SiteOrder.URGENT,
    offset: int = 0,
    limit: int = 25,
) -> SitePage:
    """One page of sites, of one group or of all. `search` is a part of the id, no `conditions` means all of them."""
    now = clock.now()
    known = _select_conditions(now, true() if group is None else sites.c.group_name == group)
    fits = _make_filter(known, search=search, conditions=conditions)
    async with database.read() as connection:
        rows = (await connection.execute(_select_numbers(known, fits, order, offset=offset, limit=limit))).all()
        chosen = [row for row in rows if row.place is not None]
        sites_by_number = await _read_sites(connection, chosen, now=now)
    counted = [row for row in rows if row.place is None]
    return SitePage(
        tuple(sites_by_number[row.number] for row in sorted(chosen, key=lambda row: row.place)),
        found=sum(row.last_row for row in counted),
        counts={_CONDITIONS[row.rank]: row.number for row in counted},
    )


async def find_summary(database: Database, number: int, *, clock: Clock) -> SiteSummary | None:
    """One site; None if it was removed."""
    now = clock.now()
    known = _select_conditions(now, sites.c.number == number)
    async with database.read() as connection:
        rows = (await connection.execute(select(known))).all()
        return (await _read_sites(connection, rows, now=now)).get(number)


async def count_fleet(database: Database, *, group: str | None) -> FleetCounts:
    """One query, because every page of the dashboard asks it."""
    sites_count, alerts = select_count(group).scalar_subquery(), SELECT_OPEN_COUNT.scalar_subquery()
    row = await database.fetch_row(select(sites_count.label("sites"), alerts.label("open_alerts")))
    return FleetCounts(sites=row.sites, open_alerts=row.open_alerts)


def _select_found(wanted: ColumnElement[bool]) -> CTE:
    """Every wanted site, with what its condition depends on."""
    everything = schedules.alias("everything")
    workflow = literal(WORKFLOW_PREFIX) + sites.c.id
    running_row = (
        select(executions.c.id)
        .where(executions.c.workflow_name == workflow, executions.c.status == ExecutionStatus.RUNNING.value)
        .scalar_subquery()
    )
    return (
        select(
            sites.c.number,
            sites.c.id,
            sites.c.enabled,
            schedules.c.next_at,
            or_(schedules.c.paused_at.is_not(None), everything.c.paused_at.is_not(None)).label("paused"),
            exists().where(broken_engines.c.site == sites.c.number).label("refused"),
            running_row.label("running_row"),
            last_executions.c.execution.label("last_row"),
            last_executions.c.status,
        )
        .select_from(
            sites.outerjoin(schedules, schedules.c.site == sites.c.number)
            .outerjoin(everything, everything.c.site == EVERYTHING)
            .outerjoin(
                last_executions,
                (last_executions.c.workflow_name == workflow) & (last_executions.c.kind == ANNOUNCE),
            )
        )
        .where(sites.c.removed_at.is_(None), wanted)
        .cte("found")
        .prefix_with("MATERIALIZED")
    )


def _select_conditions(now: datetime, wanted: ColumnElement[bool]) -> CTE:
    """Every wanted site with its condition. Both steps are materialized, so that each look-up runs once per site."""
    found = _select_found(wanted)
    rank = case(
        (or_(~found.c.enabled, found.c.paused), _RANKS[SiteCondition.PAUSED]),
        (found.c.refused, _RANKS[SiteCondition.BROKEN]),
        (found.c.running_row.is_not(None), _RANKS[SiteCondition.RUNNING]),
        (found.c.next_at < to_milliseconds(now - GRACE), _RANKS[SiteCondition.OVERDUE]),
        (found.c.status.is_(None), _RANKS[SiteCondition.NEW]),
        (found.c.status.in_(_FAILED), _RANKS[SiteCondition.BROKEN]),
        (found.c.status == ExecutionStatus.SUCCEEDED.value, _RANKS[SiteCondition.OK]),
        else_=_RANKS[SiteCondition.PARTIAL],
    )
    return (
        select(
            found.c.number,
            found.c.id,
            rank.label("rank"),
            found.c.next_at,
            found.c.paused,
            found.c.running_row,
            found.c.last_row,
        )
        .cte("known")
        .prefix_with("MATERIALIZED")
    )


def _select_numbers(
    known: CTE, fits: ColumnElement[bool], order: SiteOrder, *, offset: int, limit: int
) -> CompoundSelect[Any]:
    """The sites of a page with their place in it, and one row for each condition: its sites, and those that fit."""
    columns = (known.c.number, known.c.rank, known.c.next_at, known.c.paused, known.c.running_row, known.c.last_row)
    first = select(*columns, known.c.id).where(fits).order_by(*_sort(known.c, order)).offset(offset).limit(limit)
    # Only these few sites are numbered: numbering all would take longer than the rest of the query.
    page = first.subquery("page")
    place = func.row_number().over(order_by=_sort(page.c, order)).label("place")
    counts = select(
        null().label("place"),
        func.count().label("number"),
        known.c.rank,
        null().label("next_at"),
        null().label("paused"),
        null().label("running_row"),
        cast(func.sum(case((fits, 1), else_=0)), BigInteger).label("last_row"),
    ).group_by(known.c.rank)
    return union_all(select(place, *(page.c[column.name] for column in columns)), counts)


def _make_filter(known: CTE, *, search: str, conditions: Sequence[SiteCondition]) -> ColumnElement[bool]:
    fits: ColumnElement[bool] = true()
    if search:
        fits = fits & known.c.id.contains(search.lower(), autoescape=True)
    if conditions:
        fits = fits & known.c.rank.in_([_RANKS[condition] for condition in conditions])
    return fits


def _sort(columns: Any, order: SiteOrder) -> tuple[ColumnElement[Any], ...]:
    match order:
        case SiteOrder.NAME:
            return (columns.id,)
        case SiteOrder.LAST_RUN:
            return (columns.last_row.is_(None), columns.last_row.desc(), columns.id)
        case SiteOrder.NEXT_RUN:
            return (columns.next_at.is_(None), columns.next_at, columns.id)
        case SiteOrder.URGENT:
            return (columns.rank, columns.id)


async def _read_sites(connection: AsyncConnection, known: Sequence[Any], *, now: datetime) -> dict[int, SiteSummary]:
    """The summaries of these rows of `known`, by number, in two queries."""
    if not known:
        return {}
    today = now.astimezone(UTC).date()
    numbers = [row.number for row in known]
    details = (await connection.execute(_select_details(known, now=now))).all()
    days = await read_series(connection, numbers, today=today, days=DAYS)
    by_number = {row.number: row for row in known}
    return {row.number: _read_summary(by_number[row.number], row, days.get(row.number, {}), now=now) for row in details}


def _select_details(known: Sequence[Any], *, now: datetime) -> Select[Any]:
    last, running = executions.alias("last"), executions.alias("running")
    workflow = literal(WORKFLOW_PREFIX) + sites.c.id
    refusal = (
        select(broken_engines.c.reason)
        .where(broken_engines.c.site == sites.c.number)
        .limit(1)
        .scalar_subquery()
        .label("refusal")
    )
    columns: list[Any] = [
        sites.c.number,
        sites.c.id,
        sites.c.settings,
        sites.c.group_name,
        refusal,
        last.c.started_at.label("last_at"),
        last.c.status.label("last_status"),
        last.c.result.label("last_result"),
        running.c.public_id.label("running_id"),
        running.c.started_at.label("running_since"),
        select_worker_name(running.c.holder).label("running_worker"),
    ]
    tables: FromClause = sites.outerjoin(
        last,
        (last.c.workflow_name == workflow) & last.c.id.in_([row.last_row for row in known if row.last_row is not None]),
    ).outerjoin(
        running,
        (running.c.workflow_name == workflow)
        & running.c.id.in_([row.running_row for row in known if row.running_row is not None]),
    )
    for kind in RANKED_KINDS:
        tables, quota = join_quota(tables, kind, day=kind.find_day(now).isoformat())
        columns += quota
    return select(*columns).select_from(tables).where(sites.c.number.in_([row.number for row in known]))


def _read_summary(known: Any, row: Any, days: Mapping[Channel, Sequence[DayCount]], *, now: datetime) -> SiteSummary:
    settings = json.loads(row.settings)
    result = json.loads(row.last_result or "{}")
    enabled = [kind for kind in RANKED_KINDS if settings.get(kind.fields.enabled)]
    quotas = {kind.channel: read_quota(row, kind, settings, day=kind.find_day(now)) for kind in enabled}
    condition = _CONDITIONS[known.rank]
    return SiteSummary(
        id=row.id,
        number=row.number,
        group=row.group_name,
        condition=condition,
        reason=_find_reason(condition, refusal=row.refusal, result=result),
        last_at=read_timestamp(row.last_at),
        last_status=None if row.last_status is None else ExecutionStatus(row.last_status),
        last_result=result,
        running_id=row.running_id,
        running_since=read_timestamp(row.running_since),
        running_worker=row.running_worker,
        next_at=None if condition is SiteCondition.PAUSED else read_timestamp(known.next_at),
        paused=bool(known.paused),
        channels=(Channel.INDEXNOW, *quotas),
        quotas=quotas,
        days=days,
    )


def _find_reason(condition: SiteCondition, *, refusal: str | None, result: Mapping[str, Any]) -> str | None:
    if condition is SiteCondition.BROKEN and refusal:
        return refusal
    if condition in NEEDS_ATTENTION:
        reasons = [*result.get("errors", ()), *result.get("warnings", ())]
        return str(reasons[0]) if reasons else None
    return None
