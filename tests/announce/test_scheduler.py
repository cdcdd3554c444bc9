"""The loop that executes sites: each cron time once, within its room, through faults, to a clean stop."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from sqlalchemy import text

from tests.announce.stage import Events
from tests.announce.test_schedule import HOURLY, store_sites
from tests.fakes import FakeClock
from tidings.announce.schedule.scheduler import SLEEP_AFTER_ERROR, Scheduler
from tidings.announce.schedule.table import LEASE, ScheduleClaim, Schedules
from tidings.core.db.database import Database
from tidings.core.queue.dispatch import Runner
from tidings.core.stop import Stop

pytestmark = pytest.mark.one_database

EACH_MINUTE = "* * * * *"
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
SOON = 30.0
AT_ONCE = timedelta(0)

Hook = Callable[[], Awaitable[None]]


class StillClock(FakeClock):
    """A clock on which no sleep ends by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = asyncio.Event()

    async def sleep(self, duration: timedelta) -> None:
        self.slept.append(duration)
        self.asleep.set()
        await asyncio.Event().wait()


class PatientClock(FakeClock):
    """Time goes on only when no job is under way: in the real world a job needs a moment, not minutes."""

    def __init__(self) -> None:
        super().__init__()
        self.settle: Hook | None = None

    async def sleep(self, duration: timedelta) -> None:
        if self.settle is not None:
            await self.settle()
        await super().sleep(duration)


