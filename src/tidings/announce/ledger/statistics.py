"""Daily statistics: how many different pages were tried on a channel on each UTC day, and how many of them were taken.

The table holds sums, of each site and, as site 0, of all sites together. A page counts once a day, however often and at
however many engines it is tried: the outbox and the ledger know what was counted already (see `recorder`).
"""

from collections.abc import Sequence
from datetime import date, timedelta

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, SmallInteger, Table, Text, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.ledger.batch_state import DayCount
from tidings.announce.ledger.ledger import Channel
from tidings.core.db.database import Database, metadata

# The site number that stands for all sites.
EVERYTHING = 0
KEPT_DAYS = 400
MOST_DAYS = 366

daily_stats = Table(
    "daily_stats",
    metadata,
    Column("day", Text, nullable=False),
    Column("site", BigInteger, nullable=False),
    Column("channel", SmallInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("successful", BigInteger, nullable=False),
    PrimaryKeyConstraint("site", "day", "channel"),
    sqlite_with_rowid=False,
)

_columns = daily_stats.c


class DailyStatistics:
    """The statistics of one site and channel. All writes happen in the caller's transaction."""

    def __init__(self, database: Database, *, site: int, channel: Channel) -> None:
        self._database = database
        self._names = {"site": site, "channel": channel.value}

    async def add(self, connection: AsyncConnection, counts: DayCount, *, day: str) -> None:
        """Add pages that were not counted on this day before."""
        if not counts.total and not counts.successful:
            return
        insert = self._database.insert(daily_stats)
        statement = insert.on_conflict_do_update(
            index_elements=["site", "day", "channel"],
            set_={
                "total": _columns.total + insert.excluded.total,
                "successful": _columns.successful + insert.excluded.successful,
            },
        )
        row = {"day": day, "total": counts.total, "successful": counts.successful, **self._names}
        # The row of all sites last: its lock is then held for a short time only.
        for each in (row, {**row, "site": EVERYTHING}):
            await connection.execute(statement, each)

    async def purge(self, connection: AsyncConnection, *, today: date) -> None:
        """Delete days that no query can return any more."""
        oldest = (today - timedelta(days=KEPT_DAYS)).isoformat()
        ours = _columns.site.in_([EVERYTHING, self._names["site"]])
        await connection.execute(delete(daily_stats).where(_columns.day < oldest, ours))


async def read_series(
    connection: AsyncConnection, sites: Sequence[int], *, today: date, days: int
) -> dict[int, dict[Channel, list[DayCount]]]:
    """By site and channel: a count for each of the last `days` days, today's last. Those without work are left out."""
    first = today - timedelta(days=days - 1)
    statement = select(daily_stats).where(
        _columns.site.in_(sites), _columns.day.between(first.isoformat(), today.isoformat())
    )
    found: dict[int, dict[Channel, list[DayCount]]] = {}
    for row in await connection.execute(statement):
        series = found.setdefault(row.site, {}).setdefault(Channel(row.channel), [DayCount()] * days)
        series[(date.fromisoformat(row.day) - first).days] = DayCount(row.total, row.successful)
    return found


async def read_days(
    database: Database, *, today: date, days: int, site: int | None = None
) -> dict[date, dict[Channel, DayCount]]:
    """The statistics of the last `days` days, today's last; days without work are included. None: of all sites."""
    number = EVERYTHING if site is None else site
    async with database.read_once() as connection:
        series = (await read_series(connection, [number], today=today, days=days)).get(number, {})
    idle = [DayCount()] * days
    return {
        today - timedelta(days=days - 1 - at): {channel: series.get(channel, idle)[at] for channel in Channel}
        for at in range(days)
    }
