"""Background loops: each repeats its step, sleeps or is woken in between, and ends with the stop signal."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from tests.fakes import FakeClock
from tidings.core.clock import SystemClock
from tidings.core.loop import AFTER_ERROR, Loop
from tidings.core.stop import Stop, StopRequestedError

HOUR = timedelta(hours=1)
SOON = 5.0


async def test_a_loop_sleeps_as_long_as_its_step_says_and_ends_with_the_stop_signal(clock: FakeClock) -> None:
    """A20: the steps follow each other by the clock; nothing runs after the stop."""
    stop, started = Stop(clock=clock), []

    async def step() -> timedelta:
        started.append(clock.now())
        if len(started) == 3:
            stop.request("enough")
        return HOUR

    begun = clock.now()
    await asyncio.wait_for(Loop("work", clock=clock).run(step, stop), SOON)
    assert started == [begun, begun + HOUR, begun + 2 * HOUR]


async def test_a_wake_up_during_a_step_is_not_lost() -> None:
    """C24: the step runs again at once; without a call it would sleep an hour."""
    stop, loop, steps = Stop(clock=SystemClock()), Loop("work", clock=SystemClock()), []

    async def step() -> timedelta:
        steps.append(loop)
        loop.wake() if len(steps) < 3 else stop.request("enough")
        return HOUR

    await asyncio.wait_for(loop.run(step, stop), SOON)
    assert len(steps) == 3


async def test_a_wake_up_ends_the_sleep_and_so_does_the_stop_signal() -> None:
    """A20: from outside, while the loop sleeps."""
    stop, loop, steps = Stop(clock=SystemClock()), Loop("work", clock=SystemClock()), asyncio.Queue[None]()

    async def step() -> timedelta:
        steps.put_nowait(None)
        return HOUR

    running = asyncio.create_task(loop.run(step, stop))
    await asyncio.wait_for(steps.get(), SOON)
    loop.wake()
    await asyncio.wait_for(steps.get(), SOON)
    stop.request("enough")
    await asyncio.wait_for(running, SOON)


async def test_a_step_that_is_stopped_ends_the_loop(clock: FakeClock) -> None:
    """A20: StopRequestedError from a step is no error of the loop."""

    async def step() -> timedelta:
        raise StopRequestedError("enough")

    await asyncio.wait_for(Loop("work", clock=clock).run(step, Stop(clock=clock)), SOON)


@pytest.mark.parametrize(
    ("error", "level"), [(OperationalError("", {}, OSError()), "warning"), (ZeroDivisionError(), "error")]
)
async def test_an_error_is_logged_and_does_not_end_the_loop(clock: FakeClock, error: Exception, level: str) -> None:
    """A38: the database may be away for a while, and one broken step must not stop the service."""
    stop, begun, times = Stop(clock=clock), clock.now(), []

    async def step() -> timedelta:
        times.append(clock.now() - begun)
        if len(times) == 1:
            raise error
        stop.request("enough")
        return HOUR

    with capture_logs() as events:
        await asyncio.wait_for(Loop("work", clock=clock).run(step, stop), SOON)
    assert times == [timedelta(0), AFTER_ERROR]
    assert [(event["event"], event["log_level"]) for event in events] == [("work.failed", level)]
