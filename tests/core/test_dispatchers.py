"""What every dispatcher promises: one job per key waits, urgent ones go first, a stop signal ends a call in good order,
and a holder is dead once it does nothing more."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Select
from structlog.testing import capture_logs

from tests.waiting import wait_until
from tidings.core.clock import SystemClock
from tidings.core.db.database import Database, open_database
from tidings.core.executions import Executions
from tidings.core.process_lock import ProcessLock
from tidings.core.queue.dispatcher import Call, Dispatcher, Job
from tidings.core.queue.embedded import EmbeddedDispatcher
from tidings.core.queue.postgresql import WINDOW, PostgresDispatcher
from tidings.core.stop import Stop

DRAIN = timedelta(seconds=5)
PLACES = 2
SOON = 30.0


class Work:
    """A task that says who began, and ends when it is let go or stopped."""

    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}
        self.began: list[str] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self.let_go = asyncio.Event()
        self.deaf = False
        # Whether a cancelled call waits for something that does not come.
        self.lingers = False

    async def __call__(self, call: Call) -> None:
        name = call.arguments["name"]
        self.calls[name] = call
        self.began.append(name)
        if name == "broken":
            raise ZeroDivisionError
        try:
            waits = [self.let_go.wait()] if self.deaf else [self.let_go.wait(), call.stop.wait()]
            tasks = [asyncio.ensure_future(wait) for wait in waits]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            if self.lingers:
                await self.let_go.wait()
            raise
        self.ended.append(name)

    async def wait_for(self, *names: str) -> None:
        """Return once these have begun."""

        async def have_begun() -> bool:
            return set(names) <= set(self.began)

        await wait_until(have_begun)

    async def wait_for_end(self, *names: str) -> None:
        async def have_ended() -> bool:
            return set(names) <= set(self.ended)

        await wait_until(have_ended)


class Bench:
    """A dispatcher at work."""

    def __init__(self, dispatcher: Dispatcher, database: Database, lock: ProcessLock) -> None:
        self.dispatcher = dispatcher
        self.database = database
        self.lock = lock
        self.work = Work()
        self.stop = Stop(clock=SystemClock())

    async def submit(self, *names: str, urgent: bool = False) -> int:
        async with self.database.write() as connection:
            return await self.dispatcher.submit(connection, [make_job(name, urgent=urgent) for name in names])

    async def find_room(self) -> int:
        async with self.dispatcher.open_tick() as connection:
            return await self.dispatcher.find_room(connection, "announce")

    @asynccontextmanager
    async def running(self, *, drain: timedelta = DRAIN) -> AsyncIterator[None]:
        working = asyncio.create_task(self.dispatcher.work({"announce.run": self.work}, self.stop, drain=drain))
        try:
            yield
        finally:
            self.stop.request("the test is over")
            await asyncio.wait_for(working, SOON)


def make_job(name: str, *, urgent: bool = False) -> Job:
    return Job("announce.run", f"key of {name}", {"name": name}, urgent=urgent)


@pytest.fixture
def bench(database: Database, process_lock: ProcessLock) -> Bench:
    """The adapter of each database, as the wiring chooses it."""
    adapter = EmbeddedDispatcher if database.dialect == "sqlite" else PostgresDispatcher
    dispatcher = adapter(
        database, clock=SystemClock(), process_lock=process_lock, places={"announce": PLACES}, release="1.2.3"
    )
    return Bench(dispatcher, database, process_lock)


async def test_a_job_is_done_with_its_arguments_and_a_holder_of_its_own(bench: Bench) -> None:
    """Decision 1: a job names work, and anybody who does it holds what it acquires."""
    async with bench.running():
        assert await bench.submit("a", "b") == 2
        await bench.work.wait_for("a", "b")
        holders = [bench.work.calls[name].holder for name in ("a", "b")]
        assert len(set(holders)) == 2
        assert all(bench.lock.owns(holder) and not bench.lock.is_dead(holder) for holder in holders)
        assert await bench.dispatcher.find_dead(holders) == frozenset()


async def test_one_job_per_key_waits_and_the_next_may_wait_while_it_runs(bench: Bench) -> None:
    """A39: a doubled job is dropped while it waits; exclusion is not the queue's matter."""
    async with bench.running():
        await bench.submit("a", "b")
        await bench.work.wait_for("a", "b")
        assert [await bench.submit("c"), await bench.submit("c"), await bench.submit("a")] == [1, 0, 1]
        bench.work.let_go.set()
        await bench.work.wait_for("c")

        async def has_come_twice() -> bool:
            return bench.work.began.count("a") == 2

        await wait_until(has_come_twice)
    assert bench.work.began.count("c") == 1


