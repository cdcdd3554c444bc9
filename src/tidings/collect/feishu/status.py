"""The status of the mirror, as its tables tell it."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from tidings.collect.mirror_tables import mirror_failures, mirror_outbox, mirror_state
from tidings.core.clock import read_timestamp
from tidings.core.db.database import Database


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """The status of the mirror."""

    # Pending changes; a row that changed twice counts twice.
    waiting: int
    # Since when the oldest change is pending.
    oldest: datetime | None
    # Rows that Feishu did not take; they are tried again when they change.
    refused: int
    # The latest error of a table that fails; None if every table works.
    last_error: str | None
    failed_at: datetime | None
    delivered_at: datetime | None


async def read_mirror_status(database: Database, *, tables: Collection[str]) -> MirrorStatus:
    """The status of the mirror over all processes."""
    outbox, failures, state = mirror_outbox.c, mirror_failures.c, mirror_state.c
    pending = select(func.count(), func.min(outbox.created_at)).where(outbox.table_name.in_(tables))
    refusals = select(func.count()).where(failures.table_name.in_(tables))
    states = select(state.delivered_at, state.last_error, state.failed_at).where(state.table_name.in_(tables))
    async with database.read() as connection:
        waiting, oldest = (await connection.execute(pending)).one()
        refused = (await connection.execute(refusals)).scalar_one()
        rows = (await connection.execute(states)).all()
    failing = max((row for row in rows if row.last_error), key=lambda row: row.failed_at, default=None)
    return MirrorStatus(
        waiting=waiting,
        oldest=read_timestamp(oldest),
        refused=refused,
        last_error=None if failing is None else failing.last_error,
        failed_at=None if failing is None else read_timestamp(failing.failed_at),
        delivered_at=read_timestamp(max((row.delivered_at for row in rows if row.delivered_at), default=None)),
    )
