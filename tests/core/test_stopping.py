"""The stop signal: a budget that ran out or a signal ends waits and work in good order."""

import asyncio
import os
import signal
import time
from datetime import timedelta

import pytest

from tests.fakes import FakeClock
from tidings.core.clock import SystemClock
from tidings.core.stop import Stop, StopRequestedError

HOUR = timedelta(hours=1)
SOON = 5.0


async def test_a_budget_runs_out_exactly_when_it_is_spent(clock: FakeClock) -> None:
    """A20: not before; then every check says so, with the budget as the reason."""
    stop = Stop(clock=clock, budget=timedelta(minutes=5))
    clock.advance(timedelta(minutes=4, seconds=59))
    stop.check()
    assert not stop.requested
    assert stop.remaining() == timedelta(seconds=1)
    clock.advance(timedelta(seconds=1))
    assert stop.requested
    assert stop.remaining() == timedelta(0)
    with pytest.raises(StopRequestedError, match=r"time budget of 5m"):
        stop.check()


async def test_without_a_budget_only_a_request_stops(clock: FakeClock) -> None:
    """A20: hours pass; the first reason given is the one that is kept."""
    stop = Stop(clock=clock)
    clock.advance(1_000 * HOUR)
    assert not stop.requested
    assert stop.remaining() is None
    stop.request("the first")
    stop.request("the second")
    assert stop.reason == "the first"
    with pytest.raises(StopRequestedError, match="the first"):
        stop.check()


async def test_a_reason_given_in_time_is_not_replaced_by_the_budget(clock: FakeClock) -> None:
    """A20: the first one who asked is named."""
    stop = Stop(clock=clock, budget=HOUR)
    stop.request("a person")
    clock.advance(2 * HOUR)
    assert stop.requested
    assert stop.reason == "a person"


@pytest.mark.parametrize("how", ["signal", "budget"])
async def test_a_sleep_is_cut_short(how: str) -> None:
    """A20: a stop signal, and a budget that ends during the wait, end an hour's sleep at once."""
    began = time.monotonic()
    stop = Stop(clock=SystemClock(), budget=timedelta(milliseconds=50) if how == "budget" else None)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, stop.request, "signal")
    try:
        async with asyncio.timeout(SOON):
            if how == "signal":
                loop.call_later(0.05, os.kill, os.getpid(), signal.SIGUSR1)
            with pytest.raises(StopRequestedError, match=how):
                await stop.sleep(HOUR)
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)
    assert time.monotonic() - began >= 0.05


async def test_a_sleep_that_nobody_stops_lasts_its_full_time() -> None:
    """A21: a wait between two attempts is never shorter than the rule says."""
    stop = Stop(clock=SystemClock(), budget=HOUR)
    began = time.monotonic()
    await stop.sleep(timedelta(milliseconds=50))
    assert time.monotonic() - began >= 0.05


async def test_a_sleep_does_not_begin_once_it_is_time_to_stop(clock: FakeClock) -> None:
    """A20: nothing waits after the stop signal."""
    stop = Stop(clock=clock, budget=HOUR)
    clock.advance(HOUR)
    with pytest.raises(StopRequestedError):
        await stop.sleep(HOUR)
    assert clock.slept == []


async def test_work_is_cancelled_and_has_cleaned_up_when_the_stop_is_raised() -> None:
    """A20: wait_for returns only after the work's own end, so nothing of it runs on behind its back."""
    stop = Stop(clock=SystemClock())
    shown: list[str] = []

    async def work() -> None:
        try:
            stop.request("enough")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            shown.append("cleaned up")

    async with asyncio.timeout(SOON):
        with pytest.raises(StopRequestedError, match="enough"):
            await stop.wait_for(work())
    assert shown == ["cleaned up"]


async def test_an_error_of_cancelled_work_does_not_hide_the_stop() -> None:
    """A20: whoever waits hears why it is time to stop, also when work that is cut short fails, or asks to stop too."""
    stop = Stop(clock=SystemClock(), budget=timedelta(milliseconds=50))

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stop.request("a person")
            raise LookupError("broken")

    async with asyncio.timeout(SOON):
        with pytest.raises(StopRequestedError, match="a person"):
            await stop.wait_for(work())
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_work_does_not_wait_once_it_is_time_to_stop(clock: FakeClock) -> None:
    """A20: it may end at once, or is cancelled where it would wait."""
    stop = Stop(clock=clock, budget=HOUR)
    clock.advance(HOUR)

    async def succeed() -> str:
        return "done"

    async with asyncio.timeout(SOON):
        assert await stop.wait_for(succeed()) == "done"
        with pytest.raises(StopRequestedError, match="budget"):
            await stop.wait_for(asyncio.Event().wait())
    assert stop.reason == "the time budget of 1h ran out"


async def test_one_stop_ends_all_work_that_waits() -> None:
    """A20: work side by side, and work within work; an outer time limit of somebody else stays what it is."""
    stop = Stop(clock=SystemClock())

    async def wait_within() -> None:
        await stop.wait_for(stop.sleep(HOUR))

    async with asyncio.timeout(SOON):
        waiting = [asyncio.create_task(wait_within()) for _ in range(5)]
        await asyncio.wait(waiting, timeout=0.05)
        stop.request("enough")
        for ended in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(ended, StopRequestedError)
            assert str(ended) == "enough"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await Stop(clock=SystemClock(), budget=HOUR).sleep(HOUR)


async def test_work_that_ends_by_itself_gives_its_result_or_its_error() -> None:
    """A20: without a stop signal, wait_for changes nothing, and no task is left behind."""
    stop = Stop(clock=SystemClock(), budget=HOUR)

    async def succeed() -> str:
        await asyncio.sleep(0)
        return "done"

    async def fail() -> str:
        await asyncio.sleep(0)
        raise LookupError("broken")

    assert await stop.wait_for(succeed()) == "done"
    with pytest.raises(LookupError, match="broken"):
        await stop.wait_for(fail())
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelling_the_waiter_cancels_the_work() -> None:
    """A20: a cancelled execution leaves no work behind."""
    stop = Stop(clock=SystemClock(), budget=HOUR)
    started, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(stop.wait_for(work()))
    async with asyncio.timeout(SOON):
        await started.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert ended.is_set()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_everybody_who_waits_is_reported() -> None:
    """A20: one wish, shared by everything that belongs to the execution."""
    stop = Stop(clock=SystemClock())
    waiting = [asyncio.create_task(stop.wait()) for _ in range(5)]
    done, _ = await asyncio.wait(waiting, timeout=0.05)
    assert not done
    stop.request("enough")
    async with asyncio.timeout(SOON):
        await asyncio.gather(*waiting)
