"""The shipped workflow of comments in a real n8n: page by page, until nothing is due."""

import json
from typing import Any

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


async def keep_one_thread(stage: Stage) -> None:
    await stage.change(f"DELETE FROM comment_threads WHERE note_id <> '{name_video(3)}'")


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
    await keep_one_thread(stage)
    stage.platform.misbehave(Fault(status=503, path=COMMENTS_PATH))
    assert (await stage.execute(COMMENTS)).status == "success"
    [thread] = await stage.read("SELECT * FROM comment_threads")
    assert (thread["status"], thread["retry_count"], thread["processing_lock"]) == ("pending", 1, None)
    assert (thread["last_error_code"], count_asked(stage)) == ("PLATFORM_ERROR", 3)
    [ended] = await stage.read_executions("comments")
    assert (ended["status"], ended["items_failed"]) == ("partial", 1)


async def test_a_refused_cookie_is_excluded_from_the_next_try_of_the_page(stage: Stage) -> None:
    """C15, C32: the good cookie is asked second, and the refusal counts against its own cookie alone."""
    await collect_notes(stage)
    await keep_one_thread(stage)
    words = ("cookies", "add", "refused", "--platform", "bilibili", "--priority", "9")
    ended = await stage.terminal.pipe(*words, given="SESSDATA=unknown; buvid3=device")
    assert ended.code == 0, ended
    assert (await stage.execute(COMMENTS)).status == "success"
    [thread] = await stage.read("SELECT * FROM comment_threads")
    assert (thread["status"], thread["retry_count"]) == ("done", 0)
    errors = {row["cookie_name"]: row["consecutive_errors"] for row in await stage.read("SELECT * FROM tbl_cookie")}
    # A page that met the refused cookie was tried twice.
    tries, pages = map(stage.wire.asked.count, ("/crawler/comments", "/workflow/comments/settle"))
    assert (errors["canary"], errors["refused"]) == (0, tries - pages)
    assert tries > pages


async def test_a_page_that_tidings_refuses_is_given_up_alone(stage: Stage) -> None:
    """C10, C32: its thread fails with the reason, and the next thread is read."""
    await collect_notes(stage)
    pages = 0

    def spoil_the_first(answer: Any) -> None:
        nonlocal pages
        pages += 1
        if pages == 1:
            answer["data"]["comments"][0]["comment_id"] = "c" * 300

    stage.wire.change("/crawler/comments", spoil_the_first)
    assert (await stage.execute(COMMENTS)).status == "success"
    threads = await stage.read("SELECT * FROM comment_threads ORDER BY status DESC")
    assert [row["status"] for row in threads] == ["failed"] + ["done"] * (len(threads) - 1)
    assert threads[0]["last_error_code"] == "INVALID_INPUT"
    assert "comment_id" in threads[0]["last_error"]


async def test_a_run_ends_when_nothing_can_be_asked(stage: Stage) -> None:
    """C34: a page that was never asked of the platform counts against nothing, and no further page is leased."""
    await collect_notes(stage)
    before = len(stage.wire.asked)

    def say_not_asked(answer: Any) -> None:
        error = {"code": "TIMEOUT_ERROR", "message": "no turn within the time", "retryable": True, "captcha": False}
        answer.update(success=False, data=None, error={**error, "blocked": False, "asked": False, "retry_after": None})

    stage.wire.change("/crawler/comments", say_not_asked)
    assert (await stage.execute(COMMENTS)).status == "success"
    assert stage.wire.asked[before:].count("/workflow/comments/lease") == 1
    threads = await stage.read("SELECT * FROM comment_threads")
    assert {(row["status"], row["retry_count"], row["processing_lock"]) for row in threads} == {("pending", 0, None)}
