"""The statistics of each day: a page counts once a day and channel, however often and at however many engines it is
tried. Counted by real executions, on both databases."""

from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest

from tests.announce.bing_stage import MORNING, open_bing_stage
from tests.announce.stage import Stage, StageMaker
from tests.conftest import BenchMaker
from tests.fakes import StageClock
from tidings.announce.ledger.batch_state import DayCount
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.statistics import KEPT_DAYS, DailyStatistics, read_days
from tidings.announce.site.site import SubmitMethod
from tidings.core.db.database import Database
from tidings.core.executions import ExecutionStatus
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault
from tidings.sandbox.wire.request_log import Recorded

DAY = timedelta(days=1)
TODAY = MORNING.date()
TOMORROW = TODAY + DAY
MIDNIGHT = datetime.combine(TOMORROW, time(), UTC)
# An execution's sleeps move the clock, so it begins well before midnight; a request may take 30 s.
EVENING = MIDNIGHT - timedelta(seconds=20)
MORNING_AFTER = MIDNIGHT + timedelta(seconds=5)
# No engine is asked again for this one.
REFUSED = 422

Opener = Callable[..., Awaitable[Stage]]


@pytest.fixture
def clock() -> StageClock:
    return StageClock(MORNING)


@pytest.fixture
def open_engines(open_stage: StageMaker, make_bench: BenchMaker, clock: StageClock) -> Opener:
    """Sets a site of 20 pages up, on the test's own clock, with so many engines."""

    async def open_one(engines: int, *, concurrency: int = 3, pages: int = 20, **settings: Any) -> Stage:
        bench = make_bench(clock=clock, retry_scale=1, max_concurrent_requests=concurrency)
        return await open_stage(SandboxSite(pages=pages), engines=engines, bench=bench, **settings)

    return open_one


async def read_day(database: Database, day: date = TODAY, *, channel: Channel = Channel.INDEXNOW) -> tuple[int, int]:
    counts = await read_days(database, today=day, days=1)
    return counts[day][channel].total, counts[day][channel].successful


async def test_a_page_that_several_engines_took_counts_once(open_engines: Opener) -> None:
    """A34: different URLs, not deliveries; a second execution with nothing to do adds nothing."""
    stage = await open_engines(2)
    await stage.announce()
    await stage.announce()
    assert [engine.accepted.total() for engine in stage.engines] == [20, 20]
    assert await read_day(stage.bench.database) == (20, 20)


async def test_a_page_counts_as_successful_where_one_engine_took_it(open_engines: Opener) -> None:
    """A34: at least one engine; and the other one's retry on the same day adds nothing."""
    stage = await open_engines(2)
    stage.engines[1].misbehave(Fault(status=REFUSED))
    await stage.announce()
    first = await read_day(stage.bench.database)
    stage.engines[1].recover()
    await stage.announce()
    assert stage.engines[1].accepted.total() == 20
    assert (first, await read_day(stage.bench.database)) == ((20, 20), (20, 20))


@pytest.mark.thorough
@pytest.mark.parametrize("engines", [1, 2])
async def test_a_failure_is_an_attempt_and_its_retry_on_the_same_day_is_not_another(
    open_engines: Opener, engines: int
) -> None:
    """A34: total counts what was tried in vain too, once; the retry makes it successful."""
    stage = await open_engines(engines)
    for engine in stage.engines:
        engine.misbehave(Fault(status=REFUSED, matching=stage.web.url(7)))
        engine.misbehave(Fault(status=REFUSED, matching=stage.web.url(8)))
    numbers = []
    for _ in range(3):
        await stage.announce()
        numbers.append(await read_day(stage.bench.database))
        if len(numbers) == 2:
            for engine in stage.engines:
                engine.recover()
    assert numbers == [(20, 18), (20, 18), (20, 20)]


