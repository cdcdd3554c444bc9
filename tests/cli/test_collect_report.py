"""The tables of `collect run` on a terminal."""

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from tidings.cli.collect.report import print_collections, print_discovery
from tidings.cli.language import speak
from tidings.collect.run.report import CollectReport, DiscoverReport, EndedExecution, SearchReport
from tidings.collect.write.values import SettledAction
from tidings.core.executions import ExecutionStatus


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    """The language is the process's: no other test may find it changed."""
    yield
    speak("en")


def make_report(
    platform: str,
    *,
    comments: int = 0,
    reason: str | None = None,
    status: ExecutionStatus = ExecutionStatus.INTERRUPTED,
    **counts: int,
) -> CollectReport:
    ended = EndedExecution(workflow="collect", execution_id="e", request_id="r", status=status, reason=reason)
    by_action = {SettledAction(name): number for name, number in counts.items()}
    return CollectReport(platform=platform, ended=ended, counts=by_action, comments=comments)


def print_lines(*reports: CollectReport) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    print_collections(reports, console=console)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize(("chosen", "given_up", "colon"), [("en", "given", ": "), ("zh", "已放弃", "：")])
def test_every_result_fits_into_80_columns(chosen: str, given_up: str, colon: str) -> None:
    """C28: also if all of them occur; no name and no number is broken over two lines."""
    speak(chosen)
    everything: dict[str, Any] = {action.value: 1_234 for action in SettledAction}
    lines = print_lines(make_report("xiaohongshu", comments=12_345, reason="the line is cut", **everything))
    [row] = [line for line in lines if line.startswith("xiaohongshu ")]
    assert row.split()[2:] == [*["1,234"] * len(SettledAction), "12,345"]
    assert any(given_up in line for line in lines)
    assert f"xiaohongshu{colon}the line is cut" in lines
    assert max(map(cell_len, lines)) <= 80


def test_reasons_are_translated() -> None:
    """C28, interfaces: TIDINGS_LANGUAGE=zh. Why an execution ended early, and why a search failed."""
    speak("zh")
    ended = make_report("weibo", reason="it ended early: ValueError").ended
    assert "weibo：提前结束：ValueError" in print_lines(make_report("weibo", reason=ended.reason))
    console = Console(file=io.StringIO(), width=120)
    search = SearchReport(platform="weibo", keyword="tea", message="weibo cannot search within a period")
    print_discovery(DiscoverReport(ended=ended, searches=(search,)), console=console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "提前结束：ValueError" in shown
    assert "weibo 无法按时间段搜索" in shown


def test_a_result_that_no_candidate_had_gets_no_column() -> None:
    lines = print_lines(make_report("bilibili", created=3), make_report("weibo", created=1, failed=2))
    assert lines[0].split() == ["platform", "status", "collected", "given", "up"]
    assert [line.split()[2:] for line in lines[1:3]] == [["3", "0"], ["1", "2"]]


def test_an_execution_that_lacks_comments_alone_says_so() -> None:
    """C28: every note was collected, and the status is partial: the reason is on the screen."""
    partial = ExecutionStatus.PARTIAL
    assert any(
        "Comments could not be read" in line for line in print_lines(make_report("weibo", status=partial, created=3))
    )
    assert not any("Comments" in line for line in print_lines(make_report("weibo", status=partial, created=3, retry=1)))
