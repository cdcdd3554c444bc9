"""How many different pages were attempted on a channel each UTC day, and how many of them were taken.

The counts are kept as sums. That a page counts once a day, however often and at however many engines it is tried, is
found out from what is on record of it anyway: the ledger says what was taken today, `undelivered` what failed today.
Only pages that may have been tried before on the same day have to be looked up.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, SmallInteger, Table, Text, delete, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.ledger.ledger import Channel
from tidings.core.clock import Clock, to_milliseconds
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
    """One day's figures of a channel."""

    total: int = 0
    successful: int = 0


@dataclass(frozen=True, slots=True)
class _Marks:
    """Which pages were attempted today already, and which of them taken."""

    attempted: frozenset[int] = frozenset()
    taken: frozenset[int] = frozenset()


class DailyCount:
    """One execution's way of counting for one site and channel. All counting is done in the caller's transaction,
    before the outcome itself is recorded there."""

    def __init__(self, database: Database, *, site: int, channel: Channel, execution: int, clock: Clock) -> None:
        self._database = database
        self._names = {"site": site, "channel": channel.value}
        self._execution = execution
        self._clock = clock
        self._begun_on: date | None = None
        self._first_of: date | None = None
        self._taken_after_midnight: set[int] = set()

    async def begin(self) -> None:
        """Find out whether this is the first execution of the day that attempts anything."""
        self._begun_on = today = self._today()
        statement = select(_columns.day).where(
            _columns.day == today.isoformat(),
            _columns.site == self._names["site"],
            _columns.channel == self._names["channel"],
        )
        async with self._database.read() as connection:
            if (await connection.execute(statement)).first() is None:
                self._first_of = today

    async def note_taken(
        self,
        connection: AsyncConnection,
        hashes: Sequence[int],
        *,
        attempted: Collection[int] = (),
        taken: Collection[int] = (),
        look: bool,
    ) -> None:
        """These were taken. `attempted` and `taken` are counted already; `look`: they may be from earlier today."""
        marks = await self._look_up(connection, hashes, look=look)
        if self._is_past_midnight:
            # Counted already, but yesterday. Such a page's entry stays yesterday's, so only this set knows of today.
            entered = [h for h in hashes if h in taken and h not in marks.taken]
            attempted, taken = (), frozenset(self._taken_after_midnight)
            self._taken_after_midnight.update(entered)
        total = _count_without(hashes, attempted, taken, marks.attempted)
        successful = _count_without(hashes, taken, marks.taken)
        await self._add(connection, total=total, successful=successful)

    async def note_failed(
        self, connection: AsyncConnection, hashes: Sequence[int], *, attempted: Collection[int] = (), look: bool
    ) -> None:
        """These were attempted in vain."""
        marks = await self._look_up(connection, hashes, look=look)
        if self._is_past_midnight:
            attempted = self._taken_after_midnight
        total = _count_without(hashes, attempted, marks.attempted)
        await self._add(connection, total=total, successful=0)

    async def purge(self, connection: AsyncConnection) -> None:
        """Delete days that nobody asks for any more."""
        oldest = (self._today() - timedelta(days=KEPT_DAYS)).isoformat()
        await connection.execute(delete(daily_stats).where(_columns.day < oldest, _columns.site == self._names["site"]))

    async def _look_up(self, connection: AsyncConnection, hashes: Sequence[int], *, look: bool) -> _Marks:
        today = self._today()
        if not look and self._first_of == today:
            return _Marks()
        values = {
            **self._names,
            "hashes": self._database.bind_numbers(hashes),
            "since": to_milliseconds(datetime.combine(today, time(), UTC)),
            "execution": self._execution,
        }
        asked = self._database.numbers_sql("hashes", column="url_hash")
        those = f"WHERE site = :site AND channel = :channel AND url_hash IN {asked}"
        taken = await connection.execute(
            text(
                f"SELECT url_hash FROM ledger {those} AND submitted_at >= :since "
                f"UNION SELECT url_hash FROM undelivered {those} AND delivered_in = :execution"
            ),
            values,
        )
        failed = await connection.execute(
            text(f"SELECT url_hash FROM undelivered {those} AND failed_at >= :since"), values
        )
        found = frozenset(taken.scalars())
        return _Marks(attempted=found | frozenset(failed.scalars()), taken=found)

    async def _add(self, connection: AsyncConnection, *, total: int, successful: int) -> None:
        if not total and not successful:
            return
        insert = self._database.insert(daily_stats)
        statement = insert.values(
            day=self._today().isoformat(), total=total, successful=successful, **self._names
        ).on_conflict_do_update(
            index_elements=["day", "site", "channel"],
            set_={
                "total": _columns.total + insert.excluded.total,
                "successful": _columns.successful + insert.excluded.successful,
            },
        )
        await connection.execute(statement)

    @property
    def _is_past_midnight(self) -> bool:
        return self._begun_on is not None and self._today() != self._begun_on

    def _today(self) -> date:
        return self._clock.now().astimezone(UTC).date()


def _count_without(hashes: Sequence[int], *counted: Collection[int]) -> int:
    """How many are in none of these; most of the time all are empty, and millions pass through here."""
    known = [each for each in counted if each]
    return sum(not any(h in each for each in known) for h in hashes) if known else len(hashes)


async def read_days(
    database: Database, *, today: date, days: int, site: int | None = None
) -> dict[date, dict[Channel, DayCount]]:
    """The figures of the last `days` days, today's last; days without work are there too. None: of all sites."""
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
