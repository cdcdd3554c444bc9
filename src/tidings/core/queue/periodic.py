"""Periodic jobs. The table stores when each is due next; if several processes begin a job, only one of them gets it.

A job whose process dies runs again at its next time.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import BigInteger, Column, ColumnElement, Table, Text, bindparam, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.clock import Clock, read_timestamp, to_milliseconds
from tidings.core.db.database import Database, metadata

due_jobs = Table(
    "due_jobs",
    metadata,
    Column("name", Text, primary_key=True),
    Column("next_at", BigInteger, nullable=False),
)

_MILLISECOND: Final = timedelta(milliseconds=1)
_CLOCKS_DIFFER: Final = timedelta(minutes=1)


class PeriodicJobs:
    """The table of periodic jobs. `every` is the interval of a job; a new job is due at once.

    A shorter `every` takes effect at once: a due time further away than that is ignored, with a minute of tolerance
    for clocks that differ.
    """

    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def begin(self, name: str, *, every: timedelta) -> bool:
        """True for the one caller that must run the job now; it is then due again after `every`."""
        now, step = to_milliseconds(self._clock.now()), every // _MILLISECOND
        statement = self._database.insert(due_jobs).values(name=name, next_at=now + step)
        begin = statement.on_conflict_do_update(
            index_elements=["name"], set_={"next_at": statement.excluded.next_at}, where=_is_due(now, step)
        )
        async with self._database.write() as connection:
            return (await connection.execute(begin.returning(due_jobs.c.name))).first() is not None

    async def list_due(self, connection: AsyncConnection, intervals: Mapping[str, timedelta]) -> list[str]:
        """The names of those jobs that are due now."""
        now = to_milliseconds(self._clock.now())
        known = await connection.execute(select(due_jobs).where(due_jobs.c.name.in_(intervals)))
        next_at = {row.name: row.next_at for row in known}
        tolerance = _CLOCKS_DIFFER // _MILLISECOND
        return [
            name
            for name, every in intervals.items()
            if not now < next_at.get(name, 0) <= now + every // _MILLISECOND + tolerance
        ]

    async def find_next(self, name: str) -> datetime | None:
        """When the job is due next; None if it never began."""
        statement = select(due_jobs.c.next_at).where(due_jobs.c.name == name)
        return read_timestamp(await self._database.fetch_value(statement))

    async def make_due(self, connection: AsyncConnection, name: str) -> None:
        """In the caller's transaction: this job is due at once."""
        now = to_milliseconds(self._clock.now())
        await connection.execute(update(due_jobs).where(due_jobs.c.name == name).values(next_at=now))


def any_job_due(names: Collection[str]) -> ColumnElement[bool]:
    """Whether one of these jobs is due at `now`, in milliseconds; also one that never began, which has no row."""
    known = or_(*(due_jobs.c.name == name for name in names))
    waiting = select(func.count()).where(known, due_jobs.c.next_at > bindparam("now", type_=BigInteger))
    return waiting.scalar_subquery() < len(names)


def _is_due(now: int, step: int) -> Any:
    return (due_jobs.c.next_at <= now) | (due_jobs.c.next_at > now + step + _CLOCKS_DIFFER // _MILLISECOND)
