"""Announce one site: crawl → due → IndexNow → record. The story on one screen; the details are one call away."""

from collections.abc import Callable
from contextlib import aclosing, closing
from dataclasses import dataclass, field

from tidings.announce.delivery import Delivery
from tidings.announce.due import DueRules
from tidings.announce.indexnow import ROTATE_KEY
from tidings.announce.intake import Intake
from tidings.announce.lanes import Means
from tidings.announce.ledger import Channel, Ledger
from tidings.announce.memory import BrokenEngines, SitemapMemory
from tidings.announce.reports import ALERT_SHARE, EngineReport, Report
from tidings.announce.site_records import claim_purge
from tidings.announce.sitemap.crawl import Crawl, CrawlResult, Remembered
from tidings.announce.sites import Engine, Site
from tidings.core.alerts import Alert, raise_alert
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.database import Database
from tidings.core.executions import Execution, ExecutionLostError, Executions, ExecutionStatus
from tidings.core.http import GuardedClient
from tidings.core.logs import get_logger
from tidings.core.pace import Pace
from tidings.core.retry import RetryPolicy
from tidings.core.stopping import Stop, StopRequestedError

_log = get_logger(__name__)


def ignore_progress(_: Report) -> None:
    """For callers that do not watch."""


@dataclass(frozen=True, slots=True)
class Announcer:
    """Everything that an execution needs; made once by the composition root."""

    database: Database
    executions: Executions
    client: GuardedClient
    clock: Clock
    pace: Pace
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    rules: DueRules = field(default_factory=DueRules)
    concurrency: int = 3

    async def announce(
        self, site: Site, *, stop: Stop, on_progress: Callable[[Report], None] = ignore_progress
    ) -> Report:
        """Run one execution for one site and return what it did.

        Raises AlreadyRunningError, ExecutionLostError. Any other error ends the execution as `failed` and is raised.
        """
        execution = await self.executions.acquire(site.workflow_name)
        report = Report(site=site.id, execution_id=execution.public_id)
        _log.info("execution.started", site=site.id, execution=execution.public_id, key=site.key.hint)
        try:
            async with self.executions.keep_alive(execution):
                report.status = await self._run(site, execution, report, stop=stop, on_progress=on_progress)
        except ExecutionLostError:
            raise
        except BaseException as error:
            report.status = ExecutionStatus.FAILED if isinstance(error, Exception) else ExecutionStatus.INTERRUPTED
            report.errors.append(f"it ended early: {type(error).__name__}")
            _log.exception("execution.broken", site=site.id, execution=execution.public_id)
            await self._finish(execution, report)
            raise
        await self._finish(execution, report)
        return report

    async def _run(
        self, site: Site, execution: Execution, report: Report, *, stop: Stop, on_progress: Callable[[Report], None]
    ) -> ExecutionStatus:
        engines, absent = await self._choose_engines(site, report)
        if not engines:
            return ExecutionStatus.FAILED
        means = Means(self.client, self.clock, self.pace, self.policy, stop, self.concurrency)
        crawl = self.make_crawl(site, stop=stop)
        delivery = Delivery(
            site,
            execution,
            engines=engines,
            absent=absent,
            database=self.database,
            executions=self.executions,
            means=means,
            rules=self.rules,
            report=report,
            on_progress=on_progress,
        )
        intake = Intake(site, destination=delivery, rules=self.rules, clock=self.clock, report=report)
        async with delivery:
            with closing(intake):
                try:
                    await stop.wait_for(self._read_sitemaps(site, crawl, intake, report, on_progress=on_progress))
                except StopRequestedError:
                    report.total = intake.count_total()
                    report.cut_short = True
            await delivery.finish()
        await self._purge(site, execution)
        return _conclude(report, crawl.result, stop=stop)

    async def _read_sitemaps(
        self, site: Site, crawl: Crawl, intake: Intake, report: Report, *, on_progress: Callable[[Report], None]
    ) -> None:
        async with aclosing(crawl.events()) as events:
            async for event in events:
                await intake.take(event)
                on_progress(report)
        report.total = intake.count_total()
        if site.announce_removed and crawl.result.complete and report.total:
            await intake.send_removed()

    async def _purge(self, site: Site, execution: Execution) -> None:
        """Once a day, delete what no longer counts."""
        now = to_milliseconds(self.clock.now())
        async with self.executions.guard(execution) as connection:
            if await claim_purge(connection, site=site.number, now=now):
                ledger = Ledger(self.database, site=site.number, channel=Channel.INDEXNOW)
                deleted = await ledger.purge(connection, before=self.rules.expired_before(now))
                _log.info("ledger.purged", site=site.id, entries=deleted)

    async def _choose_engines(self, site: Site, report: Report) -> tuple[list[Engine], list[Engine]]:
        """The site's engines, and apart from them those that refuse its key for good."""
        broken = await BrokenEngines(self.database, site=site, channel=Channel.INDEXNOW).list_broken()
        reasons = {engine.engine: engine for engine in broken}
        for engine in site.engines:
            if engine.endpoint in reasons:
                entry = report.add_engine(engine)
                entry.broken = True
                entry.reason = reasons[engine.endpoint].reason
                entry.advice = ROTATE_KEY
                report.warnings.append(f"{engine} refuses this key since {reasons[engine.endpoint].since:%Y-%m-%d}")
        usable = [engine for engine in site.engines if engine.endpoint not in reasons]
        if not usable:
            report.errors.append(f"every engine refuses this site's key; nothing was sent. {ROTATE_KEY}")
        return usable, [engine for engine in site.engines if engine.endpoint in reasons]

    def make_crawl(self, site: Site, *, stop: Stop) -> Crawl:
        """A walk over the site's sitemaps that asks again only for what may have changed."""
        memory = SitemapMemory(self.database, site=site.number)

        async def recall(url: str) -> Remembered | None:
            expired_before = self.rules.expired_before(to_milliseconds(self.clock.now()))
            return await memory.recall(url, expired_before=expired_before)

        return Crawl(site, client=self.client, clock=self.clock, policy=self.policy, stop=stop, recall=recall)

    async def _finish(self, execution: Execution, report: Report) -> None:
        report.duration = self.clock.now() - execution.started_at
        await self.executions.finish(
            execution,
            report.status,
            processed=report.submitted,
            failed=report.failed,
            result=report.to_json(),
        )
        _log_summary(report)
        raise_alerts(report)


def _conclude(report: Report, crawl: CrawlResult, *, stop: Stop) -> ExecutionStatus:
    """Gather what the crawl met into the report, and say how the execution went as a whole."""
    report.add_crawl(crawl)
    engines = report.engines.values()
    if report.cut_short or (stop.requested and report.left):
        report.warnings.append(
            f"stopped early: {stop.reason}; all that was done is saved and the next execution goes on from there. "
            "If this happens often, run it more often"
        )
        return ExecutionStatus.INTERRUPTED
    if crawl.roots_read == 0:
        return ExecutionStatus.FAILED
    if report.new and any(engine.failed for engine in engines) and not any(engine.succeeded for engine in engines):
        return ExecutionStatus.FAILED
    if crawl.troubles or any(engine.failed or engine.left or engine.broken for engine in engines):
        return ExecutionStatus.PARTIAL
    return ExecutionStatus.SUCCEEDED


def _log_summary(report: Report) -> None:
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
    for engine in report.engines.values():
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
    for engine in report.engines.values():
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
    return "; ".join(f"{engine.engine}: {engine.reason}" for engine in report.engines.values() if engine.reason)
