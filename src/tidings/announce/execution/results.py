"""The results of planning and of an execution as a whole, and `fold`, the only place that changes a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidings.announce.channels.bing import BING
from tidings.announce.channels.channel import (
    BatchClaimed,
    EngineClosed,
    PagesFailed,
    PagesTaken,
    RequestAnswered,
    SendResult,
)
from tidings.announce.channels.quota import QuotaState
from tidings.announce.due.finder import FileCounts
from tidings.announce.execution.report import BingReport, EngineReport, Report
from tidings.announce.site.site import Engine
from tidings.announce.sitemap.crawl import CrawlResult
from tidings.core.executions import ExecutionStatus

MOST_LINES = 100


@dataclass(frozen=True, slots=True)
class EngineFound:
    """An engine of the site, before anything is sent to it."""

    engine: Engine
    # Why it is left alone, if it refuses the key.
    refusal: str | None = None
    since: datetime | None = None
    advice: str = ""


@dataclass(frozen=True, slots=True)
class RemovalsPlanned:
    """Pages left the sitemap, and wait in the outbox to be announced as removed."""

    pages: int


@dataclass(frozen=True, slots=True)
class CrawlEnded:
    """The crawl is over."""

    result: CrawlResult
    # Different pages in the sitemap.
    total: int


@dataclass(frozen=True, slots=True)
class OutboxCounted:
    """What is open in the outbox of IndexNow after sending."""

    # By endpoint: pages that wait.
    left: Mapping[str, int]
    # Pages that failed now, and that no engine took.
    failed: int


@dataclass(frozen=True, slots=True)
class BingOpened:
    """Whether Bing can be asked now."""

    quota: QuotaState | None = None
    # Why nothing can be sent.
    skipped: str | None = None
    # The reason needs attention; a used-up quota does not.
    trouble: bool = False
    # Why Bing refuses the key for good, and what to do about it.
    refusal: str | None = None
    advice: str = ""


@dataclass(frozen=True, slots=True)
class BingCounted:
    """Bing's backlog, or its quota after sending; None leaves a value as it was."""

    due: int | None = None
    quota: QuotaState | None = None


@dataclass(frozen=True, slots=True)
class BingBroken:
    """An unexpected error in Bing's part; the log has its details."""

    error: str


@dataclass(frozen=True, slots=True)
class CutShort:
    """A stop came before everything was read or answered."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A line for people."""

    error: str | None = None
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The execution is over."""

    status: ExecutionStatus
    duration: timedelta


Result = (
    SendResult
    | FileCounts
    | EngineFound
    | RemovalsPlanned
    | CrawlEnded
    | OutboxCounted
    | BingOpened
    | BingCounted
    | BingBroken
    | CutShort
    | Remark
    | Ended
)


def fold(report: Report, result: Result) -> Report:
    """The report with one more result."""
    match result:
        case BatchClaimed() | RequestAnswered() | PagesTaken() | PagesFailed() | EngineClosed():
            return _fold_sending(report, result)
        case BingOpened() | BingCounted() | BingBroken():
            return report if report.bing is None else replace(report, bing=_fold_bing(report.bing, result))
        case CutShort():
            return replace(report, cut_short=True)
        case Remark(error, warning):
            errors, warnings = _make_lines(error), _make_lines(warning)
            return replace(report, errors=[*report.errors, *errors], warnings=[*report.warnings, *warnings])
        case Ended(status, duration):
            return replace(report, status=status, duration=duration)
        case _:
            return _fold_planning(report, result)


def take_figures_of_bing(report: Report) -> Report:
    """In an execution for Bing alone, its numbers are the execution's."""
    if report.bing is None:
        return report
    line = report.bing.engine
    return replace(report, new=report.bing.due, submitted=line.succeeded, failed=line.failed)


