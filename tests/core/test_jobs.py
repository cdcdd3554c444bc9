"""Work that is due every so often: one process does it, and a missed time is made up once."""

import asyncio
from datetime import timedelta

from tests.fakes import FakeClock
from tidings.core.db.database import Database, open_database
from tidings.core.queue.jobs import Jobs

EVERY = timedelta(minutes=15)
SECOND = timedelta(seconds=1)
PROCESSES = 8


async def test_a_job_is_due_at_first_and_then_every_so_often(database: Database, clock: FakeClock) -> None:
    """C5, C26: the recovery comes every fifteen minutes; what was missed is made up once."""
    jobs = Jobs(database, clock=clock)
    assert await jobs.claim("recover", every=EVERY)
    assert not await jobs.claim("recover", every=EVERY)
    clock.advance(EVERY - SECOND)
    assert not await jobs.claim("recover", every=EVERY)
    clock.advance(SECOND)
    assert await jobs.claim("recover", every=EVERY)
    clock.advance(10 * EVERY)
    assert [await jobs.claim("recover", every=EVERY) for _ in range(2)] == [True, False]


async def test_of_eight_that_look_at_once_one_does_it(database_url: str, clock: FakeClock) -> None:
    """C5: over connections of their own, as several processes have them."""
    databases = [open_database(database_url) for _ in range(PROCESSES)]
    answers = await asyncio.gather(*(Jobs(each, clock=clock).claim("recover", every=EVERY) for each in databases))
    for each in databases:
        await each.close()
    assert sorted(answers) == [False] * (PROCESSES - 1) + [True]


async def test_jobs_do_not_know_of_each_other(database: Database, clock: FakeClock) -> None:
    """C19."""
    jobs = Jobs(database, clock=clock)
    assert await jobs.claim("discover", every=EVERY)
    assert await jobs.claim("collect", every=EVERY)


async def test_a_job_that_is_to_come_more_often_does_not_wait_for_its_old_time(
    database: Database, clock: FakeClock
) -> None:
    """C26: the setting counts from the next look on; so does a clock that was set back."""
    jobs = Jobs(database, clock=clock)
    await jobs.claim("discover", every=timedelta(days=1))
    assert await jobs.claim("discover", every=EVERY)
    assert not await jobs.claim("discover", every=EVERY)