class Works:
    """A scheduler whose executions begin, are recorded, and wait where a test says so."""

    def __init__(self, database: Database, *, clock: FakeClock, limit: int = 10, beat: Hook | None = None) -> None:
        self.database = database
        self.clock = clock
        self.schedules = Schedules(database, clock=clock)
        self.limit = limit
        self.runner = Runner(limit)
        self.scheduler = Scheduler(self.schedules, self.runner, clock=clock, run=self.run, beat=beat)
        self.stop = Stop(clock=clock)
        self.begun: list[ScheduleClaim] = []
        self.enough = 1
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.before_begin: Hook | None = None

    async def run(self, claim: ScheduleClaim) -> None:
        if self.before_begin is not None:
            await self.before_begin()
        async with self.database.write() as connection:
            await self.schedules.begin(connection, claim)
        self.begun.append(claim)
        if len(self.begun) == self.enough:
            self.stop.request("enough")
        await self.go_on.wait()

    async def settle(self) -> None:
        """Wait until no job is left."""
        async with asyncio.timeout(SOON):
            while self.runner.free < self.limit:  # noqa: ASYNC110 - the runner has no event for it
                await asyncio.sleep(0)

    async def tick(self) -> int:
        """One round, and the end of what it started."""
        started = await self.scheduler.tick()
        await self.settle()
        return started

    async def run_until_stopped(self) -> None:
        async with asyncio.timeout(SOON):
            await self.scheduler.run(self.stop)
        await self.runner.drain(timedelta(seconds=SOON))


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One database is enough: the SQL of schedules has tests of its own."""
    return sqlite_url


@pytest.fixture
def works(database: Database, clock: FakeClock) -> Works:
    return Works(database, clock=clock)


async def store_due(works: Works, count: int = 1) -> None:
    """Sites of an hourly schedule whose time has come."""
    await store_sites(works.database, count, cron=HOURLY)
    await works.schedules.sync()
    works.clock.advance(2 * HOUR + 5 * MINUTE)


@pytest.mark.both_databases
async def test_the_loop_runs_every_site_once_for_each_cron_time(database: Database) -> None:
    """A38: from a start with sites that have no schedule yet; no minute is left out, none has two runs."""
    clock = PatientClock()
    works = Works(database, clock=clock)
    clock.settle = works.settle
    await store_sites(works.database, 3, cron=EACH_MINUTE)
    works.enough = 30
    await works.run_until_stopped()
    runs = Counter((claim.site, claim.due_at.replace(second=0, microsecond=0)) for claim in works.begun)
    first, last = min(minute for _, minute in runs), max(minute for _, minute in runs)
    assert set(runs.values()) == {1}
    whole = {minute for _, minute in runs if first <= minute < last}
    assert {(site, minute) for site, minute in runs if minute < last} == {(n, m) for n in (1, 2, 3) for m in whole}
    assert len(whole) == (last - first) / MINUTE >= 8


async def test_a_round_takes_no_more_than_there_is_room_for(database: Database, clock: FakeClock) -> None:
    """A39: what is due beyond that stays unclaimed, for other processes or for later."""
    works = Works(database, clock=clock, limit=2)
    await store_due(works, 5)
    works.go_on.clear()
    assert await works.scheduler.tick() == 2
    assert await works.scheduler.tick() == 0
    assert len(await works.schedules.claim_due(limit=10)) == 3
    await works.runner.drain(AT_ONCE)


async def test_the_end_of_a_job_makes_room_at_once(database: Database) -> None:
    """A38: a backlog is worked off job by job, without a wait; here no sleep ever ends by itself."""
    works = Works(database, clock=StillClock(), limit=2)
    await store_due(works, 9)
    works.enough = 9
    await works.run_until_stopped()
    assert Counter(claim.site for claim in works.begun) == Counter(range(1, 10))


async def test_a_run_that_takes_longer_than_its_period_is_not_doubled(works: Works, events: Events) -> None:
    """A38, A39: the cron times within it are left out, and are not made up after it."""
    await store_due(works)
    works.go_on.clear()
    assert await works.scheduler.tick() == 1
    async with asyncio.timeout(SOON):
        while not works.begun:  # noqa: ASYNC110 - the run has no event for it
            await asyncio.sleep(0)
    for _ in range(3):
        works.clock.advance(HOUR)
        assert await works.scheduler.tick() == 0
    assert [entry["event"] for entry in events] == ["execution.skipped"] * 3
    works.go_on.set()
    await works.settle()
    assert await works.tick() == 0
    works.clock.advance(HOUR)
    assert await works.tick() == 1
    assert len(works.begun) == 2


async def test_a_job_too_slow_to_begin_is_still_the_one_that_runs(works: Works) -> None:
    """A38: its claim has ended and is claimed again in the same process; one run comes of it, not none and not two."""
    gate = asyncio.Event()

    async def wait_at_gate() -> None:
        await gate.wait()

    works.before_begin = wait_at_gate
    await store_due(works)
    assert await works.scheduler.tick() == 1
    await asyncio.sleep(0)
    works.clock.advance(LEASE)
    assert await works.scheduler.tick() == 0
    gate.set()
    await works.settle()
    assert len(works.begun) == 1
    works.clock.advance(LEASE)
    assert await works.tick() == 0


async def test_a_run_that_breaks_before_it_began_is_made_up_after_the_lease(works: Works, events: Events) -> None:
    """A38: not at once, or a lasting fault would be tried without end."""

    async def fail() -> None:
        raise ZeroDivisionError

    works.before_begin = fail
    await store_due(works)
    assert await works.tick() == 1
    assert [entry["event"] for entry in events] == ["job.broken"]
    works.before_begin = None
    assert await works.tick() == 0
    works.clock.advance(LEASE)
    assert await works.tick() == 1
    assert len(works.begun) == 1


async def test_a_lost_claim_is_no_fault(works: Works, events: Events) -> None:
    """A39: another process has begun the run meanwhile; that is a line in the log, not an error."""

    async def begin_elsewhere() -> None:
        works.clock.advance(LEASE)
        [claim] = await works.schedules.claim_due(limit=1)
        await works.schedules.skip(claim)

    works.before_begin = begin_elsewhere
    await store_due(works)
    assert await works.tick() == 1
    assert [(entry["event"], entry["log_level"]) for entry in events] == [("execution.claim_lost", "info")]
    assert works.begun == []


async def test_a_site_that_was_started_by_hand_is_left_out(works: Works) -> None:
    """A39: the key of a site's job is its number, whoever started it."""
    await store_due(works)
    gate = asyncio.Event()

    async def wait_at_gate() -> None:
        await gate.wait()

    assert works.runner.start(1, wait_at_gate)
    await asyncio.sleep(0)
    assert await works.scheduler.tick() == 0
    gate.set()
    await works.settle()
    assert await works.tick() == 0


