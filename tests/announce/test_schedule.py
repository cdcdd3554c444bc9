"""When sites run: due once however long it was missed, begun once by however many ask, paused, planned again."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing.pool import Pool
from typing import Any

import pytest
from sqlalchemy import Select, event, func, insert, select, update

from tests.fakes import FakeClock
from tests.processes import open_pool, wait_at_line
from tidings.announce.schedule.table import (
    LateSite,
    Schedules,
    ScheduleState,
    may_be_due,
    next_due,
    schedules,
)
from tidings.announce.site.site import Site, make_site
from tidings.announce.site.table import Origin, SiteRecords, sites
from tidings.core.clock import SystemClock
from tidings.core.db.database import Database, open_database
from tidings.core.executions import Executions, ExecutionStatus
from tidings.core.process_lock import ProcessLock

KEY = "c0ffee00-Feed-4bad-8Bad-F00dDecafBad"
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
DAILY = "0 0 * * *"
HOURLY = "0 * * * *"
NEVER = "0 0 */31 2 MON#5"
ALL = 1_000_000
PROCESSES = 2
SOON = 30.0

# What a process of the pool keeps: the line they start from.


@pytest.fixture
def planned(database: Database, clock: FakeClock) -> Schedules:
    return Schedules(database, clock=clock)


class Desk:
    """Saves sites as the API does: the site and its plan in one transaction."""

    def __init__(self, database: Database, records: SiteRecords, planned: Schedules) -> None:
        self.database = database
        self.records = records
        self.planned = planned

    async def add(self, cron: str = DAILY, *, host: str = "example.com", origin: Origin = Origin.API) -> Site:
        site = make_site(sitemap_urls=[f"https://{host}/sitemap.xml"], key=KEY, schedule=cron)
        return await self.save(site, origin=origin)

    async def save(self, site: Site, *, origin: Origin = Origin.API) -> Site:
        saved = await self.records.save(site, origin=origin)
        async with self.database.write() as connection:
            await self.planned.plan(connection, saved)
        return saved

    async def find_next(self, site: Site) -> datetime | None:
        return (await self.planned.read(site.number)).next_run


@pytest.fixture
def desk(database: Database, records: SiteRecords, planned: Schedules) -> Desk:
    return Desk(database, records, planned)


async def store_sites(database: Database, count: int, *, cron: str = DAILY, **values: Any) -> None:
    """Sites as they stand in the table, without a schedule yet."""
    rows = [
        {
            "id": f"{values.get('origin', 'api')}-{number}.example.com",
            "origin": "api",
            "host": f"{number}.example.com",
            "settings": json.dumps({"schedule": cron}),
            "enabled": True,
            "created_at": 0,
            "updated_at": 0,
            **values,
        }
        for number in range(count)
    ]
    async with database.write() as connection:
        await connection.execute(insert(sites), rows)


async def list_due(database: Database, planned: Schedules, limit: int = ALL) -> list[int]:
    async with database.read() as connection:
        return await planned.list_due(connection, limit=limit)


async def list_follow_ups(database: Database, planned: Schedules, limit: int = ALL) -> list[int]:
    async with database.read() as connection:
        return await planned.list_follow_ups(connection, limit=limit)


async def begin(database: Database, planned: Schedules, site: int) -> bool:
    async with database.write() as connection:
        return await planned.begin(connection, site)


async def run_due(database: Database, planned: Schedules) -> list[int]:
    """Begin all that is due; returns the sites."""
    return [site for site in await list_due(database, planned) if await begin(database, planned, site)]


@asynccontextmanager
async def open_several(url: str, count: int) -> AsyncIterator[list[Database]]:
    """Database objects of their own, as several processes have them."""
    databases = [open_database(url) for _ in range(count)]
    yield databases
    for database in databases:
        await database.close()


async def test_what_was_missed_for_a_week_is_made_up_once(
    database: Database, planned: Schedules, desk: Desk, clock: FakeClock
) -> None:
    """A38: the machine was off over seven due times; one execution, and then the next day's."""
    site = await desk.add(DAILY)
    clock.advance(7 * DAY)
    assert await run_due(database, planned) == [site.number]
    assert await run_due(database, planned) == []
    state = await planned.read(site.number)
    assert state.last_run == clock.now()
    midnight = datetime(2026, 11, 23, tzinfo=UTC)
    assert state.next_run is not None
    assert midnight <= state.next_run < midnight + timedelta(minutes=5)
    clock.set(state.next_run - timedelta(milliseconds=1))
    assert await run_due(database, planned) == []
    clock.set(state.next_run)
    assert await run_due(database, planned) == [site.number]


