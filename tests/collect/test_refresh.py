"""Notes over time: a keyword asks to see its notes again; counts become snapshots, a changed text a new version."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tests.announce.bing_stage import MORNING
from tests.collect.runner_stage import TOPIC, RunnerStage, open_runner
from tests.collect.writer_stage import PLATFORM, begin, collect, make_candidates, read_candidates, read_outbox
from tests.fakes import FakeClock, StageClock
from tidings.collect.archive.archive import NoteArchive, NoteFilter
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.run.report import CollectReport
from tidings.collect.write.keywords import NO_REFRESH, Keywords, RefreshPlan, parse_refresh
from tidings.collect.write.values import Failed, SettledAction
from tidings.collect.write.writer import Writer
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
from tidings.sandbox.media.weibo import name_post

DAY = timedelta(days=1)
DAILY = RefreshPlan(DAY, 3 * DAY)
POST = 4
NOTE = name_post(POST)


@pytest.fixture
async def stage(
    database_url: str, keys: KeyRing, process_lock: ProcessLock
) -> AsyncIterator[tuple[RunnerStage, StageClock]]:
    clock = StageClock(MORNING)
    async with open_runner(database_url, clock=clock, keys=keys, process_lock=process_lock) as opened:
        await opened.add_cookies("one")
        await opened.keywords.add("weibo", TOPIC, refresh=DAILY)
        await opened.add_candidate(POST)
        yield opened, clock


async def run(stage: RunnerStage) -> list[CollectReport]:
    return await stage.runner.collect(stage.make_stop())


async def test_notes_are_read_again_as_often_and_as_long_as_their_keyword_asks(
    stage: tuple[RunnerStage, StageClock],
) -> None:
    """C32: counts of each reading are kept, an edited text is a second version, and after the period it ends."""
    (opened, clock), library = stage, stage[0].weibo.library
    archive = NoteArchive(opened.database)
    likes = []
    for day in range(5):
        reports = await run(opened)
        assert [report.collected for report in reports] == ([1] if day < 4 else [])
        likes.append(4 * 997 + 100 * day)
        library.grow(100)
        if day == 1:
            library.edit(POST, text="换了新的说法")
        assert await run(opened) == []
        clock.advance(DAY)
    snapshots = await archive.list_snapshots("weibo", NOTE)
    assert [each.counts.likes for each in snapshots] == likes[:4]
    assert [each.taken_at for each in snapshots] == [MORNING + number * DAY for number in range(4)]
    first, second = await archive.list_versions("weibo", NOTE)
    assert [each.idempotency_key for each in (first, second)] == [f"{NOTE}_v1", f"{NOTE}_v2"]
    assert ("第 4 次" in first.note.text, "换了新的说法" in second.note.text) == (True, True)
    assert [first.note.counts.likes, second.note.counts.likes] == [likes[1], likes[3]]
    assert await archive.find("weibo", NOTE) == second
    found = {words: await archive.count(NoteFilter(text=words)) for words in ("新的说法", "第 4 次")}
    assert found == {"新的说法": 1, "第 4 次": 0}


async def test_a_note_that_is_gone_is_kept_and_no_longer_asked_for(stage: tuple[RunnerStage, StageClock]) -> None:
    """C32: the author deleted the post between two readings. That is no failure of a candidate."""
    opened, clock = stage
    await run(opened)
    opened.weibo.library.remove(POST)
    clock.advance(DAY)
    [report] = await run(opened)
    assert report.counts == {SettledAction.KEPT: 1}
    row = (await opened.read_candidates())[NOTE]
    assert (row.status, row.refresh_at, row.last_error_code) == ("collected", None, "INVALID_INPUT")
    assert await NoteArchive(opened.database).find("weibo", NOTE) is not None
    await opened.monitor.check()
    assert await opened.list_notified() == []


async def test_a_reading_that_fails_for_good_waits_for_the_next_one(
    writer: Writer, database: Database, clock: FakeClock
) -> None:
    """C32: the candidate stays collected; retries are those of every candidate. Results that come twice count once."""
    await Keywords(database, clock=clock).add(PLATFORM, "tea", refresh=DAILY)
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("n1"))
    results = collect(await writer.lease(execution))
    assert [each.action for each in await writer.settle(execution, PLATFORM, results)] == [SettledAction.CREATED]
    assert [each.action for each in await writer.settle(execution, PLATFORM, results)] == [SettledAction.SKIPPED]
    clock.advance(DAY)
    actions = []
    for _ in range(4):
        [leased] = await writer.lease(execution)
        failed = Failed(note_id=leased.note_id, error=make_error(ErrorCode.INTERNAL_ERROR, ""))
        actions += [each.action for each in await writer.settle(execution, PLATFORM, [failed])]
        clock.advance(timedelta(minutes=1))
    assert actions == [SettledAction.RETRY] * 3 + [SettledAction.KEPT]
    row = (await read_candidates(database))["n1"]
    assert (row.status, row.refresh_at) == ("collected", to_milliseconds(clock.now() + DAY - timedelta(minutes=1)))
    assert ("tbl_source", "n1_v1") in await read_outbox(database)


async def test_a_plan_holds_for_notes_of_before_and_ends_with_its_keyword(
    writer: Writer, database: Database, clock: FakeClock
) -> None:
    """C32: a keyword gets a plan later; a pause waits; without the plan or the keyword nothing is read again."""
    keywords = Keywords(database, clock=clock)
    await keywords.add(PLATFORM, "tea")
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("n1"))
    await writer.settle(execution, PLATFORM, collect(await writer.lease(execution)))

    async def count_due() -> int:
        """How many notes are to be read again now. They are given back."""
        leased = await writer.lease(execution)
        await writer.settle(execution, PLATFORM, collect(leased))
        return len(leased)

    clock.advance(DAY)
    assert await count_due() == 0
    await keywords.add(PLATFORM, "tea", refresh=RefreshPlan(DAY, 30 * DAY))
    await keywords.set_enabled(PLATFORM, "tea", enabled=False)
    assert await count_due() == 0
    await keywords.set_enabled(PLATFORM, "tea", enabled=True)
    assert await count_due() == 1
    clock.advance(DAY)
    await keywords.add(PLATFORM, "tea", pages=2)
    assert [each.refresh for each in await keywords.list_all()] == [RefreshPlan(DAY, 30 * DAY)]
    assert await count_due() == 1
    await keywords.add(PLATFORM, "tea", refresh=NO_REFRESH)
    clock.advance(DAY)
    assert await count_due() == 0
    await keywords.add(PLATFORM, "tea", refresh=DAILY)
    await keywords.remove(PLATFORM, "tea")
    clock.advance(DAY)
    assert await count_due() == 0


async def test_a_keyword_keeps_what_a_change_leaves_out(database: Database, clock: FakeClock) -> None:
    """C18, C32: `--refresh 1d` alone must not put a keyword of two pages back to one."""
    keywords = Keywords(database, clock=clock)
    assert await keywords.add(PLATFORM, "tea", pages=2, comments=30)
    assert not await keywords.add(PLATFORM, "tea", refresh=DAILY)
    assert await keywords.add(PLATFORM, "coffee")
    coffee, tea = await keywords.list_all()
    assert (tea.pages, tea.refresh, tea.comments) == (2, DAILY, 30)
    assert (coffee.pages, coffee.refresh, coffee.comments) == (1, None, 0)


def test_a_plan_that_cannot_be_kept_is_refused() -> None:
    """C32: `--refresh 1d --for 7d`; a week without `--for`, and never more often than every ten minutes."""
    plans = {("1d", None): ("1d", "7d"), ("36h", "10"): ("36h", "10d"), ("30d", None): ("30d", "30d")}
    for (every, period), shown in plans.items():
        assert str(parse_refresh(every, period)) == " / ".join(shown)
    for every, period in (("5m", None), ("2d", "1d"), ("1d", "999d"), ("soon", None), ("1d", "-1d")):
        with pytest.raises(CrawlError):
            parse_refresh(every, period)
