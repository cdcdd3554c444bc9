"""The daily quota of a channel, per site and day: reserve before sending, settle after it.

A reservation counts as used at once. It comes back only if an answer says that nothing was taken: after a crash, or
without an answer, it stays charged, because the channel may have counted it. So the count can be too high, never too
low. The day is the channel's own: Bing's begins at midnight UTC, Baidu's at midnight UTC+8.

The limit is the one that is set for the site. Some channels tell with each answer how much remains; then that counts
(`QuotaTerms.learns`), and the first request of a day carries one page, to find out.

Google counts all sites of one Cloud project together (`QuotaTerms.shared`). Each site keeps a row of its own, and what
the other sites of its project used counts against its limit. Reservations of one project wait for each other.
"""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Integer,
    Label,
    PrimaryKeyConstraint,
    Row,
    ScalarSelect,
    SmallInteger,
    Table,
    Text,
    case,
    delete,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.table import sites
from tidings.core.clock import Clock, from_milliseconds, read_timestamp, to_milliseconds
from tidings.core.db.database import Database, metadata
from tidings.core.logs.logger import get_logger

KEPT_DAYS = 400

_log = get_logger(__name__)

channel_quota = Table(
    "channel_quota",
    metadata,
    Column("site", BigInteger, nullable=False),
    Column("channel", SmallInteger, nullable=False),
    # The channel's own day.
    Column("day", Text, nullable=False),
    # URLs that were taken or are reserved.
    Column("used", Integer, nullable=False),
    # The channel's own limit of that day, in URLs; null if unknown.
    Column("allowed", Integer),
    # URLs that are reserved and have no answer so far.
    Column("in_flight", Integer, nullable=False),
    # How many reservations there were.
    Column("sequence", Integer, nullable=False),
    # The channel said that its quota is exhausted.
    Column("full", Boolean, nullable=False),
    # Milliseconds since the epoch: the last change, and the last success.
    Column("updated_at", BigInteger, nullable=False),
    Column("submitted_at", BigInteger),
    PrimaryKeyConstraint("site", "channel", "day"),
    sqlite_with_rowid=False,
)

_columns = channel_quota.c


@dataclass(frozen=True, slots=True)
class QuotaTerms:
    """How a channel counts."""

    channel: Channel
    # The channel's name for people.
    title: str
    # Its day begins at midnight of this zone.
    zone: tzinfo = UTC
    # Its answers say what remains, which is more exact than the setting.
    learns: bool = False
    # Sites with the same `quota_project` share one quota.
    shared: bool = False

    def find_day(self, at: datetime) -> date:
        """The channel's day at this time."""
        return at.astimezone(self.zone).date()


@dataclass(frozen=True, slots=True)
class QuotaState:
    """The quota of one day."""

    # In the channel's own zone.
    day: date
    # URLs that may be submitted on it.
    limit: int
    # URLs that were submitted or are reserved, by all sites that share the quota.
    used: int = 0
    # The channel itself said that its quota is exhausted.
    full: bool = False
    updated_at: datetime | None = None
    # The last success.
    submitted_at: datetime | None = None
    zone: tzinfo = UTC
    # The channel itself named the limit of this day.
    learned: bool = False

    @property
    def remaining(self) -> int:
        return 0 if self.full else max(0, self.limit - self.used)

    @property
    def resets_at(self) -> datetime:
        """The next midnight of the channel, in UTC."""
        return datetime.combine(self.day + timedelta(days=1), time(), self.zone).astimezone(UTC)


