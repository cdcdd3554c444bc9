"""How the mirror fares, read from the tables: what waits and since when, what was given up and why, and what went wrong
last. Reading only, and without anything of Feishu's, so that any process can tell.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from tidings.collect.feishu.tables import mirror_failures, mirror_state
from tidings.collect.tables import mirror_outbox
from tidings.core.clock import from_milliseconds
from tidings.core.db.database import ReadableDatabase


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """`oldest` is since when the row that waits longest does. `refused` rows were given up until they change.

    `last_error` is None where every table works.
    """

    waiting: int
    oldest: datetime | None
    refused: int
    last_error: str | None
    failed_at: datetime | None
    delivered_at: datetime | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that Feishu does not take as it is."""

    table_name: str
    platform: str
    note_id: str
    reason: str
    action: str
    failed_at: datetime


async def read_status(database: ReadableDatabase, *, tables: Collection[str]) -> MirrorStatus:
    """How the mirror of these tables fares. A row that has changed often waits as often."""
    outbox, failures, state = mirror_outbox.c, mirror_failures.c, mirror_state.c
    waits = select(func.count(), func.min(outbox.created_at)).where(outbox.table_name.in_(tables))
    refusals = select(func.count()).where(failures.table_name.in_(tables))
    states = select(state.delivered_at, state.last_error, state.failed_at).where(state.table_name.in_(tables))
    async with database.read() as connection:
        waiting, oldest = (await connection.execute(waits)).one()
        refused = (await connection.execute(refusals)).scalar_one()
        rows = (await connection.execute(states)).all()
    failing = max((row for row in rows if row.last_error), key=lambda row: row.failed_at, default=None)
    return MirrorStatus(
        waiting=waiting,
        oldest=_read_moment(oldest),
        refused=refused,
        last_error=None if failing is None else failing.last_error,
        failed_at=None if failing is None else _read_moment(failing.failed_at),
        delivered_at=_read_moment(max((row.delivered_at for row in rows if row.delivered_at), default=None)),
    )


async def list_refused(database: ReadableDatabase, *, limit: int = 100) -> list[Refused]:
    """The rows that were given up, the newest first."""
    statement = select(mirror_failures).order_by(mirror_failures.c.failed_at.desc()).limit(limit)
    async with database.read() as connection:
        rows = (await connection.execute(statement)).all()
    return [
        Refused(row.table_name, row.platform, row.note_id, row.reason, row.action, from_milliseconds(row.failed_at))
        for row in rows
    ]


def _read_moment(stamp: int | None) -> datetime | None:
    return None if stamp is None else from_milliseconds(stamp)
