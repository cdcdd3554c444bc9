"""The jobs of collect as workers do them: each when it is due, one worker for each, and no error ends the others. The
clock stands still until the test moves it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from tests.collect.runner_stage import MINUTE, SOON, RunnerStage, open_runner
from tests.collect.writer_stage import begin, make_candidates
from tests.fakes import FakeClock
from tests.waiting import wait_until
from tidings.collect.alerts.monitor import CollectMonitor
from tidings.collect.run.jobs import RECOVER_JOB, CollectJobs, CollectSchedule, Intervals, list_intervals
from tidings.core.executions import ExecutionStatus
from tidings.core.process_lock import ProcessLock
from tidings.core.queue.embedded import EmbeddedDispatcher
from tidings.core.queue.periodic import PeriodicJobs
from tidings.core.secrets.keyring import KeyRing
from tidings.core.stop import Stop

pytestmark = pytest.mark.one_database

DRAIN = timedelta(seconds=8)
HOUR = timedelta(hours=1)
PROCESSES = 4


class WaitingClock(FakeClock):
    """Whoever sleeps by it waits until the test has moved it so far."""

    def __init__(self) -> None:
        super().__init__()
        self._moved = asyncio.Event()

    def advance(self, duration: timedelta) -> None:
        super().advance(duration)
        self._moved.set()

    async def sleep(self, duration: timedelta) -> None:
        alarm = self.monotonic() + duration.total_seconds()
        while self.monotonic() < alarm:
            self._moved.clear()
            await self._moved.wait()


@pytest.fixture
def clock() -> WaitingClock:
    return WaitingClock()


@pytest.fixture
async def stage(
    database_url: str, clock: WaitingClock, keys: KeyRing, process_lock: ProcessLock
) -> AsyncIterator[RunnerStage]:
    async with open_runner(database_url, clock=clock, keys=keys, process_lock=process_lock) as opened:
        yield opened


class Process:
    """One process: it ticks when the test says so, and does the jobs that it gets."""

    def __init__(
        self,
        stage: RunnerStage,
        process_lock: ProcessLock,
        *,
        intervals: Intervals | None = None,
        monitor: CollectMonitor | None = None,
        drives: bool = True,
    ) -> None:
        periodic = PeriodicJobs(stage.database, clock=stage.clock)
        chosen = list_intervals(intervals or Intervals(), drives=drives)
        self.dispatcher = EmbeddedDispatcher(
            stage.database, clock=stage.clock, process_lock=process_lock, places={"collect": len(chosen)}
        )
        self.jobs = CollectJobs(
            stage.database,
            periodic,
            runner=stage.runner,
            monitor=monitor or stage.monitor,
            intervals=chosen,
            wake=lambda: None,
        )
        self._schedule = CollectSchedule(periodic, chosen)

    async def tick(self) -> None:
        """Submit what is due, and let it end."""
        async with self.dispatcher.open_tick() as connection:
            await self.dispatcher.submit(connection, await self._schedule.list_due(connection, 10))
        await wait_until(self.is_idle)

    async def is_idle(self) -> bool:
        await asyncio.sleep(0)
        return not self.dispatcher.busy


@asynccontextmanager
async def running(stage: RunnerStage, *processes: Process) -> AsyncIterator[Stop]:
    """These processes take jobs; they must end by themselves."""
    stop = stage.make_stop()
    works = [each.dispatcher.work(each.jobs.list_tasks(), stop, drain=DRAIN) for each in processes]
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield stop
    finally:
        stop.request("the test is over")
        async with asyncio.timeout(SOON):
            await asyncio.gather(*tasks)


async def tick_all(*processes: Process) -> None:
    """All of them look at once."""
    await asyncio.gather(*(each.tick() for each in processes))


async def count_ended(stage: RunnerStage, workflow: str) -> int:
    return sum(each == (workflow, "succeeded") for each in await stage.list_statuses())


async def test_what_is_watched_is_collected_at_once(stage: RunnerStage, process_lock: ProcessLock) -> None:
    """C19: as soon as it is found, though the time for collecting has not come again."""
    await stage.add_cookies("one")
    await stage.watch_keyword()
    process = Process(stage, process_lock)
    async with running(stage, process):
        await process.tick()
        await process.tick()
    assert await stage.count_statuses() == {"collected": 10}


@pytest.mark.thorough
async def test_each_job_is_done_again_when_its_time_has_come(
    stage: RunnerStage, process_lock: ProcessLock, clock: WaitingClock
) -> None:
    """C19, C26: and not before."""
    await stage.watch_keyword("web")
    process = Process(stage, process_lock, intervals=Intervals(discover=20 * MINUTE))
    counts = []
    async with running(stage, process):
        for _ in range(22):
            await process.tick()
            counts.append(await count_ended(stage, "discover"))
            clock.advance(MINUTE)
    assert counts == [1] * 20 + [2] * 2
    # Nothing new was found, so there was nothing to collect.
    assert await count_ended(stage, "collect:web") == 1


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_of_several_processes_one_does_each_job(
    stage: RunnerStage, process_lock: ProcessLock, clock: WaitingClock
) -> None:
    """C3, C19: four of them; every hour is one discovery."""
    await stage.watch_keyword("web")
    processes = [Process(stage, process_lock) for _ in range(PROCESSES)]
    async with running(stage, *processes):
        for _ in range(4):
            await tick_all(*processes)
            clock.advance(HOUR)
    names = Counter(name for name, _ in await stage.list_statuses())
    assert names == {"discover": 4, "collect:web": 1}


async def test_a_clock_that_is_a_little_behind_gets_no_job_a_second_time(
    stage: RunnerStage, clock: WaitingClock
) -> None:
    """C3, C19: whoever looked at the time a moment before the one that got the job, or on another machine."""
    behind = FakeClock(clock.now() - timedelta(milliseconds=1))
    jobs = [PeriodicJobs(stage.database, clock=each) for each in (clock, behind)]
    assert [await each.begin("collect.discover", every=HOUR) for each in jobs] == [True, False]


@pytest.mark.thorough
async def test_a_job_that_fails_is_reported_and_tried_the_next_time(
    stage: RunnerStage, process_lock: ProcessLock, clock: WaitingClock
) -> None:
    """C19: the others go on meanwhile."""
    works = False

    def needs_cookie(platform: str) -> bool:
        if not works:
            raise ZeroDivisionError
        return stage.crawler.needs_cookie(platform)

    await stage.watch_keyword("weibo")
    await stage.watch_keyword("web")
    broken = CollectMonitor(
        stage.database, alerts=stage.alerts, keys=stage.keys, clock=clock, needs_cookie=needs_cookie
    )
    process = Process(stage, process_lock, monitor=broken)
    with capture_logs() as events:
        async with running(stage, process):
            await process.tick()
            await process.tick()
            assert await count_ended(stage, "collect:web") == 1
            works = True
            clock.advance(MINUTE)
            await process.tick()
    assert ("alert.fired", "no_active_cookie", "weibo") in await stage.list_notified()
    failed = [event for event in events if event["event"] == "job.failed"]
    assert [(event["job"], event["log_level"]) for event in failed] == [("collect.monitor", "error")]


async def test_where_others_drive_only_recovery_and_alerts_go_on(stage: RunnerStage, process_lock: ProcessLock) -> None:
    """C19: TIDINGS_COLLECT_RUNNER=off; what the other one left behind is freed, and people are notified."""
    await stage.watch_keyword("weibo")
    await leave_leased(stage)
    process = Process(stage, process_lock, drives=False)
    async with running(stage, process):
        await process.tick()
    assert await stage.count_statuses() == {"pending": 1}
    assert await stage.list_notified()
    assert await stage.list_statuses() == [("collect", "interrupted")]
    assert len(stage.weibo.requests) == 0


async def leave_leased(stage: RunnerStage) -> None:
    """An execution that was ended from outside, with a candidate that it had leased."""
    execution = await begin(stage.writer, "collect")
    await stage.writer.add_candidates(execution, make_candidates("a"))
    await stage.writer.lease(execution)
    await stage.executions.finish(execution, ExecutionStatus.INTERRUPTED)


async def test_a_recovery_that_is_made_due_comes_at_once(stage: RunnerStage, process_lock: ProcessLock) -> None:
    """C5, decision 3: a worker that starts asks for it, though it was done a minute ago."""
    assert await PeriodicJobs(stage.database, clock=stage.clock).begin(RECOVER_JOB, every=timedelta(minutes=15))
    await leave_leased(stage)
    process = Process(stage, process_lock, drives=False)
    await process.jobs.make_due(RECOVER_JOB)
    async with running(stage, process):
        await process.tick()
    assert await stage.count_statuses() == {"pending": 1}


async def test_a_stop_ends_what_runs_in_good_order(stage: RunnerStage, process_lock: ProcessLock) -> None:
    """C19: an execution in the middle of its requests is interrupted, and its candidates are free."""
    await stage.add_cookies("one")
    await stage.discover()
    held = stage.hold_back()
    process = Process(stage, process_lock)
    async with running(stage, process):
        ticking = asyncio.create_task(process.tick())
        await held.arrive()
    await ticking
    statuses = await stage.list_statuses()
    assert "running" not in {status for _, status in statuses}
    assert "interrupted" in {status for _, status in statuses}
    assert await stage.count_statuses() == {"pending": 10}
