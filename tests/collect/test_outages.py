"""Only an answer about a note is the note's failure. A platform of the tests' own is down, slow, blocks this machine or
asks for captchas; the real runner collects from it, on a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from tests.announce.bing_stage import MORNING
from tests.collect.crawl_stage import session_of
from tests.collect.moody_platform import Asked, MoodyPlatform, answer_json, delay, name_video, reset
from tests.collect.runner_stage import MINUTE, RunnerStage, open_runner
from tests.fakes import StageClock
from tidings.collect.errors import ErrorCode
from tidings.collect.run.report import CollectReport
from tidings.collect.status.queries import PlatformPause
from tidings.collect.write.cookies import make_cookie
from tidings.collect.write.values import NewCandidate, SettledAction
from tidings.core.clock import Clock, SystemClock
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.secret import Secret

pytestmark = pytest.mark.one_database

OpenStage = Callable[..., AbstractAsyncContextManager[RunnerStage]]
BLOCKED = answer_json({"code": -412, "message": "请求被拦截"})
CAPTCHA = answer_json({"ok": 0, "url": "https://m.weibo.cn/captcha"})


@pytest.fixture
def clock() -> StageClock:
    return StageClock(MORNING)


@pytest.fixture
async def platform() -> AsyncIterator[MoodyPlatform]:
    async with MoodyPlatform() as running:
        yield running


@pytest.fixture
def open_stage(database_url: str, keys: KeyRing, process_lock: ProcessLock, platform: MoodyPlatform) -> OpenStage:
    def start(clock: Clock, **crawl: Any) -> AbstractAsyncContextManager[RunnerStage]:
        origins = {"weibo": platform.origin, "bilibili": platform.origin}
        return open_runner(
            database_url, clock=clock, keys=keys, process_lock=process_lock, crawl={"base_urls": origins, **crawl}
        )

    return start


@pytest.fixture
async def stage(open_stage: OpenStage, clock: StageClock) -> AsyncIterator[RunnerStage]:
    async with open_stage(clock) as opened:
        yield opened


async def seed(stage: RunnerStage, *note_ids: str, platform: str = "weibo") -> None:
    """Candidates, as a search would have found them."""
    acquired = await stage.writer.acquire("seed")
    assert acquired.execution is not None
    new = [
        NewCandidate(
            platform=platform,
            note_id=each,
            note_url=each if "://" in each else f"https://{platform}.example/{each}",
            title="",
            source_keyword="bread",
        )
        for each in note_ids
    ]
    await stage.writer.add_candidates(acquired.execution, new)
    await stage.writer.finish(acquired.execution)


async def collect(stage: RunnerStage) -> CollectReport | None:
    reports = await stage.runner.collect(stage.make_stop())
    return reports[0] if reports else None


async def find_pause(stage: RunnerStage) -> PlatformPause | None:
    pauses = await stage.writer.pauses.list_all()
    return pauses[0] if pauses else None


async def count_failures(stage: RunnerStage) -> int:
    """The failures that count against any candidate."""
    return sum(row.retry_count for row in (await stage.read_candidates()).values())


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_a_network_that_is_down_for_14_minutes_loses_nothing(
    stage: RunnerStage, platform: MoodyPlatform, clock: StageClock
) -> None:
    """C34: eight of eight are collected after it, without a person. The pauses grow, and each ends with one probe."""
    await stage.add_cookies("one", "two")
    await seed(stage, *platform.note_ids[:8])
    await platform.close()
    began, pauses = clock.now(), []
    while clock.now() - began < timedelta(minutes=14):
        await collect(stage)
        pause = await find_pause(stage)
        assert pause is not None
        pauses.append((pause.failures, pause.cause))
        clock.advance(MINUTE)
    assert set(pauses) == {(1, "network"), (2, "network"), (3, "network")}
    assert await count_failures(stage) == 0
    await platform.open()
    while await find_pause(stage) is not None:
        clock.advance(MINUTE)
        await collect(stage)
    assert clock.now() - began < timedelta(minutes=40)
    assert await stage.count_statuses() == {"collected": 8}
    assert await count_failures(stage) == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mood", "cause"),
    [
        pytest.param(reset, "network", id="reset"),
        pytest.param(answer_json({}, status=503), "platform", id="503"),
        pytest.param(answer_json({"ok": "?"}), "platform", id="new format"),
        pytest.param(answer_json({"ok": 0, "msg": "请求频率过高"}), "blocked", id="too often"),
    ],
)
async def test_a_batch_that_fails_as_a_whole_pauses_its_platform_for_1_5_15_and_60_minutes(
    stage: RunnerStage, platform: MoodyPlatform, clock: StageClock, mood: Any, cause: str
) -> None:
    """C34: nothing counts, nothing is asked during a pause, one candidate probes after it, and one answer ends it."""
    await stage.add_cookies("one", "two", "three", "four")
    await seed(stage, *platform.note_ids[:10])
    platform.mood = mood
    assert (await collect(stage)).counts == {SettledAction.RELEASED: 10}  # type: ignore[union-attr]
    for minutes in (1, 5, 15, 60, 60):
        pause = await find_pause(stage)
        assert pause is not None
        assert abs(pause.until - clock.now() - timedelta(minutes=minutes)) < MINUTE
        assert pause.cause == cause
        asked = len(platform.asked)
        clock.set(pause.until - timedelta(seconds=1))
        assert await collect(stage) is None
        assert len(platform.asked) == asked
        clock.set(pause.until)
        report = await collect(stage)
        assert report is not None
        assert report.counts == {SettledAction.RELEASED: 1}
        assert len({each.about for each in platform.asked[asked:]}) == 1
    assert await count_failures(stage) == 0
    platform.mood = None
    pause = await find_pause(stage)
    assert pause is not None
    clock.set(pause.until)
    assert (await collect(stage)).collected == 10  # type: ignore[union-attr]
    assert await find_pause(stage) is None


@pytest.mark.thorough
async def test_a_block_of_this_address_costs_few_requests_and_no_cookie(
    stage: RunnerStage, platform: MoodyPlatform, clock: StageClock
) -> None:
    """C34: Bilibili's −412 for ten minutes. The cookie's day is not spent, and nobody is asked to log in again."""
    await stage.cookies.add(make_cookie("one", platform="bilibili", secret=Secret("SESSDATA=a-long-session")))
    await seed(stage, *(name_video(number) for number in range(1, 11)), platform="bilibili")
    await stage.watch_keyword("bilibili")
    platform.mood = BLOCKED
    for _ in range(10):
        await stage.runner.discover(stage.make_stop())
        await collect(stage)
        await stage.monitor.check()
        clock.advance(MINUTE)
    cookie = await stage.find_cookie("one")
    assert len(platform.asked) <= 6
    assert cookie.state.daily_used == len(platform.asked)
    assert (cookie.state.status, cookie.state.total_errors, await count_failures(stage)) == ("active", 0, 0)
    assert await stage.list_notified() == [("alert.fired", "platform_paused", "bilibili")]
    document: Any = stage.sink.taken[0].fields["document"]
    shown = document["data"]
    assert "-412" in shown["reason"]
    assert "log in" not in shown["action"].lower()


@pytest.mark.parametrize("status", [403, 412])
async def test_a_page_of_a_network_in_front_of_the_platform_is_a_block(
    stage: RunnerStage, platform: MoodyPlatform, status: int
) -> None:
    """C34: 403 from a CDN is an HTML page; the platform's own refusals are JSON."""

    async def mood(_asked: Asked) -> web.Response:
        return web.Response(status=status, text="<html>Access denied</html>", content_type="text/html")

    await stage.add_cookies("one")
    await seed(stage, *platform.note_ids[:10])
    platform.mood = mood
    report = await collect(stage)
    pause = await find_pause(stage)
    assert report is not None
    assert pause is not None
    assert (report.counts, pause.cause, len(platform.asked)) == ({SettledAction.RELEASED: 10}, "blocked", 1)


