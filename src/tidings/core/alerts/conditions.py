"""The table of open conditions, one row for each kind and subject, and the table of those that ended.

A row is inserted when a condition begins, marked when it fires, and deleted when it ends. If people were notified,
the end is stored among the past alerts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    RowMapping,
    Table,
    Text,
    UniqueConstraint,
    and_,
    case,
    delete,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.alerts.events import Alert
from tidings.core.clock import from_milliseconds, read_timestamp, to_milliseconds
from tidings.core.db.columns import required
from tidings.core.db.database import Database, RowId, metadata
from tidings.core.db.postgresql_options import partial_index

_has_not_fired = text("fired_at IS NULL")

alert_conditions = Table(
    "alert_conditions",
    metadata,
    Column("id", RowId, primary_key=True),
    *required(Text, "kind", "subject", "reason", "action"),
    Column("count", BigInteger),
    *required(BigInteger, "since", "fires_at"),
    Column("fired_at", BigInteger),
    UniqueConstraint("kind", "subject"),
    partial_index("alert_conditions_waiting", "fires_at", where=_has_not_fired),
    sqlite_autoincrement=True,
)

SELECT_OPEN_COUNT: Final = select(func.count()).select_from(alert_conditions)

past_alerts = Table(
    "past_alerts",
    metadata,
    Column("id", RowId, primary_key=True),
    *required(Text, "kind", "subject", "reason"),
    # Milliseconds since 1970: when it began, and when it ended.
    *required(BigInteger, "since", "ended_at"),
    Index("past_alerts_age", "ended_at"),
    sqlite_autoincrement=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAlert:
    """A condition that people were notified of, and that ended."""

    # The kind's name.
    kind: str
    subject: str
    # As in the alert that was raised last.
    reason: str
    since: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCondition:
    """A condition that holds."""

    # The kind's name; kind and subject identify the condition.
    kind: str
    subject: str
    # As in the alert that was raised last.
    reason: str
    action: str
    count: int | None
    # When it began.
    since: datetime
    # When people were notified; None while it has not lasted long enough.
    fired_at: datetime | None


class Conditions:
    """The open conditions. If several processes fire one condition at once, one of them gets it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def store(self, connection: AsyncConnection, alert: Alert, *, at: datetime, after: timedelta) -> None:
        """Store that the condition holds. A known one keeps its beginning, unless that is in the future because a clock
        was ahead; the rest is updated."""
        since, lasting = to_milliseconds(at), after // timedelta(milliseconds=1)
        statement = self._database.insert(alert_conditions).values(
            kind=alert.kind,
            subject=alert.subject,
            reason=alert.reason,
            action=alert.action,
            count=alert.count,
            since=since,
            fires_at=since + lasting,
        )
        new = statement.excluded
        began = case((alert_conditions.c.since > new.since, new.since), else_=alert_conditions.c.since)
        await connection.execute(
            statement.on_conflict_do_update(
                index_elements=["kind", "subject"],
                set_={
                    "reason": new.reason,
                    "action": new.action,
                    "count": new["count"],
                    "since": began,
                    "fires_at": began + lasting,
                },
            )
        )

    async def fire(self, connection: AsyncConnection, kind: str, subject: str, *, at: datetime) -> OpenCondition | None:
        """Mark this condition as fired. None if it has fired before, or has not lasted long enough."""
        fired = await self._fire(connection, _is_condition(kind, subject), at=at)
        return fired[0] if fired else None

    async def fire_due(self, connection: AsyncConnection, *, at: datetime, limit: int) -> list[OpenCondition]:
        """Mark the conditions that have lasted long enough. Rows that another process has locked are left to the next
        call."""
        due = (
            select(alert_conditions.c.id)
            .where(_has_not_fired, alert_conditions.c.fires_at <= to_milliseconds(at))
            .order_by(alert_conditions.c.fires_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        return await self._fire(connection, alert_conditions.c.id.in_(due), at=at)

    async def _fire(
        self, connection: AsyncConnection, which: ColumnElement[bool], *, at: datetime
    ) -> list[OpenCondition]:
        now = to_milliseconds(at)
        statement = (
            update(alert_conditions)
            .where(which, _has_not_fired, alert_conditions.c.fires_at <= now)
            .values(fired_at=now)
            .returning(alert_conditions)
        )
        return [_read_condition(row) for row in (await connection.execute(statement)).mappings()]

    async def remove(self, connection: AsyncConnection, kind: str, subject: str) -> OpenCondition | None:
        """Delete the condition and return it; None if it did not hold."""
        statement = delete(alert_conditions).where(_is_condition(kind, subject)).returning(alert_conditions)
        row = (await connection.execute(statement)).mappings().first()
        return None if row is None else _read_condition(row)

    async def store_end(self, connection: AsyncConnection, over: OpenCondition, *, at: datetime) -> None:
        """Keep a condition that ended among the past alerts."""
        values = {
            "kind": over.kind,
            "subject": over.subject,
            "reason": over.reason,
            "since": to_milliseconds(over.since),
            "ended_at": to_milliseconds(at),
        }
        await connection.execute(insert(past_alerts).values(values))

    async def list_past(self, *, limit: int) -> list[PastAlert]:
        """The latest end first."""
        statement = select(past_alerts).order_by(past_alerts.c.id.desc()).limit(limit)
        return [
            PastAlert(
                kind=row.kind,
                subject=row.subject,
                reason=row.reason,
                since=from_milliseconds(row.since),
                ended_at=from_milliseconds(row.ended_at),
            )
            for row in await self._database.fetch(statement)
        ]

    async def purge_past(self, *, before: datetime) -> None:
        """Delete alerts that ended before `before`."""
        statement = delete(past_alerts).where(past_alerts.c.ended_at < to_milliseconds(before))
        await self._database.change(statement)

    async def find(self, connection: AsyncConnection, kind: str, subject: str) -> OpenCondition | None:
        statement = select(alert_conditions).where(_is_condition(kind, subject))
        row = (await connection.execute(statement)).mappings().first()
        return None if row is None else _read_condition(row)

    async def list_open(self, *, limit: int, ranks: Mapping[str, int]) -> list[OpenCondition]:
        """The most urgent first (rank 0), then the newest. Kinds of another release have no rank, and come last."""
        columns = alert_conditions.c
        by_rank = [case(ranks, value=columns.kind, else_=len(ranks))] if ranks else []
        statement = select(alert_conditions).order_by(*by_rank, columns.id.desc()).limit(limit)
        async with self._database.read() as connection:
            return [_read_condition(row) for row in (await connection.execute(statement)).mappings()]

    async def list_names(self, connection: AsyncConnection) -> list[tuple[str, str]]:
        """Kind and subject of all that hold."""
        rows = await connection.execute(select(alert_conditions.c.kind, alert_conditions.c.subject))
        return [(row.kind, row.subject) for row in rows]

    async def count_open(self) -> int:
        return int(await self._database.fetch_value(SELECT_OPEN_COUNT))

    async def find_next_due(self, connection: AsyncConnection) -> int | None:
        """When the next condition will have lasted long enough, in milliseconds."""
        statement = select(func.min(alert_conditions.c.fires_at)).where(_has_not_fired)
        found: int | None = (await connection.execute(statement)).scalar_one()
        return found


def _is_condition(kind: str, subject: str) -> ColumnElement[bool]:
    return and_(alert_conditions.c.kind == kind, alert_conditions.c.subject == subject)


def _read_condition(row: RowMapping) -> OpenCondition:
    return OpenCondition(
        kind=row["kind"],
        subject=row["subject"],
        reason=row["reason"],
        action=row["action"],
        count=row["count"],
        since=from_milliseconds(row["since"]),
        fired_at=read_timestamp(row["fired_at"]),
    )
