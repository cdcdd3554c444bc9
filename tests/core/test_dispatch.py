"""Jobs in this process: never too many, never two of one key, and no broken one ends the others."""

import asyncio
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from tidings.core.queue.dispatch import Runner

SOON = 10.0
LONG = timedelta(seconds=SOON)
AT_ONCE = timedelta(0)


class Job:
    """A job that says when it has begun, and ends when it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        self.outcome = "not begun"

    async def __call__(self) -> None:
        self.begun.set()
        self.outcome = "running"
        try:
            await self.let_go.wait()
            self.outcome = "ended"
        except asyncio.CancelledError:
            self.outcome = "cancelled"
            raise


async def wait_until_begun(*jobs: Job) -> None:
    async with asyncio.timeout(SOON):
        for job in jobs:
            await job.begun.wait()


async def wait_until_free(runner: Runner, places: int) -> None:
    async with asyncio.timeout(SOON):
        while runner.free < places:  # noqa: ASYNC110 - the runner has no event for it
            await asyncio.sleep(0)


async def test_no_more_than_the_limit_run_and_the_next_begins_when_one_ends() -> None:
    """Decision 3: a third job waits for a place, and takes the first that is free."""
    runner, jobs = Runner(2), [Job(), Job(), Job()]
    assert (runner.free, runner.running) == (2, 0)
    assert [runner.start(number, job) for number, job in enumerate(jobs)] == [True] * 3
    await wait_until_begun(*jobs[:2])
    assert (runner.free, runner.running) == (0, 2)
    assert [runner.runs(number) for number in range(4)] == [True, True, False, False]
    assert not jobs[2].begun.is_set()
    jobs[1].let_go.set()
    await wait_until_begun(jobs[2])
    assert (runner.free, runner.running) == (0, 2)
    jobs[0].let_go.set()
    jobs[2].let_go.set()
    await wait_until_free(runner, 2)
    assert [job.outcome for job in jobs] == ["ended"] * 3


async def test_a_key_has_one_job_be_it_waiting_or_running() -> None:
    """A39: and may have the next when that has ended."""
    runner, running, waiting = Runner(1), Job(), Job()
    assert runner.start("runs", running)
    assert runner.start("waits", waiting)
    await wait_until_begun(running)
    assert not runner.start("runs", Job())
    assert not runner.start("waits", Job())
    running.let_go.set()
    waiting.let_go.set()
    await wait_until_free(runner, 1)
    assert runner.start("runs", Job())
    assert (running.outcome, waiting.outcome) == ("ended", "ended")
    await runner.drain(AT_ONCE)


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("by nought"), asyncio.CancelledError()], ids=["error", "cancelled"]
)
async def test_a_broken_job_leaves_its_place_and_the_others_alone(error: BaseException) -> None:
    """Decision 3: an error is logged with its key; a job that cancels itself frees its place too."""

    async def fail() -> None:
        raise error

    runner, job = Runner(2), Job()
    runner.start("sound", job)
    with capture_logs() as events:
        runner.start("broken", fail)
        await wait_until_free(runner, 1)
    seen = [(entry["event"], entry["key"], entry["log_level"]) for entry in events]
    assert seen == ([("job.broken", "broken", "error")] if isinstance(error, Exception) else [])
    assert runner.start("broken", Job())
    assert job.outcome == "running"
    await runner.drain(AT_ONCE)


async def test_a_drain_lets_running_jobs_end_and_gives_up_those_that_wait() -> None:
    """A clean stop: what has begun is finished, what has not is left to the next process; nothing new is taken."""
    runner, running, waiting = Runner(1), Job(), Job()
    runner.start("runs", running)
    await wait_until_begun(running)
    runner.start("waits", waiting)
    draining = asyncio.create_task(runner.drain(LONG))
    await asyncio.sleep(0)
    assert not runner.start("new", Job())
    assert runner.free == 0
    assert not draining.done()
    running.let_go.set()
    await draining
    assert (running.outcome, waiting.outcome) == ("ended", "not begun")
    assert runner.running == 0


async def test_a_drain_cancels_what_does_not_end_in_time() -> None:
    """A clean stop ends within its time, and is over only when the cancelled jobs have tidied up."""
    runner, jobs = Runner(2), [Job(), Job()]
    for number, job in enumerate(jobs):
        runner.start(number, job)
    await wait_until_begun(*jobs)
    await runner.drain(AT_ONCE)
    assert [job.outcome for job in jobs] == ["cancelled"] * 2
    assert (runner.free, runner.running) == (0, 0)


async def test_a_drain_without_jobs_returns_at_once() -> None:
    """A clean stop of a process that has nothing to do."""
    runner = Runner(3)
    await runner.drain(LONG)
    assert not runner.start("late", Job())
