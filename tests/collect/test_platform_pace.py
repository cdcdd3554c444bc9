"""The queue in front of each platform and cookie."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from tests.fakes import FakeClock
from tidings.collect.crawl.envelope import make_error
from tidings.collect.crawl.platforms.pace import LocalPace, current_turns
from tidings.collect.crawl.platforms.shared_turns import SharedTurns
from tidings.collect.crawl.request_trace import RequestTrace
from tidings.collect.errors import ErrorCode
from tidings.core.clock import SystemClock
from tidings.core.db.database import open_read_only_database
from tidings.core.secrets.secret import Secret

SECOND = timedelta(seconds=1)


async def send(pace: LocalPace, clock: FakeClock, target: str, cookie: str | None = None) -> float:
    """When this request was sent."""
    await pace.wait_turn(target, cookie=Secret(cookie) if cookie else None)
    return clock.monotonic()


def gaps(timestamps: list[float]) -> list[float]:
    ordered = sorted(timestamps)
    return [round(after - before, 3) for before, after in pairwise(ordered)]


async def test_requests_to_one_platform_are_apart_and_others_do_not_wait(clock: FakeClock) -> None:
    """C17: at least so long between two requests to one platform; another platform has its own queue."""
    pace = LocalPace(clock=clock, platform_interval=2 * SECOND, cookie_interval=timedelta(0))
    timestamps = await asyncio.gather(*(send(pace, clock, "weibo", f"cookie {number}") for number in range(5)))
    assert gaps(timestamps) == [2.0] * 4
    slept = len(clock.slept)
    await pace.wait_turn("bilibili")
    assert len(clock.slept) == slept


async def test_one_cookie_waits_longer_than_its_platform(clock: FakeClock) -> None:
    """C17: at least so long between two requests with one cookie, while other cookies go on."""
    pace = LocalPace(clock=clock, platform_interval=SECOND, cookie_interval=5 * SECOND)
    first, second, other = [await send(pace, clock, "weibo", name) for name in ("a cookie", "a cookie", "another")]
    assert second - first == pytest.approx(5, abs=0.01)
    assert other - second == pytest.approx(1, abs=0.01)


async def test_who_waits_for_a_cookie_keeps_nobody_from_the_platform(clock: FakeClock) -> None:
    """C17: the cookie's queue comes first, so the platform's place is not held meanwhile."""
    pace = LocalPace(clock=clock, platform_interval=SECOND, cookie_interval=60 * SECOND)
    await send(pace, clock, "weibo", "a cookie")
    waiting = asyncio.create_task(send(pace, clock, "weibo", "a cookie"))
    other = asyncio.create_task(send(pace, clock, "weibo", "another"))
    await asyncio.wait({waiting, other}, return_when=asyncio.ALL_COMPLETED)
    assert other.result() >= 1
    assert waiting.result() >= 60


async def test_who_gives_up_leaves_no_gap(clock: FakeClock) -> None:
    """C16: fifty requests that ran out of time must not hold up the next one."""

    class StillClock(FakeClock):
        async def sleep(self, duration: timedelta) -> None:
            await asyncio.Event().wait()

    still = StillClock()
    pace = LocalPace(clock=still, platform_interval=10 * SECOND, cookie_interval=10 * SECOND)
    await pace.wait_turn("weibo", cookie=Secret("a cookie"))
    tasks = [asyncio.create_task(pace.wait_turn("weibo", cookie=Secret("a cookie"))) for _ in range(50)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    still.advance(10 * SECOND)
    async with asyncio.timeout(1):
        await pace.wait_turn("weibo", cookie=Secret("a cookie"))


async def test_a_request_that_is_ended_as_its_turn_comes_is_not_sent(clock: FakeClock) -> None:
    """C34: the platform blocks this machine, and the task of the next request was woken just before."""
    turn, sent = asyncio.Event(), []

    class HeldClock(FakeClock):
        async def sleep(self, duration: timedelta) -> None:
            self.advance(duration)
            await turn.wait()

    pace, trace = LocalPace(clock=HeldClock(), platform_interval=SECOND), RequestTrace()
    await pace.wait_turn("weibo")

    async def ask() -> None:
        current_turns.set(trace.turns)
        async with asyncio.timeout(None) as trace.limit:
            await pace.wait_turn("weibo")
            sent.append(trace)

    asking = asyncio.create_task(ask())
    await asyncio.sleep(0)
    turn.set()
    trace.end_wait(make_error(ErrorCode.PLATFORM_ERROR, "blocked", blocked=True))
    with pytest.raises(TimeoutError):
        await asking
    assert sent == []


async def test_a_target_can_ask_for_more(clock: FakeClock) -> None:
    """C17: a Crawl-delay of robots.txt is longer than what is set."""
    pace = LocalPace(clock=clock, platform_interval=SECOND)
    for _ in range(2):
        await pace.wait_turn("example.org", least=7 * SECOND)
    assert sum(clock.slept, timedelta()) == pytest.approx(7 * SECOND, abs=SECOND / 100)


async def test_no_interval_means_no_wait(clock: FakeClock) -> None:
    """C16: what is set to nothing costs nothing."""
    pace = LocalPace(clock=clock, platform_interval=timedelta(0), cookie_interval=timedelta(0))
    await asyncio.gather(*(send(pace, clock, "weibo", "a cookie") for _ in range(50)))
    assert clock.slept == []


async def test_it_is_slow_unless_reported_otherwise(clock: FakeClock) -> None:
    """C17: slow by default."""
    pace = LocalPace(clock=clock)
    for _ in range(3):
        await pace.wait_turn("weibo", cookie=Secret("a cookie"))
    assert sum(clock.slept, timedelta()) >= 6 * SECOND


async def test_idle_hosts_are_forgotten(clock: FakeClock) -> None:
    """C17: the open web has more hosts than there is memory."""
    pace = LocalPace(clock=clock, platform_interval=SECOND)
    for number in range(10_000):
        await pace.wait_turn(f"{number}.example.org")
        clock.advance(SECOND)
    assert len(pace._queues) <= 4_096


@pytest.mark.parametrize(
    ("target", "cookie", "intervals"),
    [("weibo", None, (150, 0)), ("example.com:443", None, (150, 0)), ("weibo", "a cookie", (1, 150))],
    ids=["a platform", "a host of the open web", "a cookie"],
)
async def test_two_processes_share_the_turns(
    postgres_url: str, target: str, cookie: str | None, intervals: tuple[int, int]
) -> None:
    """C17: over all workers at least so long between two requests; a turn that is given up is free at once."""
    clock = SystemClock()
    platform_interval, cookie_interval = (timedelta(milliseconds=each) for each in intervals)
    databases = [open_read_only_database(postgres_url, connections=5) for _ in range(2)]
    shared = [SharedTurns(database, clock=clock, platforms={"weibo"}) for database in databases]
    paces = [
        LocalPace(clock=clock, platform_interval=platform_interval, cookie_interval=cookie_interval, turns=turns)
        for turns in shared
    ]
    timestamps: list[float] = []

    async def ask(pace: LocalPace) -> None:
        await pace.wait_turn(target, cookie=Secret(cookie) if cookie else None)
        timestamps.append(clock.monotonic())

    async with asyncio.timeout(30):
        await asyncio.gather(*(ask(pace) for pace in paces for _ in range(3)))
        waiting = asyncio.create_task(ask(paces[0]))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await ask(paces[1])
    for each in shared:
        await each.close()
    for database in databases:
        await database.close()
    assert len(timestamps) == 7
    assert all(later - earlier >= 0.145 for earlier, later in pairwise(timestamps))
