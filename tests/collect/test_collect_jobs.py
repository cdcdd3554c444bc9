"""The jobs of collect as a service runs them: each when it is due, one process for each, and nothing that goes wrong
ends the loop. The clock stands still until the test moves it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.collect.runner_stage import MINUTE, SOON, RunnerStage, open_runner
from tests.collect.writer_stage import begin, make_candidates
from tests.fakes import FakeClock
from tests.waiting import wait_until
from tidings.collect.alerts import CollectMonitor
from tidings.collect.run.jobs import CollectJobs, Intervals
from tidings.core.executions import HEARTBEAT_EVERY, ExecutionStatus
from tidings.core.process_lock import ProcessLock
from tidings.core.queue.jobs import Jobs
from tidings.core.secrets.keyring import KeyRing
from tidings.core.stop import Stop

pytestmark = pytest.mark.one_database

DRAIN = timedelta(seconds=8)
HOUR = timedelta(hours=1)
PROCESSES = 4
# Discover, collect, recover and monitor; each sleeps between its times.
JOBS = 4


class WaitingClock(FakeClock):
    """Whoever sleeps by it waits until the test has moved it so far. It is moved only while every loop is asleep, so
    that what happens at one moment is over before the next."""

    def __init__(self) -> None:
        super().__init__()
        self._moved = asyncio.Event()
        self._alarms: list[float] = []

    async def pass_time(self, duration: timedelta, *, sleepers: int) -> None:
        """Go on once so many sleep; raises TimeoutError."""

        async def are_asleep() -> bool:
            await asyncio.sleep(0)
            return sum(alarm > self.monotonic() for alarm in self._alarms) == sleepers

        await wait_until(are_asleep)
        self.advance(duration)
        self._moved.set()

    async def sleep(self, duration: timedelta) -> None:
        alarm = self.monotonic() + duration.total_seconds()
        # The heart of an execution sleeps while its job does not. The very object: others sleep for a minute, too.
        counted = [] if duration is HEARTBEAT_EVERY else [alarm]
        self._alarms += counted
        try:
            while self.monotonic() < alarm:
                self._moved.clear()
                await self._moved.wait()
        finally:
            for each in counted:
                self._alarms.remove(each)


@pytest.fixture
def clock() -> WaitingClock:
    return WaitingClock()


@pytest.fixture
async def stage(
    database_url: str, clock: WaitingClock, keys: KeyRing, process_lock: ProcessLock
) -> AsyncIterator[RunnerStage]:
    async with open_runner(database_url, clock=clock, keys=keys, process_lock=process_lock) as opened:
        yield opened


def make_jobs(stage: RunnerStage, **options: Any) -> CollectJobs:
    chosen = {"monitor": stage.monitor, "intervals": Intervals(), **options}
    return CollectJobs(Jobs(stage.database, clock=stage.clock), runner=stage.runner, clock=stage.clock, **chosen)


@asynccontextmanager
async def running(stage: RunnerStage, *all_jobs: CollectJobs) -> AsyncIterator[Stop]:
    """These jobs, as so many processes; they must end by themselves."""
    stop = stage.make_stop()
    tasks = [asyncio.create_task(jobs.run(stop, drain=DRAIN)) for jobs in all_jobs]
    try:
        yield stop
    finally:
        stop.request("the test is over")
        async with asyncio.timeout(SOON):
            await asyncio.gather(*tasks)


async def count_ended(stage: RunnerStage, workflow: str) -> int:
    return sum(each == (workflow, "succeeded") for each in await stage.list_statuses())


async def wait_for_executions(stage: RunnerStage, workflow: str, count: int) -> None:
    """Return once so many executions of a workflow have ended well."""

    async def have_ended() -> bool:
        return await count_ended(stage, workflow) >= count

    await wait_until(have_ended)


async def test_what_is_watched_is_collected_at_once(stage: RunnerStage) -> None:
    """C19: as soon as it is found, though the time for collecting has not come again."""
    await stage.add_cookies("one")
    await stage.watch_keyword()
    async with running(stage, make_jobs(stage)):

        async def is_collected() -> bool:
            return await stage.count_statuses() == {"collected": 10}

        await wait_until(is_collected)


async def test_each_job_is_done_again_when_its_time_has_come(stage: RunnerStage, clock: WaitingClock) -> None:
    """C19, C26: and not before."""
    await stage.watch_keyword("web")
    counts = []
    async with running(stage, make_jobs(stage, intervals=Intervals(discover=20 * MINUTE))):
        for _ in range(21):
            await clock.pass_time(MINUTE, sleepers=JOBS)
            counts.append(await count_ended(stage, "discover"))
        await wait_for_executions(stage, "discover", 2)
        await clock.pass_time(MINUTE, sleepers=JOBS)
    assert counts[:20] == [1] * 20
    assert await count_ended(stage, "discover") == 2
    # Nothing new was found, so there was nothing to collect.
    assert await count_ended(stage, "collect:web") == 1


@pytest.mark.both_databases
async def test_of_several_processes_one_does_each_job(stage: RunnerStage, clock: WaitingClock) -> None:
    """C3, C19: four of them; every hour is one discovery."""
    await stage.watch_keyword("web")
    async with running(stage, *(make_jobs(stage) for _ in range(PROCESSES))):
        for _ in range(3):
            await clock.pass_time(HOUR, sleepers=PROCESSES * JOBS)
        await clock.pass_time(MINUTE, sleepers=PROCESSES * JOBS)
    names = Counter(name for name, _ in await stage.list_statuses())
    assert names == {"discover": 4, "collect:web": 1}


async def test_a_clock_that_is_a_little_behind_gets_no_job_a_second_time(
    stage: RunnerStage, clock: WaitingClock
) -> None:
    """C3, C19: whoever looked at the time a moment before the one that got the job, or on another machine."""
    behind = FakeClock(clock.now() - timedelta(milliseconds=1))
    won = [await Jobs(stage.database, clock=each).claim("collect.discover", every=HOUR) for each in (clock, behind)]
    assert won == [True, False]


async def test_a_job_that_fails_is_reported_and_tried_the_next_time(stage: RunnerStage, clock: WaitingClock) -> None:
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
    with capture_logs() as events:
        async with running(stage, make_jobs(stage, monitor=broken)):
            await wait_for_executions(stage, "collect:web", 1)
            await wait_until(_has_logged(events, "job.failed"))
            works = True
            await clock.pass_time(MINUTE, sleepers=JOBS)

            async def is_told() -> bool:
                return ("alert.fired", "no_active_cookie", "weibo") in await stage.list_notified()

            await wait_until(is_told)
    failed = [event for event in events if event["event"] == "job.failed"]
    assert [(event["job"], event["log_level"]) for event in failed] == [("monitor", "error")]


async def test_where_others_drive_only_recovery_alerts_and_the_mirror_go_on(stage: RunnerStage) -> None:
    """C19: TIDINGS_COLLECT_RUNNER=off; what the other one left behind is freed, and people are told."""
    mirror = Ticking()
    await stage.watch_keyword("weibo")
    execution = await begin(stage.writer, "collect")
    await stage.writer.add_candidates(execution, make_candidates("a"))
    await stage.writer.lease(execution)
    await stage.executions.finish(execution, ExecutionStatus.INTERRUPTED)
    async with running(stage, make_jobs(stage, drives=False, mirror=mirror.run)):

        async def is_freed() -> bool:
            return await stage.count_statuses() == {"pending": 1} and bool(await stage.list_notified())

        await wait_until(is_freed)
        await asyncio.wait_for(mirror.began.wait(), SOON)
    assert mirror.ended
    assert await stage.list_statuses() == [("collect", "interrupted")]
    assert len(stage.weibo.requests) == 0


async def test_what_the_last_process_left_is_freed_at_the_start(stage: RunnerStage) -> None:
    """C5, decision 4: at once, though the recovery was done a minute ago and is not due for a long time."""
    assert await Jobs(stage.database, clock=stage.clock).claim("collect.recover", every=timedelta(minutes=15))
    execution = await begin(stage.writer, "collect")
    await stage.writer.add_candidates(execution, make_candidates("a"))
    await stage.writer.lease(execution)
    await stage.executions.finish(execution, ExecutionStatus.INTERRUPTED)
    async with running(stage, make_jobs(stage, drives=False)):

        async def is_freed() -> bool:
            return await stage.count_statuses() == {"pending": 1}

        await wait_until(is_freed)


async def test_a_mirror_that_breaks_is_begun_again(stage: RunnerStage, clock: WaitingClock) -> None:
    """C21: a minute later; nothing else ends with it."""
    mirror = Ticking(failures=1)
    with capture_logs() as events:
        async with running(stage, make_jobs(stage, mirror=mirror.run)):
            await clock.pass_time(MINUTE, sleepers=JOBS + 1)
            await asyncio.wait_for(mirror.began.wait(), SOON)
    assert [event["job"] for event in events if event["event"] == "job.failed"] == ["mirror"]


async def test_a_stop_ends_what_runs_in_good_order(stage: RunnerStage) -> None:
    """C19: an execution in the middle of its requests is interrupted, and its candidates are free."""
    await stage.add_cookies("one")
    await stage.discover()
    held = stage.hold_back()
    async with running(stage, make_jobs(stage)):
        await held.arrive()
    statuses = await stage.list_statuses()
    assert "running" not in {status for _, status in statuses}
    assert "interrupted" in {status for _, status in statuses}
    assert await stage.count_statuses() == {"pending": 10}


async def test_what_does_not_end_is_cut_off(stage: RunnerStage) -> None:
    """C19: the end of the service waits for nobody any longer than it may."""
    mirror = Ticking(deaf=True)
    stop = stage.make_stop()
    task = asyncio.create_task(make_jobs(stage, mirror=mirror.run).run(stop, drain=timedelta(milliseconds=50)))
    await asyncio.wait_for(mirror.began.wait(), SOON)
    stop.request("the service ends")
    await asyncio.wait_for(task, SOON)
    assert mirror.ended


class Ticking:
    """A mirror that has nothing to do. It breaks so many times first; a deaf one does not hear the stop."""

    def __init__(self, *, failures: int = 0, deaf: bool = False) -> None:
        self.began = asyncio.Event()
        self.ended = False
        self._failures = failures
        self._deaf = deaf

    async def run(self, stop: Stop) -> None:
        if self._failures:
            self._failures -= 1
            raise ZeroDivisionError
        self.began.set()
        try:
            await (asyncio.Event().wait() if self._deaf else stop.wait())
        finally:
            self.ended = True


def _has_logged(events: list[Any], name: str) -> Callable[[], Any]:
    async def look() -> bool:
        await asyncio.sleep(0)
        return any(event["event"] == name for event in events)

    return look
