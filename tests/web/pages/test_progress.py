"""Live progress: percent, sentence and states, with channels that have a quota."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidings.core.executions import ExecutionRecord, ExecutionStatus
from tidings.web.pages.site.progress import describe_progress
from tidings.web.pages.view.formats import Formats, find_zone
from tidings.web.pages.view.texts import PageLanguage, load_texts

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
ENGLISH = Formats(load_texts(PageLanguage.ENGLISH), find_zone(None), NOW)
RECORD = ExecutionRecord(
    public_id="exec-1",
    workflow_name="announce:1",
    kind="announce",
    status=ExecutionStatus.RUNNING,
    started_at=NOW - timedelta(minutes=1),
    heartbeat_at=NOW,
    completed_at=None,
    items_processed=0,
    items_failed=0,
    progress={},
    result={},
)


def make_result(*, sent: int, bing: dict[str, Any]) -> dict[str, Any]:
    engine = {"engine": "alpha", "succeeded": sent, "failed": 0, "left": 0, "requests": 1, "meanResponseMs": 2}
    stats = {"failed": 0, "meanResponseMs": None, "errorMessage": None, "advice": None, **bing}
    return {
        "total": 100,
        "new": 54,
        "files": 2,
        "engines": [{**engine, "reason": None, "advice": None}],
        "bingStats": stats,
    }


def describe(**parts: Any) -> tuple[int, str, list[str]]:
    shown = describe_progress(RECORD, make_result(**parts), ENGLISH)
    return shown["percent"], shown["summary"], [engine["state"] for engine in shown["engines"]]


def quota(remaining: int) -> dict[str, Any]:
    return {"remaining": remaining, "resetsAt": "2026-11-17T00:00:00.000Z", "day": "2026-11-16"}


@pytest.mark.parametrize(
    ("sent", "bing", "percent", "summary", "state"),
    [
        (27, {"urlCount": 0, "left": 50, "quota": quota(46)}, 27, "27 of 54 due pages sent, then 46 to Bing", "waits"),
        (54, {"urlCount": 0, "left": 50, "quota": quota(46)}, 54, "IndexNow is done; now Bing", "waits"),
        (54, {"urlCount": 46, "requests": 1, "left": 4, "quota": quota(0)}, 100, "54 of 54 due pages sent", "done"),
        (54, {"urlCount": 0, "left": 50, "quota": quota(0)}, 100, "54 of 54 due pages sent", "skipped"),
    ],
    ids=["IndexNow sends", "Bing is next", "Bing has sent", "nothing is left of the quota"],
)
def test_a_channel_that_may_still_send_is_part_of_the_whole(
    sent: int, bing: dict[str, Any], percent: int, summary: str, state: str
) -> None:
    """The bar is full when nothing more is sent; a channel whose quota is used up does not wait."""
    assert describe(sent=sent, bing=bing) == (percent, summary, ["done" if sent == 54 else "sending", state])


@pytest.mark.parametrize("refused", [False, True], ids=["for Bing alone", "every engine refuses the key"])
def test_progress_without_indexnow_does_not_say_that_indexnow_is_done(refused: bool) -> None:
    """Until an execution without IndexNow ends, its due pages stand with the channel alone."""
    result = make_result(sent=0, bing={"urlCount": 4, "requests": 1, "due": 50, "left": 46, "quota": quota(46)})
    engine = {**result["engines"][0], "broken": True, "reason": "key refused"}
    shown = describe_progress(RECORD, result | {"new": 0, "engines": [engine] if refused else []}, ENGLISH)

    assert shown["summary"] == "Sending to Bing"
    if not refused:
        assert [step.text for step in shown["steps"]][1] == "50 of 100"


def test_progress_of_bing_alone_counts_what_bing_was_sent() -> None:
    """The day's quota is used up, so nothing more is sent; the pages that went out are not forgotten."""
    result = make_result(sent=0, bing={"urlCount": 46, "requests": 1, "due": 50, "left": 4, "quota": quota(0)})
    shown = describe_progress(RECORD, result | {"new": 0, "engines": []}, ENGLISH)
    assert (shown["percent"], shown["summary"]) == (100, "46 of 50 due pages sent")
