"""Background loops: each repeats its step, sleeps or is woken in between, and ends with the stop signal."""

import asyncio
from datetime import timedelta

from tests.fakes import FakeClock
from tidings.core.clock import SystemClock
from tidings.core.loop import Loop
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
    await asyncio.wait_for(Loop(clock=clock).run(step, stop), SOON)
    assert started == [begun, begun + HOUR, begun + 2 * HOUR]


async def test_a_wake_up_during_a_step_is_not_lost() -> None:
    """C24: the step runs again at once; without a call it would sleep an hour."""
    stop, loop, steps = Stop(clock=SystemClock()), Loop(clock=SystemClock()), []

    async def step() -> timedelta:
        steps.append(loop)
        loop.wake() if len(steps) < 3 else stop.request("enough")
        return HOUR

    await asyncio.wait_for(loop.run(step, stop), SOON)
    assert len(steps) == 3


async def test_a_wake_up_ends_the_sleep_and_so_does_the_stop_signal() -> None:
    """A20: from outside, while the loop sleeps."""
    stop, loop, steps = Stop(clock=SystemClock()), Loop(clock=SystemClock()), asyncio.Queue[None]()

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

    await asyncio.wait_for(Loop(clock=clock).run(step, Stop(clock=clock)), SOON)
