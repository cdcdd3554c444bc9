"""Pace: the distance between two requests to a host holds over all workers, and so do rests and slower times.

Times are taken with the monotonic clock inside a turn. What must not be undercut is asserted strictly; how long a
turn may take at most is asserted generously, because the machine may be busy.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise

import pytest
from sqlalchemy import select, text

from tidings.core.clock import SystemClock
from tidings.core.db.database import Database, open_database
from tidings.core.net.pace import ACCEPTED_UNTIL_NORMAL, Pace, pace
from tidings.core.stop import Stop, StopRequestedError

HOST = "engine.example"
INTERVAL = timedelta(milliseconds=25)
HOUR = timedelta(hours=1)
SOON = 20.0
# Workers share the machine's clock, which its time service may make slower or faster than the monotonic one: by at most
# 500 millionths.
DRIFT = 0.001


@asynccontextmanager
async def open_workers(
    url: str, count: int, *, interval: timedelta = INTERVAL, concurrency: int = 3
) -> AsyncIterator[list[Pace]]:
    """Several workers, each with a database object of its own."""
    databases = [open_database(url) for _ in range(count)]
    yield [Pace(each, clock=SystemClock(), interval=interval, concurrency=concurrency) for each in databases]
    for database in databases:
        await database.close()


def make_stop() -> Stop:
    return Stop(clock=SystemClock())


async def take_turns(worker: Pace, timestamps: list[float], *, turns: int = 1, host: str = HOST) -> None:
    stop = make_stop()
    for _ in range(turns):
        async with worker.turn(host, stop=stop):
            timestamps.append(time.monotonic())


def find_shortest_gap(timestamps: list[float]) -> float:
    return min(later - earlier for earlier, later in pairwise(sorted(timestamps)))


async def read_row(database: Database, host: str = HOST) -> tuple[int, int]:
    """To how many microseconds the host is slowed, and how many requests in a row it accepted since."""
    async with database.read() as connection:
        row = (await connection.execute(select(pace).where(pace.c.host == host))).one()
        return row.slowed_to, row.accepted_in_row


async def test_the_interval_is_never_undercut_over_several_workers(database_url: str) -> None:
    """A17: at least REQUEST_INTERVAL_MS between two requests, over all tasks and all workers together."""
    timestamps: list[float] = []
    async with open_workers(database_url, 3) as workers, asyncio.timeout(SOON):
        await asyncio.gather(*(take_turns(worker, timestamps, turns=5) for worker in workers for _ in range(2)))
    assert len(timestamps) == 30
    assert find_shortest_gap(timestamps) >= INTERVAL.total_seconds()


async def test_the_interval_holds_when_the_database_lets_a_worker_wait(database_url: str) -> None:
    """A17: a slow transaction delays one worker; neither the request before it nor the one after gets closer."""
    interval, slow = timedelta(milliseconds=200), 0.15
    timestamps: list[float] = []
    database = open_database(database_url)
    async with open_workers(database_url, 3, interval=interval) as workers, asyncio.timeout(SOON):
        await take_turns(workers[0], timestamps)
        async with database.write() as connection:
            await connection.execute(text("UPDATE pace SET host = host"))
            second = asyncio.create_task(take_turns(workers[1], timestamps))
            await asyncio.sleep(slow)
        await asyncio.gather(second, take_turns(workers[2], timestamps))
    await database.close()
    assert len(timestamps) == 3
    assert find_shortest_gap(timestamps) >= interval.total_seconds()


async def test_a_request_whose_bytes_are_held_up_waits_for_another_slot(database_url: str) -> None:
    """A17: a connection that takes long, or a busy machine, delays it; the request of another worker gets no closer."""
    # The tolerance is a share of the interval, and what a busy machine adds here before a time is noted is not.
    timestamps, interval = list[float](), timedelta(milliseconds=150)
    async with open_workers(database_url, 2, interval=interval) as workers, asyncio.timeout(SOON):
        async with workers[0].turn(HOST, stop=make_stop()) as turn:
            ahead = asyncio.create_task(take_turns(workers[1], timestamps, turns=4))
            await asyncio.sleep(3 * interval.total_seconds())
            await turn.confirm()
            timestamps.append(time.monotonic())
        await ahead
    assert len(timestamps) == 5
    assert find_shortest_gap(timestamps) >= interval.total_seconds()


async def test_turns_are_not_much_further_apart_than_asked(database_url: str) -> None:
    """A17: the interval is a distance, not a brake, at least where the machine is not too busy."""
    timestamps: list[float] = []
    interval = timedelta(milliseconds=150)
    async with open_workers(database_url, 1, interval=interval) as [worker], asyncio.timeout(SOON):
        await take_turns(worker, timestamps, turns=5)
    assert find_shortest_gap(timestamps) < 2 * interval.total_seconds()


async def test_a_turn_that_is_free_begins_at_once(database_url: str) -> None:
    """A17: the first request to a host does not wait, and neither does one after a long pause."""
    async with open_workers(database_url, 1, interval=HOUR) as [worker], asyncio.timeout(SOON):
        await take_turns(worker, [])


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_more_than_so_many_requests_are_under_way_at_once(database_url: str, concurrency: int) -> None:
    """A17: MAX_CONCURRENT_REQUESTS in flight for an engine, and that many where there is work."""
    inside, most = 0, 0
    full = asyncio.Event()

    async def request(worker: Pace) -> None:
        nonlocal inside, most
        async with worker.turn(HOST, stop=make_stop()):
            inside += 1
            most = max(most, inside)
            if inside == concurrency:
                full.set()
            await full.wait()
            await asyncio.sleep(0.02)
            inside -= 1

    short = timedelta(milliseconds=1)
    async with (
        open_workers(database_url, 1, interval=short, concurrency=concurrency) as [worker],
        asyncio.timeout(SOON),
    ):
        await asyncio.gather(*(request(worker) for _ in range(8)))
    assert most == concurrency


async def test_hosts_do_not_wait_for_each_other(database_url: str) -> None:
    """A17, A18: each engine is handled on its own, also while another is resting or has requests under way."""
    async with open_workers(database_url, 1, interval=HOUR, concurrency=1) as [worker], asyncio.timeout(SOON):
        await worker.rest("resting.example", HOUR)
        async with worker.turn("busy.example", stop=make_stop()):
            await take_turns(worker, [], host=HOST)


async def test_a_rest_holds_every_worker_off(database_url: str) -> None:
    """A21, A31: nobody asks a host that wants a rest; a shorter wish does not shorten a longer one."""
    rest = timedelta(milliseconds=300)
    timestamps: list[float] = []
    async with open_workers(database_url, 3) as workers, asyncio.timeout(SOON):
        await take_turns(workers[0], [])
        asked = time.monotonic()
        await workers[0].rest(HOST, rest)
        await workers[1].rest(HOST, rest / 10)
        await asyncio.gather(*(take_turns(worker, timestamps) for worker in workers))
    assert min(timestamps) - asked >= rest.total_seconds() - DRIFT
    assert find_shortest_gap(timestamps) >= INTERVAL.total_seconds()


async def test_a_host_can_rest_before_it_was_ever_asked(database_url: str) -> None:
    """A31: the wish counts from the first request on."""
    rest = timedelta(milliseconds=200)
    timestamps: list[float] = []
    async with open_workers(database_url, 2) as workers, asyncio.timeout(SOON):
        asked = time.monotonic()
        await workers[0].rest(HOST, rest)
        await take_turns(workers[1], timestamps)
    assert timestamps[0] - asked >= rest.total_seconds() - DRIFT


async def test_a_stop_ends_the_wait_of_everybody_who_shares_it(database_url: str) -> None:
    """A20: an hour's rest does not hold an execution that is to end; no request is made any more."""
    stop = make_stop()
    entered = []

    async def request(worker: Pace) -> None:
        async with worker.turn(HOST, stop=stop):
            entered.append(True)

    async with open_workers(database_url, 2) as workers, asyncio.timeout(SOON):
        await workers[0].rest(HOST, HOUR)
        waiting = [asyncio.create_task(request(worker)) for worker in workers for _ in range(4)]
        done, _ = await asyncio.wait(waiting, timeout=0.1)
        assert not done
        stop.request("enough")
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StopRequestedError] * 8
    assert entered == []