@pytest.mark.parametrize("whole", [False, True], ids=["a site", "everything"])
async def test_a_pause_over_three_due_times_ends_with_one_run(
    database: Database, planned: Schedules, desk: Desk, clock: FakeClock, whole: bool
) -> None:
    """A41, A38: nothing runs while it is paused, also over a new start; resumed, it is made up once."""
    site, other = await desk.add(HOURLY), await desk.add(HOURLY, host="example.org")
    number = None if whole else site.number
    assert await planned.pause(number)
    assert not await planned.pause(number)
    for _ in range(3):
        clock.advance(HOUR)
        await planned.sync()
        assert site.number not in await run_due(database, planned)
    assert await planned.is_paused(site.number)
    assert await planned.is_paused(other.number) == whole
    assert await planned.is_paused(None) == whole
    assert (await planned.find_next_due() is None) == whole
    assert await planned.resume(number)
    assert not await planned.resume(number)
    assert sorted(await run_due(database, planned)) == ([site.number, other.number] if whole else [site.number])
    assert await run_due(database, planned) == []
    assert not await planned.is_paused(site.number)


async def test_a_pause_of_everything_and_one_of_a_site_are_two_things(
    database: Database, planned: Schedules, desk: Desk, clock: FakeClock
) -> None:
    """A41: anybody who resumes everything does not resume what was paused by itself."""
    site = await desk.add(HOURLY)
    await planned.pause(site.number)
    await planned.pause(None)
    clock.advance(2 * HOUR)
    expected = ScheduleState(next_run=await desk.find_next(site), last_run=None, paused=True, paused_everything=True)
    assert await planned.read(site.number) == expected
    await planned.resume(None)
    assert await planned.read(site.number) == replace(expected, paused_everything=False)
    assert await run_due(database, planned) == []
    await planned.resume(site.number)
    assert await run_due(database, planned) == [site.number]


async def test_a_site_that_does_not_run_by_itself_cannot_be_paused(planned: Schedules) -> None:
    """A41: the answer says so, and nothing is stored."""
    assert not await planned.pause(7)
    assert await planned.read(7) == ScheduleState(None, None, paused=False, paused_everything=False)


async def test_only_a_change_of_cron_plans_anew(desk: Desk, clock: FakeClock) -> None:
    """A38: saving a site again must not lose an execution that is due; a new cron counts from now."""
    site = await desk.add(HOURLY)
    due = await desk.find_next(site)
    clock.advance(5 * HOUR)
    await desk.save(replace(site, announce_removed=True))
    assert await desk.find_next(site) == due
    await desk.save(replace(site, schedule="30 3 * * *"))
    planned_for = await desk.find_next(site)
    assert planned_for is not None
    assert timedelta(0) <= planned_for - datetime(2026, 11, 16, 3, 30, tzinfo=UTC) < timedelta(minutes=5)


async def test_a_disabled_site_is_never_due_and_an_enabled_one_starts_afresh(
    database: Database, planned: Schedules, desk: Desk, clock: FakeClock
) -> None:
    """A38: nothing is made up for the time in which it was not to run."""
    site = await desk.add(HOURLY)
    await desk.save(replace(site, enabled=False))
    clock.advance(DAY + timedelta(minutes=30))
    assert await desk.find_next(site) is None
    assert await run_due(database, planned) == []
    assert await planned.list_late() == []
    await desk.save(site)
    assert await run_due(database, planned) == []
    clock.advance(HOUR)
    assert await run_due(database, planned) == [site.number]


