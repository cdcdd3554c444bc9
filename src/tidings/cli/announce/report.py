"""An execution on a terminal: a live progress bar, and the summary of its report."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidings.announce.channels.google.submissions import SitemapReport
from tidings.announce.channels.quota.kinds import find_kind
from tidings.announce.channels.quota.quota import QuotaState
from tidings.announce.execution.report import EngineReport, Report
from tidings.cli.language import label, say, translate
from tidings.cli.output import colour_status, escape, format_time, make_table

if TYPE_CHECKING:
    # Rich is imported only to show something: not with --json, and not without a terminal.
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

_MOST_LINES = 10


class ProgressView:
    """A bar for each engine, and a line for the crawl."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._crawl = progress.add_task(say("reading the sitemap"), total=None)
        self._engines: dict[str, Any] = {}

    def show(self, report: Report) -> None:
        """Update the bars from the report."""
        read = say("{total} {total:page|pages} read, {due} due", total=report.total, due=report.new)
        self._progress.update(self._crawl, description=read, completed=report.total)
        for ranked in report.ranked.values():
            if ranked.engine.requests:
                total = None if ranked.quota is None else min(ranked.due or 0, ranked.quota.remaining)
                self._show_engine(ranked.engine, total=total)
        due = report.new + report.removed + report.repeated
        for engine in report.engines.values():
            self._show_engine(engine, total=max(due, engine.attempted) or None)

    def _show_engine(self, engine: EngineReport, *, total: int | None) -> None:
        endpoint = engine.engine.endpoint
        if endpoint not in self._engines:
            self._engines[endpoint] = self._progress.add_task(engine.engine.host, total=None)
        self._progress.update(self._engines[endpoint], total=total, completed=engine.attempted)


@contextmanager
def show_progress(*, enabled: bool) -> Iterator[ProgressView | None]:
    """A live view on standard error, or None if it is not enabled."""
    if not enabled:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}")
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield ProgressView(progress)


def print_report(report: Report, *, console: "Console") -> None:
    """The summary: pages found, pages that each engine accepted, and what needs a person."""
    head = say(
        "{status} {site} in {seconds} s: {total} {total:page|pages}",
        status=colour_status(report.status),
        site=escape(report.site),
        seconds=f"{report.duration.total_seconds():.1f}",
        total=report.total,
    )
    # Unknown unless the pages were looked up in the ledger.
    head += say(", {count} due", count=report.new) if report.looked_up else ""
    changed = say(" ({count} changed)", count=report.changed) if report.changed else ""
    removed = say(", {count} removed", count=report.removed) if report.removed else ""
    waiting = say(", {count} left from before", count=report.waiting) if report.waiting else ""
    cached = say(", {count} already announced", count=report.cached) if report.looked_up else ""
    console.print(head + changed + removed + waiting + cached)
    if any(engine.attempted or engine.left or engine.broken for engine in report.lines):
        console.print(_make_table(report))
    for line in _describe(report):
        console.print(line)


def describe_quota_line(title: str, quota: QuotaState) -> str:
    values = {"title": title, "used": quota.used, "limit": quota.limit, "time": format_time(quota.resets_at)}
    if quota.full and quota.used < quota.limit:
        return say(
            "{title}: {used} of {limit} used today by our own count, but {title} takes no more today; new at {time}.",
            **values,
        )
    return say(
        "{title}: {used} of {limit} used today, {remaining} remain; new at {time}.", remaining=quota.remaining, **values
    )


def _make_table(report: Report) -> "Table":
    numbers = (say("accepted"), say("failed"), say("left"), say("requests"), say("mean ms"))
    table = make_table(say("engine"), *numbers, say("last problem"), right=numbers)
    for engine in report.lines:
        table.add_row(*_make_row(engine))
    return table


def _make_row(engine: EngineReport) -> tuple[str, ...]:
    return (
        escape(engine.engine.host),
        f"{engine.succeeded:,}",
        f"[red]{engine.failed:,}[/]" if engine.failed else "0",
        f"{engine.left:,}",
        f"{engine.requests:,}",
        "-" if engine.mean_ms is None else f"{engine.mean_ms:g}",
        # The row names the engine.
        escape(translate((engine.reason or "").removeprefix(f"{engine.engine.endpoint} failed: "))),
    )


def _describe(report: Report) -> Iterator[str]:
    dropped = report.dropped
    if dropped.total and not report.given:
        yield say(
            "Dropped: {invalid} invalid, {foreign} of another host, {outside} outside the key's folder.",
            invalid=dropped.invalid,
            foreign=dropped.foreign_host,
            outside=dropped.outside_key_location,
        )
    if report.too_soon and not report.given:
        yield say(
            "{count} {count:page|pages} changed only minutes ago; the next execution sends {count:it|them}.",
            count=report.too_soon,
        )
    if report.files_unchanged:
        yield say(
            "{count} of {files} sitemap files had not changed and were not read.",
            count=report.files_unchanged,
            files=report.files,
        )
    yield from _describe_quotas(report)
    for sitemap in report.sitemaps:
        yield from _describe_sitemap(sitemap)
    warnings = (*report.warnings[:_MOST_LINES], *report.page_check.list_lines())
    yield from (f"[yellow]{escape(translate(warning))}[/]" for warning in warnings)
    errors = (*report.errors[:_MOST_LINES], *report.list_emptiness(), *report.list_unsent())
    yield from (f"[red]{escape(translate(error))}[/]" for error in errors)
    for engine in report.lines:
        if (engine.failed or engine.broken) and engine.advice:
            yield label(escape(engine.engine.host), escape(translate(engine.advice)))
    waiting = sum(engine.failed + engine.left for engine in report.engines.values())
    if waiting:
        yield say("Pages that were not accepted are kept, and sent first next time.")


def _describe_sitemap(sitemap: SitemapReport) -> Iterator[str]:
    """The result of submitting a sitemap to Google."""
    if sitemap.submitted:
        yield say("Submitted {sitemap} to Google: it changed.", sitemap=escape(sitemap.sitemap))
    if sitemap.failure:
        failure = say("Google did not take the sitemap: {failure}", failure=translate(sitemap.failure))
        yield f"[red]{escape(failure)}[/]"
        yield escape(translate(sitemap.advice))
    elif not sitemap.submitted:
        yield say("Google has {sitemap} already: it did not change.", sitemap=escape(sitemap.sitemap))


def _describe_quotas(report: Report) -> Iterator[str]:
    for channel, ranked in report.ranked.items():
        title = translate(find_kind(channel).title)
        if ranked.quota is not None:
            yield describe_quota_line(title, ranked.quota)
        if waiting := ranked.count_beyond_quota():
            yield say(
                "{count} {count:page waits|pages wait} for {title}'s quota of the next days.",
                count=waiting,
                title=title,
            )