async def test_each_refusal_doubles_the_interval_to_at_most_two_seconds(database_url: str, database: Database) -> None:
    """A21: after a 429 the engine's interval doubles (to at most 2 s)."""
    seen = []
    async with open_workers(database_url, 1, interval=timedelta(milliseconds=300)) as [worker]:
        await take_turns(worker, [])
        for _ in range(5):
            await worker.slow_down(HOST)
            seen.append((await read_row(database))[0])
    assert seen == [600_000, 1_200_000, 2_000_000, 2_000_000, 2_000_000]


async def test_an_interval_that_is_longer_than_two_seconds_is_not_made_shorter(
    database_url: str, database: Database
) -> None:
    """A17, A21: the most that a refusal leads to is never less than what was asked for."""
    async with open_workers(database_url, 1, interval=timedelta(seconds=5)) as [worker]:
        await take_turns(worker, [])
        await worker.slow_down(HOST)
    assert (await read_row(database))[0] in (0, 5_000_000)


async def test_a_slowed_host_is_slower_for_every_worker_and_no_other_host_is(database_url: str) -> None:
    """A21: one worker was refused, all keep the doubled distance."""
    slowed: list[float] = []
    other: list[float] = []
    async with open_workers(database_url, 3) as workers, asyncio.timeout(SOON):
        for host in (HOST, "other.example"):
            await take_turns(workers[0], [], host=host)
        for _ in range(2):
            await workers[0].slow_down(HOST)
        await asyncio.gather(
            *(take_turns(worker, slowed, turns=3) for worker in workers),
            *(take_turns(worker, other, turns=3, host="other.example") for worker in workers),
        )
    assert find_shortest_gap(slowed[1:]) >= 4 * INTERVAL.total_seconds()
    assert max(other) < max(slowed)