def _fold_planning(
    report: Report, result: FileCounts | EngineFound | RemovalsPlanned | CrawlEnded | OutboxCounted
) -> Report:
    match result:
        case FileCounts():
            return _fold_file(report, result)
        case EngineFound(engine, refusal, since, advice):
            entry = EngineReport(engine, reason=refusal, advice=advice, broken=refusal is not None)
            warning = None if since is None else f"{engine} refuses this key since {since:%Y-%m-%d}"
            warnings = [*report.warnings, *_make_lines(warning)]
            return replace(report, engines={**report.engines, engine.endpoint: entry}, warnings=warnings)
        case RemovalsPlanned(pages):
            return replace(report, removed=report.removed + pages)
        case CrawlEnded(crawl, total):
            return replace(
                report,
                total=total,
                files=crawl.files,
                files_unchanged=crawl.unchanged,
                errors=[*report.errors, *_shorten(crawl.troubles)],
                warnings=[*report.warnings, *_shorten(crawl.warnings)],
            )
        case OutboxCounted(left, failed):
            engines = {key: replace(line, left=left.get(key, 0)) for key, line in report.engines.items()}
            return replace(report, failed=failed, engines=engines)


def _fold_file(report: Report, file: FileCounts) -> Report:
    return replace(
        report,
        total=report.total + file.pages,
        new=report.new + file.new + file.changed,
        changed=report.changed + file.changed,
        too_soon=report.too_soon + file.too_soon,
        not_believed=report.not_believed + file.not_believed,
        dropped=report.dropped + file.dropped,
        warnings=[*report.warnings, *_make_lines(file.warning)],
    )


def _fold_sending(report: Report, result: SendResult) -> Report:
    if result.engine == BING:
        if report.bing is None:
            return report
        bing = replace(report.bing, engine=_fold_engine(report.bing.engine, result))
        return replace(report, bing=_fold_bing_sending(bing, result))
    line = report.engines.get(result.engine.endpoint, EngineReport(result.engine))
    report = replace(report, engines={**report.engines, result.engine.endpoint: _fold_engine(line, result)})
    match result:
        case BatchClaimed(_, repeated):
            return replace(report, repeated=report.repeated + repeated)
        case PagesTaken(_, _, fresh):
            return replace(report, submitted=report.submitted + fresh)
        case PagesFailed(_, _, untaken):
            return replace(report, failed=report.failed + untaken)
        case _:
            return report


def _fold_engine(line: EngineReport, result: SendResult) -> EngineReport:
    match result:
        case RequestAnswered(_, outcome):
            return replace(line, requests=line.requests + 1, time_taken=line.time_taken + outcome.elapsed)
        case PagesTaken(_, pages):
            return replace(line, succeeded=line.succeeded + pages)
        case PagesFailed(_, pages, _, reason, advice):
            return replace(line, failed=line.failed + pages, reason=reason, advice=advice)
        case EngineClosed(_, reason, advice, broken) if reason is not None:
            return replace(line, reason=reason, advice=advice, broken=broken)
        case _:
            return line


def _fold_bing_sending(bing: BingReport, result: SendResult) -> BingReport:
    line = bing.engine
    left = replace(line, left=max(0, bing.due - line.succeeded - line.failed))
    bing = replace(bing, engine=left)
    match result:
        case RequestAnswered(_, outcome, at):
            last = outcome if bing.last is None or not outcome.accepted else bing.last
            return replace(bing, at=at, last=last)
        case PagesFailed():
            return replace(bing, trouble=True)
        case EngineClosed(_, reason) if reason is not None:
            return replace(bing, trouble=True)
        case _:
            return bing


def _fold_bing(bing: BingReport, result: BingOpened | BingCounted | BingBroken) -> BingReport:
    match result:
        case BingOpened(quota, skipped, trouble, refusal, advice):
            line = replace(bing.engine, broken=refusal is not None, reason=refusal, advice=advice)
            return replace(bing, quota=quota, skipped=skipped, trouble=bing.trouble or trouble, engine=line)
        case BingCounted(due, quota):
            due = bing.due if due is None else due
            line = replace(bing.engine, left=max(0, due - bing.engine.attempted))
            return replace(bing, due=due, quota=quota or bing.quota, engine=line)
        case BingBroken(error):
            line = replace(
                bing.engine,
                reason=f"unexpected trouble, {error}; the log says more",
                advice="Look into the log; what was sent is saved, the rest follows next time.",
            )
            return replace(bing, trouble=True, broken_off=True, engine=line)


def _shorten(lines: Sequence[str]) -> list[str]:
    """A site may have thousands of broken files; all are in the log, and enough of them here."""
    if len(lines) <= MOST_LINES:
        return list(lines)
    return [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES:,} more, which are in the log"]


def _make_lines(text: str | None) -> list[str]:
    return [] if text is None else [text]