async def test_no_more_run_than_there_are_places_and_urgent_ones_go_first(bench: Bench) -> None:
    """A35, A39: anybody who waits for an answer does not wait for the schedule."""
    async with bench.running():
        await bench.submit("a", "b")
        await bench.work.wait_for("a", "b")
        await bench.submit("later")
        await bench.submit("urgent", urgent=True)
        assert sorted(bench.work.began) == ["a", "b"]
        await bench.dispatcher.stop(bench.work.calls["a"].holder)
        await bench.work.wait_for("urgent")
        assert "later" not in bench.work.began


async def test_a_stop_reaches_one_call_and_the_others_go_on(bench: Bench) -> None:
    """A20: as its stop signal, so that it ends in good order; it is not the end of the worker."""
    async with bench.running():
        await bench.submit("a", "b")
        await bench.work.wait_for("a", "b")
        call = bench.work.calls["a"]
        assert await bench.dispatcher.stop(call.holder)
        await bench.work.wait_for_end("a")
        assert call.stop.requested
        assert not call.ending.requested
        assert (bench.work.ended, bench.work.cancelled) == (["a"], [])
        assert not await bench.dispatcher.stop(f"{bench.lock.id}#nobody")


async def test_looks_for_stop_requests_take_no_memory_of_their_own(bench: Bench) -> None:
    """Many machines: a worker looks once a second, for as long as it has jobs."""

    def count_statements() -> int:
        gc.collect()
        return sum(isinstance(each, Select) for each in gc.get_objects())

    async with bench.running():
        await bench.submit("a")
        await bench.work.wait_for("a")
        await bench.dispatcher.tidy()
        before = count_statements()
        looks = 20
        for _ in range(looks):
            await bench.dispatcher.tidy()
        # Not the same number: the worker beside it may build statements of its own, each once.
        assert count_statements() - before < looks


async def test_a_call_that_ended_is_dead_and_so_is_the_holder_of_a_free_process_lock(
    bench: Bench, tmp_path: Path
) -> None:
    """A39, decision 3: also where the database was away at its end, and the process lives on."""
    other = ProcessLock(tmp_path)
    living, elsewhere = f"{other.id}#1", "another-place/process"
    async with bench.running():
        await bench.submit("a")
        await bench.work.wait_for("a")
        holder = bench.work.calls["a"].holder
        assert await bench.dispatcher.find_dead([holder, living, elsewhere, bench.lock.id]) == frozenset()
        bench.work.let_go.set()
        await bench.work.wait_for_end("a")
        assert await bench.dispatcher.find_dead([holder, living, bench.lock.id]) == {holder}
    other.close()
    assert living in await bench.dispatcher.find_dead([living])


@pytest.mark.thorough
async def test_a_broken_call_is_logged_and_the_others_go_on(bench: Bench) -> None:
    """Decision 1: an error of one job is not the others' matter."""
    with capture_logs() as events:
        async with bench.running():
            await bench.submit("broken", "a")
            await bench.work.wait_for("broken", "a")
            await bench.submit("b")
            await bench.work.wait_for("b")
    assert [(event["task"], event["name"]) for event in events if event["event"] == "job.broken"] == [
        ("announce.run", "broken")
    ]