async def test_a_removed_site_is_forgotten_and_comes_back_unpaused(
    database: Database, planned: Schedules, desk: Desk, clock: FakeClock
) -> None:
    """A2, A41: its number stays, its schedule does not."""
    site = await desk.add(HOURLY)
    await planned.pause(site.number)
    await desk.records.remove(site.id)
    async with database.write() as connection:
        await planned.drop(connection, site.number)
    clock.advance(DAY)
    assert await run_due(database, planned) == []
    again = await desk.save(site)
    assert again.number == site.number
    clock.advance(2 * HOUR)
    assert await run_due(database, planned) == [site.number]


async def test_a_site_of_the_command_line_never_runs_by_itself(
    database: Database, planned: Schedules, desk: Desk, clock: FakeClock
) -> None:
    """A38: it was announced by hand; once it is set up, it runs like every other."""
    site = await desk.add(HOURLY, origin=Origin.COMMAND)
    assert await planned.sync() == 0
    clock.advance(DAY)
    assert await run_due(database, planned) == []
    await desk.save(site, origin=Origin.API)
    clock.advance(2 * HOUR)
    assert await run_due(database, planned) == [site.number]


async def test_a_time_that_never_comes_is_never_due_nor_late(
    database: Database, planned: Schedules, clock: FakeClock
) -> None:
    """A38: a fifth Monday on the first of February, which no site can be given any more, and an old row may have."""
    await store_sites(database, 1, cron=NEVER)
    assert await planned.sync() == 1
    assert await planned.sync() == 0
    clock.advance(3_650 * DAY)
    assert await run_due(database, planned) == []
    assert await planned.list_late() == []
    assert await planned.find_next_due() is None


@pytest.mark.thorough
async def test_two_that_begin_at_once_share_200_due_sites(database_url: str, clock: FakeClock) -> None:
    """A38, A39: each site is begun by one of them; a list is no longer than it may be, the longest due first."""
    async with open_several(database_url, 2) as databases:
        workers = [Schedules(database, clock=clock) for database in databases]
        await store_sites(databases[0], 200)
        assert await workers[0].sync() == 200
        clock.advance(2 * DAY)
        assert len(await list_due(databases[0], workers[0], 17)) == 17
        answers = await asyncio.gather(*map(run_due, databases, workers))
        assert sorted(site for answer in answers for site in answer) == list(range(1, 201))


