"""The outbox of events: one row for each event and destination, inserted in the transaction that makes the event.

A claim is a lease: it moves `due_at` beyond the time that one attempt may take, so a crash makes the row due again. A
destination gets the events of one condition in order.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Integer,
    RowMapping,
    Table,
    Text,
    UniqueConstraint,
    and_,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.expression import FromClause

from tidings.core.alerts.conditions import OpenCondition
from tidings.core.alerts.events import AlertEvent, EventType
from tidings.core.alerts.kinds import AlertKinds, AlertLevel, Language
from tidings.core.alerts.translation import Translator
from tidings.core.clock import from_milliseconds, to_milliseconds
from tidings.core.db.columns import required
from tidings.core.db.database import Database, RowId, metadata
from tidings.core.db.postgresql_options import partial_index

LEASE = timedelta(minutes=5)
# No wait is longer. A row that is due later was written by a clock that was ahead, and is due now.
_LONGEST_WAIT = timedelta(days=2)


class AlertOutboxState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"


_is_pending = text("state = 'pending'")
# A literal: with a bound value PostgreSQL would not use the partial index over pending rows.
_PENDING: ColumnElement[str] = literal_column("'pending'")

alert_outbox = Table(
    "alert_outbox",
    metadata,
    Column("id", RowId, primary_key=True),
    *required(Text, "event_id", "destination", "type", "kind", "subject", "reason", "action"),
    Column("count", BigInteger),
    *required(BigInteger, "since", "occurred_at"),
    Column("state", Text, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("waited", BigInteger, nullable=False, server_default="0"),
    Column("failure", Text),
    Column("finished_at", BigInteger),
    UniqueConstraint("event_id", "destination"),
    partial_index("alert_outbox_pending", "destination", "kind", "subject", "id", where=_is_pending),
    sqlite_autoincrement=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertClaim:
    """The right to send one row until the lease ends."""

    # The row's id.
    row: int
    # When the lease ends, in milliseconds; it distinguishes this claim from a later one.
    lease: int
    event: AlertEvent
    # Attempts so far, this one included.
    attempts: int
    # The sum of all waits before this attempt.
    waited: timedelta


class AlertOutbox:
    """The table of events and their delivery."""

    def __init__(self, database: Database, *, kinds: AlertKinds, language: Language, translator: Translator) -> None:
        self._database = database
        self._kinds = kinds
        self._language = language
        self._translate = translator.translate if language is Language.CHINESE else str

    async def add(
        self,
        connection: AsyncConnection,
        condition: OpenCondition,
        event_type: EventType,
        *,
        at: datetime,
        destinations: Sequence[str],
    ) -> None:
        """One new event, due now at each destination."""
        now = to_milliseconds(at)
        event = {
            "event_id": f"evt-{now}-{secrets.token_hex(8)}",
            "type": event_type.value,
            "kind": condition.kind,
            "subject": condition.subject,
            "reason": condition.reason,
            "action": condition.action,
            "count": condition.count,
            "since": to_milliseconds(condition.since),
            "occurred_at": now,
            "state": AlertOutboxState.PENDING.value,
            "due_at": now,
        }
        if destinations:
            await connection.execute(insert(alert_outbox), [{**event, "destination": name} for name in destinations])

    async def claim(self, destination: str, *, at: datetime) -> AlertClaim | None:
        """Lease the oldest due row of this destination that no pending row of its condition precedes."""
        candidate = alert_outbox.alias("candidate")
        find = (
            select(candidate.c.id)
            .where(
                candidate.c.destination == destination,
                or_(
                    candidate.c.due_at <= to_milliseconds(at),
                    candidate.c.due_at > to_milliseconds(at + _LONGEST_WAIT),
                ),
                _is_first(candidate),
            )
            .order_by(candidate.c.id)
            .limit(1)
            .with_for_update(skip_locked=True, of=candidate)
        )
        statement = (
            update(alert_outbox)
            .where(alert_outbox.c.id == find.scalar_subquery())
            .values(due_at=to_milliseconds(at + LEASE), attempts=alert_outbox.c.attempts + 1)
            .returning(alert_outbox)
        )
        async with self._database.write() as connection:
            row = (await connection.execute(statement)).mappings().first()
        return None if row is None else self._read_claim(row)

    async def mark_delivered(self, claim: AlertClaim, *, at: datetime) -> None:
        """Record the delivery, even if the lease is over."""
        await self._change(
            alert_outbox.c.id == claim.row,
            state=AlertOutboxState.DELIVERED.value,
            finished_at=to_milliseconds(at),
            failure=None,
        )

    async def postpone(self, claim: AlertClaim, *, until: datetime, wait: timedelta, failure: str) -> None:
        """Make the row due again at `until`; `wait` counts towards the three days."""
        waited = (claim.waited + wait) // timedelta(milliseconds=1)
        await self._change(_is_held(claim), due_at=to_milliseconds(until), waited=waited, failure=failure)

    async def give_up(self, claim: AlertClaim, *, at: datetime, failure: str) -> None:
        """Never send the row again, but keep it for inspection."""
        await self._change(
            _is_held(claim), state=AlertOutboxState.GIVEN_UP.value, finished_at=to_milliseconds(at), failure=failure
        )

    async def _change(self, which: ColumnElement[bool], **values: int | str | None) -> None:
        await self._database.change(update(alert_outbox).where(which).values(values))

    async def find_next_due(self, connection: AsyncConnection, destinations: Sequence[str]) -> int | None:
        """When the next row can be claimed for one of these, in milliseconds."""
        statement = select(func.min(alert_outbox.c.due_at)).where(
            alert_outbox.c.destination.in_(destinations), _is_first(alert_outbox)
        )
        found: int | None = (await connection.execute(statement)).scalar_one()
        return found

    async def purge(self, *, before: datetime) -> None:
        """Delete rows that were delivered before then."""
        statement = delete(alert_outbox).where(
            alert_outbox.c.state == AlertOutboxState.DELIVERED.value,
            alert_outbox.c.finished_at < to_milliseconds(before),
        )
        await self._database.change(statement)

    def _read_claim(self, row: RowMapping) -> AlertClaim:
        # A kind of another release may be unknown here.
        name, kind = row["kind"], self._kinds.find(row["kind"])
        event = AlertEvent(
            id=row["event_id"],
            type=EventType(row["type"]),
            kind=name,
            level=AlertLevel.INFO if kind is None else kind.level,
            title=name.replace("_", " ").capitalize() if kind is None else kind.titles[self._language],
            subject=row["subject"],
            reason=self._translate(row["reason"]),
            action=self._translate(row["action"]),
            count=row["count"],
            since=from_milliseconds(row["since"]),
            occurred_at=from_milliseconds(row["occurred_at"]),
            language=self._language,
        )
        return AlertClaim(
            row=row["id"],
            lease=row["due_at"],
            event=event,
            attempts=row["attempts"],
            waited=timedelta(milliseconds=row["waited"]),
        )


def _is_first(row: FromClause) -> ColumnElement[bool]:
    """Pending, and no pending row of the same condition and destination was made before it."""
    earlier = alert_outbox.alias("earlier")
    before = exists().where(
        earlier.c.destination == row.c.destination,
        earlier.c.kind == row.c.kind,
        earlier.c.subject == row.c.subject,
        earlier.c.id < row.c.id,
        earlier.c.state == _PENDING,
    )
    return and_(row.c.state == _PENDING, ~before)


def _is_held(claim: AlertClaim) -> ColumnElement[bool]:
    return and_(alert_outbox.c.id == claim.row, alert_outbox.c.due_at == claim.lease)