async def test_a_wake_ends_the_sleep(database: Database) -> None:
    """A38: a site that was resumed or added runs at once, not after up to a minute."""
    clock = StillClock()
    works = Works(database, clock=clock)
    await store_due(works)
    await works.schedules.pause(None)
    loop = asyncio.create_task(works.run_until_stopped())
    async with asyncio.timeout(SOON):
        await clock.asleep.wait()
    assert clock.slept == [MINUTE]
    assert works.scheduler.alive_at == clock.now()
    await works.schedules.resume(None)
    works.scheduler.wake()
    await loop
    assert len(works.begun) == 1


async def test_a_beat_comes_each_minute_and_a_broken_one_stops_nothing(database: Database, events: Events) -> None:
    """A40: what is looked after once a minute goes on, whatever was wrong with it, and the sites run."""
    clock, beats = PatientClock(), []

    async def beat() -> None:
        beats.append(clock.now())
        if len(beats) == 4:
            made.stop.request("enough")
        raise ZeroDivisionError

    made = Works(database, clock=clock, beat=beat)
    made.enough = 1_000
    clock.settle = made.settle
    started = clock.now()
    await store_sites(database, 1, cron=EACH_MINUTE)
    await made.run_until_stopped()
    assert [round((moment - started) / MINUTE, 2) for moment in beats] == [1, 2, 3, 4]
    assert {entry["event"] for entry in events} == {"scheduler.beat_failed"}
    assert len(made.begun) == 3


class RepairingClock(FakeClock):
    """Puts the table back when the scheduler waits after an error."""

    def __init__(self, repair: Hook) -> None:
        super().__init__()
        self.repair = repair
        self.errors_seen = 0

    async def sleep(self, duration: timedelta) -> None:
        if duration == SLEEP_AFTER_ERROR:
            self.errors_seen += 1
            if self.errors_seen == 2:
                await self.repair()
        await super().sleep(duration)


async def test_a_database_that_is_away_for_a_moment_does_not_end_the_loop(database: Database, events: Events) -> None:
    """A38: the round is logged and tried again after a short wait; meanwhile the scheduler does not say it is well."""

    async def rename(table: str, name: str) -> None:
        async with database.write() as connection:
            await connection.execute(text(f"ALTER TABLE {table} RENAME TO {name}"))

    async def repair() -> None:
        assert made.scheduler.alive_at is None
        await rename("away", "schedules")

    clock = RepairingClock(repair)
    made = Works(database, clock=clock)
    await store_due(made)
    await rename("schedules", "away")
    await made.run_until_stopped()
    assert [entry["event"] for entry in events] == ["scheduler.round_failed"] * 2
    assert clock.errors_seen == 2
    assert len(made.begun) == 1
    assert made.scheduler.alive_at is not None


@pytest.mark.parametrize("place", ["running", "waiting"])
async def test_a_stop_gives_back_what_has_not_begun(database: Database, clock: FakeClock, place: str) -> None:
    """A38: a claim whose job was cancelled before it began, or never had its turn, is free for others at once."""
    works = Works(database, clock=clock, limit=1)
    entered = asyncio.Event()

    async def stop_and_wait() -> None:
        entered.set()
        works.stop.request("a signal")
        await asyncio.Event().wait()

    works.before_begin = stop_and_wait
    await store_due(works)
    if place == "running":
        await works.scheduler.run(works.stop)
        assert entered.is_set()
    else:
        await fill_while_claiming(works)
    await works.runner.drain(AT_ONCE)
    assert works.begun == []
    assert len(await works.schedules.claim_due(limit=1)) == 1


async def fill_while_claiming(works: Works) -> None:
    """Another job takes the only place between the look at it and the claim, so that the claim's own has to wait."""

    async def wait() -> None:
        await asyncio.Event().wait()

    turn = asyncio.create_task(works.scheduler.tick())
    await asyncio.sleep(0)
    assert works.runner.start("by hand", wait)
    assert await turn == 1
    assert await works.schedules.claim_due(limit=1) == []
    works.stop.request("a signal")
    await works.scheduler.run(works.stop)


async def test_a_stop_leaves_what_has_begun_to_its_end(works: Works) -> None:
    """A clean stop: the loop ends, the job goes on, and its run is not due again."""
    await store_due(works)
    works.go_on.clear()
    async with asyncio.timeout(SOON):
        await works.scheduler.run(works.stop)
    assert works.runner.running == 1
    works.go_on.set()
    await works.runner.drain(timedelta(seconds=SOON))
    assert len(works.begun) == 1
    assert await works.schedules.claim_due(limit=1) == []
