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
    # Why the condition holds; None: it does not hold.
    reason: str | None = None
    # What a person should do about it.
    action: str = ""
    # How many pages are affected, if they are counted.
    count: int | None = None


async def update_alerts(connection: AsyncConnection, findings: Iterable[Finding], *, alerts: Alerts) -> None:
    """Raise and resolve alerts by what was found, in the caller's transaction."""
    for each in findings:
        if each.reason is None:
            await alerts.resolve_alert(connection, each.kind, each.subject)
        else:
            alert = Alert(each.kind, each.subject, reason=each.reason, action=each.action, count=each.count)
            await alerts.raise_alert(connection, alert)


def examine(report: Report, *, usual_total: int) -> Iterator[Finding]:
    """Every condition that an execution can judge. `usual_total`: the number of pages that the sitemap had lately."""
    yield from _examine_status(report)
    if not report.cut_short and not report.errors and report.crawled:
        yield from _examine_sitemap(report, usual_total=usual_total)
    of_channels = [each.engine for each in report.ranked.values()]
    for engine in report.lines:
        yield from _examine_engine(engine, site=report.site, has_quota=engine in of_channels)
    if report.sitemaps:
        # Trouble that passes by itself raises nothing.
        failed = next((each for each in report.sitemaps if each.failure and each.lasting), None)
        reason, action = (None, "") if failed is None else (failed.failure, failed.advice)
        yield Finding(AnnounceAlert.SITEMAP_REFUSED, f"{report.site} at google", reason, action)


def _examine_status(report: Report) -> Iterator[Finding]:
    if report.status is ExecutionStatus.FAILED and not report.is_empty:
        advice = next((line.advice for line in report.lines if line.advice), CHECK)
        yield Finding(
            AnnounceAlert.EXECUTION_FAILED,
            report.site,
            reason="; ".join(report.errors) or _gather_reasons(report),
            action=CHECK if report.errors else advice,
        )
    elif report.status not in (ExecutionStatus.INTERRUPTED, ExecutionStatus.FAILED):
        yield Finding(AnnounceAlert.EXECUTION_FAILED, report.site)


def _examine_sitemap(report: Report, *, usual_total: int) -> Iterator[Finding]:
    emptiness = shrinkage = None
    message, advice = explain_emptiness(report.dropped, host=report.host)
    if not report.total:
        emptiness = f"the sitemap: {message}"
    yield Finding(AnnounceAlert.NO_URLS, report.site, emptiness, advice, count=0)
    if report.total * 2 < usual_total:
        shrinkage = f"the sitemap lists {report.total:,} URLs, and {usual_total:,} lately"
    advice = "Check that the sitemap is complete; pages that are missing are not announced."
    yield Finding(AnnounceAlert.SITEMAP_SHRANK, report.site, shrinkage, advice, count=report.total)


def _examine_engine(engine: EngineReport, *, site: str, has_quota: bool) -> Iterator[Finding]:
    failures = refusal = None
    subject = f"{site} at {engine.engine}"
    if engine.failed_share > ALERT_SHARE:
        failures = f"{engine.failed:,} of {engine.attempted:,} URLs failed: {engine.reason}"
    if engine.broken:
        refusal = engine.reason or "the key is refused"
    if engine.attempted:
        yield Finding(AnnounceAlert.MANY_FAILURES, subject, failures, engine.advice, count=engine.failed)
    if engine.broken or engine.succeeded:
        kind = AnnounceAlert.CHANNEL_OFF if has_quota else AnnounceAlert.CHANNEL_BROKEN
        yield Finding(kind, subject, refusal, engine.advice)


def _gather_reasons(report: Report) -> str:
    return "; ".join(
        [
            *(f"{engine.engine}: {engine.reason}" for engine in report.lines if engine.reason),
            *(f"google: {each.failure}" for each in report.sitemaps if each.failure),
        ]
    )
