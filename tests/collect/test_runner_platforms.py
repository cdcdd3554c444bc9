"""The runner and platforms of somebody else's: whatever they give, and in whatever order, it harms nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from tests.announce.bing_stage import MORNING
from tests.collect.runner_stage import MINUTE, RunnerStage, open_runner
from tests.collect.writer_stage import make_candidates, make_note
from tests.fakes import StageClock
from tidings.collect.crawl.cookies.pool import CookiePool
from tidings.collect.crawl.crawler import Crawler
from tidings.collect.crawl.platforms.protocol import Hit, NoteReference, SearchPage
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.notes import Note
from tidings.collect.run.runner import CollectRunner
from tidings.collect.write.values import SettledAction
from tidings.core.executions import ExecutionStatus
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

NOTHING = SearchPage(hits=(), page=1, has_more=False)


@pytest.fixture
def clock() -> StageClock:
    return StageClock(MORNING)


@pytest.fixture
async def stage(
    database_url: str, clock: StageClock, keys: KeyRing, process_lock: ProcessLock
) -> AsyncIterator[RunnerStage]:
    async with open_runner(database_url, clock=clock, keys=keys, process_lock=process_lock) as opened:
        yield opened


class OddPlatform:
    """It has one page of hits, and a note for whoever asks."""

    name = "weibo"
    needs_cookie = True

    def __init__(self, answer: Callable[[str], Awaitable[Note]], *, page: SearchPage = NOTHING) -> None:
        self._answer = answer
        self._page = page

    async def search(self, keyword: str, *, page: int, cookie: Secret | None) -> SearchPage:
        return self._page

    async def detail(self, reference: NoteReference, *, cookie: Secret | None) -> Note:
        return await self._answer(reference.note_id)


def _give(answer: Callable[[str], Note]) -> Callable[[str], Awaitable[Note]]:
    async def give(note_id: str) -> Note:
        return answer(note_id)

    return give


def make_hit(note_id: str) -> Hit:
    return Hit(platform="weibo", note_id=note_id, url="https://weibo.example/1", title="a title")


def make_own_runner(stage: RunnerStage, platform: OddPlatform, clock: StageClock) -> CollectRunner:
    """The runner with a platform of somebody else's in Weibo's place."""
    pool = CookiePool(stage.database, keys=stage.keys, clock=clock, redactor=Redactor())
    crawler = Crawler({"weibo": platform}.__getitem__, pool=pool, clock=clock, redactor=Redactor())
    return CollectRunner(
        crawler=crawler,
        writer=stage.writer,
        comments=stage.installation.collect.comments,
        keywords=stage.keywords,
    )


async def seed(stage: RunnerStage, *note_ids: str) -> None:
    acquired = await stage.writer.acquire("seed")
    assert acquired.execution is not None
    await stage.writer.add_candidates(acquired.execution, make_candidates(*note_ids, platform="weibo"))
    await stage.writer.finish(acquired.execution)


async def test_a_note_that_no_table_takes_fails_alone_and_is_given_up(stage: RunnerStage, clock: StageClock) -> None:
    """C8, C10: a platform of somebody else's gives it; its batch is collected, and the fourth failure is its last."""
    await stage.add_cookies("one")
    broken = make_note("first", platform="weibo")
    object.__setattr__(broken, "url", None)
    odd = replace(make_note("second", platform="weibo"), title="a\x00b \ud800", text="\x00")
    notes = {"first": broken, "second": odd}
    runner = make_own_runner(stage, OddPlatform(_give(notes.__getitem__)), clock)
    await seed(stage, *notes)
    (report,) = await runner.collect(stage.make_stop())
    assert report.counts == {SettledAction.CREATED: 1, SettledAction.RETRY: 1}
    assert [row.title for row in await stage.read_sources()] == ["ab ?"]
    for _ in range(3):
        clock.advance(MINUTE)
        await runner.collect(stage.make_stop())
    row = (await stage.read_candidates())["first"]
    assert (row.status, row.retry_count, row.last_error_code) == ("failed", 4, "INTERNAL_ERROR")


async def test_a_cookie_is_judged_by_its_answers_in_their_order(stage: RunnerStage, clock: StageClock) -> None:
    """C9, C18: two refusals, a success, two refusals, a success: never three in a row, so it stays active."""
    await stage.add_cookies("one")
    answers = iter("FFSFFSFF")

    def answer(note_id: str) -> Note:
        if next(answers) == "F":
            raise CrawlError(ErrorCode.COOKIE_INVALID, "the session is over")
        return make_note(note_id, platform="weibo")

    await seed(stage, *"abcdefgh")
    (report,) = await make_own_runner(stage, OddPlatform(_give(answer)), clock).collect(stage.make_stop())
    cookie = await stage.find_cookie("one")
    assert report.counts == {SettledAction.CREATED: 2, SettledAction.RETRY: 6}
    assert (cookie.state.status, cookie.state.daily_used, cookie.state.total_errors) == ("active", 8, 6)


async def test_what_has_come_by_the_stop_is_kept_and_its_cookies_are_counted(
    stage: RunnerStage, clock: StageClock
) -> None:
    """C18, C19: two notes were read and one was asked for when it was time to stop; nothing of that is lost."""
    await stage.add_cookies("one")
    stop = stage.make_stop()
    asked: list[str] = []

    async def answer(note_id: str) -> Note:
        asked.append(note_id)
        if len(asked) == 3:
            stop.request("the service ends")
            await asyncio.Event().wait()
        return make_note(note_id, platform="weibo")

    await seed(stage, "a", "b", "c", "d")
    (report,) = await make_own_runner(stage, OddPlatform(answer), clock).collect(stop)
    assert report.ended.status is ExecutionStatus.INTERRUPTED
    assert report.counts == {SettledAction.CREATED: 2}
    assert await stage.count_statuses() == {"collected": 2, "pending": 2}
    assert (await stage.find_cookie("one")).state.daily_used == 3


async def test_hits_that_no_row_can_be_named_by_are_left_out(stage: RunnerStage, clock: StageClock) -> None:
    """C19: a name with a 0 in it, and one of six thousand characters; what else was found is kept."""
    await stage.add_cookies("one")
    await stage.watch_keyword()
    hits = [make_hit(note_id) for note_id in ("good", "with\x00zero", "x" * 6_000, "")]
    platform = OddPlatform(_give(make_note), page=SearchPage(hits=tuple(hits), page=1, has_more=False))
    report = await make_own_runner(stage, platform, clock).discover(stage.make_stop())
    assert (report.found, report.created, report.failed) == (4, 1, 0)
    assert set(await stage.read_candidates()) == {"good"}