async def test_a_site_that_somebody_executes_is_not_listed(
    database: Database, planned: Schedules, desk: Desk, clock: FakeClock, process_lock: ProcessLock
) -> None:
    """A39: its due execution is made up once, after the one that runs."""
    site = await desk.add(DAILY)
    clock.advance(DAY)
    executions = Executions(database, clock=clock, process_lock=process_lock)
    execution = await executions.acquire(site.workflow_name, kind="announce")
    assert await list_due(database, planned) == []
    await executions.finish(execution, ExecutionStatus.SUCCEEDED)
    assert await list_due(database, planned) == [site.number]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Two other processes that can start from one line."""
    with open_pool(PROCESSES) as made:
        yield made


def begin_in_process(url: str) -> list[int]:
    """In another process: begin until nothing is left."""

    async def run() -> list[int]:
        database = open_database(url)
        planned = Schedules(database, clock=SystemClock())
        begun: list[int] = []
        try:
            wait_at_line(SOON)
            while await list_due(database, planned):
                begun += await run_due(database, planned)
        finally:
            await database.close()
        return begun

    return asyncio.run(run())


async def store_overdue(url: str, count: int) -> None:
    database = open_database(url)
    await store_sites(database, count)
    await Schedules(database, clock=SystemClock()).sync()
    async with database.write() as connection:
        await connection.execute(update(schedules).values(next_at=1))
    await database.close()


@pytest.mark.thorough
def test_two_processes_begin_each_due_site_once(pool: Pool, database_url: str) -> None:
    """A38, A39: the same with real processes."""
    asyncio.run(store_overdue(database_url, 200))
    answers = pool.map(begin_in_process, [database_url] * PROCESSES, chunksize=1)
    assert sorted(site for answer in answers for site in answer) == list(range(1, 201))


@pytest.mark.parametrize("change", [{"enabled": False}, {"schedule": "0 5 1 1 *"}], ids=["disabled", "another cron"])
async def test_a_site_that_was_changed_since_the_tick_does_not_begin(
    database: Database, planned: Schedules, desk: Desk, clock: FakeClock, change: dict[str, Any]
) -> None:
    """A38: what is planned now holds, not what was due before."""
    site = await desk.add(DAILY)
    clock.advance(DAY)
    assert await list_due(database, planned) == [site.number]
    await desk.save(replace(site, **change))
    expected = await desk.find_next(site)
    assert not await begin(database, planned, site.number)
    assert await desk.find_next(site) == expected


async def test_a_run_that_was_put_off_is_due_later(
    database: Database, planned: Schedules, desk: Desk, clock: FakeClock
) -> None:
    """A38: it could not begin; what is not due is not put off."""
    site = await desk.add(DAILY)
    before = await desk.find_next(site)
    await planned.put_off(site.number, 2 * MINUTE)
    assert await desk.find_next(site) == before
    clock.advance(DAY)
    await planned.put_off(site.number, 2 * MINUTE)
    assert await list_due(database, planned) == []
    clock.advance(2 * MINUTE)
    assert await run_due(database, planned) == [site.number]


async def test_an_execution_that_follows_another_leaves_the_schedule_alone(
    database: Database, planned: Schedules, desk: Desk, clock: FakeClock
) -> None:
    """A35, A38: asked for twice, done once; not while paused, later if it could not begin; a disabled site has one
    too, and a scheduled execution stands for it."""
    site = await desk.add(DAILY)
    before = await desk.find_next(site)
    for _ in range(2):
        assert await planned.add_follow_up(site.number)
    await planned.pause(site.number)
    assert await list_follow_ups(database, planned) == []
    await planned.resume(site.number)
    await planned.put_off(site.number, 2 * MINUTE)
    assert await list_follow_ups(database, planned) == []
    clock.advance(2 * MINUTE)
    assert await list_follow_ups(database, planned) == [site.number]
    assert [await begin(database, planned, site.number) for _ in range(2)] == [True, False]
    assert await desk.find_next(site) == before
    await planned.add_follow_up(site.number)
    clock.advance(DAY)
    assert [await begin(database, planned, site.number) for _ in range(2)] == [True, False]
    disabled = await desk.save(replace(site, enabled=False))
    assert await planned.add_follow_up(disabled.number)
    assert [await begin(database, planned, site.number) for _ in range(2)] == [True, False]
    assert not await planned.add_follow_up(site.number + 1)


async def begin_and_break(database: Database, planned: Schedules, site: int) -> None:
    async with database.write() as connection:
        await planned.begin(connection, site)
        raise ZeroDivisionError


async def test_a_begin_that_is_rolled_back_leaves_the_run_due(
    database: Database, planned: Schedules, desk: Desk, clock: FakeClock
) -> None:
    """A38: it belongs to the caller's transaction, with whatever else is in it."""
    site = await desk.add(DAILY)
    clock.advance(DAY)
    with pytest.raises(ZeroDivisionError):
        await begin_and_break(database, planned, site.number)
    assert await begin(database, planned, site.number)
    assert not await begin(database, planned, site.number)


async def test_a_clock_that_was_set_back_does_not_repeat_an_execution(
    database: Database, planned: Schedules, desk: Desk, clock: FakeClock
) -> None:
    """A38: after the execution, the clock jumps to before the cron time that was run."""
    site = await desk.add(HOURLY)
    clock.advance(HOUR + timedelta(minutes=5))
    assert await run_due(database, planned) == [site.number]
    clock.advance(timedelta(minutes=-30))
    assert await run_due(database, planned) == []
    planned_for = await desk.find_next(site)
    assert planned_for is not None
    assert planned_for >= datetime(2026, 11, 15, 14, 0, tzinfo=UTC)


