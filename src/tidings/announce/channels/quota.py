"""Bing's daily quota, per site and UTC day: reserve before sending, settle after it.

A reservation counts as used at once. It comes back only if an answer says that nothing was taken: after a crash, or
without an answer, it stays charged, because Bing may have counted it. So the count can be too high, never too low.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Integer,
    PrimaryKeyConstraint,
    Row,
    Table,
    Text,
    delete,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.site.site import Site
from tidings.core.clock import Clock, from_milliseconds, to_milliseconds
from tidings.core.db.database import Database, metadata
from tidings.core.logs.logger import get_logger

KEPT_DAYS = 400

_log = get_logger(__name__)

bing_quota = Table(
    "bing_quota",
    metadata,
    Column("site", BigInteger, nullable=False),
    Column("day", Text, nullable=False),
    Column("used", Integer, nullable=False),
    Column("full", Boolean, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("submitted_at", BigInteger),
    PrimaryKeyConstraint("site", "day"),
    sqlite_with_rowid=False,
)

_columns = bing_quota.c


@dataclass(frozen=True, slots=True)
class QuotaState:
    """The quota of one day."""

    # UTC.
    day: date
    # URLs that may be submitted on it.
    limit: int
    # URLs that were submitted or are reserved.
    used: int = 0
    # Bing itself said that it takes nothing more.
    full: bool = False
    updated_at: datetime | None = None
    # The last success.
    submitted_at: datetime | None = None

    @property
    def remaining(self) -> int:
        return 0 if self.full else max(0, self.limit - self.used)

    @property
    def resets_at(self) -> datetime:
        """The next midnight in UTC."""
        return datetime.combine(self.day + timedelta(days=1), time(), UTC)


class Quota:
    """The quota of one site on one UTC day; an execution keeps to the day on which it began."""

    def __init__(self, database: Database, *, site: int, day: date, limit: int, clock: Clock) -> None:
        self.day = day
        self.limit = limit
        self._database = database
        self._site = site
        self._clock = clock
        self._ours = (_columns.site == site, _columns.day == day.isoformat())

    async def read(self) -> QuotaState:
        async with self._database.read() as connection:
            return self._describe((await connection.execute(select(bing_quota).where(*self._ours))).first())

    async def reserve(self, connection: AsyncConnection, count: int) -> int:
        """Take up to `count` of what remains; returns how many were granted, which may be none."""
        state = await self._lock(connection)
        granted = min(count, state.remaining)
        if granted:
            await self._write(connection, used=state.used + granted)
        return granted

    async def release(self, connection: AsyncConnection, count: int) -> None:
        """Give a reservation back: an answer says that nothing was taken."""
        state = await self._lock(connection)
        await self._write(connection, used=max(0, state.used - count))

    async def confirm(self, connection: AsyncConnection) -> None:
        """What was reserved was taken: from now on that is the last submission."""
        await self._write(connection, submitted_at=to_milliseconds(self._clock.now()))

    async def record(self, connection: AsyncConnection, count: int) -> None:
        """Add what was really used. Never refuses; more than the quota is logged, for audit."""
        state = await self._lock(connection)
        used = state.used + count
        await self._write(connection, used=used)
        if used > self.limit:
            _log.warning("bing.quota_exceeded", site_number=self._site, day=str(self.day), used=used, quota=self.limit)

    async def correct(self, connection: AsyncConnection, *, remaining: int, reserved: int) -> None:
        """Bing says what remains: someone else used the rest, which is recorded. The refused reservation comes back."""
        state = await self._lock(connection)
        counted = state.used - reserved
        missing = max(0, self.limit - remaining - counted)
        _log.warning(
            "bing.quota_corrected",
            site_number=self._site,
            day=str(self.day),
            counted=counted,
            used=max(0, counted) + missing,
        )
        await self._write(connection, used=max(0, counted))
        await self.record(connection, missing)

    async def close(self, connection: AsyncConnection, *, reserved: int) -> None:
        """Bing takes nothing more on this day, however little was counted here."""
        state = await self._lock(connection)
        await self._write(connection, used=max(0, state.used - reserved), full=True)

    async def purge(self, connection: AsyncConnection) -> None:
        """Delete days that nobody asks for any more."""
        oldest = (self.day - timedelta(days=KEPT_DAYS)).isoformat()
        await connection.execute(delete(bing_quota).where(_columns.site == self._site, _columns.day < oldest))

    async def _lock(self, connection: AsyncConnection) -> QuotaState:
        """The day's row, made where it is missing, and nobody else's until the transaction ends."""
        now = to_milliseconds(self._clock.now())
        empty = {"site": self._site, "day": self.day.isoformat(), "used": 0, "full": False, "updated_at": now}
        await connection.execute(self._database.insert(bing_quota).values(empty).on_conflict_do_nothing())
        row = (await connection.execute(select(bing_quota).where(*self._ours).with_for_update())).one()
        return self._describe(row)

    async def _write(self, connection: AsyncConnection, **values: int | bool) -> None:
        now = to_milliseconds(self._clock.now())
        await connection.execute(update(bing_quota).where(*self._ours).values(updated_at=now, **values))

    def _describe(self, row: Row[Any] | None) -> QuotaState:
        if row is None:
            return QuotaState(self.day, self.limit)
        return QuotaState(
            self.day,
            self.limit,
            used=row.used,
            full=row.full,
            updated_at=from_milliseconds(row.updated_at),
            submitted_at=None if row.submitted_at is None else from_milliseconds(row.submitted_at),
        )


def log_exhausted(site: Site, quota: Quota) -> None:
    _log.info("Bing quota exhausted, skipping", site=site.id, day=str(quota.day), quota=quota.limit)
