"""How an execution went as a whole: its status, its lines in the log, and what people have to be told."""

from tidings.announce.reports import ALERT_SHARE, EngineReport, Report
from tidings.announce.sitemap.crawl import CrawlResult
from tidings.core.alerts import Alert, raise_alert
from tidings.core.executions import ExecutionStatus
from tidings.core.logs import get_logger
from tidings.core.stopping import Stop

_log = get_logger(__name__)


def conclude(report: Report, crawl: CrawlResult, *, stop: Stop) -> ExecutionStatus:
    """Gather what the crawl met into the report, and say how the execution went as a whole."""
    report.add_crawl(crawl)
    lines = report.lines
    if report.cut_short or (stop.requested and any(line.left for line in lines)):
        report.warnings.append(
            f"stopped early: {stop.reason}; all that was done is saved and the next execution goes on from there. "
            "If this happens often, run it more often"
        )
        return ExecutionStatus.INTERRUPTED
    if crawl.roots_read == 0:
        return ExecutionStatus.FAILED
    bing_failed = report.bing is not None and (
        report.bing.trouble or report.bing.engine.broken or report.bing.engine.failed
    )
    if _is_lost(report) and not any(line.succeeded for line in lines):
        return ExecutionStatus.FAILED
    if crawl.troubles or bing_failed or any(e.failed or e.left or e.broken for e in report.engines.values()):
        return ExecutionStatus.PARTIAL
    return ExecutionStatus.SUCCEEDED


def _is_lost(report: Report) -> bool:
    """Whether nothing came of what was asked for. Trouble with Bing alone never makes IndexNow's half a failure."""
    engines = report.engines.values()
    if not engines:
        return report.bing is not None and (report.bing.trouble or report.bing.engine.broken)
    return all(engine.broken for engine in engines) or (report.new > 0 and any(engine.failed for engine in engines))


def log_summary(report: Report) -> None:
    """One line for the execution, and one for each engine."""
    log = _log.warning if report.warnings or report.status is not ExecutionStatus.SUCCEEDED else _log.info
    log(
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


def raise_alerts(report: Report) -> None:
    """Tell people what needs them."""
    if report.status is ExecutionStatus.FAILED:
        raise_alert(
            Alert(
                kind="execution_failed",
                subject=report.site,
                reason="; ".join(report.errors) or _gather_reasons(report),
                action="Check the sitemap's address and the key; `tidings check` says what is wrong.",
            )
        )
    if report.status is not ExecutionStatus.FAILED and not report.total and not report.errors:
        raise_alert(
            Alert(
                kind="no_urls",
                subject=report.site,
                reason="the sitemap lists no URLs",
                action="Check that the sitemap is complete.",
                count=0,
            )
        )
    for engine in report.lines:
        if engine.failed_share > ALERT_SHARE:
            _raise_failure_alert(report, engine)


def _raise_failure_alert(report: Report, engine: EngineReport) -> None:
    raise_alert(
        Alert(
            kind="many_failures",
            subject=f"{report.site} at {engine.engine}",
            reason=f"{engine.failed:,} of {engine.attempted:,} URLs failed: {engine.reason}",
            action=engine.advice,
            count=engine.failed,
        )
    )


def _gather_reasons(report: Report) -> str:
    return "; ".join(f"{engine.engine}: {engine.reason}" for engine in report.lines if engine.reason)