@pytest.mark.parametrize("cron", ["* * * * *", DAILY, "*/15 6-22 * * 1-5", "0 0 29 2 *"])
async def test_a_site_that_runs_when_it_is_due_is_never_late(
    database: Database, planned: Schedules, desk: Desk, clock: FakeClock, cron: str
) -> None:
    """A40: looked at just before each of its due times, which is when most time has passed."""
    site = await desk.add(cron)
    for _ in range(8):
        due = await desk.find_next(site)
        assert due is not None
        clock.set(due)
        assert await planned.list_late() == []
        assert await run_due(database, planned) == [site.number]


@pytest.mark.parametrize(
    ("cron", "last_run", "late_at"),
    [
        (HOURLY, "2026-11-16T09:00", "2026-11-16T11:00"),
        # Made up long after its time: two whole periods from then.
        (HOURLY, "2026-11-16T09:54", "2026-11-16T11:54"),
        ("0 9,17 * * *", "2026-11-16T09:00", "2026-11-17T09:00"),
        # The last execution of the week is followed by a long period and a short one.
        ("*/15 6-22 * * 1-5", "2026-11-20T22:45", "2026-11-23T06:15"),
    ],
)
async def test_a_site_is_late_from_two_periods_after_its_last_run_until_it_runs(
    database: Database, records: SiteRecords, clock: FakeClock, cron: str, last_run: str, late_at: str
) -> None:
    """A40: not a millisecond before; and it says when it last ran."""
    planned = Schedules(database, clock=clock, spread=timedelta(0))
    site = await Desk(database, records, planned).add(cron)
    clock.set(datetime.fromisoformat(last_run).replace(tzinfo=UTC))
    assert await run_due(database, planned) == [site.number]
    since = datetime.fromisoformat(late_at).replace(tzinfo=UTC)
    clock.set(since - timedelta(milliseconds=1))
    assert await planned.list_late() == []
    clock.set(since + MINUTE)
    expected = LateSite(site.id, since=since, last_run=datetime.fromisoformat(last_run).replace(tzinfo=UTC))
    assert await planned.list_late() == [expected]
    assert await run_due(database, planned) == [site.number]
    assert await planned.list_late() == []


async def test_many_sites_are_spread_over_the_time_that_an_engine_needs_for_them(
    database: Database, records: SiteRecords, clock: FakeClock
) -> None:
    """A40: at the pace of one engine, each site can have a request; a quarter of the period is the most."""
    planned = Schedules(database, clock=clock, spread=SECOND, interval=timedelta(minutes=20))
    desk = Desk(database, records, planned)
    for number in range(8):
        await desk.add(DAILY, host=f"site-{number}.example")
    clock.advance(HOUR)
    latest = await desk.add(DAILY, host="latest.example")
    starts_at = await desk.find_next(latest)
    midnight = (clock.now() + DAY).replace(hour=0, minute=0, second=0, microsecond=0)
    # Eight sites, twenty minutes each; the golden ratio puts this one at its share of them.
    share = latest.number * 2_654_435_769 % 2**32 / 2**32
    assert starts_at is not None
    assert abs(starts_at - midnight - share * 8 * timedelta(minutes=20)) < SECOND


async def test_a_site_that_never_ran_is_late_two_periods_after_it_was_added(
    planned: Schedules, desk: Desk, clock: FakeClock
) -> None:
    """A40: so a schedule that never worked is noticed too."""
    site = await desk.add(HOURLY)
    clock.advance(2 * HOUR - SECOND)
    assert await planned.list_late() == []
    clock.advance(SECOND)
    assert await planned.list_late() == [LateSite(site.id, since=clock.now(), last_run=None)]


