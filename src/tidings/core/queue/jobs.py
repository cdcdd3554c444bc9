"""Periodic jobs. The table stores when each job is due next; if several processes claim one, one of them gets it.

A job whose process dies runs again at its next time.
"""

from datetime import timedelta
from typing import Final

from sqlalchemy import BigInteger, Column, Table, Text

from tidings.core.clock import Clock, to_milliseconds
from tidings.core.db.database import Database, metadata

due_jobs = Table(
    "due_jobs",
    metadata,
    Column("name", Text, primary_key=True),
    Column("next_at", BigInteger, nullable=False),
)

_MILLISECOND: Final = timedelta(milliseconds=1)
_CLOCKS_DIFFER: Final = timedelta(minutes=1)


class Jobs:
    """The table of periodic jobs."""

    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def claim(self, name: str, *, every: timedelta) -> bool:
        """True for the one caller that must run the job now; it is then due again after `every`.

        A new job is due at once. A shorter `every` takes effect at once: a due time further away than that is ignored,
        with a minute of tolerance for clocks that differ.
        """
        now, step = to_milliseconds(self._clock.now()), every // _MILLISECOND
        statement = self._database.insert(due_jobs).values(name=name, next_at=now + step)
        is_due = (due_jobs.c.next_at <= now) | (due_jobs.c.next_at > now + step + _CLOCKS_DIFFER // _MILLISECOND)
        claim = statement.on_conflict_do_update(
            index_elements=["name"], set_={"next_at": statement.excluded.next_at}, where=is_due
        )
        async with self._database.write() as connection:
            return (await connection.execute(claim.returning(due_jobs.c.name))).first() is not None