@pytest.mark.thorough
async def test_a_hundred_accepted_in_a_row_bring_the_interval_back(database_url: str, database: Database) -> None:
    """A21: over all workers together; ninety-nine do not, and a further refusal begins the count again."""
    timestamps: list[float] = []
    async with open_workers(database_url, 2) as workers, asyncio.timeout(SOON):
        await take_turns(workers[0], [])
        await workers[0].slow_down(HOST)
        await take_turns(workers[1], [])
        for number in range(ACCEPTED_UNTIL_NORMAL - 1):
            await workers[number % 2].record_accepted(HOST)
        assert await read_row(database) == (50_000, 99)
        await workers[1].slow_down(HOST)
        assert await read_row(database) == (100_000, 0)
        for number in range(ACCEPTED_UNTIL_NORMAL):
            assert await read_row(database) == (100_000, number)
            await workers[number % 2].record_accepted(HOST)
        assert await read_row(database) == (0, 0)
        await asyncio.gather(*(take_turns(worker, timestamps, turns=4) for worker in workers))
    assert find_shortest_gap(timestamps) >= INTERVAL.total_seconds()


async def test_accepted_requests_of_a_host_that_is_not_slowed_cost_no_write(
    database_url: str, database: Database
) -> None:
    """A21: the ordinary course counts nothing."""
    async with open_workers(database_url, 1) as [worker]:
        await take_turns(worker, [])
        await worker.record_accepted(HOST)
    assert await read_row(database) == (0, 0)


async def test_a_stop_leaves_the_next_slot_free_however_many_requests_were_waiting(database: Database) -> None:
    """A17, A20: those that wait reserve nothing after the stop, and the one that had reserved gives its slot back."""
    worker = Pace(database, clock=SystemClock(), interval=HOUR, concurrency=50)
    stop = make_stop()

    async def wait_in_vain() -> None:
        with pytest.raises(StopRequestedError):
            async with worker.turn(HOST, stop=stop):
                raise AssertionError

    async def read_next() -> float:
        async with database.read() as connection:
            return float((await connection.execute(select(pace.c.next_at))).scalar_one())

    async with worker.turn(HOST, stop=stop):
        free_at = await read_next()
    waiting = [asyncio.create_task(wait_in_vain()) for _ in range(20)]
    async with asyncio.timeout(SOON):
        while await read_next() == free_at:
            pass
        stop.request("SIGTERM")
        await asyncio.gather(*waiting)
    assert await read_next() == free_at


class FrozenClock(SystemClock):
    """The machine's clock as a process sees it that was frozen for five minutes after its first look at it."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic(self) -> float:
        self._looks += 1
        return super().monotonic() + (300 if self._looks > 1 else 0)


async def test_one_short_freeze_does_not_slow_the_host_down(postgres_url: str) -> None:
    """A17: PostgreSQL's answer reaches a frozen process late. That says nothing of how late the next answers come."""
    database = open_database(postgres_url)
    worker = Pace(database, clock=FrozenClock(), interval=INTERVAL, concurrency=1)
    async with asyncio.timeout(SOON):
        await take_turns(worker, [], turns=3)
    await database.close()