async def test_a_captcha_for_every_cookie_pauses_the_platform_until_a_cookie_has_cooled(
    stage: RunnerStage, platform: MoodyPlatform, clock: StageClock
) -> None:
    """C34, C15: each cookie is asked once, no candidate is counted, and the advice is to solve the captcha."""
    names = ("one", "two", "three", "four", "five")
    await stage.add_cookies(*names)
    await seed(stage, *platform.note_ids[:10])
    platform.mood = CAPTCHA
    await collect(stage)
    await stage.monitor.check()
    pause = await find_pause(stage)
    assert pause is not None
    assert (pause.cause, await count_failures(stage)) == ("captcha", 0)
    assert abs(pause.until - clock.now() - timedelta(minutes=30)) < MINUTE
    assert len(platform.asked) == len(names)
    assert ("alert.fired", "platform_paused", "weibo") in await stage.list_notified()
    platform.mood = None
    clock.set(pause.until)
    report = await collect(stage)
    assert report is not None
    assert (report.collected, await find_pause(stage)) == (10, None)


async def test_a_captcha_for_one_cookie_of_two_pauses_nothing(stage: RunnerStage, platform: MoodyPlatform) -> None:
    """C15, C34: the other cookie reads all the notes."""

    async def mood(asked: Asked) -> web.StreamResponse | None:
        return await CAPTCHA(asked) if asked.account == session_of("one") else None

    await stage.add_cookies("one", priority=9)
    await stage.add_cookies("two")
    await seed(stage, *platform.note_ids[:10])
    platform.mood = mood
    report = await collect(stage)
    assert report is not None
    assert (report.collected, await find_pause(stage)) == (10, None)
    assert (await stage.find_cookie("one")).state.status == "cooling"


