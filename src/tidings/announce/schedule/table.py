"""When each site is executed: due times and pauses. One row per site; the row of site 0 is about all sites.

The tick submits a job for each due site without a running execution. An execution stays due until it begins, even after
a crash. Several missed cron times are made up by one execution.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Table,
    Text,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.schedule.cron import CronTimes, find_start, find_times
from tidings.announce.site.site import WORKFLOW_PREFIX, Site
from tidings.announce.site.table import Origin, sites
from tidings.core.clock import Clock, from_milliseconds, read_timestamp, to_milliseconds
from tidings.core.db.database import Database, metadata
from tidings.core.db.postgresql_options import partial_index
from tidings.core.execution_table import executions, is_running
from tidings.core.logs.logger import get_logger

# The site number that means all sites.
EVERYTHING = 0

SPREAD = timedelta(minutes=5)

_SYNC_BATCH = 1_000
_COUNT_EVERY = timedelta(minutes=10)
_MILLISECOND = timedelta(milliseconds=1)

_log = get_logger(__name__)

_can_be_due = text("next_at IS NOT NULL AND paused_at IS NULL")
_has_follow_up = text("follow_up_at IS NOT NULL")
_can_be_late = text("late_at IS NOT NULL AND paused_at IS NULL")

schedules = Table(
    "schedules",
    metadata,
    Column("site", BigInteger, primary_key=True, autoincrement=False),
    Column("cron", Text, nullable=False),
    # When the next execution is due. NULL where the site has no schedule, as when it is disabled.
    Column("next_at", BigInteger),
    # When two periods without an execution have passed, and the length of the two in milliseconds.
    Column("late_at", BigInteger),
    Column("late_after", BigInteger),
    # Unused; the previous release still writes it.
    Column("claimed_until", BigInteger),
    # When the last scheduled execution began.
    Column("last_run_at", BigInteger),
    Column("paused_at", BigInteger),
    # An execution was requested while another ran: one more is due from this time on.
    Column("follow_up_at", BigInteger),
    partial_index("schedules_follow_up", "follow_up_at", where=_has_follow_up),
    partial_index("schedules_due", "next_at", where=_can_be_due),
    partial_index("schedules_late", "late_at", where=_can_be_late),
    sqlite_with_rowid=False,
)

_PLANNED = ("next_at", "late_at", "late_after")
_everything = schedules.alias("everything")
_nothing_paused = ~exists().where(_everything.c.site == EVERYTHING, _everything.c.paused_at.is_not(None))
_has_schedule = and_(sites.c.removed_at.is_(None), sites.c.origin != Origin.COMMAND.value)

_now = bindparam("now", type_=BigInteger)
# Whether any site may be due at `now`, in milliseconds: it may be executed already, or everything may be paused.
may_be_due = or_(
    exists().where(_can_be_due, schedules.c.next_at <= _now),
    exists().where(_has_follow_up, schedules.c.follow_up_at <= _now),
)
# The next execution after `now`.
next_due = (
    select(schedules.c.next_at)
    .where(_can_be_due, schedules.c.next_at > _now, _nothing_paused)
    .order_by(schedules.c.next_at)
    .limit(1)
)

_workflow = literal(WORKFLOW_PREFIX).concat(sites.c.id)
# The numbers of sites without a running execution.
_free_sites = (
    select(schedules.c.site)
    .join(sites, sites.c.number == schedules.c.site)
    .where(~exists().where(executions.c.workflow_name == _workflow, is_running))
)


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """The schedule of a site."""

    # None where the site has no schedule. A time in the past is due as soon as nothing is paused.
    next_run: datetime | None
    # When the last scheduled execution began.
    last_run: datetime | None
    # This site is paused.
    paused: bool
    # All sites are paused.
    paused_everything: bool


@dataclass(frozen=True, slots=True)
class LateSite:
    """A site without an execution for two periods."""

    id: str
    # When the second period ended.
    since: datetime
    last_run: datetime | None


@dataclass(slots=True, eq=False)
class Schedules:
    """The schedules of all sites."""

    database: Database
    _: KW_ONLY
    clock: Clock
    # Sites of one cron time are spread over this long.
    spread: timedelta = SPREAD
    # Between two requests to an engine: many sites are spread over as many of them.
    interval: timedelta = timedelta(0)
    # How many sites have a schedule, and until when that number is cached, in monotonic seconds.
    _count: int = field(default=0, init=False)
    _count_until: float = field(default=float("-inf"), init=False)

    async def plan(self, connection: AsyncConnection, site: Site) -> None:
        """In the transaction that stores this site: plan its next execution, if its cron or enabled changed."""
        origin = (await connection.execute(select(sites.c.origin).where(sites.c.number == site.number))).scalar()
        if origin == Origin.COMMAND:
            await self.drop(connection, site.number)
            return
        now = self.clock.now()
        times = find_times(site.schedule, at=now) if site.enabled else None
        if site.enabled and times is None:
            _log.warning("schedule.never_due", site=site.id, schedule=site.schedule)
        await self._count_sites(connection)
        row = {"site": site.number, "cron": site.schedule, **self._plan_next(times, site=site.number, now=now)}
        await self._store(connection, [row])

    async def drop(self, connection: AsyncConnection, number: int) -> None:
        """In the transaction that removes this site: delete its schedule and its pause."""
        await connection.execute(delete(schedules).where(schedules.c.site == number))

    async def sync(self) -> int:
        """Make the rows match the stored sites, for a start of the service. Returns how many rows changed."""
        now = self.clock.now()
        # Many sites share a cron expression.
        look = functools.cache(functools.partial(find_times, at=now))
        kept = select(sites.c.number).where(_has_schedule)
        async with self.database.write() as connection:
            gone = delete(schedules).where(schedules.c.site != EVERYTHING, schedules.c.site.not_in(kept))
            changed = (await connection.execute(gone)).rowcount
        last: int | None = 0
        while last is not None:
            async with self.database.write() as connection:
                await self._count_sites(connection)
                rows, last = await self._find_misfits(connection, after=last, look=look, now=now)
                await self._store(connection, rows)
            changed += len(rows)
        return changed

    async def _find_misfits(
        self, connection: AsyncConnection, *, after: int, look: Callable[[str], CronTimes | None], now: datetime
    ) -> tuple[list[dict[str, Any]], int | None]:
        """The rows to change for a batch of sites, and the number of its last site (None: no more batches)."""
        statement = (
            select(sites.c.number, sites.c.settings, sites.c.enabled, schedules.c.cron, schedules.c.next_at)
            .select_from(sites.outerjoin(schedules, schedules.c.site == sites.c.number))
            .where(_has_schedule, sites.c.number > after)
            .order_by(sites.c.number)
            .limit(_SYNC_BATCH)
            # A site that is changed meanwhile must not get its old schedule.
            .with_for_update(read=True, of=sites)
        )
        batch = (await connection.execute(statement)).all()
        misfits = []
        for row in batch:
            cron = json.loads(row.settings)["schedule"]
            if row.cron == cron and (row.next_at is not None) == row.enabled:
                continue
            planned = self._plan_next(look(cron) if row.enabled else None, site=row.number, now=now)
            if (row.cron, row.next_at is None) != (cron, planned["next_at"] is None):
                misfits.append({"site": row.number, "cron": cron, **planned})
        return misfits, batch[-1].number if len(batch) == _SYNC_BATCH else None

    async def list_due(self, connection: AsyncConnection, *, limit: int) -> list[int]:
        """The numbers of due sites that are neither paused nor running, the longest due first."""
        due = _free_sites.where(self._is_due()).order_by(schedules.c.next_at).limit(limit)
        return list((await connection.execute(due)).scalars())

    async def list_follow_ups(self, connection: AsyncConnection, *, limit: int) -> list[int]:
        """The numbers of such sites with a follow-up, the earliest request first."""
        asked = _free_sites.where(self._has_follow_up()).order_by(schedules.c.follow_up_at).limit(limit)
        return list((await connection.execute(asked)).scalars())

    async def begin(self, connection: AsyncConnection, site: int) -> bool:
        """In the transaction that begins the execution: plan the next one. False if none is due.

        Of several processes that begin one execution, one gets True.
        """
        mine = and_(schedules.c.site == site, or_(self._is_due(), self._has_follow_up()))
        found = select(schedules.c.cron, schedules.c.next_at).where(mine).with_for_update(of=schedules)
        row = (await connection.execute(found)).first()
        if row is None:
            return False
        begun = update(schedules).where(schedules.c.site == site)
        if row.next_at is None or from_milliseconds(row.next_at) > self.clock.now():
            # A follow-up does not change the schedule.
            await connection.execute(begun.values(follow_up_at=None))
            return True
        # A clock that was set back must not repeat the same cron time.
        now = max(self.clock.now(), from_milliseconds(row.next_at))
        await self._count_sites(connection)
        planned = self._plan_next(find_times(row.cron, at=now), site=site, now=now)
        last_run_at = to_milliseconds(self.clock.now())
        await connection.execute(begun.values(**planned, last_run_at=last_run_at, follow_up_at=None))
        return True

    async def add_follow_up(self, number: int) -> bool:
        """Store that one more execution follows the running one. False if the site has no row here."""
        now = to_milliseconds(self.clock.now())
        follow = update(schedules).where(schedules.c.site == number).values(follow_up_at=now)
        return bool(await self.database.change(follow))

    async def put_off(self, site: int, delay: timedelta) -> None:
        """Make a due execution due later, because it could not begin."""
        later, mine = to_milliseconds(self.clock.now() + delay), update(schedules).where(schedules.c.site == site)
        async with self.database.write() as connection:
            await connection.execute(mine.where(self._is_due()).values(next_at=later))
            await connection.execute(mine.where(self._has_follow_up()).values(follow_up_at=later))

    def _is_due(self) -> ColumnElement[bool]:
        now = to_milliseconds(self.clock.now())
        return and_(_can_be_due, schedules.c.next_at <= now, _nothing_paused)

    def _has_follow_up(self) -> ColumnElement[bool]:
        now = to_milliseconds(self.clock.now())
        waits = and_(_has_follow_up, schedules.c.follow_up_at <= now)
        return and_(waits, schedules.c.paused_at.is_(None), _nothing_paused)

    def _is_late(self) -> ColumnElement[bool]:
        return and_(_can_be_late, schedules.c.late_at <= to_milliseconds(self.clock.now()), _nothing_paused)

    async def make_due(self, connection: AsyncConnection, number: int) -> None:
        """In the caller's transaction: make an interrupted execution due at once, where the site has a schedule."""
        now = to_milliseconds(self.clock.now())
        cut_off = and_(schedules.c.site == number, schedules.c.next_at > now)
        await connection.execute(update(schedules).where(cut_off).values(next_at=now))

    async def pause(self, number: int | None) -> bool:
        """Stop scheduled executions of this site (None: of all sites) until `resume`. False where nothing changed."""
        running = and_(schedules.c.site == (number or EVERYTHING), schedules.c.paused_at.is_(None))
        pause = update(schedules).where(running).values(paused_at=to_milliseconds(self.clock.now()))
        async with self.database.write() as connection:
            if number is None:
                everything = self.database.insert(schedules).values(site=EVERYTHING, cron="")
                await connection.execute(everything.on_conflict_do_nothing())
            return bool((await connection.execute(pause)).rowcount)

    async def resume(self, number: int | None) -> bool:
        """Allow executions again; each site makes up at most one. False where nothing changed.

        A pause does not make a site late: its two periods begin again.
        """
        late_at = to_milliseconds(self.clock.now()) + schedules.c.late_after
        paused = and_(schedules.c.site == (number or EVERYTHING), schedules.c.paused_at.is_not(None))
        resume = update(schedules).where(paused).values(paused_at=None, late_at=late_at)
        async with self.database.write() as connection:
            resumed = bool((await connection.execute(resume)).rowcount)
            if resumed and number is None:
                await connection.execute(update(schedules).values(late_at=late_at))
        return resumed

    async def is_paused(self, number: int | None) -> bool:
        """Whether this site (None: everything) is paused, alone or together with all others."""
        state = await self.read(number or EVERYTHING)
        return state.paused or state.paused_everything

    async def read(self, number: int) -> ScheduleState:
        """The schedule of a site. A site without a row has an empty one."""
        wanted = select(schedules).where(schedules.c.site.in_([EVERYTHING, number]))
        rows = {row.site: row for row in await self.database.fetch(wanted)}
        paused_everything = EVERYTHING in rows and rows[EVERYTHING].paused_at is not None
        return read_state(rows.get(number), paused_everything=paused_everything)

    async def find_next_due(self) -> datetime | None:
        """When the next execution after now is due. None where there is none, or everything is paused."""
        rows = await self.database.look_up(next_due, {"now": to_milliseconds(self.clock.now())})
        return from_milliseconds(rows[0].next_at) if rows else None

    async def list_late(self, *, limit: int = 100) -> list[LateSite]:
        """Sites without an execution for two periods although nothing is paused, the longest late first."""
        late = (
            select(sites.c.id, schedules.c.late_at, schedules.c.last_run_at)
            .select_from(schedules)
            .join(sites, sites.c.number == schedules.c.site)
            .where(self._is_late())
            .order_by(schedules.c.late_at)
            .limit(limit)
        )
        rows = await self.database.fetch(late)
        return [LateSite(row.id, from_milliseconds(row.late_at), read_timestamp(row.last_run_at)) for row in rows]

    async def count_late(self) -> int:
        """How many sites `list_late` could list."""
        late = select(func.count()).select_from(schedules).where(self._is_late())
        return int(await self.database.fetch_value(late))

    async def _count_sites(self, connection: AsyncConnection) -> None:
        """Count the sites that have a schedule, once in a while."""
        now = self.clock.monotonic()
        if self.interval and now >= self._count_until:
            counted = select(func.count()).select_from(schedules).where(_can_be_due)
            self._count = int((await connection.execute(counted)).scalar_one())
            self._count_until = now + _COUNT_EVERY.total_seconds()

    def _plan_next(self, times: CronTimes | None, *, site: int, now: datetime) -> dict[str, int | None]:
        """The columns of the next execution; all NULL where there is none."""
        if times is None:
            return dict.fromkeys(_PLANNED)
        # Long enough for one request of each site, at the pace of one engine. A spread of 0 stays 0.
        spread = max(self.spread, self._count * self.interval) if self.spread else self.spread
        return {
            "next_at": to_milliseconds(find_start(times, site=site, spread=spread)),
            "late_at": to_milliseconds(now + times.two_periods),
            "late_after": times.two_periods // _MILLISECOND,
        }

    async def _store(self, connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write these rows. A row keeps its times where neither its cron nor whether it is due changed."""
        if not rows:
            return
        insert = self.database.insert(schedules)
        new = insert.excluded
        changed = or_(schedules.c.cron != new.cron, schedules.c.next_at.is_(None) != new.next_at.is_(None))
        values = {name: new[name] for name in ("cron", *_PLANNED)}
        upsert = insert.on_conflict_do_update(index_elements=["site"], set_=values, where=changed)
        # With RETURNING, SQLAlchemy sends many rows in one statement; without it, one statement per row.
        await connection.execute(upsert.returning(schedules.c.site), list(rows))


def read_state(row: Any, *, paused_everything: bool) -> ScheduleState:
    """The schedule of a row; an empty one for None."""
    return ScheduleState(
        next_run=None if row is None else read_timestamp(row.next_at),
        last_run=None if row is None else read_timestamp(row.last_run_at),
        paused=row is not None and row.paused_at is not None,
        paused_everything=paused_everything,
    )
