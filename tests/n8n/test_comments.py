"""The shipped workflow of comments in a real n8n: page by page, until nothing is due."""

import json

import pytest

from tests.n8n.driver import COLLECT, COMMENTS, DISCOVER
from tests.n8n.stage import KEYWORD, Stage
from tidings.collect.write.keywords import Keywords
from tidings.core.clock import SystemClock
from tidings.sandbox.media.bilibili import COMMENTS_PATH, name_video
from tidings.sandbox.media.comments import list_comments
from tidings.sandbox.wire.faults import Fault

pytestmark = pytest.mark.n8n

# More than one page of the platform.
WANTED = 30


async def collect_notes(stage: Stage) -> None:
    """The notes of a keyword that asks for comments."""
    await Keywords(stage.database, clock=SystemClock()).add("bilibili", KEYWORD, comments=WANTED)
    assert (await stage.execute(DISCOVER)).status == "success"
    assert (await stage.execute(COLLECT)).status == "success"


def count_asked(stage: Stage) -> int:
    return sum(each.path == COMMENTS_PATH for each in stage.platform.requests)


async def test_the_comments_of_every_note_are_read_page_by_page(stage: Stage) -> None:
    """C19, C32: as many as the keyword asks for, each once. A page that fails once is asked for again, and counts
    against nothing."""
    await collect_notes(stage)
    before = await stage.count_cookie_uses()
    stage.platform.misbehave(Fault(status=503, path=COMMENTS_PATH, times=1, after=1))
    run = await stage.execute(COMMENTS)
    assert run.status == "success"
    threads = await stage.read("SELECT * FROM comment_threads")
    assert {(row["status"], row["retry_count"], row["processing_lock"]) for row in threads} == {("done", 0, None)}
    posts = stage.platform.library.search(KEYWORD)
    written = {name_video(post.number): sum(1 + len(each.replies) for each in list_comments(post)) for post in posts}
    assert {row["note_id"]: row["found"] for row in threads} == {key: min(WANTED, n) for key, n in written.items()}
    stored = await stage.read("SELECT DISTINCT note_id, comment_id, exec_meta FROM tbl_comment")
    assert len(stored) == sum(row["found"] for row in threads)
    assert {json.loads(row["exec_meta"])["request_id"] for row in stored} == {run.request_id}
    assert count_asked(stage) > len(threads) + 1
    assert await stage.count_cookie_uses() - before == count_asked(stage)
    [ended] = await stage.read_executions("comments")
    assert (ended["status"], ended["items_failed"]) == ("succeeded", 0)


async def test_a_page_that_keeps_failing_waits_for_a_later_run(stage: Stage) -> None:
    """C15, C32: PLATFORM_ERROR is asked twice more; then the thread is due later, and is held by nobody."""
    await collect_notes(stage)
    await stage.change(f"DELETE FROM comment_threads WHERE note_id <> '{name_video(3)}'")
    stage.platform.misbehave(Fault(status=503, path=COMMENTS_PATH))
    assert (await stage.execute(COMMENTS)).status == "success"
    [thread] = await stage.read("SELECT * FROM comment_threads")
    assert (thread["status"], thread["retry_count"], thread["processing_lock"]) == ("pending", 1, None)
    assert (thread["last_error_code"], count_asked(stage)) == ("PLATFORM_ERROR", 3)
    [ended] = await stage.read_executions("comments")
    assert (ended["status"], ended["items_failed"]) == ("partial", 1)