class Quota:
    """The quota of one site and channel on one day; an execution keeps to the day on which it began."""

    def __init__(
        self,
        database: Database,
        *,
        terms: QuotaTerms,
        site: int,
        day: date,
        limit: int,
        clock: Clock,
        asked: bool = False,
        project: str | None = None,
    ) -> None:
        """`asked`: the channel is asked for its limit; `limit` counts until it has answered.

        `project`: sites with the same one share the quota.
        """
        self._asked = asked
        self._project = project
        self.day = day
        self.limit = limit
        self.terms = terms
        self._database = database
        self._site = site
        self._clock = clock
        self._names = {"site": site, "channel": terms.channel.value}
        self._all_days = (_columns.site == site, _columns.channel == terms.channel.value)
        self._ours = (*self._all_days, _columns.day == day.isoformat())
        # The number of a reservation made while no other was open.
        self._alone: int | None = None

    async def read(self) -> QuotaState:
        async with self._database.read() as connection:
            row = (await connection.execute(select(channel_quota).where(*self._ours))).first()
            return await self._describe(connection, row)

    async def begin(self, connection: AsyncConnection) -> None:
        """Call it when an execution begins: no other of this site runs, so open reservations belong to a dead one."""
        await connection.execute(update(channel_quota).where(*self._ours).values(in_flight=0))

    async def learn(self, connection: AsyncConnection, allowed: int) -> None:
        """Store the channel's own limit of this day."""
        await self._lock(connection)
        await self._write(connection, allowed=allowed)
        self._log_event(_log.info, "quota_learned", quota=allowed)

    async def reserve(self, connection: AsyncConnection, count: int) -> int:
        """Take up to `count` of what remains; returns how many were granted, which may be none."""
        await self._lock_project(connection)
        row = await self._lock(connection)
        state = await self._describe(connection, row)
        granted = min(count, state.remaining)
        if self.terms.learns and not state.learned:
            granted = min(granted, 1)
        if granted:
            self._alone = row.sequence + 1 if not row.in_flight else None
            await self._write(
                connection, used=row.used + granted, in_flight=row.in_flight + granted, sequence=row.sequence + 1
            )
        return granted

    async def release(self, connection: AsyncConnection, count: int) -> None:
        """Give a reservation back, because an answer says that nothing was taken."""
        row = await self._lock(connection)
        await self._end(connection, row, count, used=max(0, row.used - count))

    async def keep(self, connection: AsyncConnection, count: int) -> None:
        """End a reservation without an answer. It stays charged, because the channel may have counted it."""
        await self._end(connection, await self._lock(connection), count)

    async def confirm(
        self, connection: AsyncConnection, count: int, *, rejected: int = 0, remaining: int | None = None
    ) -> None:
        """A reservation was taken, but for those rejected. `remaining`: what the channel takes today beyond that."""
        row = await self._lock(connection)
        used, now = max(0, row.used - rejected), to_milliseconds(self._clock.now())
        values: dict[str, Any] = {"used": used}
        if count > rejected:
            values["submitted_at"] = now
        if remaining is not None and self._may_learn(row):
            values["allowed"] = used + remaining
            if row.allowed != values["allowed"]:
                self._log_event(_log.info, "quota_learned", used=used, quota=values["allowed"])
        await self._end(connection, row, count, **values)

    async def record(self, connection: AsyncConnection, count: int) -> None:
        """Add the URLs that were really used. Never fails; if they exceed the quota, that is logged."""
        row = await self._lock(connection)
        used = row.used + count
        await self._write(connection, used=used)
        limit = await self._find_limit(connection)
        if used > limit:
            self._log_event(_log.warning, "quota_exceeded", used=used, quota=limit)

    async def correct(self, connection: AsyncConnection, *, remaining: int, reserved: int) -> None:
        """Store the channel's own number of what remains, because another client used the rest. The refused reservation
        is given back."""
        row = await self._lock(connection)
        counted = row.used - reserved
        missing = max(0, await self._find_limit(connection) - remaining - counted)
        self._log_event(_log.warning, "quota_corrected", counted=counted, used=max(0, counted) + missing)
        await self._end(connection, row, reserved, used=max(0, counted))
        await self.record(connection, missing)

    async def close(self, connection: AsyncConnection, *, reserved: int, total: int | None = None) -> None:
        """The channel takes nothing more on this day, however little was counted here. `total`: the URLs that it says
        it took from all clients; a higher number than ours is stored. It also corrects a limit that the channel was
        asked for, because that may have been the rest and not the total.
        """
        row = await self._lock(connection)
        used = max(0, row.used - reserved)
        await self._end(connection, row, reserved, used=used, full=True)
        if total is None:
            return
        if self._asked:
            await self._write(connection, allowed=total)
        if total > used and (self._asked or total > await self._find_limit(connection)):
            await self.record(connection, total - used)

    async def was_taken_since(self, since: datetime) -> bool:
        """Whether the channel took a page of this site since then."""
        lately = _columns.submitted_at >= to_milliseconds(since)
        return bool(await self._database.fetch(select(_columns.day).where(*self._all_days, lately).limit(1)))

    async def purge(self, connection: AsyncConnection) -> None:
        """Delete days that are no longer needed."""
        oldest = (self.day - timedelta(days=KEPT_DAYS)).isoformat()
        await connection.execute(delete(channel_quota).where(*self._all_days, _columns.day < oldest))

    def log_exhausted(self, site_id: str) -> None:
        _log.info(f"{self.terms.title} quota exhausted, skipping", site=site_id, day=str(self.day), quota=self.limit)

    def _may_learn(self, row: Row[Any]) -> bool:
        """Whether an answer's number of what remains applies to our count: no other reservation was open meanwhile, and
        the channel's day is the one that we count."""
        is_alone = self._alone is not None and self._alone == row.sequence
        return self.terms.learns and is_alone and self.terms.find_day(self._clock.now()) == self.day

    async def _lock(self, connection: AsyncConnection) -> Row[Any]:
        """Create the day's row if it is missing, and lock it until the transaction ends."""
        now = to_milliseconds(self._clock.now())
        counts = {"used": 0, "in_flight": 0, "sequence": 0}
        empty = {**self._names, "day": self.day.isoformat(), **counts, "full": False, "updated_at": now}
        await connection.execute(self._database.insert(channel_quota).values(empty).on_conflict_do_nothing())
        return (await connection.execute(select(channel_quota).where(*self._ours).with_for_update())).one()

    async def _lock_project(self, connection: AsyncConnection) -> None:
        """No other site of the project reserves until the transaction ends."""
        if self._project is not None:
            theirs = select(sites.c.number).where(sites.c.google_project == self._project).order_by(sites.c.number)
            await connection.execute(theirs.with_for_update(key_share=True))

    async def _end(self, connection: AsyncConnection, row: Row[Any], count: int, **values: Any) -> None:
        """A reservation has its answer, or will never get one."""
        await self._write(connection, in_flight=max(0, row.in_flight - count), **values)

    async def _write(self, connection: AsyncConnection, **values: Any) -> None:
        now = to_milliseconds(self._clock.now())
        await connection.execute(update(channel_quota).where(*self._ours).values(updated_at=now, **values))

    async def _find_limit(self, connection: AsyncConnection) -> int:
        if not (self.terms.learns or self._asked):
            return self.limit
        statement = select_allowed(self._site, self.terms.channel, day=self.day.isoformat())
        return read_limit((await connection.execute(statement)).scalar(), configured=self.limit)

    async def _describe(self, connection: AsyncConnection, row: Row[Any] | None) -> QuotaState:
        limit = await self._find_limit(connection)
        used, full = 0, 0
        if self._project is not None:
            elsewhere = select_elsewhere(self.terms, site=self._site, project=self._project, day=self.day.isoformat())
            used, full = (await connection.execute(select(*elsewhere))).one()
        state = QuotaState(self.day, limit, used=used, full=bool(full), zone=self.terms.zone)
        if row is None:
            return state
        return replace(
            state,
            used=row.used + used,
            full=bool(row.full or full),
            updated_at=from_milliseconds(row.updated_at),
            submitted_at=read_timestamp(row.submitted_at),
            learned=row.allowed is not None,
        )

    def _log_event(self, log: Any, name: str, **values: int) -> None:
        log(f"{self.terms.channel}.{name}", site_number=self._site, day=str(self.day), **values)


