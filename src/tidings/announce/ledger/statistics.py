"""Daily statistics: how many different pages were tried on a channel on each UTC day, and how many of them were taken.

The table holds sums. A page counts once a day, however often and at however many engines it is tried: the outbox and
the ledger know what was counted already (see `recorder`).
"""

from dataclasses import dataclass
from datetime import date, timedelta

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, SmallInteger, Table, Text, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.ledger.batch_state import DayCounts
from tidings.announce.ledger.ledger import Channel
from tidings.core.db.database import Database, metadata

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
    PrimaryKeyConstraint("day", "site", "channel"),
    sqlite_with_rowid=False,
)

_columns = daily_stats.c


@dataclass(frozen=True, slots=True)
class DayCount:
    """One day's statistics of a channel."""

    # Different pages that were tried.
    total: int = 0
    # Those of them that at least one engine took.
    successful: int = 0


class DailyStatistics:
    """The statistics of one site and channel. All writes happen in the caller's transaction."""

    def __init__(self, database: Database, *, site: int, channel: Channel) -> None:
        self._database = database
        self._names = {"site": site, "channel": channel.value}

    async def add(self, connection: AsyncConnection, counts: DayCounts, *, day: str) -> None:
        """Add pages that were not counted on this day before."""
        if not counts.tried and not counts.taken:
            return
        insert = self._database.insert(daily_stats)
        statement = insert.values(
            day=day, total=counts.tried, successful=counts.taken, **self._names
        ).on_conflict_do_update(
            index_elements=["day", "site", "channel"],
            set_={
                "total": _columns.total + insert.excluded.total,
                "successful": _columns.successful + insert.excluded.successful,
            },
        )
        await connection.execute(statement)

    async def purge(self, connection: AsyncConnection, *, today: date) -> None:
        """Delete days that can no longer be asked for."""
        oldest = (today - timedelta(days=KEPT_DAYS)).isoformat()
        await connection.execute(delete(daily_stats).where(_columns.day < oldest, _columns.site == self._names["site"]))


async def read_days(
    database: Database, *, today: date, days: int, site: int | None = None
) -> dict[date, dict[Channel, DayCount]]:
    """The statistics of the last `days` days, today's last; days without work are included. None: of all sites."""
    first = today - timedelta(days=days - 1)
    statement = (
        select(_columns.day, _columns.channel, func.sum(_columns.total), func.sum(_columns.successful))
        .where(_columns.day >= first.isoformat(), _columns.day <= today.isoformat())
        .group_by(_columns.day, _columns.channel)
    )
    if site is not None:
        statement = statement.where(_columns.site == site)
    counts = {first + timedelta(days=at): dict.fromkeys(Channel, DayCount()) for at in range(days)}
    async with database.read() as connection:
        for day, channel, total, successful in await connection.execute(statement):
            counts[date.fromisoformat(day)][Channel(channel)] = DayCount(int(total), int(successful))
    return counts