@pytest.mark.thorough
async def test_a_slow_pace_gives_up_none_of_30_healthy_candidates(
    open_stage: OpenStage, platform: MoodyPlatform
) -> None:
    """C34: a batch is as large as cookies and pace allow, and whatever waits in vain is not counted."""
    crawl = {
        "platform_interval": timedelta(milliseconds=20),
        "cookie_interval": timedelta(milliseconds=40),
        "batch_timeout": timedelta(milliseconds=300),
        "request_timeout": timedelta(milliseconds=100),
    }
    platform.mood = delay(0.05)
    async with open_stage(SystemClock(), **crawl) as stage:
        await stage.add_cookies("one")
        await seed(stage, *platform.note_ids)
        while await stage.count_statuses() != {"collected": 30}:
            await collect(stage)
        assert await count_failures(stage) == 0
        assert (await stage.find_cookie("one")).state.daily_used == len(platform.asked)


async def test_a_batch_is_no_larger_than_cookies_and_pace_can_ask_for_in_time(
    open_stage: OpenStage, clock: StageClock, platform: MoodyPlatform
) -> None:
    """C34: 50 seconds at one request of the cookie in 20 seconds are three; a second cookie makes it six. Uses of the
    day that are left limit it too."""
    crawl = {"platform_interval": timedelta(seconds=1), "cookie_interval": timedelta(seconds=20)}
    async with open_stage(clock, **crawl) as stage:
        await seed(stage, *platform.note_ids)
        sizes = []
        for name, limit in (("one", 200), ("two", 200), ("one", 1)):
            await stage.add_cookies(name, daily_limit=limit)
            acquired = await stage.writer.acquire("collect")
            assert acquired.execution is not None
            sizes.append(len(await stage.writer.lease(acquired.execution, limit=10, platform="weibo")))
            await stage.writer.finish(acquired.execution)
        await stage.cookies.remove("two")
        acquired = await stage.writer.acquire("collect")
        assert acquired.execution is not None
        sizes.append(len(await stage.writer.lease(acquired.execution, limit=10, platform="weibo")))
        assert sizes == [3, 6, 6, 1]


@pytest.mark.slow
async def test_a_long_crawl_delay_loses_nothing(open_stage: OpenStage) -> None:
    """C34: a site that wants so long a pause between two requests that few articles fit into a batch."""
    crawl = {"batch_timeout": timedelta(seconds=4), "platform_interval": timedelta(0)}
    async with open_stage(SystemClock(), **crawl) as stage, asyncio.timeout(120):
        stage.blog.serve("/robots.txt", "User-agent: *\nCrawl-delay: 1.5\n")
        await seed(stage, *(stage.blog.url(number) for number in range(1, 6)), platform="web")
        while await stage.count_statuses() != {"collected": 5}:
            await collect(stage)
        assert await count_failures(stage) == 0


