"""One execution: plan → outbox → send, over IndexNow, then to channels with a quota."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.broken_engines import BrokenEngines
from tidings.announce.channels.channel import ExecutionContext
from tidings.announce.channels.enabled_channels import list_page_channels
from tidings.announce.channels.protocols.indexnow import ROTATE_KEY, find_limits
from tidings.announce.channels.quota.backlog import store_backlogs
from tidings.announce.channels.quota.kinds import RANKED_KINDS, find_kind
from tidings.announce.due.finder import DueFile, DueFinder
from tidings.announce.execution.alerts import conclude, examine, log_summary, update_alerts
from tidings.announce.execution.parts import ExecutionParts
from tidings.announce.execution.plan import Planner
from tidings.announce.execution.ranked_plan import RankedPlan
from tidings.announce.execution.report import EngineReport, RankedReport, Report
from tidings.announce.execution.results import (
    CrawlEnded,
    CutShort,
    Ended,
    EngineFound,
    OutboxCounted,
    Remark,
    Result,
    fold,
    take_ranked_counts,
)
from tidings.announce.execution_metrics import ExecutionMetrics
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.recorder import TakenPages
from tidings.announce.ledger.stranded_pages import redirect_stranded
from tidings.announce.page_check.checker import PageChecker
from tidings.announce.site.site import Engine, Site
from tidings.announce.site.table import claim_purge
from tidings.announce.sitemap.events import CrawlEvent, CrawlResult, PageSource
from tidings.core.clock import to_milliseconds
from tidings.core.executions import Execution, ExecutionLostError, ExecutionStatus
from tidings.core.logs.logger import get_logger
from tidings.core.stop import Stop, StopRequestedError

if TYPE_CHECKING:
    from tidings.announce.announcer import Announcer

_USUAL_EXECUTIONS = 5
_LOOKED_AT = 30

_log = get_logger(__name__)


async def _find_next(events: AsyncGenerator[CrawlEvent]) -> CrawlEvent | None:
    return await anext(events, None)


def ignore_progress(_: Report) -> None:
    """For callers that do not watch."""


class AnnounceExecution:
    """One execution at work."""

    def __init__(
        self, announcer: "Announcer", execution: Execution, site: Site, *, channels: frozenset[Channel]
    ) -> None:
        self.execution = execution
        # Google may get only sitemaps; then no page is planned for it.
        self._tells_google = Channel.GOOGLE in channels and site.google.key is not None
        channels = channels & list_page_channels(site)
        ranked = {
            kind.channel: RankedReport(EngineReport(kind.engine)) for kind in RANKED_KINDS if kind.channel in channels
        }
        self.report = Report(
            site=site.id,
            host=site.host,
            execution_id=execution.public_id,
            ranked=ranked,
            started_at=execution.started_at,
        )
        self._announcer = announcer
        self._site = site
        self._channels = channels
        self._on_progress: Callable[[Report], None] = ignore_progress
        self._context = ExecutionContext(
            site=site,
            execution=execution,
            database=announcer.database,
            clock=announcer.clock,
            pace=announcer.pace,
            policy=announcer.policy,
            rules=announcer.rules,
            taken=TakenPages(to_milliseconds(execution.started_at)),
            # Only the running execution can write in it.
            transaction=lambda: announcer.executions.guard(execution),
            emit=self._emit,
            save_progress=self._save_progress,
        )
        self._parts = ExecutionParts(announcer, self._context)
        self._recorder = self._context.open_recorder(Channel.INDEXNOW)
        self._ranked: dict[Channel, RankedPlan] = {}
        self._engines: Sequence[Engine] = ()
        self._metrics = ExecutionMetrics()
        self._checker: PageChecker | None = None

    async def run(
        self,
        *,
        stop: Stop,
        pages: PageSource | None = None,
        planning: Stop | None = None,
        on_progress: Callable[[Report], None] = ignore_progress,
    ) -> Report:
        """Plan, send, and end the execution. `planning` ends the planning instead of `stop`. Raises as
        `Announcer.announce` does.
        """
        self._on_progress = on_progress
        try:
            async with self._announcer.executions.keep_alive(self.execution):
                await self._run(stop, pages, planning or stop)
        except ExecutionLostError:
            raise
        except BaseException as error:
            failed, interrupted = ExecutionStatus.FAILED, ExecutionStatus.INTERRUPTED
            self._emit(Remark(error=f"it ended early: {type(error).__name__}"))
            # Where a cancel met it says nothing, and a thousand tracebacks would delay the end of the process.
            trace = isinstance(error, Exception)
            _log.error("execution.broken", site=self._site.id, execution=self.execution.public_id, exc_info=trace)
            await self._finish(failed if isinstance(error, Exception) else interrupted)
            raise
        return self.report

    async def _run(self, stop: Stop, pages: PageSource | None, planning: Stop) -> None:
        await self._open()
        if not self._is_worth_a_crawl:
            await self._finish(self._conclude_without_crawl())
            return
        if pages is None:
            pages = self._announcer.make_crawl(self._site, stop=stop, channels=self._channels)
        # What earlier executions left is counted before the first of it is sent.
        planner = await self._open_planner()
        async with self._parts.start_senders(self._engines, stop=stop) as senders:
            planner.wake = senders.wake
            await self._plan(pages, planner, stop=planning, budget=stop.remaining())
            await senders.finish()
        await self._count_outbox()
        await self._send_ranked(pages.result, stop)
        await self._purge()
        status, warning = conclude(self.report, pages.result, stop=stop)
        self._emit(Remark(warning=warning))
        await self._finish(status)

    @property
    def _is_worth_a_crawl(self) -> bool:
        """Whether pages can be sent, or the backlog of a used-up quota can be counted."""
        return (
            bool(self._engines)
            or self._tells_google
            or any(ranked.chooser is not None for ranked in self._ranked.values())
        )

    async def _open(self) -> None:
        """Find out which engines and channels can be used."""
        _log.info(
            "execution.started", site=self._site.id, execution=self.execution.public_id, key_hint=self._site.key.hint
        )
        for channel in self.report.ranked:
            self._ranked[channel] = self._parts.make_ranked_plan(channel)
            await self._ranked[channel].open()
            report = self.report.ranked[channel]
            # An exhausted quota is normal; every other reason is a warning.
            if report.skipped and (report.trouble or report.engine.broken):
                self._emit(Remark(warning=f"{find_kind(channel).title}: {report.skipped}"))
        self._engines = await self._choose_engines() if Channel.INDEXNOW in self._channels else ()

    async def _choose_engines(self) -> Sequence[Engine]:
        """The site's engines without those that refuse its key for good."""
        broken = BrokenEngines(self._context.database, site=self._site, channel=Channel.INDEXNOW)
        refusals = {each.engine: each for each in await broken.list_broken()}
        for engine in self._site.engines:
            self._emit(EngineFound(engine, refusals.get(engine.endpoint)))
        usable = [engine for engine in self._site.engines if engine.endpoint not in refusals]
        if not usable:
            self._emit(Remark(error=f"every engine refuses this site's key; nothing was sent to them. {ROTATE_KEY}"))
        return usable

    async def _open_planner(self) -> Planner:
        if self._engines:
            # Pages that wait only for engines which the site no longer has go to the present ones.
            await redirect_stranded(self._context.database, self._site, transaction=self._context.transaction)
        planner = Planner(self._context, batch_size=find_limits(self._site).batch_size)
        await planner.open()
        return planner

    async def _plan(self, crawl: PageSource, planner: Planner, *, stop: Stop, budget: timedelta | None) -> None:
        """Crawl, and put what is due into the outbox. After a stop, what was planned so far counts.

        `budget`: the rest of the execution's, of which the page check has a share.
        """
        finder = DueFinder(
            self._site,
            ledger=self._recorder.ledger if self._engines else None,
            choosers={channel: plan.chooser for channel, plan in self._ranked.items() if plan.chooser is not None},
            rules=self._announcer.rules,
            clock=self._announcer.clock,
            waiting=planner.waiting,
        )
        async with self._parts.open_checker(stop, budget=budget) as self._checker:
            await self._plan_pages(crawl, finder, planner, stop=stop)

    async def _plan_pages(self, crawl: PageSource, finder: DueFinder, planner: Planner, *, stop: Stop) -> None:
        with closing(finder):
            try:
                await self._read_sitemaps(crawl, finder, planner, stop=stop)
            except StopRequestedError:
                self._emit(CutShort())
            # Pages that were read count: they are in the outbox, and the counts add up.
            await planner.flush()
            self._emit(CrawlEnded(crawl.result, finder.count_total(), finder.count_waiting()))
        if crawl.result.roots_read and not stop.requested:
            for ranked in self._ranked.values():
                await ranked.plan(self._checker)

    async def _read_sitemaps(self, crawl: PageSource, finder: DueFinder, planner: Planner, *, stop: Stop) -> None:
        """A stop ends the wait for the next pages; those that were read are planned to the end."""
        async with aclosing(crawl.events()) as events:
            while (event := await stop.wait_for(_find_next(events))) is not None:
                if (file := await finder.take(event)) is not None:
                    self._emit(file.counts)
                    if self._engines:
                        await planner.add_file(await self._check_pages(file))
                while finder.chooser_errors:
                    channel, error = finder.chooser_errors.popitem()
                    self._ranked[channel].record_broken(error)
        if self._site.announce_removed and self._engines and crawl.result.complete and finder.count_total():
            await planner.add_removed(unchanged=finder.unchanged)

    async def _check_pages(self, file: DueFile) -> DueFile:
        """The file without pages that should not be announced. If there are any, the next execution reads the file and
        checks them again."""
        if self._checker is None or not file.due:
            return file
        admitted, result = await self._checker.check(file.due)
        self._emit(result)
        return file if len(admitted) == len(file.due) else replace(file, due=admitted, channels=0)

    async def _count_outbox(self) -> None:
        """Count what is left, and save IndexNow's result before any other channel is asked."""
        if Channel.INDEXNOW not in self._channels:
            return
        outbox = self._recorder.outbox
        self._emit(OutboxCounted(await outbox.count_open(), await outbox.count_untaken()))
        await self._save_progress()

    async def _send_ranked(self, crawl: CrawlResult, stop: Stop) -> None:
        """Send to the channels with a quota in parallel: a slow or failing one does not affect the others."""
        if crawl.roots_read:
            sending = [self._send_to(ranked, stop=stop) for ranked in self._ranked.values() if ranked.can_send]
            if self._tells_google and not self.report.cut_short:
                submitter = self._parts.make_submitter()
                sending.append(submitter.run(crawl.fingerprints, stop=stop))
            results = await asyncio.gather(*sending, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
        if not self.report.looked_up:
            self.report = take_ranked_counts(self.report)

    async def _send_to(self, ranked: RankedPlan, *, stop: Stop) -> None:
        with ranked.isolate():
            while True:
                sender = self._parts.make_ranked_sender(ranked.channel, stop)
                await sender.run()
                if sender.closed or stop.requested or not await ranked.plan_more():
                    break
        await ranked.count()

    def _conclude_without_crawl(self) -> ExecutionStatus:
        """End without a crawl, because nothing can be sent on any channel. An exhausted quota is no failure, every
        other reason is."""
        ranked = self.report.ranked.values()
        if self.report.engines or any(each.trouble or each.engine.broken for each in ranked):
            return ExecutionStatus.FAILED
        return ExecutionStatus.SUCCEEDED

    async def _purge(self) -> None:
        """Once a day, delete what no longer counts."""
        now = self._announcer.clock.now()
        before = self._announcer.rules.expired_before(to_milliseconds(now))
        async with self._context.transaction() as connection:
            if not await claim_purge(connection, site=self._site.number, now=to_milliseconds(now)):
                return
            await self._recorder.statistics.purge(connection, today=now.astimezone(UTC).date())
            deleted = await self._recorder.ledger.purge(connection, before=before)
        _log.info("ledger.purged", site=self._site.id, entries=deleted)
        for ranked in self._ranked.values():
            await ranked.purge(before=before)

    async def _finish(self, status: ExecutionStatus) -> None:
        """End the execution with its report, and raise or resolve alerts in the same transaction."""
        self._emit(Ended(status, self._announcer.clock.now() - self.execution.started_at))
        report, alerts = self.report, self._announcer.alerts
        findings = examine(report, usual_total=await self._find_usual_total())

        async def conclude_with(connection: AsyncConnection) -> None:
            await update_alerts(connection, findings, alerts=alerts)
            await self._metrics.save(connection, report, database=self._announcer.database)
            await store_backlogs(
                connection, report.count_backlogs(), database=self._announcer.database, site=self._site.number
            )

        await self._announcer.executions.finish(
            self.execution,
            report.status,
            processed=report.submitted,
            failed=report.failed,
            result=report.to_json(),
            also=conclude_with,
        )
        log_summary(report)
        alerts.wake()
        if report.status is ExecutionStatus.SUCCEEDED:
            await self._announcer.ping.send()

    async def _find_usual_total(self) -> int:
        """The largest sitemap among the last executions that read it whole."""
        recent = await self._announcer.executions.list_recent(self.execution.workflow_name, limit=_LOOKED_AT)
        ended = (ExecutionStatus.SUCCEEDED, ExecutionStatus.PARTIAL)
        # An execution without files was for given pages, or a correction.
        whole = [record.result for record in recent if record.status in ended and record.result.get("files")]
        return max((result.get("total", 0) for result in whole[:_USUAL_EXECUTIONS]), default=0)

    def _emit(self, result: Result) -> None:
        self.report = fold(self.report, result)
        self._metrics.record(result)
        self._on_progress(self.report)

    async def _save_progress(self) -> None:
        report, executions = self.report, self._announcer.executions
        async with self._context.transaction() as connection:
            await executions.save_progress(
                connection,
                self.execution,
                processed=report.submitted,
                failed=report.failed,
                progress=report.to_json(),
            )
