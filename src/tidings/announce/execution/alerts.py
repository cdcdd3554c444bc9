"""The end of an execution: its status, its lines in the log, and the alerts that it raises or resolves."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.execution.report import ALERT_SHARE, EngineReport, Report
from tidings.announce.site.check import explain_emptiness
from tidings.announce.sitemap.events import CrawlResult
from tidings.core.alerts.events import Alert
from tidings.core.alerts.kinds import AlertKind, AlertLevel
from tidings.core.alerts.service import Alerts
from tidings.core.executions import ExecutionStatus
from tidings.core.logs.logger import get_logger
from tidings.core.stop import Stop


class AnnounceAlert(AlertKind):
    """The subject of each is a site, or a site at an engine."""

    EXECUTION_FAILED = "execution_failed", AlertLevel.P1, "The execution failed", "执行失败"
    NO_URLS = "no_urls", AlertLevel.P1, "The sitemap lists no URLs", "站点地图中没有网址"
    MANY_FAILURES = "many_failures", AlertLevel.P1, "Many URLs failed", "大量网址推送失败"
    CHANNEL_BROKEN = "channel_broken", AlertLevel.P1, "An engine refuses the site", "搜索引擎拒绝该站点"
    CHANNEL_OFF = "channel_off", AlertLevel.P1, "A channel was switched off", "推送渠道已停用"
    NOT_RUN = "not_run", AlertLevel.P1, "The site has not run as scheduled", "站点未按计划运行"
    SITEMAP_REFUSED = "sitemap_refused", AlertLevel.P1, "Google does not take the sitemap", "谷歌未接受站点地图"
    SITEMAP_SHRANK = "sitemap_shrank", AlertLevel.P1, "The sitemap shrank by more than half", "站点地图缩减过半"


CHECK = "Check the sitemap's address and the key; `tidings check` says what is wrong."

_log = get_logger(__name__)


def conclude(report: Report, crawl: CrawlResult, *, stop: Stop) -> tuple[ExecutionStatus, str | None]:
    """The status of a completed execution, and a warning for people."""
    if report.cut_short or (stop.requested and _waits_for_time(report)):
        return ExecutionStatus.INTERRUPTED, (
            f"stopped early: {stop.reason}; all that was done is saved and the next execution goes on from there. "
            "If this happens often, run it more often"
        )
    if crawl.roots_read == 0:
        return ExecutionStatus.FAILED, None
    took_sitemap = any(each.failure is None for each in report.sitemaps)
    succeeded = took_sitemap or any(line.succeeded for line in report.lines)
    if (report.is_empty or _is_lost(report)) and not succeeded:
        return ExecutionStatus.FAILED, None
    # Beside IndexNow, an exhausted quota counts as trouble; in an execution for that channel alone it does not.
    ranked_failed = any(
        (each.trouble and (report.engines or not each.met_quota)) or each.engine.broken or each.engine.failed
        for each in report.ranked.values()
    )
    if (
        report.is_empty
        or report.list_unsent()
        or crawl.troubles
        or ranked_failed
        or any(each.failure for each in report.sitemaps)
        or any(e.failed or e.left or e.broken for e in report.engines.values())
    ):
        return ExecutionStatus.PARTIAL, None
    return ExecutionStatus.SUCCEEDED, None


def _waits_for_time(report: Report) -> bool:
    """Whether more time would have helped. It does not help pages that wait for the next day's quota."""
    return bool(report.left) or any(
        each.engine.left and (each.quota is None or each.quota.remaining > 0) for each in report.ranked.values()
    )


def _is_lost(report: Report) -> bool:
    """Whether nothing was achieved. Trouble with another channel never makes the execution of IndexNow a failure."""
    engines = report.engines.values()
    if not engines:
        # A channel that says that its quota is used up is no failure.
        return any(each.failure for each in report.sitemaps) or any(
            (each.trouble and not each.met_quota) or each.engine.broken for each in report.ranked.values()
        )
    return all(engine.broken for engine in engines) or (report.new > 0 and any(engine.failed for engine in engines))