def select_allowed(site: Any, channel: Channel, *, day: Any) -> Any:
    """The limit that the channel named last, on this day or before."""
    return (
        select(_columns.allowed)
        .where(
            _columns.site == site, _columns.channel == channel.value, _columns.day <= day, _columns.allowed.is_not(None)
        )
        .order_by(_columns.day.desc())
        .limit(1)
    )


def select_elsewhere(terms: QuotaTerms, *, site: Any, project: Any, day: Any) -> tuple[Label[int], Label[int]]:
    """What the other sites of a project used on this day, and whether one of them was told that the quota is exhausted
    (1 or 0)."""
    used_name, full_name = f"{terms.channel}_used_elsewhere", f"{terms.channel}_full_elsewhere"
    if not terms.shared:
        return literal(0).label(used_name), literal(0).label(full_name)
    other, quota = sites.alias("other"), channel_quota.alias("elsewhere")

    def gather(value: ColumnElement[int]) -> ScalarSelect[int]:
        return (
            select(func.coalesce(value, 0))
            .select_from(quota.join(other, other.c.number == quota.c.site))
            .where(other.c.google_project == project, other.c.number != site)
            .where(quota.c.channel == terms.channel.value, quota.c.day == day)
            .scalar_subquery()
        )

    is_full = func.max(case((quota.c.full, 1), else_=0))
    return gather(func.sum(quota.c.used)).label(used_name), gather(is_full).label(full_name)


def read_limit(allowed: int | None, *, configured: int) -> int:
    """The limit of a day: the channel's own, if it named one, else the configured one. At least 1, so that a channel is
    tried again after a limit of 0."""
    return configured if allowed is None else max(1, allowed)
