"""Work that is due every so often: one process does it, and a missed time is made up once."""

import asyncio
from datetime import timedelta

from sqlalchemy import select

from tests.fakes import FakeClock
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database, open_database
from tidings.core.queue.periodic import PeriodicJobs, any_job_due

EVERY = timedelta(minutes=15)
SECOND = timedelta(seconds=1)
PROCESSES = 8


async def test_a_job_is_due_at_first_and_then_every_so_often(database: Database, clock: FakeClock) -> None:
    """C5, C26: the recovery comes every fifteen minutes; what was missed is made up once."""
    jobs = PeriodicJobs(database, clock=clock)
    assert await jobs.begin("recover", every=EVERY)
    assert not await jobs.begin("recover", every=EVERY)
    clock.advance(EVERY - SECOND)
    assert not await jobs.begin("recover", every=EVERY)
    clock.advance(SECOND)
    assert await jobs.begin("recover", every=EVERY)
    clock.advance(10 * EVERY)
    assert [await jobs.begin("recover", every=EVERY) for _ in range(2)] == [True, False]


async def test_of_eight_that_look_at_once_one_does_it(database_url: str, clock: FakeClock) -> None:
    """C5: over connections of their own, as several processes have them."""
    databases = [open_database(database_url) for _ in range(PROCESSES)]
    answers = await asyncio.gather(
        *(PeriodicJobs(each, clock=clock).begin("recover", every=EVERY) for each in databases)
    )
    for each in databases:
        await each.close()
    assert sorted(answers) == [False] * (PROCESSES - 1) + [True]


async def test_jobs_do_not_know_of_each_other(database: Database, clock: FakeClock) -> None:
    """C19."""
    jobs = PeriodicJobs(database, clock=clock)
    assert await jobs.begin("discover", every=EVERY)
    assert await jobs.begin("collect", every=EVERY)


async def test_a_job_that_is_to_come_more_often_does_not_wait_for_its_old_time(
    database: Database, clock: FakeClock
) -> None:
    """C26: the setting counts from the next look on; so does a clock that was set back."""
    jobs = PeriodicJobs(database, clock=clock)
    await jobs.begin("discover", every=timedelta(days=1))
    assert await jobs.begin("discover", every=EVERY)
    assert not await jobs.begin("discover", every=EVERY)


async def test_what_is_due_is_listed_without_beginning_it(database: Database, clock: FakeClock) -> None:
    """C19, C26: the tick looks, the worker begins; what is made due is due at once."""
    jobs, intervals = PeriodicJobs(database, clock=clock), {"discover": EVERY, "recover": 2 * EVERY}

    async def look() -> list[str]:
        async with database.read() as connection:
            return await jobs.list_due(connection, intervals)

    assert await look() == await look() == ["discover", "recover"]
    for name, every in intervals.items():
        await jobs.begin(name, every=every)
    assert await look() == []
    clock.advance(EVERY)
    assert await look() == ["discover"]
    async with database.write() as connection:
        await jobs.make_due(connection, "recover")
    assert await look() == ["discover", "recover"]


async def test_a_short_look_sees_what_is_due_and_what_nobody_ever_began(database: Database, clock: FakeClock) -> None:
    """C19: a new job begins with the next tick, also if nobody could take it at the first one."""
    jobs, statement = PeriodicJobs(database, clock=clock), select(any_job_due(["discover", "recover"]).label("due"))

    async def look() -> bool:
        [row] = await database.look_up(statement, {"now": to_milliseconds(clock.now())})
        return bool(row.due)

    assert await look()
    await jobs.begin("discover", every=EVERY)
    await jobs.begin("another", every=2 * EVERY)
    assert await look()
    await jobs.begin("recover", every=2 * EVERY)
    assert not await look()
    clock.advance(EVERY)
    assert await look()