@pytest.mark.thorough
async def test_a_retry_on_the_next_day_is_an_attempt_of_that_day(open_engines: Opener, clock: StageClock) -> None:
    """A34: each day has its own statistics, and yesterday's stay as they were."""
    stage = await open_engines(1)
    stage.engines[0].misbehave(Fault(status=REFUSED, matching=stage.web.url(7)))
    await stage.announce()
    clock.advance(DAY)
    await stage.announce()
    failed_again = await read_day(stage.bench.database, TOMORROW)
    stage.engines[0].recover()
    await stage.announce()
    assert await read_day(stage.bench.database) == (20, 19)
    assert (failed_again, await read_day(stage.bench.database, TOMORROW)) == ((1, 0), (1, 1))


async def test_what_one_engine_took_yesterday_and_another_takes_today_counts_on_both_days(
    open_engines: Opener, clock: StageClock
) -> None:
    """A13, A34: today's attempt is one, although the page is in the ledger since yesterday."""
    stage = await open_engines(2)
    stage.engines[1].misbehave(Fault(status=REFUSED, matching=stage.web.url(7)))
    await stage.announce()
    stage.engines[1].recover()
    clock.advance(DAY)
    await stage.announce()
    assert stage.engines[1].accepted[stage.web.url(7)] == 1
    assert await read_day(stage.bench.database) == (20, 20)
    assert await read_day(stage.bench.database, TOMORROW) == (1, 1)


@pytest.mark.thorough
async def test_a_changed_page_counts_once_a_day_however_often_it_is_sent(
    open_engines: Opener, clock: StageClock
) -> None:
    """A12, A34: sent three times today and once tomorrow."""
    stage = await open_engines(2)
    for changes in range(3):
        if changes:
            stage.web.change(3)
        clock.advance(timedelta(hours=1))
        await stage.announce()
    stage.web.change(3)
    clock.advance(DAY)
    await stage.announce()
    assert [engine.accepted[stage.web.url(3)] for engine in stage.engines] == [4, 4]
    assert await read_day(stage.bench.database) == (20, 20)
    assert await read_day(stage.bench.database, TOMORROW) == (1, 1)


async def test_a_change_that_fails_leaves_the_page_successful_today(open_engines: Opener, clock: StageClock) -> None:
    """A34: it was taken this morning, and is one of the URLs that an engine took today."""
    stage = await open_engines(1)
    await stage.announce()
    clock.advance(timedelta(hours=1))
    stage.web.change(3)
    stage.engines[0].misbehave(Fault(status=REFUSED))
    report = await stage.announce()
    assert report.engines[stage.engines[0].endpoint].failed == 1
    assert await read_day(stage.bench.database) == (20, 20)


async def test_an_execution_over_midnight_counts_each_page_on_the_day_it_was_tried(
    open_engines: Opener, clock: StageClock
) -> None:
    """A34: nine before, eleven after, and none on both days."""
    stage = await open_engines(1, concurrency=1, submit_method=SubmitMethod.GET)
    clock.set(EVENING)

    def strike_midnight(_: Recorded) -> None:
        if len(stage.engines[0].requests) == 10:
            clock.set(MORNING_AFTER)

    stage.engines[0].on_answer = strike_midnight
    report = await stage.announce()
    assert report.status is ExecutionStatus.SUCCEEDED
    assert await read_day(stage.bench.database, TODAY) == (9, 9)
    assert await read_day(stage.bench.database, TOMORROW) == (11, 11)


@pytest.mark.parametrize(
    ("status", "before"), [(REFUSED, (5, 0)), (200, (5, 5))], ids=["failed before it", "taken before it"]
)
async def test_a_page_of_several_engines_with_midnight_between_them_counts_once_on_both_days(
    open_engines: Opener, clock: StageClock, status: int, before: tuple[int, int]
) -> None:
    """A34: on no day are more URLs successful than were tried."""
    stage = await open_engines(3, pages=5)
    clock.set(EVENING)
    first, *others = stage.engines
    first.misbehave(Fault(status=status))

    async def wait_for_midnight(_: Recorded) -> None:
        """The others answer once what the first one said is on record, and the day is over."""
        while (await read_day(stage.bench.database))[0] < 5:
            pass
        clock.set(max(clock.now(), MORNING_AFTER))

    for engine in others:
        engine.on_answer = wait_for_midnight
    await stage.announce()
    assert [engine.accepted.total() for engine in others] == [5, 5]
    assert await read_day(stage.bench.database, TODAY) == before
    assert await read_day(stage.bench.database, TOMORROW) == (5, 5)


