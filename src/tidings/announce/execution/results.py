"""The results of planning and of an execution as a whole, and `fold`, the only place that changes a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from tidings.announce.channels.answer import Verdict
from tidings.announce.channels.broken_engines import BrokenEngine
from tidings.announce.channels.channel import (
    BatchClaimed,
    EngineClosed,
    PagesFailed,
    PagesTaken,
    RequestAnswered,
    SendResult,
)
from tidings.announce.channels.google.submissions import SitemapReport
from tidings.announce.channels.protocols.indexnow import ROTATE_KEY
from tidings.announce.channels.quota.quota import QuotaState
from tidings.announce.due.finder import FileCounts
from tidings.announce.execution.report import EngineReport, RankedReport, Report
from tidings.announce.ledger.ledger import Channel
from tidings.announce.page_check.checker import MOST_LISTED, PagesChecked
from tidings.announce.site.site import Engine
from tidings.announce.sitemap.events import CrawlResult
from tidings.core.executions import ExecutionStatus

MOST_LINES = 100


@dataclass(frozen=True, slots=True)
class EngineFound:
    """An engine of the site, before anything is sent to it."""

    engine: Engine
    # Why it gets no request, if it refuses the key.
    refusal: BrokenEngine | None = None


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
    # Pages of unchanged files that wait in the outbox.
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class OutboxCounted:
    """What is open in the outbox of IndexNow after sending."""

    # By endpoint: pages that wait.
    left: Mapping[str, int]
    # Pages that failed now, and that no engine took.
    failed: int


@dataclass(frozen=True, slots=True)
class RankedOpened:
    """Whether a channel with a quota can be asked now."""

    channel: Channel
    quota: QuotaState | None = None
    # Why nothing can be sent.
    skipped: str | None = None
    # Whether the reason needs attention; an exhausted quota does not.
    trouble: bool = False
    # Why it refuses the key for good, and what to do about it.
    refusal: str | None = None
    advice: str = ""


@dataclass(frozen=True, slots=True)
class RankedCounted:
    """A channel's backlog, or its quota after sending; None leaves a value as it was."""

    channel: Channel
    due: int | None = None
    # Changes within the minimum gap between two notices.
    too_soon: int | None = None
    quota: QuotaState | None = None


@dataclass(frozen=True, slots=True)
class RankedBroken:
    """An unexpected error in a channel's part; the log has its details."""

    channel: Channel
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
    | PagesChecked
    | EngineFound
    | RemovalsPlanned
    | CrawlEnded
    | OutboxCounted
    | RankedOpened
    | RankedCounted
    | RankedBroken
    | SitemapReport
    | CutShort
    | Remark
    | Ended
)


def fold(report: Report, result: Result) -> Report:
    """The report with one more result."""
    match result:
        case BatchClaimed() | RequestAnswered() | PagesTaken() | PagesFailed() | EngineClosed():
            return _fold_sending(report, result)
        case RankedOpened() | RankedCounted() | RankedBroken():
            return _replace_ranked(report, result.channel, _fold_ranked(report.ranked[result.channel], result))
        case SitemapReport():
            return _fold_sitemap(report, result)
        case CutShort():
            return replace(report, cut_short=True)
        case Remark(error, warning):
            errors, warnings = _make_lines(error), _make_lines(warning)
            return replace(report, errors=[*report.errors, *errors], warnings=[*report.warnings, *warnings])
        case Ended(status, duration):
            return replace(report, status=status, duration=duration)
        case _:
            return _fold_planning(report, result)


def take_ranked_counts(report: Report) -> Report:
    """In an execution without IndexNow, the numbers of the other channel are the execution's."""
    ranked = report.ranked.values()
    return replace(
        report,
        new=max((each.due or 0 for each in ranked), default=0),
        too_soon=max((each.too_soon for each in ranked), default=0),
        failed=report.failed + sum(each.engine.failed for each in ranked),
        looked_up=any(each.due is not None for each in ranked),
    )


def _replace_ranked(report: Report, channel: Channel, ranked: RankedReport) -> Report:
    return replace(report, ranked={**report.ranked, channel: ranked})


def _fold_planning(
    report: Report, result: FileCounts | PagesChecked | EngineFound | RemovalsPlanned | CrawlEnded | OutboxCounted
) -> Report:
    match result:
        case FileCounts():
            return _fold_file(report, result)
        case PagesChecked():
            return _fold_checked(report, result)
        case EngineFound(engine, BrokenEngine(_, reason, since)):
            entry = EngineReport(engine, reason=reason, advice=ROTATE_KEY, broken=True)
            warnings = [*report.warnings, f"{engine} refuses this key since {since:%Y-%m-%d}"]
            return replace(report, engines={**report.engines, engine.endpoint: entry}, warnings=warnings)
        case EngineFound(engine):
            return replace(report, engines={**report.engines, engine.endpoint: EngineReport(engine)}, looked_up=True)
        case RemovalsPlanned(pages):
            return replace(report, removed=report.removed + pages)
        case CrawlEnded(crawl, total, waiting):
            return replace(
                report,
                total=total,
                waiting=report.waiting + waiting,
                given=crawl.given,
                files=crawl.files,
                files_unchanged=crawl.unchanged,
                errors=[*report.errors, *_shorten(crawl.troubles)],
                warnings=[*report.warnings, *_shorten(crawl.warnings)],
            )
        case OutboxCounted(left, failed):
            engines = {key: replace(line, left=left.get(key, 0)) for key, line in report.engines.items()}
            return replace(report, failed=failed, engines=engines)


