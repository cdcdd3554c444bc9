"""How discovering and collecting look on a terminal: a live line for each platform, and tables. The numbers come from
the reports."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich import markup
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tidings.cli.announce.report import COLOURS
from tidings.collect.run.report import CollectReport, DiscoverReport, EndedExecution, SearchReport
from tidings.collect.status import FailedCandidate
from tidings.collect.write import Settled, SettledAction
from tidings.core.executions import ExecutionStatus
from tidings.core.secrets.escapes import escape_controls

_TITLES = {
    SettledAction.CREATED: "collected",
    SettledAction.SKIPPED: "known",
    SettledAction.RETRY: "tried again later",
    SettledAction.FAILED: "given up",
    SettledAction.RELEASED: "left",
    SettledAction.LOST: "lost",
}


class WorkView:
    """A line for each platform that is at work. Without a progress bar nothing is shown."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._counts: dict[str, Counter[str]] = {}
        self._lines: dict[str, TaskID] = {}

    def record_search(self, search: SearchReport) -> None:
        self._add(search.platform, Counter({"keywords": 1, "found": search.found, "new": search.created}))

    def note_settled(self, platform: str, settled: Sequence[Settled]) -> None:
        self._add(platform, Counter(_TITLES[each.action] for each in settled))

    def _add(self, platform: str, more: Counter[str]) -> None:
        counts = self._counts.setdefault(platform, Counter())
        counts.update(more)
        if self._progress is None:
            return
        if platform not in self._lines:
            self._lines[platform] = self._progress.add_task("", total=None)
        told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        self._progress.update(self._lines[platform], description=f"{escape(platform)}: {told}")


@contextmanager
def show_work(*, enabled: bool) -> Iterator[WorkView]:
    """A live view on standard error, where somebody watches."""
    if not enabled:
        yield WorkView(None)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task("at work", total=None)
        yield WorkView(progress)


def print_discovery(report: DiscoverReport, *, console: Console) -> None:
    """What was found for each keyword."""
    if report.ended is None:
        return
    console.print(f"{_describe_end(report.ended)}: {report.found:,} found, {report.created:,} new")
    if not report.searches:
        return
    table = _make_table("platform", "keyword", "found", "new", "trouble")
    for search in report.searches:
        trouble = "not searched: the platform has to be left alone" if search.skipped else search.message or ""
        table.add_row(
            escape(search.platform),
            escape(search.keyword),
            f"{search.found:,}",
            f"{search.created:,}",
            f"[red]{escape(trouble)}[/]" if trouble else "",
        )
    console.print(table)


def print_collections(reports: Sequence[CollectReport], *, console: Console) -> None:
    """What became of each platform's candidates."""
    if not reports:
        console.print("Nothing is due.")
        return
    table = _make_table("platform", "status", *_TITLES.values(), "trouble")
    for report in reports:
        table.add_row(
            escape(report.platform),
            _colour(report.ended.status),
            *(f"{report.counts.get(action, 0):,}" for action in _TITLES),
            escape(report.ended.reason or ""),
        )
    console.print(table)
    if any(report.counts.get(SettledAction.RELEASED) for report in reports):
        console.print("What is left has no cookie that can be used; `tidings cookies list` shows them.")
    if any(report.counts.get(SettledAction.FAILED) for report in reports):
        console.print("`tidings collect failed` says why candidates were given up.")


def print_failed(found: Sequence[FailedCandidate], *, console: Console) -> None:
    """What was given up, and why."""
    if not found:
        console.print("Nothing was given up.")
        return
    table = _make_table("platform", "note", "failed", "tries", "reason")
    for each in found:
        table.add_row(
            escape(each.platform),
            escape(each.note_id),
            f"{each.failed_at:%Y-%m-%d %H:%M}",
            f"{each.retry_count:,}",
            escape(f"{each.code}: {each.message}"),
        )
    console.print(table)


def _describe_end(ended: EndedExecution) -> str:
    reason = f" ({escape(ended.reason)})" if ended.reason else ""
    return f"{_colour(ended.status)} {ended.workflow}{reason}"


def _colour(status: ExecutionStatus) -> str:
    return f"[bold {COLOURS[status]}]{status.value}[/]"


def escape(words: str) -> str:
    """Words of somebody else's, as they are: neither markup nor what would command the terminal."""
    return markup.escape(escape_controls(words))


def _make_table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table