@pytest.mark.thorough
async def test_a_site_that_asks_for_a_rest_gets_it(
    stage: RunnerStage, platform: MoodyPlatform, clock: StageClock
) -> None:
    """C34: 429 with Retry-After. The site is asked once, nothing counts, and other sites are read meanwhile."""
    platform.mood = answer_json({}, status=429, **{"Retry-After": "600"})
    await seed(stage, *(f"{platform.origin}/{number}" for number in range(5)), platform="web")
    stage.blog.serve("/robots.txt", "", status=404)
    await seed(stage, stage.blog.url(1), platform="web")
    await collect(stage)
    # robots.txt was refused too, and the site was left alone.
    assert len(platform.asked) <= 2
    assert (await stage.count_statuses(), await count_failures(stage)) == ({"collected": 1, "pending": 5}, 0)
    before = len(platform.asked)
    clock.advance(timedelta(minutes=9))
    await collect(stage)
    assert len(platform.asked) == before


@pytest.mark.thorough
async def test_a_note_that_fails_alone_while_the_platform_answers_is_given_up(
    stage: RunnerStage, platform: MoodyPlatform, clock: StageClock
) -> None:
    """C10, C34: once it may be an outage; not when the platform answers searches in between."""
    await stage.add_cookies("one", "two")
    await seed(stage, platform.note_ids[0])
    platform.note_ids = []
    await stage.watch_keyword()

    async def mood(asked: Asked) -> web.StreamResponse | None:
        return None if asked.is_search else web.json_response({}, status=500)

    platform.mood = mood
    for _ in range(6):
        await collect(stage)
        clock.advance(timedelta(minutes=10))
        await stage.runner.discover(stage.make_stop())
    assert await stage.count_statuses() == {"failed": 1}


@pytest.mark.thorough
async def test_a_search_that_is_blocked_pauses_and_one_that_succeeds_ends_the_pause(
    stage: RunnerStage, platform: MoodyPlatform, clock: StageClock
) -> None:
    """C34: the other keywords of the platform are not searched; a search is as good a probe as a note."""
    await stage.add_cookies("one")
    for keyword in ("bread", "butter", "jam"):
        await stage.watch_keyword(keyword=keyword)
    platform.mood = answer_json({}, status=429, **{"Retry-After": "120"})
    report = await stage.runner.discover(stage.make_stop())
    assert [each.skipped for each in report.searches] == [False, True, True]
    pause = await find_pause(stage)
    assert pause is not None
    assert len(platform.asked) == 1
    assert abs(pause.until - clock.now() - timedelta(minutes=2)) < MINUTE
    assert all(each.skipped for each in (await stage.runner.discover(stage.make_stop())).searches)
    platform.mood = None
    clock.set(pause.until)
    assert (await stage.runner.discover(stage.make_stop())).failed == 0
    assert await find_pause(stage) is None


async def test_a_person_can_end_a_pause(stage: RunnerStage, platform: MoodyPlatform) -> None:
    """C34: after the network is repaired nobody has to wait."""
    await stage.add_cookies("one")
    await seed(stage, *platform.note_ids[:10])
    platform.mood = reset
    await collect(stage)
    platform.mood = None
    assert await collect(stage) is None
    assert await stage.writer.pauses.resume("weibo")
    assert not await stage.writer.pauses.resume("weibo")
    report = await collect(stage)
    assert report is not None
    assert report.collected == 10


async def test_a_database_that_is_away_counts_against_nobody(stage: RunnerStage, platform: MoodyPlatform) -> None:
    """C34: the crawler cannot read its cookies, asks nothing, and says that the same request can succeed later."""
    await stage.add_cookies("one")
    async with stage.database.write() as connection:
        await connection.exec_driver_sql("ALTER TABLE tbl_cookie RENAME TO away")
    answer = await stage.crawler.search("weibo", "bread")
    assert answer.error is not None
    assert (answer.error.code, answer.error.retryable, answer.error.asked) == (ErrorCode.INTERNAL_ERROR, True, False)
    assert platform.asked == []