def _fold_sitemap(report: Report, sitemap: SitemapReport) -> Report:
    warnings = []
    if sitemap.errors:
        warnings.append(f"Google found {sitemap.errors:,} errors in {sitemap.sitemap}; Search Console names them")
    return replace(report, sitemaps=[*report.sitemaps, sitemap], warnings=[*report.warnings, *warnings])


def _fold_file(report: Report, file: FileCounts) -> Report:
    return replace(
        report,
        total=report.total + file.pages,
        new=report.new + file.new + file.changed,
        changed=report.changed + file.changed,
        too_soon=report.too_soon + file.too_soon,
        waiting=report.waiting + file.waiting,
        not_believed=report.not_believed + file.not_believed,
        dropped=report.dropped + file.dropped,
        warnings=[*report.warnings, *_make_lines(file.warning)],
    )


def _fold_checked(report: Report, result: PagesChecked) -> Report:
    check = report.page_check
    warning = None
    if result.ended is not None:
        warning = f"page check: {result.ended}; the pages that were not looked at are announced unchecked"
    return replace(
        report,
        page_check=replace(
            check,
            checked=check.checked + result.checked,
            held=check.held + len(result.held),
            pages=[*check.pages, *result.held][:MOST_LISTED],
        ),
        warnings=[*report.warnings, *_make_lines(warning)],
    )


def _fold_sending(report: Report, result: SendResult) -> Report:
    for channel, ranked in report.ranked.items():
        if ranked.engine.engine == result.engine:
            line = _fold_engine(ranked.engine, result)
            if isinstance(result, PagesTaken):
                submitted, by_quota = report.submitted + result.fresh, report.submitted_by_quota + result.fresh
                report = replace(report, submitted=submitted, submitted_by_quota=by_quota)
            return _replace_ranked(report, channel, _fold_ranked_sending(replace(ranked, engine=line), result))
    line = report.engines.get(result.engine.endpoint, EngineReport(result.engine))
    report = replace(report, engines={**report.engines, result.engine.endpoint: _fold_engine(line, result)})
    match result:
        case BatchClaimed(_, repeated):
            return replace(report, repeated=report.repeated + repeated)
        case PagesTaken(_, _, fresh, resent):
            again = report.submitted_again + resent
            return replace(report, submitted=report.submitted + fresh, submitted_again=again)
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


def _fold_ranked_sending(ranked: RankedReport, result: SendResult) -> RankedReport:
    line = ranked.engine
    left = replace(line, left=max(0, (ranked.due or 0) - line.succeeded - line.failed))
    ranked = replace(ranked, engine=left)
    match result:
        case RequestAnswered(_, outcome, at):
            error = ranked.error if outcome.accepted else outcome
            met_quota = ranked.met_quota or outcome.verdict is Verdict.QUOTA_FULL
            return replace(ranked, at=at, last=outcome, error=error, met_quota=met_quota)
        case PagesFailed():
            return replace(ranked, trouble=True)
        case EngineClosed(_, reason) if reason is not None:
            return replace(ranked, trouble=True)
        case _:
            return ranked


def _fold_ranked(ranked: RankedReport, result: RankedOpened | RankedCounted | RankedBroken) -> RankedReport:
    match result:
        case RankedOpened(_, quota, skipped, trouble, refusal, advice):
            line = replace(ranked.engine, broken=refusal is not None, reason=refusal, advice=advice)
            return replace(ranked, quota=quota, skipped=skipped, trouble=ranked.trouble or trouble, engine=line)
        case RankedCounted(_, due, too_soon, quota):
            due = ranked.due if due is None else due
            line = replace(ranked.engine, left=max(0, (due or 0) - ranked.engine.attempted))
            too_soon = ranked.too_soon if too_soon is None else too_soon
            return replace(ranked, due=due, too_soon=too_soon, quota=quota or ranked.quota, engine=line)
        case RankedBroken(_, error):
            line = replace(
                ranked.engine,
                reason=f"unexpected trouble, {error}; the log says more",
                advice="Look into the log; what was sent is saved, the rest follows next time.",
            )
            return replace(ranked, trouble=True, engine=line)


def _shorten(lines: Sequence[str]) -> list[str]:
    """A site may have thousands of broken files; all are in the log, and enough of them here."""
    if len(lines) <= MOST_LINES:
        return list(lines)
    return [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES:,} more, which are in the log"]


def _make_lines(text: str | None) -> list[str]:
    return [] if text is None else [text]
