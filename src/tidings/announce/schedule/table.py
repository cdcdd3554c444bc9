"""When each site runs by itself: due times, claims on them, and pauses. One row a site; the row of site 0 stands for
everything. Nothing runs here: `scheduler` claims what is due and starts it. A run that is due stays due until it is
begun, however often its time came and whoever crashed over it; so what was missed is made up once.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Table,
    Text,
    and_,
    delete,
    exists,
    func,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.schedule.cron import CronTimes, find_times, find_turn
from tidings.announce.site.site import Site
from tidings.announce.site.table import Origin, sites
from tidings.core.clock import Clock, from_milliseconds, to_milliseconds
from tidings.core.db.database import Database, metadata
from tidings.core.logs.logger import get_logger

# The number that stands for all sites.
EVERYTHING = 0

LEASE = timedelta(minutes=2)
SPREAD = timedelta(minutes=5)

_SYNC_BATCH = 1_000
_MILLISECOND = timedelta(milliseconds=1)

_log = get_logger(__name__)

_can_be_due = text("next_at IS NOT NULL AND paused_at IS NULL")
_can_be_late = text("late_at IS NOT NULL AND paused_at IS NULL")

schedules = Table(
    "schedules",
    metadata,
    Column("site", BigInteger, primary_key=True, autoincrement=False),
    Column("cron", Text, nullable=False),
    # NULL where the site does not run by itself.
    Column("next_at", BigInteger),
    # From when on the site has not run for two periods, and how long these are.
    Column("late_at", BigInteger),
    Column("late_after", BigInteger),
    Column("claimed_until", BigInteger),
    Column("last_run_at", BigInteger),
    Column("paused_at", BigInteger),
    Index("schedules_due", "next_at", sqlite_where=_can_be_due, postgresql_where=_can_be_due),
    Index("schedules_late", "late_at", sqlite_where=_can_be_late, postgresql_where=_can_be_late),
    sqlite_with_rowid=False,
)

_PLANNED = ("next_at", "late_at", "late_after")
_everything = schedules.alias("everything")
_nothing_paused = ~exists().where(_everything.c.site == EVERYTHING, _everything.c.paused_at.is_not(None))
_runs_by_itself = and_(sites.c.removed_at.is_(None), sites.c.origin != Origin.COMMAND.value)


class ClaimLostError(Exception):
    """The run is no longer due: somebody else has begun it, or the site was changed, disabled or removed."""

    def __init__(self, claim: "Claim") -> None:
        super().__init__(f"the run of site {claim.site} that was due at {claim.due_at:%Y-%m-%d %H:%M:%S} UTC is gone")


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to begin a run that is due. Past `until` another process may claim the same run."""

    site: int
    due_at: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """`next_run` is None where the site does not run by itself; one in the past is due as soon as nothing is paused."""

    next_run: datetime | None
    last_run: datetime | None
    paused: bool
    paused_everything: bool


@dataclass(frozen=True, slots=True)
class LateSite:
    """A site that should have run twice since it last did, and did not. `since` is when the second time had passed."""

    site: int
    id: str
    since: datetime
    last_run: datetime | None