def log_summary(report: Report) -> None:
    """One line for the execution, and one for each engine."""
    log = _log.warning if report.warnings or report.status is not ExecutionStatus.SUCCEEDED else _log.info
    (_log.error if report.status is ExecutionStatus.FAILED else log)(
        "execution.finished",
        site=report.site,
        execution=report.execution_id,
        status=report.status.value,
        total=report.total,
        new=report.new,
        cached=report.cached,
        submitted=report.submitted,
        failed=report.failed,
        seconds=round(report.duration.total_seconds(), 1),
        warnings=report.warnings,
        errors=report.errors,
    )
    for engine in report.lines:
        _log.info(
            "engine.summary",
            site=report.site,
            engine=engine.engine.host,
            total=engine.attempted,
            succeeded=engine.succeeded,
            failed=engine.failed,
            left=engine.left,
            mean_ms=engine.mean_ms,
        )
        if engine.failed_share > ALERT_SHARE:
            # Logged each time; people are notified once, as long as it lasts.
            _log.error(
                "execution.many_failures",
                site=report.site,
                engine=engine.engine.host,
                failed=engine.failed,
                attempted=engine.attempted,
                reason=engine.reason,
                action=engine.advice,
            )


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition that was examined."""

    kind: AlertKind
    # The site's id, with the engine where the condition is about one.
    subject: str
    # None: the condition does not hold.
    alert: Alert | None = None


async def update_alerts(connection: AsyncConnection, findings: Iterable[Finding], *, alerts: Alerts) -> None:
    """Raise and resolve alerts by what was found, in the caller's transaction."""
    for finding in findings:
        if finding.alert is not None:
            await alerts.raise_alert(connection, finding.alert)
        else:
            await alerts.resolve_alert(connection, finding.kind, finding.subject)


def examine(report: Report, *, usual_total: int) -> Iterator[Finding]:
    """Every condition that an execution can judge. `usual_total`: the number of pages that the sitemap had lately."""
    yield from _examine_status(report)
    if not report.cut_short and not report.errors and report.crawled:
        yield _examine_emptiness(report)
        yield _examine_size(report, usual_total=usual_total)
    of_channels = [each.engine for each in report.ranked.values()]
    for engine in report.lines:
        subject = f"{report.site} at {engine.engine}"
        if engine.attempted:
            yield _examine_failures(engine, subject=subject)
        if engine.broken or engine.succeeded:
            kind = AnnounceAlert.CHANNEL_OFF if engine in of_channels else AnnounceAlert.CHANNEL_BROKEN
            yield _examine_refusal(engine, kind=kind, subject=subject)
    if report.sitemaps:
        yield _examine_sitemaps(report)


def _examine_status(report: Report) -> Iterator[Finding]:
    if report.status is ExecutionStatus.FAILED and not report.is_empty:
        yield _raise(
            AnnounceAlert.EXECUTION_FAILED,
            report.site,
            reason="; ".join(report.errors) or _gather_reasons(report),
            action=CHECK if report.errors else next((line.advice for line in report.lines if line.advice), CHECK),
        )
    elif report.status not in (ExecutionStatus.INTERRUPTED, ExecutionStatus.FAILED):
        yield Finding(AnnounceAlert.EXECUTION_FAILED, report.site)


def _examine_emptiness(report: Report) -> Finding:
    if report.total:
        return Finding(AnnounceAlert.NO_URLS, report.site)
    message, advice = explain_emptiness(report.dropped, host=report.host)
    return _raise(AnnounceAlert.NO_URLS, report.site, reason=f"the sitemap: {message}", action=advice, count=0)


def _examine_size(report: Report, *, usual_total: int) -> Finding:
    if report.total * 2 >= usual_total:
        return Finding(AnnounceAlert.SITEMAP_SHRANK, report.site)
    return _raise(
        AnnounceAlert.SITEMAP_SHRANK,
        report.site,
        reason=f"the sitemap lists {report.total:,} URLs, and {usual_total:,} lately",
        action="Check that the sitemap is complete; pages that are missing are not announced.",
        count=report.total,
    )


def _examine_failures(engine: EngineReport, *, subject: str) -> Finding:
    if engine.failed_share <= ALERT_SHARE:
        return Finding(AnnounceAlert.MANY_FAILURES, subject)
    reason = f"{engine.failed:,} of {engine.attempted:,} URLs failed: {engine.reason}"
    return _raise(AnnounceAlert.MANY_FAILURES, subject, reason=reason, action=engine.advice, count=engine.failed)


def _examine_refusal(engine: EngineReport, *, kind: AlertKind, subject: str) -> Finding:
    if not engine.broken:
        return Finding(kind, subject)
    return _raise(kind, subject, reason=engine.reason or "the key is refused", action=engine.advice)


def _examine_sitemaps(report: Report) -> Finding:
    """Whether Google takes the site's sitemaps. Trouble that passes by itself raises nothing."""
    failed = next((each for each in report.sitemaps if each.failure and each.lasting), None)
    subject = f"{report.site} at google"
    if failed is None or failed.failure is None:
        return Finding(AnnounceAlert.SITEMAP_REFUSED, subject)
    return _raise(AnnounceAlert.SITEMAP_REFUSED, subject, reason=failed.failure, action=failed.advice)


def _raise(kind: AlertKind, subject: str, *, reason: str, action: str, count: int | None = None) -> Finding:
    return Finding(kind, subject, Alert(kind=kind, subject=subject, reason=reason, action=action, count=count))


def _gather_reasons(report: Report) -> str:
    return "; ".join(
        [
            *(f"{engine.engine}: {engine.reason}" for engine in report.lines if engine.reason),
            *(f"google: {each.failure}" for each in report.sitemaps if each.failure),
        ]
    )