async def test_the_end_of_a_worker_stops_every_call_and_cancels_the_deaf(bench: Bench) -> None:
    """A20: our stop signals come first; a call that does not hear is cancelled within the time for it."""
    async with bench.running():
        await bench.submit("a", "b")
        await bench.work.wait_for("a", "b")
        call = bench.work.calls["a"]
    assert (sorted(bench.work.ended), call.ending.requested) == (["a", "b"], True)
    bench.work.deaf, bench.stop = True, Stop(clock=SystemClock())
    async with bench.running(drain=timedelta(milliseconds=50)):
        await bench.submit("c")
        await bench.work.wait_for("c")
    assert bench.work.cancelled == ["c"]


async def test_a_cancelled_call_that_does_not_come_to_its_end_does_not_delay_the_end_of_a_worker(bench: Bench) -> None:
    """A20: a thousand executions cannot record in two seconds that they were cancelled."""
    bench.work.deaf = bench.work.lingers = True
    async with bench.running(drain=timedelta(milliseconds=50)):
        await bench.submit("a", "b")
        await bench.work.wait_for("a", "b")
    assert sorted(bench.work.cancelled) == ["a", "b"]


async def test_a_worker_is_listed_with_what_it_does(bench: Bench) -> None:
    """Who takes jobs, where, with which release, and how many executions it holds."""
    executions = Executions(bench.database, clock=SystemClock(), process_lock=bench.lock)
    assert await bench.dispatcher.list_workers() == []
    async with bench.running():
        await bench.submit("a")
        await bench.work.wait_for("a")
        with bench.lock.hold(bench.work.calls["a"].holder):
            await executions.acquire("announce:a", kind="announce")
        await wait_until(lambda: is_listed(bench))
        (worker,) = await bench.dispatcher.list_workers()
        assert (worker.release, worker.jobs, worker.places, worker.dead) == ("1.2.3", 1, PLACES, False)
        assert list(worker.queues) == ["announce"]
    assert await bench.dispatcher.list_workers() == []


async def is_listed(bench: Bench) -> bool:
    return bool(await bench.dispatcher.list_workers())


@pytest.mark.one_database
async def test_the_embedded_queue_has_room_for_what_it_can_start(bench: Bench) -> None:
    """Decision 1: the queue is a window on what is due; the rest waits in the tables."""
    async with bench.running():
        await bench.submit("a")
        await bench.work.wait_for("a")
        assert await bench.find_room() == PLACES - 1
        await bench.submit("b")
        await bench.work.wait_for("b")
        assert await bench.find_room() == 0
    assert await bench.find_room() == 0


async def test_the_shared_queue_has_room_for_a_thousand_that_wait(postgres_url: str, process_lock: ProcessLock) -> None:
    """Decision 1: submitted or not, a job whose transaction is rolled back does not exist; nobody has to work here."""
    database = open_database(postgres_url)
    places = {"announce": 1, "collect": 1}
    dispatcher = PostgresDispatcher(database, clock=SystemClock(), process_lock=process_lock, places=places)
    bench = Bench(dispatcher, database, process_lock)
    assert await bench.submit(*(f"site {number}" for number in range(WINDOW - 1))) == WINDOW - 1
    assert await bench.find_room() == 1
    with pytest.raises(ZeroDivisionError):
        await submit_and_break(bench)
    assert await bench.find_room() == 1
    queue, other = await bench.dispatcher.list_queues()
    assert (queue.queue, queue.waiting) == ("announce", WINDOW - 1)
    assert queue.oldest >= timedelta(0)
    # A queue in which nothing waits is shown, so that a graph of it has no gap.
    assert (other.queue, other.waiting, other.oldest) == ("collect", 0, timedelta(0))
    await database.close()


async def submit_and_break(bench: Bench) -> None:
    async with bench.database.write() as connection:
        await bench.dispatcher.submit(connection, [make_job("never")])
        raise ZeroDivisionError