@pytest.mark.thorough
async def test_bing_is_counted_by_itself_and_within_its_quota(make_bench: BenchMaker) -> None:
    """A10, A34: the other channel's statistics are its own; what waits for quota was not tried."""
    async with open_bing_stage(make_bench, quota=12) as stage:
        for _ in range(2):
            await stage.announce()
        stage.clock.advance(DAY)
        await stage.announce()
        database = stage.bench.database
        assert await read_day(database, channel=Channel.BING) == (12, 12)
        assert await read_day(database, TOMORROW, channel=Channel.BING) == (8, 8)
        assert await read_day(database) == (20, 20)
        assert await read_day(database, TOMORROW) == (0, 0)


@pytest.mark.thorough
@pytest.mark.parametrize(("later", "expected"), [(timedelta(hours=1), [(20, 20), (0, 0)]), (DAY, [(20, 0), (20, 20)])])
async def test_what_bing_did_not_take_counts_again_only_on_another_day(
    make_bench: BenchMaker, later: timedelta, expected: list[tuple[int, int]]
) -> None:
    """A31, A34: an error answer is an attempt; its retry on the same day is not another."""
    async with open_bing_stage(make_bench) as stage:
        stage.misbehave(Fault(status=500))
        await stage.announce()
        first = await read_day(stage.bench.database, channel=Channel.BING)
        stage.bing.recover()
        stage.clock.advance(later)
        await stage.announce()
        numbers = [await read_day(stage.bench.database, day, channel=Channel.BING) for day in (TODAY, TOMORROW)]
        assert first == (20, 0)
        assert stage.bing.accepted.total() == 20
        assert numbers == expected


async def test_every_day_is_listed_the_oldest_first_also_those_without_work(
    open_engines: Opener, clock: StageClock
) -> None:
    """A34: seven days are seven entries; work of other days is left out."""
    stage = await open_engines(1)
    await stage.announce()
    clock.advance(3 * DAY)
    stage.web.change_many([1, 2])
    await stage.announce()
    today = clock.now().date()
    week = await read_days(stage.bench.database, today=today, days=7)
    short = await read_days(stage.bench.database, today=today, days=3)
    nothing = dict.fromkeys(Channel, DayCount())
    assert list(week) == [today - (6 - at) * DAY for at in range(7)]
    assert [each[Channel.INDEXNOW].total for each in week.values()] == [0, 0, 0, 20, 0, 0, 2]
    assert [each for day, each in week.items() if day not in (TODAY, today)] == [nothing] * 5
    assert [each[Channel.INDEXNOW].total for each in short.values()] == [0, 0, 2]


async def test_sites_are_summed_up_unless_one_is_asked_for(open_stage: StageMaker, make_bench: BenchMaker) -> None:
    """A34: the statistics of all sites together, or of one."""
    bench = make_bench(clock=StageClock(MORNING), retry_scale=1)
    stages = [await open_stage(SandboxSite(pages=pages), bench=bench) for pages in (3, 4)]
    for stage in stages:
        await stage.announce()
    totals = []
    for number in (None, stages[0].site.number, stages[1].site.number, 999):
        counts = await read_days(bench.database, today=TODAY, days=1, site=number)
        totals.append(counts[TODAY][Channel.INDEXNOW])
    assert totals == [DayCount(7, 7), DayCount(3, 3), DayCount(4, 4), DayCount()]


async def test_days_beyond_those_that_can_be_asked_for_are_deleted(database: Database, clock: StageClock) -> None:
    """A34: what is kept does not grow without end."""
    statistics = DailyStatistics(database, site=1, channel=Channel.INDEXNOW)
    for days in (0, KEPT_DAYS, 1):
        clock.advance(days * DAY)
        async with database.write() as connection:
            await statistics.add(connection, DayCount(1), day=clock.now().date().isoformat())
            await statistics.purge(connection, today=clock.now().date())
    last = clock.now().date()
    kept = await read_days(database, today=last, days=KEPT_DAYS + 2)
    assert [day for day, of in kept.items() if of[Channel.INDEXNOW].total] == [last - DAY, last]
