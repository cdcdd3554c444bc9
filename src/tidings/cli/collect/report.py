"""Discovering and collecting on a terminal: a live line for each platform, and tables of the reports."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tidings.cli.collect.status import print_pauses
from tidings.cli.language import label, say, translate
from tidings.cli.output import colour_status, escape, make_table
from tidings.collect.run.report import CollectReport, DiscoverReport, EndedExecution, SearchReport
from tidings.collect.status.queries import PlatformPause
from tidings.collect.write.values import Settled, SettledAction
from tidings.core.executions import ExecutionStatus


def _name_actions() -> dict[SettledAction, str]:
    """The title of each action's column."""
    return {
        SettledAction.CREATED: say("collected"),
        SettledAction.SKIPPED: say("known"),
        SettledAction.RETRY: say("later"),
        SettledAction.FAILED: say("given up"),
        SettledAction.KEPT: say("not read again"),
        SettledAction.RELEASED: say("left"),
        SettledAction.LOST: say("lost"),
    }


class WorkView:
    """A line for each platform at work."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._counts: dict[str, Counter[str]] = {}
        self._lines: dict[str, TaskID] = {}

    def show_search(self, search: SearchReport) -> None:
        self._add(search.platform, Counter({say("found"): search.found, say("new"): search.created}))

    def show_settled(self, platform: str, settled: Sequence[Settled]) -> None:
        self._add(platform, Counter(_name_actions()[each.action] for each in settled))

    def _add(self, platform: str, more: Counter[str]) -> None:
        counts = self._counts.setdefault(platform, Counter())
        counts.update(more)
        if platform not in self._lines:
            self._lines[platform] = self._progress.add_task("", total=None)
        shown = say(", ").join(say("{count} {title}", count=count, title=name) for name, count in counts.items())
        self._progress.update(self._lines[platform], description=label(escape(platform), shown))


@contextmanager
def show_work(*, enabled: bool) -> Iterator[WorkView]:
    """A live view on standard error, if enabled."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not enabled) as progress:
        progress.add_task(say("working"), total=None)
        yield WorkView(progress)


def print_discovery(report: DiscoverReport, *, console: Console) -> None:
    """The result of each keyword."""
    if report.ended is None:
        return
    counts = say("{found} found, {new} new", found=report.found, new=report.created)
    console.print(label(_describe_end(report.ended), counts))
    if not report.searches:
        return
    table = make_table(say("platform"), say("keyword"), say("found"), say("new"), say("problem"))
    for search in report.searches:
        problem = say("not searched: the platform needs a rest") if search.skipped else translate(search.message or "")
        table.add_row(
            escape(search.platform),
            escape(search.keyword),
            f"{search.found:,}",
            f"{search.created:,}",
            f"[red]{escape(problem)}[/]" if problem else "",
        )
    console.print(table)


def print_collections(
    reports: Sequence[CollectReport], pauses: Sequence[PlatformPause] = (), *, console: Console
) -> None:
    """The results of each platform's candidates, and the platforms that are paused."""
    if not reports:
        console.print(say("No candidate is due."))
        print_pauses(pauses, console=console)
        return
    console.print(_make_collection_table(reports))
    for report in reports:
        if report.ended.reason:
            console.print(label(escape(report.platform), escape(translate(report.ended.reason))))
    print_pauses(pauses, console=console)
    paused = {pause.platform for pause in pauses}
    if any(report.counts.get(SettledAction.RELEASED) and report.platform not in paused for report in reports):
        console.print(
            say(
                "Those that are left had no cookie or no turn in time. They are not counted as failed, and the next "
                "run goes on. `tidings cookies list` shows the cookies."
            )
        )
    if any(report.counts.get(SettledAction.FAILED) for report in reports):
        console.print(say("`tidings collect failed` says why candidates were given up."))
    if any(_lacks_comments(report) for report in reports):
        console.print(say("Comments could not be read; they are tried again. `tidings collect status` counts them."))


def _lacks_comments(report: CollectReport) -> bool:
    """Whether all candidates went well and the execution did not: it read comments, too."""
    return report.ended.status is ExecutionStatus.PARTIAL and sum(report.counts.values()) == report.collected


def _make_collection_table(reports: Sequence[CollectReport]) -> Table:
    """A row for each platform. A result that no candidate had gets no column, so that 80 columns are enough."""
    titles = {
        action: title
        for action, title in _name_actions().items()
        if action is SettledAction.CREATED or any(report.counts.get(action) for report in reports)
    }
    with_comments = any(report.comments for report in reports)
    numbers = [*titles.values(), *([say("comments")] if with_comments else [])]
    table = make_table(say("platform"), say("status"), *numbers, right=numbers)
    table.padding = (0, 1, 0, 0)
    for column in table.columns:
        # If space is short, a title of several words wraps, but no word is broken.
        column.no_wrap = " " not in str(column.header)
    for report in reports:
        table.add_row(
            escape(report.platform),
            colour_status(report.ended.status),
            *(f"{report.counts.get(action, 0):,}" for action in titles),
            *([f"{report.comments:,}"] if with_comments else []),
        )
    return table


def _describe_end(ended: EndedExecution) -> str:
    reason = f" ({escape(translate(ended.reason))})" if ended.reason else ""
    return f"{colour_status(ended.status)} {ended.workflow}{reason}"
