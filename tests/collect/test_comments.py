"""Comments of notes: a keyword asks for them, executions lease their threads page by page, and each is stored once."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from tests.announce.bing_stage import MORNING
from tests.collect.runner_stage import TOPIC, RunnerStage, open_runner, read_meta
from tests.collect.writer_stage import PLATFORM, begin, make_note, store_notes
from tests.fakes import FakeClock, StageClock
from tidings.collect.archive.comments import CommentArchive
from tidings.collect.comments import Comment
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import ErrorCode
from tidings.collect.notes import Author
from tidings.collect.run.report import CollectReport
from tidings.collect.tables import comment_threads, comments
from tidings.collect.write.comments.stage import WAITS, CommentStage, ReadComments, ThreadResult
from tidings.collect.write.keywords import Keywords, RefreshPlan
from tidings.collect.write.values import Failed, StageAction
from tidings.collect.write.writer import Writer
from tidings.core.db.database import Database
from tidings.core.executions import ExecutionLostError
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
from tidings.sandbox.media.comments import list_comments
from tidings.sandbox.media.weibo import COMMENTS_PATH, OLDER_COMMENTS_PATH, name_post
from tidings.sandbox.wire.faults import Fault
from tidings.settings.collect import PseudonymUse

POST = 4
NOTE = name_post(POST)
# Post 4 has 52 comments, and every fourth has a reply.
ALL = 52 + 13


@pytest.fixture
async def stage(
    database_url: str, keys: KeyRing, process_lock: ProcessLock
) -> AsyncIterator[tuple[RunnerStage, StageClock]]:
    clock = StageClock(MORNING)
    async with open_runner(database_url, clock=clock, keys=keys, process_lock=process_lock) as opened:
        await opened.add_cookies("one")
        await opened.add_candidate(POST)
        yield opened, clock


async def run(stage: RunnerStage) -> list[CollectReport]:
    return await stage.runner.collect(stage.make_stop())


async def read_rows(database: Database, table: Any) -> list[Any]:
    async with database.read() as connection:
        return list(await connection.execute(select(table)))


async def test_comments_of_a_note_are_collected_page_by_page_up_to_the_number_that_is_asked(
    stage: tuple[RunnerStage, StageClock],
) -> None:
    """C32: after the note itself, in the same run; each comment and each reply is a record that names its request."""
    opened, _ = stage
    await opened.keywords.add("weibo", TOPIC, comments=1_000)
    [report] = await run(opened)
    assert (report.collected, report.comments, report.ended.status) == (1, ALL, "succeeded")
    rows = await read_rows(opened.database, comments)
    post = opened.weibo.library.find(POST)
    assert post is not None
    written = {str(each.number): each for root in list_comments(post) for each in (root, *root.replies)}
    assert {row.comment_id: row.likes for row in rows} == {name: each.likes for name, each in written.items()}
    assert {row.parent_id for row in rows if row.parent_id} == {str(r.number) for r in list_comments(post) if r.replies}
    assert {read_meta(row)["execution_id"] for row in rows} == {report.ended.execution_id}
    assert len(opened.list_asked(COMMENTS_PATH)) == 3
    assert await run(opened) == []


async def test_no_more_comments_are_asked_for_than_wanted(stage: tuple[RunnerStage, StageClock]) -> None:
    """C32: a page ends the reading as soon as there are enough. Raising the number reads the rest."""
    opened, _ = stage
    await opened.keywords.add("weibo", TOPIC, comments=10)
    [report] = await run(opened)
    assert (report.comments, len(opened.list_asked(COMMENTS_PATH))) == (10, 1)
    await opened.keywords.add("weibo", TOPIC, comments=10)
    assert await run(opened) == []
    await opened.keywords.add("weibo", TOPIC, comments=200)
    assert [report.comments for report in await run(opened)] == [ALL]
    assert len(await read_rows(opened.database, comments)) == ALL
    await opened.keywords.add("weibo", TOPIC, comments=500)
    await opened.keywords.add("weibo", TOPIC, comments=0)
    assert await run(opened) == []


async def test_readers_have_pseudonyms_unless_the_settings_say_otherwise(
    stage: tuple[RunnerStage, StageClock], database_url: str, keys: KeyRing, process_lock: ProcessLock
) -> None:
    """C32: by default neither the id, nor the name, nor the name of a person who is answered is stored."""
    opened, _ = stage
    await opened.keywords.add("weibo", TOPIC, comments=200)
    await run(opened)
    rows = await read_rows(opened.database, comments)
    stored = "\n".join(f"{row.author_id} {row.author_name} {row.text}" for row in rows)
    post = opened.weibo.library.find(POST)
    assert post is not None
    for each in list_comments(post):
        assert each.reader not in stored
        # As a word: six digits may well occur within a pseudonym.
        assert not re.search(rf"\b{each.reader_id}\b", stored)
    assert any("回复 @" in row.text for row in rows)
    assert len({row.author_id for row in rows}) == len(
        {each.reader_id for r in list_comments(post) for each in (r, *r.replies)}
    )
    # The author of the note is shown as the platform gives it.
    [source] = await opened.read_sources()
    assert source.author_name == post.author


@pytest.mark.one_database
async def test_names_of_readers_are_kept_where_pseudonyms_are_off(
    database_url: str, keys: KeyRing, process_lock: ProcessLock
) -> None:
    """C32: COLLECT_PSEUDONYMS=off."""
    clock = StageClock(MORNING)
    options = {"clock": clock, "keys": keys, "process_lock": process_lock, "pseudonyms": PseudonymUse.OFF}
    async with open_runner(database_url, **options) as opened:  # type: ignore[arg-type]
        await opened.add_cookies("one")
        await opened.keywords.add("weibo", TOPIC, comments=5)
        await opened.add_candidate(POST)
        await run(opened)
        page = await CommentArchive(opened.database).list_page("weibo", NOTE, limit=1)
        post = opened.weibo.library.find(POST)
        assert post is not None
        first = list_comments(post)[0]
        [shown] = page.comments
        assert shown.comment.author == Author(author_id=str(first.reader_id), name=first.reader)
        assert (shown.comment.place, shown.comment.published_at) == (first.place, first.published)


async def test_reading_goes_on_where_a_dead_execution_stopped(stage: tuple[RunnerStage, StageClock]) -> None:
    """C32, C35: the pages that were stored are not asked for again, and no comment is doubled."""
    opened, clock = stage
    await opened.keywords.add("weibo", TOPIC, comments=200)
    opened.weibo.misbehave(Fault(status=503, path=COMMENTS_PATH, after=1))
    [report] = await run(opened)
    assert (report.collected, report.comments, report.ended.status) == (1, 25, "partial")
    [thread] = await read_rows(opened.database, comment_threads)
    assert (thread.status, thread.retry_count, thread.last_error_code) == ("pending", 1, "PLATFORM_ERROR")
    assert await run(opened) == []
    opened.weibo.recover()
    clock.advance(WAITS[0])
    asked = len(opened.list_asked(COMMENTS_PATH))
    assert [report.comments for report in await run(opened)] == [ALL - 25]
    assert len(opened.list_asked(COMMENTS_PATH)) - asked == 2
    assert len(await read_rows(opened.database, comments)) == ALL


async def test_a_block_pauses_the_platform_and_counts_against_no_thread(
    stage: tuple[RunnerStage, StageClock],
) -> None:
    """C32, C34: the comments wait as candidates do; the probe after the pause brings them."""
    opened, clock = stage
    await opened.keywords.add("weibo", TOPIC, comments=20)
    opened.weibo.misbehave(Fault(status=418, path=COMMENTS_PATH))
    await run(opened)
    [thread] = await read_rows(opened.database, comment_threads)
    assert (thread.status, thread.retry_count) == ("pending", 0)
    assert [pause.platform for pause in await opened.writer.pauses.list_all()] == ["weibo"]
    assert await run(opened) == []
    opened.weibo.recover()
    clock.advance(timedelta(minutes=1))
    assert [report.comments for report in await run(opened)] == [20]
    assert await opened.writer.pauses.list_all() == []


async def test_a_refused_cookie_is_switched_for_comments_too(stage: tuple[RunnerStage, StageClock]) -> None:
    """C15, C32: with two refused cookies and a good one, the third try brings the page."""
    opened, _ = stage
    await opened.keywords.add("weibo", TOPIC, comments=20)
    await opened.add_cookies("two", "three")
    await run(opened)
    await opened.keywords.add("weibo", TOPIC, comments=40)
    opened.weibo.misbehave(Fault(status=432, path=COMMENTS_PATH, times=2))
    before = len(opened.list_asked(COMMENTS_PATH))
    [report] = await run(opened)
    used = [request.headers.get("Cookie") for request in opened.list_asked(COMMENTS_PATH)[before:]]
    assert (report.comments, len(used)) == (40, 4)


async def test_comments_are_read_again_with_their_note(stage: tuple[RunnerStage, StageClock]) -> None:
    """C32: a refresh adds new comments and updates those that are known."""
    opened, clock = stage
    daily = RefreshPlan(timedelta(days=1), timedelta(days=3))
    await opened.keywords.add("weibo", TOPIC, comments=1_000, refresh=daily)
    await run(opened)
    opened.weibo.library.grow(4)
    clock.advance(timedelta(days=1))
    [report] = await run(opened)
    assert report.comments == ALL + 4 + 1
    rows = await read_rows(opened.database, comments)
    assert len(rows) == ALL + 4 + 1
    assert len({row.collected_at for row in rows}) == 2
    assert len({row.updated_at for row in rows}) == 1


async def test_posts_of_some_age_have_another_list(stage: tuple[RunnerStage, StageClock]) -> None:
    """C32: Weibo refuses the first list for them with 403, which is no block of this machine."""
    opened, _ = stage
    await opened.keywords.add("weibo", TOPIC, comments=200)
    opened.weibo.misbehave(Fault(status=403, path=COMMENTS_PATH, body="<html>"))
    [report] = await run(opened)
    assert report.comments == 50 + 12
    assert len(opened.list_asked(OLDER_COMMENTS_PATH)) == 5
    assert await opened.writer.pauses.list_all() == []


async def test_a_deleted_note_takes_its_comments_along(stage: tuple[RunnerStage, StageClock]) -> None:
    """C28, C32: and a page that was under way is lost."""
    opened, _ = stage
    await opened.keywords.add("weibo", TOPIC, comments=200)
    opened.weibo.misbehave(Fault(status=503, path=COMMENTS_PATH, after=1))
    await run(opened)
    stage_of = opened.installation.collect.comments
    assert await opened.writer.corrections.delete_note("weibo", NOTE)
    assert await read_rows(opened.database, comments) == []
    assert await read_rows(opened.database, comment_threads) == []
    execution = await begin(opened.writer, "mine")
    page = ReadComments(note_id=NOTE, comments=[Comment(comment_id="1", text="late")], cursor=None)
    [settled] = await stage_of.settle(execution, "weibo", [page])
    assert settled.action is StageAction.LOST
    assert await read_rows(opened.database, comments) == []


@pytest.fixture
def comment_stage(writer: Writer) -> CommentStage:
    return CommentStage(writer, None)


def make_page(*names: str, note_id: str = "n1", cursor: str | None = None, text: str = "x") -> ReadComments:
    found = [Comment(comment_id=name, text=text, author=Author(author_id="7", name="甲")) for name in names]
    return ReadComments(note_id=note_id, comments=found, cursor=cursor)


async def test_a_page_is_written_once_and_only_by_its_holder(
    database: Database, writer: Writer, comment_stage: CommentStage, clock: FakeClock
) -> None:
    """C2, C4, C5, C32: two executions never hold one thread; a repeated page changes nothing; a lost lock writes
    nothing, and the thread is due again from the page that was not written."""
    await store_notes(writer, [make_note("n1")])
    await Keywords(database, clock=clock).add(PLATFORM, "tea", comments=100)
    first, second = [await begin(writer, name) for name in ("first", "second")]
    [leased] = await comment_stage.lease(first, limit=5)
    assert (leased.note_id, leased.cursor, leased.wanted, leased.found) == ("n1", "", 100, 0)
    assert await comment_stage.lease(second, limit=5) == []
    page = make_page("a", "b", cursor="next")
    [settled] = await comment_stage.settle(first, PLATFORM, [page])
    assert (settled.action, settled.stored, settled.created) == (StageAction.MORE, 2, 2)
    [again] = await comment_stage.settle(first, PLATFORM, [page])
    assert again.action is StageAction.LOST
    [leased] = await comment_stage.lease(first)
    assert (leased.cursor, leased.found) == ("next", 2)
    clock.advance(timedelta(minutes=31))
    await writer.recover()
    with pytest.raises(ExecutionLostError):
        await comment_stage.settle(first, PLATFORM, [make_page("c")])
    third = await begin(writer, "third")
    [taken] = await comment_stage.lease(third)
    assert (taken.cursor, taken.retry_count) == ("next", 1)
    [done] = await comment_stage.settle(third, PLATFORM, [make_page("b", "c", text="edited")])
    assert (done.action, done.stored, done.created) == (StageAction.DONE, 2, 1)
    rows = {row.comment_id: row.text for row in await read_rows(database, comments)}
    assert rows == {"a": "x", "b": "edited", "c": "edited"}


@pytest.mark.one_database
@pytest.mark.parametrize("order", ["n1 n2", "n2 n1"])
async def test_pages_are_judged_in_the_order_of_their_answers(
    database: Database, writer: Writer, comment_stage: CommentStage, clock: FakeClock, order: str
) -> None:
    """C15, C32: a platform that read a page and then blocked us is paused, whatever the notes are called."""
    await store_notes(writer, [make_note("n1"), make_note("n2")])
    await Keywords(database, clock=clock).add(PLATFORM, "tea", comments=100)
    execution = await begin(writer, "mine")
    assert len(await comment_stage.lease(execution, limit=5)) == 2
    read, blocked = order.split()
    error = make_error(ErrorCode.PLATFORM_ERROR, "blocked", blocked=True)
    results: list[ThreadResult] = [make_page("a", note_id=read), Failed(note_id=blocked, error=error)]
    settled = await comment_stage.settle(execution, PLATFORM, results)
    assert [each.action for each in settled] == [StageAction.DONE, StageAction.RELEASED]
    assert await writer.pauses.list_names() == {PLATFORM}


@pytest.mark.one_database
async def test_a_thread_whose_page_cannot_be_read_ends_as_failed_and_can_be_tried_again(
    database: Database, writer: Writer, comment_stage: CommentStage, clock: FakeClock
) -> None:
    """C10, C32: four attempts with long waits; `collect retry` makes it due again; wrong input fails at once."""
    await store_notes(writer, [make_note("n1")])
    await Keywords(database, clock=clock).add(PLATFORM, "tea", comments=100)
    execution = await begin(writer, "mine")
    failure = Failed(note_id="n1", error=make_error(ErrorCode.TIMEOUT_ERROR, "slow"))
    actions = []
    for wait in (*WAITS, timedelta(0)):
        [_] = await comment_stage.lease(execution)
        actions += [each.action for each in await comment_stage.settle(execution, PLATFORM, [failure])]
        clock.advance(wait)
        await writer.heartbeat(execution)
    assert actions == [StageAction.RETRY] * 3 + [StageAction.FAILED]
    assert await comment_stage.lease(execution) == []
    assert await writer.corrections.requeue() == 0
    [leased] = await comment_stage.lease(execution)
    assert leased.retry_count == 0
    gone = Failed(note_id="n1", error=make_error(ErrorCode.INVALID_INPUT, "gone"))
    [settled] = await comment_stage.settle(execution, PLATFORM, [gone])
    assert settled.action is StageAction.FAILED
