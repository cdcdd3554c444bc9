"""The tick: it submits what is due, goes on through faults, and leaves each chore to one of all processes."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection
from structlog.testing import capture_logs

from tests.fakes import FakeClock
from tidings.core.db.database import Database
from tidings.core.loop import AFTER_ERROR
from tidings.core.process_lock import ProcessLock
from tidings.core.queue.dispatcher import Call, Job
from tidings.core.queue.embedded import EmbeddedDispatcher
from tidings.core.queue.periodic import PeriodicJobs
from tidings.core.queue.tick import Ticker
from tidings.core.stop import Stop

pytestmark = pytest.mark.one_database

MINUTE = timedelta(minutes=1)
SOON = 30.0


class TickBench:
    """Sites that are due until they have run, a dispatcher with two places, and a ticker."""

    def __init__(self, database: Database, clock: FakeClock, lock: ProcessLock) -> None:
        self.clock = clock
        self.due: list[int] = []
        self.requested: list[int] = []
        self.ran: list[int] = []
        self.chores: list[datetime] = []
        self.prepared = 0
        # What the short look shows.
        self.shows = True
        self.enough = 1
        self.stop = Stop(clock=clock)
        self.next_due: datetime | None = None
        self.dispatcher = EmbeddedDispatcher(
            database, clock=clock, process_lock=lock, places={"announce": 2}, on_free=lambda: self.ticker.wake()
        )
        self.ticker = Ticker(
            self.dispatcher,
            clock=clock,
            periodic=PeriodicJobs(database, clock=clock),
            prepare=self.prepare,
            recover=self.recover,
            may_be_due=self.look_shortly,
            requested=self.find_requested,
            due={"announce": self.find_due},
            chores={"announce.watch": (MINUTE, self.do_chore)},
            find_next_due=self.find_next_due,
        )

    async def prepare(self) -> None:
        self.prepared += 1

    async def look_shortly(self) -> bool:
        return self.shows

    async def recover(self) -> None:
        await asyncio.sleep(0)

    async def find_next_due(self) -> datetime | None:
        return self.next_due

    async def find_due(self, connection: AsyncConnection, limit: int) -> Sequence[Job]:
        await connection.execute(text("SELECT 1 FROM executions"))
        return [make_job(number) for number in self.due[:limit]]

    async def find_requested(self, _connection: AsyncConnection, limit: int) -> Sequence[Job]:
        return [make_job(number, urgent=True) for number in self.requested[:limit]]

    async def do_chore(self) -> None:
        self.chores.append(self.clock.now())
        if len(self.chores) == self.enough:
            self.stop.request("enough")
        raise ZeroDivisionError

    async def run(self, call: Call) -> None:
        number = call.arguments["number"]
        for waiting in (self.due, self.requested):
            if number in waiting:
                waiting.remove(number)
        self.ran.append(number)
        if not self.due and not self.requested:
            self.stop.request("done")

    async def work(self) -> None:
        async with asyncio.timeout(SOON):
            working = self.dispatcher.work({"announce.run": self.run}, self.stop, drain=MINUTE)
            await asyncio.gather(working, self.ticker.run(self.stop))


def make_job(number: int, *, urgent: bool = False) -> Job:
    return Job("announce.run", f"site {number}", {"number": number}, urgent=urgent)


@pytest.fixture
def bench(database: Database, clock: FakeClock, process_lock: ProcessLock) -> TickBench:
    return TickBench(database, clock, process_lock)


class StillClock(FakeClock):
    """A clock on which no sleep ends by itself."""

    async def sleep(self, duration: timedelta) -> None:
        self.slept.append(duration)
        await asyncio.Event().wait()


async def test_a_backlog_is_worked_off_job_by_job_without_a_wait(database: Database, process_lock: ProcessLock) -> None:
    """A38: the end of a job makes room at once; here no sleep ever ends by itself."""
    bench = TickBench(database, StillClock(), process_lock)
    bench.due, bench.requested, bench.enough = list(range(9)), [100, 101, 102], 1_000
    await bench.work()
    assert sorted(bench.ran) == [*range(9), 100, 101, 102]
    assert bench.prepared == 1


@pytest.mark.thorough
async def test_the_next_tick_comes_when_the_next_site_is_due_and_within_seconds(bench: TickBench) -> None:
    """A38: a site runs at its time, and what another process left is found soon."""
    bench.next_due, bench.enough = bench.clock.now() + timedelta(seconds=2), 2
    await bench.work()
    assert bench.clock.slept[0] == timedelta(seconds=2)
    assert max(bench.clock.slept) <= timedelta(seconds=5)
    assert bench.ticker.alive_at is not None


async def test_a_chore_comes_each_minute_and_a_broken_one_stops_nothing(bench: TickBench) -> None:
    """A40: what is looked after once a minute goes on, no matter what was wrong with it."""
    bench.enough = 4
    with capture_logs() as events:
        await bench.work()
    gaps = [later - earlier for earlier, later in zip(bench.chores, bench.chores[1:], strict=False)]
    assert all(MINUTE <= gap < MINUTE + timedelta(seconds=6) for gap in gaps)
    assert {event["event"] for event in events if event["log_level"] == "error"} == {"chore.failed"}


async def test_a_tick_looks_no_further_while_its_short_look_shows_nothing(bench: TickBench) -> None:
    """A38: an idle service asks the database one short question."""
    await bench.ticker.tick()
    bench.requested, bench.shows = [1], False
    assert [await bench.ticker.tick() for _ in range(3)] == [0, 0, 0]
    bench.shows = True
    assert await bench.ticker.tick() == 1


async def test_what_the_short_look_does_not_see_waits_a_minute_at_most(bench: TickBench) -> None:
    """A38: as after a change of the clock."""
    await bench.ticker.tick()
    bench.requested, bench.shows = [1], False
    bench.clock.advance(timedelta(seconds=59))
    assert await bench.ticker.tick() == 0
    bench.clock.advance(timedelta(seconds=1))
    assert await bench.ticker.tick() == 1


class RepairingClock(FakeClock):
    """Puts the table back when the ticker waits after its second error."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self.errors_seen = 0

    async def sleep(self, duration: timedelta) -> None:
        if duration == AFTER_ERROR:
            self.errors_seen += 1
            if self.errors_seen == 2:
                await rename(self._database, "away", "executions")
        await super().sleep(duration)


async def rename(database: Database, table: str, name: str) -> None:
    async with database.write() as connection:
        await connection.execute(text(f"ALTER TABLE {table} RENAME TO {name}"))


async def test_a_database_that_is_away_for_a_moment_does_not_end_the_ticks(
    database: Database, process_lock: ProcessLock
) -> None:
    """A38: the tick is logged and repeated soon; meanwhile the process does not say that it is well."""
    clock = RepairingClock(database)
    bench = TickBench(database, clock, process_lock)
    bench.due, bench.enough = [1], 1_000
    await rename(database, "executions", "away")
    with capture_logs() as events:
        await bench.work()
    assert [event["event"] for event in events if event["log_level"] == "warning"] == ["tick.failed"] * 2
    assert bench.ran == [1]
