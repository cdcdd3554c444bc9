"""The shipped workflows in a real n8n where something is lost or refused on the way to Tidings, and where there is more
than one keyword, or page. What counts is what stands in the tables afterwards."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.n8n.driver import COLLECT, DISCOVER
from tests.n8n.stage import KEYWORD, Stage
from tests.n8n.test_workflows import FOUND
from tidings.collect.write.keywords import Keywords
from tidings.core.clock import SystemClock
from tidings.sandbox.media.bilibili import name_video
from tidings.sandbox.wire.faults import Fault
from tidings.web.middleware.input import LARGEST_NOTES

pytestmark = pytest.mark.n8n

OTHER = "bread"
# It is in every title, and a page has twenty.
EVERYWHERE = "生活"
EXISTING, PAGE = 60, 20


async def watch(stage: Stage, keyword: str, *, pages: int = 1) -> None:
    await Keywords(stage.database, clock=SystemClock()).add("bilibili", keyword, pages=pages)


async def read_figures(stage: Stage) -> dict[str, tuple[int | None, int | None, str | None]]:
    rows = await stage.read("SELECT * FROM watched_keywords")
    return {row["keyword"]: (row["last_found"], row["last_created"], row["last_error_code"]) for row in rows}


async def test_lost_answers_are_asked_for_again_and_nothing_is_done_twice(stage: Stage) -> None:
    """C2, C3: the lock, the notes, the sign of life and the end."""
    await stage.execute(DISCOVER)
    before = await stage.count_cookie_uses()
    lost = [
        "/workflow/executions",
        "/workflow/candidates/settle",
        "/workflow/executions/heartbeat",
        "/workflow/executions/finish",
    ]
    stage.wire.asked.clear()
    stage.wire.lose(*lost)
    run = await stage.execute(COLLECT)
    assert run.status == "success"
    # Two batches, and each of the four once more.
    assert [stage.wire.asked.count(path) for path in lost] == [2, 3, 3, 2]
    assert {row["status"] for row in (await stage.read_candidates()).values()} == {"collected"}
    [ended] = await stage.read_executions("collect")
    assert (ended["status"], ended["items_processed"], ended["items_failed"]) == ("succeeded", FOUND, 0)
    assert await stage.count_cookie_uses() - before == FOUND


async def test_what_would_be_counted_twice_is_asked_once(stage: Stage) -> None:
    """C2: the execution fails and says so; the use is counted once, and the next execution goes on."""
    stage.wire.lose("/workflow/candidates")
    run = await stage.execute(DISCOVER)
    [ended] = await stage.read_executions("discover")
    assert (run.status, ended["status"], stage.wire.asked.count("/workflow/candidates")) == ("error", "failed", 1)
    assert (len(await stage.read_candidates()), await stage.count_cookie_uses()) == (FOUND, 1)
    assert (await stage.execute(DISCOVER)).status == "success"


async def test_a_platform_without_a_cookie_is_left_alone_for_the_rest_of_the_run(stage: Stage) -> None:
    """C15: as the built-in runner does it; the other keyword was not searched, and nothing is noted on it."""
    await watch(stage, OTHER)
    await stage.change("DELETE FROM tbl_cookie")
    run = await stage.execute(DISCOVER)
    assert (run.status, stage.wire.asked.count("/crawler/search")) == ("success", 1)
    assert await read_figures(stage) == {OTHER: (0, 0, "COOKIE_EXHAUSTED"), KEYWORD: (None, None, None)}
    [ended] = await stage.read_executions("discover")
    assert (ended["status"], ended["items_failed"]) == ("partial", 1)


async def test_the_figures_of_a_keyword_are_of_all_its_pages(stage: Stage) -> None:
    """C19: of two keywords, one has three pages; where the last of them fails, what the others found stays."""
    await watch(stage, EVERYWHERE, pages=3)
    run = await stage.execute(DISCOVER)
    assert (run.status, len(await stage.read_candidates())) == ("success", EXISTING)
    expected = {KEYWORD: (FOUND, FOUND, None), EVERYWHERE: (EXISTING, EXISTING - FOUND, None)}
    assert await read_figures(stage) == expected
    assert await stage.count_cookie_uses() == 4
    for number in range(1, EXISTING + 1, 2):
        stage.platform.library.remove(number)
    stage.platform.misbehave(Fault(status=503, matching=EVERYWHERE, after=1))
    run = await stage.execute(DISCOVER)
    numbers = await read_figures(stage)
    assert (run.status, numbers[EVERYWHERE]) == ("success", (PAGE, 0, "PLATFORM_ERROR"))


def stretch(note: dict[str, Any]) -> None:
    note["duration_seconds"] = 10**13


def inflate(note: dict[str, Any]) -> None:
    note["text"] = "x" * LARGEST_NOTES


@pytest.mark.parametrize(("exceed", "reason"), [(stretch, "duration_seconds"), (inflate, "MiB")])
async def test_a_note_over_the_limit_fails_alone(
    stage: Stage, exceed: Callable[[dict[str, Any]], None], reason: str
) -> None:
    """C10, C19: its batch is refused, or too large to be sent, and settled note by note; that one is given up."""
    await stage.execute(DISCOVER)
    over = name_video(8)

    def change(answer: Any) -> None:
        for item in answer["items"]:
            if item["id"] == over:
                exceed(item["data"])

    stage.wire.change("/crawler/detail/batch", change)
    run = await stage.execute(COLLECT)
    candidates = await stage.read_candidates()
    assert run.status == "success"
    assert {row["status"] for note_id, row in candidates.items() if note_id != over} == {"collected"}
    failed = candidates[over]
    assert (failed["status"], failed["last_error_code"], failed["retry_count"]) == ("failed", "INVALID_INPUT", 1)
    assert reason in failed["last_error"]
    [ended] = await stage.read_executions("collect")
    assert (ended["status"], ended["items_processed"], ended["items_failed"]) == ("partial", FOUND - 1, 1)


async def test_a_hit_that_is_refused_costs_no_other_hit_and_no_other_keyword(stage: Stage) -> None:
    """C19: each hit is reported by itself then, and the keyword says what was refused."""
    await watch(stage, OTHER)
    stage.wire.change("/crawler/search", spoil)
    run = await stage.execute(DISCOVER)
    assert (run.status, len(await stage.read_candidates())) == ("success", 2 * (FOUND - 1))
    numbers = (FOUND - 1, FOUND - 1, "INVALID_INPUT")
    assert await read_figures(stage) == {OTHER: numbers, KEYWORD: numbers}
    assert await stage.count_cookie_uses() == 2
    [ended] = await stage.read_executions("discover")
    assert (ended["status"], ended["items_processed"]) == ("partial", 2 * (FOUND - 1))


def spoil(answer: Any) -> None:
    """The first hit has a name that no table takes."""
    answer["data"]["hits"][0]["note_id"] = "n" * 300


async def test_a_refused_cookie_is_excluded_from_the_next_tries_of_the_request(stage: Stage) -> None:
    """C15: a good cookie is asked second, not fourth, in a search and in a batch."""
    words = ("cookies", "add", "refused", "--platform", "bilibili", "--priority", "9")
    ended = await stage.terminal.pipe(*words, given="SESSDATA=unknown; buvid3=device")
    assert ended.code == 0, ended
    found = await stage.execute(DISCOVER)
    assert (found.status, stage.wire.asked.count("/crawler/search")) == ("success", 2)
    assert len(await stage.read_candidates()) == FOUND
    collected = await stage.execute(COLLECT)
    # Two batches, of which at least the first met the refused cookie.
    assert (collected.status, stage.wire.asked.count("/crawler/detail/batch") in (3, 4)) == ("success", True)
    rows = (await stage.read_candidates()).values()
    assert {(row["status"], row["retry_count"]) for row in rows} == {("collected", 0)}