class Schedules:
    """The schedules of all sites."""

    def __init__(self, database: Database, *, clock: Clock, spread: timedelta = SPREAD) -> None:
        self._database = database
        self._clock = clock
        self._spread = spread

    async def plan(self, connection: AsyncConnection, site: Site) -> None:
        """In the transaction that stored this site: plan its next run, anew only where its cron or enabled changed."""
        origin = (await connection.execute(select(sites.c.origin).where(sites.c.number == site.number))).scalar()
        if origin == Origin.COMMAND:
            await self.drop(connection, site.number)
            return
        now = self._clock.now()
        times = find_times(site.schedule, moment=now) if site.enabled else None
        if site.enabled and times is None:
            _log.warning("schedule.never_due", site=site.id, schedule=site.schedule)
        row = {"site": site.number, "cron": site.schedule, **self._plan_run(times, site=site.number, now=now)}
        await self._store(connection, [row])

    async def drop(self, connection: AsyncConnection, number: int) -> None:
        """In the transaction that removed this site: forget its schedule, and whether it was paused."""
        await connection.execute(delete(schedules).where(schedules.c.site == number))

    async def sync(self) -> int:
        """Make the rows fit the stored sites; returns how many did not. For a start: sites may have come otherwise."""
        now = self._clock.now()
        # Many sites share one expression.
        look = functools.cache(functools.partial(find_times, moment=now))
        kept = select(sites.c.number).where(_runs_by_itself)
        async with self._database.write() as connection:
            gone = delete(schedules).where(schedules.c.site != EVERYTHING, schedules.c.site.not_in(kept))
            changed = (await connection.execute(gone)).rowcount
        last: int | None = 0
        while last is not None:
            async with self._database.write() as connection:
                rows, last = await self._find_misfits(connection, after=last, look=look, now=now)
                await self._store(connection, rows)
            changed += len(rows)
        return changed

    async def _find_misfits(
        self, connection: AsyncConnection, *, after: int, look: Callable[[str], CronTimes | None], now: datetime
    ) -> tuple[list[dict[str, Any]], int | None]:
        """The rows that a batch of sites should have and has not, and the batch's last site (None: that was all)."""
        statement = (
            select(sites.c.number, sites.c.settings, sites.c.enabled, schedules.c.cron, schedules.c.next_at)
            .select_from(sites.outerjoin(schedules, schedules.c.site == sites.c.number))
            .where(_runs_by_itself, sites.c.number > after)
            .order_by(sites.c.number)
            .limit(_SYNC_BATCH)
            # A site that is changed meanwhile must not get the schedule that it had before.
            .with_for_update(read=True, of=sites)
        )
        batch = (await connection.execute(statement)).all()
        misfits = []
        for row in batch:
            cron = json.loads(row.settings)["schedule"]
            if row.cron == cron and (row.next_at is not None) == row.enabled:
                continue
            planned = self._plan_run(look(cron) if row.enabled else None, site=row.number, now=now)
            if (row.cron, row.next_at is None) != (cron, planned["next_at"] is None):
                misfits.append({"site": row.number, "cron": cron, **planned})
        return misfits, batch[-1].number if len(batch) == _SYNC_BATCH else None

    async def claim_due(self, *, limit: int) -> list[Claim]:
        """Runs that are due and not paused, the longest due first. Of several that claim at once, each gets others."""
        now = to_milliseconds(self._clock.now())
        until = now + LEASE // _MILLISECOND
        due = (
            select(schedules.c.site)
            .where(_can_be_due, schedules.c.next_at <= now, _is_unclaimed(now), _nothing_paused)
            .order_by(schedules.c.next_at)
            .limit(limit)
            .with_for_update(skip_locked=True, of=schedules)
            .cte("due")
        )
        claim = (
            update(schedules)
            .where(schedules.c.site.in_(select(due.c.site)))
            .values(claimed_until=until)
            .returning(schedules.c.site, schedules.c.next_at)
        )
        async with self._database.write() as connection:
            rows = sorted((await connection.execute(claim)).all(), key=lambda row: (row.next_at, row.site))
        return [
            Claim(site=row.site, due_at=from_milliseconds(row.next_at), until=from_milliseconds(until)) for row in rows
        ]

    async def begin(self, connection: AsyncConnection, claim: Claim) -> None:
        """In the caller's transaction: the run has begun, or its site runs already. The next one is planned.

        Of several that hold a claim on one run, one can begin it; the others get ClaimLostError.
        """
        await self._move_on(connection, claim, last_run_at=to_milliseconds(self._clock.now()))

    async def skip(self, claim: Claim) -> None:
        """Leave this run out, because the site still runs; the next one is planned. Raises ClaimLostError."""
        async with self._database.write() as connection:
            await self._move_on(connection, claim)

    async def _move_on(self, connection: AsyncConnection, claim: Claim, **values: int) -> None:
        mine = and_(schedules.c.site == claim.site, schedules.c.next_at == to_milliseconds(claim.due_at))
        cron = (await connection.execute(select(schedules.c.cron).where(mine).with_for_update())).scalar()
        if cron is None:
            raise ClaimLostError(claim)
        # A clock that was set back must not make the same cron time come again.
        now = max(self._clock.now(), claim.due_at)
        planned = self._plan_run(find_times(cron, moment=now), site=claim.site, now=now)
        await connection.execute(
            update(schedules).where(schedules.c.site == claim.site).values(claimed_until=None, **planned, **values)
        )

    async def release(self, claim: Claim) -> None:
        """Give a claim back: the run is due as before. Does nothing where it was begun, or claimed again."""
        mine = and_(
            schedules.c.site == claim.site,
            schedules.c.next_at == to_milliseconds(claim.due_at),
            schedules.c.claimed_until == to_milliseconds(claim.until),
        )
        async with self._database.write() as connection:
            await connection.execute(update(schedules).where(mine).values(claimed_until=None))

    async def make_due(self, connection: AsyncConnection, number: int) -> None:
        """In the caller's transaction: a run that was cut off is due at once, where the site runs by itself."""
        now = to_milliseconds(self._clock.now())
        cut_off = and_(schedules.c.site == number, schedules.c.next_at > now)
        await connection.execute(update(schedules).where(cut_off).values(next_at=now, claimed_until=None))

    async def pause(self, number: int | None) -> bool:
        """No more runs of this site (None: of any site) until `resume`. False where nothing changed."""
        running = and_(schedules.c.site == (number or EVERYTHING), schedules.c.paused_at.is_(None))
        pause = update(schedules).where(running).values(paused_at=to_milliseconds(self._clock.now()))
        async with self._database.write() as connection:
            if number is None:
                everything = self._database.insert(schedules).values(site=EVERYTHING, cron="")
                await connection.execute(everything.on_conflict_do_nothing())
            return bool((await connection.execute(pause)).rowcount)

    async def resume(self, number: int | None) -> bool:
        """Let it run again; runs that were due meanwhile are made up, one for each site. False where nothing changed.

        A site is not late for having been paused: its two periods begin anew.
        """
        late_at = to_milliseconds(self._clock.now()) + schedules.c.late_after
        paused = and_(schedules.c.site == (number or EVERYTHING), schedules.c.paused_at.is_not(None))
        resume = update(schedules).where(paused).values(paused_at=None, late_at=late_at)
        async with self._database.write() as connection:
            resumed = bool((await connection.execute(resume)).rowcount)
            if resumed and number is None:
                await connection.execute(update(schedules).values(late_at=late_at))
        return resumed

    async def is_paused(self, number: int | None) -> bool:
        """Whether this site (None: everything) is paused, be it with everything else."""
        state = await self.read(number or EVERYTHING)
        return state.paused or state.paused_everything

    async def read(self, number: int) -> ScheduleState:
        """A site's schedule as it stands; that of a site that has none is empty."""
        return (await self.read_several([number]))[number]

    async def read_several(self, numbers: Sequence[int]) -> dict[int, ScheduleState]:
        """The same for many sites in one look."""
        wanted = select(schedules).where(schedules.c.site.in_([EVERYTHING, *numbers]))
        async with self._database.read() as connection:
            rows = {row.site: row for row in await connection.execute(wanted)}
        paused_everything = EVERYTHING in rows and rows[EVERYTHING].paused_at is not None
        return {number: read_state(rows.get(number), paused_everything=paused_everything) for number in numbers}

    async def next_due(self) -> datetime | None:
        """When the next run is due that nobody has claimed; None where there is none, or everything is paused."""
        now = to_milliseconds(self._clock.now())
        first = (
            select(schedules.c.next_at)
            .where(_can_be_due, _is_unclaimed(now), _nothing_paused)
            .order_by(schedules.c.next_at)
            .limit(1)
        )
        async with self._database.read() as connection:
            return _read_moment((await connection.execute(first)).scalar())

    async def list_late(self, *, limit: int = 100) -> list[LateSite]:
        """Sites that have not run for two periods although nothing is paused, the longest late first."""
        late = (
            select(schedules.c.site, sites.c.id, schedules.c.late_at, schedules.c.last_run_at)
            .join(sites, sites.c.number == schedules.c.site)
            .where(_can_be_late, schedules.c.late_at <= to_milliseconds(self._clock.now()), _nothing_paused)
            .order_by(schedules.c.late_at)
            .limit(limit)
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(late)).all()
        return [
            LateSite(
                site=row.site, id=row.id, since=from_milliseconds(row.late_at), last_run=_read_moment(row.last_run_at)
            )
            for row in rows
        ]

    async def count_late(self) -> int:
        """How many sites have not run for two periods although nothing is paused."""
        late = (
            select(func.count())
            .select_from(schedules)
            .where(_can_be_late, schedules.c.late_at <= to_milliseconds(self._clock.now()), _nothing_paused)
        )
        async with self._database.read() as connection:
            return int((await connection.execute(late)).scalar_one())

    def _plan_run(self, times: CronTimes | None, *, site: int, now: datetime) -> dict[str, int | None]:
        """What the row holds of the next run; nothing where there is none."""
        if times is None:
            return dict.fromkeys(_PLANNED)
        return {
            "next_at": to_milliseconds(find_turn(times, site=site, spread=self._spread)),
            "late_at": to_milliseconds(now + times.two_periods),
            "late_after": times.two_periods // _MILLISECOND,
        }

    async def _store(self, connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write these rows. One of the same cron that runs (or does not) as before keeps its times."""
        if not rows:
            return
        insert = self._database.insert(schedules)
        new = insert.excluded
        changed = or_(schedules.c.cron != new.cron, schedules.c.next_at.is_(None) != new.next_at.is_(None))
        values = {name: new[name] for name in ("cron", *_PLANNED)}
        upsert = insert.on_conflict_do_update(index_elements=["site"], set_=values, where=changed)
        # Asked to return something, SQLAlchemy sends many rows in one statement; otherwise it sends each by itself.
        await connection.execute(upsert.returning(schedules.c.site), list(rows))


def _is_unclaimed(now: int) -> Any:
    return or_(schedules.c.claimed_until.is_(None), schedules.c.claimed_until <= now)


def read_state(row: Any, *, paused_everything: bool) -> ScheduleState:
    """A schedule from a row of the table (None: there is none)."""
    return ScheduleState(
        next_run=None if row is None else _read_moment(row.next_at),
        last_run=None if row is None else _read_moment(row.last_run_at),
        paused=row is not None and row.paused_at is not None,
        paused_everything=paused_everything,
    )


def _read_moment(stamp: int | None) -> datetime | None:
    return None if stamp is None else from_milliseconds(stamp)