@pytest.mark.parametrize("whole", [False, True], ids=["a site", "everything"])
async def test_a_paused_site_is_not_late_nor_is_it_when_it_is_resumed(
    planned: Schedules, desk: Desk, clock: FakeClock, whole: bool
) -> None:
    """A40, A41: a pause is no failure; the two periods count from its end."""
    site = await desk.add(HOURLY)
    number = None if whole else site.number
    await planned.pause(number)
    clock.advance(DAY)
    assert await planned.list_late() == []
    await planned.resume(number)
    clock.advance(2 * HOUR - SECOND)
    assert await planned.list_late() == []
    clock.advance(SECOND)
    assert [late.id for late in await planned.list_late()] == [site.id]


async def test_a_start_gives_every_stored_site_the_schedule_that_fits_it(
    database: Database, planned: Schedules, clock: FakeClock
) -> None:
    """A38: over several batches; those that should not run have no due time, and a second start changes nothing."""
    await store_sites(database, 2_000)
    await store_sites(database, 100, origin="environment", cron=HOURLY)
    await store_sites(database, 10, origin="command")
    assert await planned.sync() == 2_100
    assert await planned.sync() == 0
    assert await count_runs(database) == 2_100
    async with database.write() as connection:
        first = sites.c.number <= 1_500
        await connection.execute(update(sites).where(first).values(settings=json.dumps({"schedule": HOURLY})))
        await connection.execute(update(sites).where(sites.c.number == 1).values(removed_at=1))
        await connection.execute(update(sites).where(sites.c.number == 2).values(origin="command"))
        await connection.execute(update(sites).where(sites.c.number == 3).values(enabled=False))
    await planned.pause(None)
    assert await planned.sync() == 1_500
    assert await count_runs(database) == 2_097
    assert await planned.is_paused(None)
    await planned.resume(None)
    clock.advance(HOUR + 5 * MINUTE)
    assert len(await list_due(database, planned)) == 1_597


async def count_runs(database: Database) -> int:
    async with database.read() as connection:
        found = select(func.count()).where(schedules.c.next_at.is_not(None))
        return (await connection.execute(found)).scalar_one()


@pytest.mark.thorough
async def test_each_look_at_10_000_sites_goes_by_an_index(
    database: Database, planned: Schedules, clock: FakeClock
) -> None:
    """A38, A40: what is done each minute costs by what is due or late, not by how many sites there are."""
    await store_sites(database, 10_000)
    await planned.sync()
    async with database.write() as connection:
        await connection.exec_driver_sql("ANALYZE")
    for look, index in (
        (list_due(database, planned, 10), "schedules_due"),
        (list_follow_ups(database, planned, 10), "schedules_follow_up"),
        (run(database, next_due), "schedules_due"),
        (run(database, select(may_be_due)), "schedules_due"),
        (run(database, select(may_be_due)), "schedules_follow_up"),
        (planned.list_late(), "schedules_late"),
    ):
        plan = await explain(database, look)
        assert index in plan
        assert not re.search(r"SCAN schedules(?! USING)|Seq Scan on s", plan), plan


async def run(database: Database, statement: Select[Any]) -> None:
    async with database.read() as connection:
        await connection.execute(statement, {"now": 1})


async def explain(database: Database, look: Coroutine[Any, Any, Any]) -> str:
    """How the database goes about the statement that this look makes."""
    seen: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_others: Any) -> None:
        seen.append((statement, values))

    async with database.write() as writer, database.read() as reader:
        engines = [writer.engine.sync_engine, reader.engine.sync_engine]
    for engine in engines:
        event.listen(engine, "before_cursor_execute", note)
    await look
    for engine in engines:
        event.remove(engine, "before_cursor_execute", note)
    [(statement, values)] = [entry for entry in seen if "schedules" in entry[0]]
    prefix = "EXPLAIN QUERY PLAN" if database.dialect == "sqlite" else "EXPLAIN"
    async with database.write() as connection:
        rows = await connection.exec_driver_sql(f"{prefix} {statement}", values)
        return "\n".join(str(row[-1]) for row in rows)
