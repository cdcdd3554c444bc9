"""Announce one site: crawl → due → IndexNow → Bing → record. The story on one screen; the details are one call away."""

from collections.abc import Callable
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace

from tidings.announce.channels.bing import DEFAULT_BASE, BingApi
from tidings.announce.channels.bing_channel import BingChannel
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.channels.indexnow import ROTATE_KEY
from tidings.announce.channels.lanes import Means
from tidings.announce.due.rules import DueRules
from tidings.announce.execution.alerts import conclude, examine, log_summary, tell
from tidings.announce.execution.delivery import Delivery
from tidings.announce.execution.given import GivenPages
from tidings.announce.execution.intake import Intake
from tidings.announce.execution.report import Report
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.site import ANNOUNCE, Engine, Site
from tidings.announce.site.table import claim_purge
from tidings.announce.sitemap.crawl import Crawl, Remembered
from tidings.announce.sitemap.memory import BrokenEngines, SitemapMemory
from tidings.core.alerts import Alerts
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.executions import Execution, ExecutionLostError, Executions, ExecutionStatus
from tidings.core.logs.logger import get_logger
from tidings.core.net.client import GuardedClient
from tidings.core.net.pace import Pace
from tidings.core.net.retry import RetryPolicy
from tidings.core.stop import Stop, StopRequestedError

_USUAL_EXECUTIONS = 5
_LOOKED_AT = 30

_log = get_logger(__name__)


class BingDisabledError(ValueError):
    """Bing was asked for, and the site does not have it."""

    def __init__(self) -> None:
        super().__init__("Bing submission is not enabled for this site")


def choose_channels(site: Site, choice: ChannelChoice) -> frozenset[Channel]:
    """The channels of an execution of this site. Raises BingDisabledError."""
    if choice is ChannelChoice.INDEXNOW or (choice is ChannelChoice.ALL and not site.bing.enabled):
        return frozenset({Channel.INDEXNOW})
    if not site.bing.enabled:
        raise BingDisabledError
    return frozenset({Channel.BING} if choice is ChannelChoice.BING else Channel)


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
    alerts: Alerts
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    rules: DueRules = field(default_factory=DueRules)
    concurrency: int = 3
    bing_base: str = DEFAULT_BASE

    async def announce(
        self,
        site: Site,
        *,
        stop: Stop,
        channel: ChannelChoice = ChannelChoice.ALL,
        on_progress: Callable[[Report], None] = ignore_progress,
    ) -> Report:
        """Run one execution for one site and return what it did.

        Raises AlreadyRunningError, ExecutionLostError, BingDisabledError. Any other error ends the execution as
        `failed` and is raised.
        """
        channels = choose_channels(site, channel)
        execution = await self.executions.acquire(site.workflow_name, kind=ANNOUNCE)
        return await self.carry_out(execution, site, channels=channels, stop=stop, on_progress=on_progress)

    async def carry_out(
        self,
        execution: Execution,
        site: Site,
        *,
        channels: frozenset[Channel],
        stop: Stop,
        on_progress: Callable[[Report], None] = ignore_progress,
        given: GivenPages | None = None,
    ) -> Report:
        """Do the work of an execution that has been acquired, and end it. Raises as `announce` does.

        Where pages are `given`, they are announced instead of what the sitemaps list.
        """
        report = Report(site=site.id, execution_id=execution.public_id)
        _log.info("execution.started", site=site.id, execution=execution.public_id, key=site.key.hint)
        if given is not None:
            # Nothing can be said of what has left the sitemap, which is not read.
            site = replace(site, announce_removed=False)
        run = _Run(
            self,
            site,
            execution,
            channels=channels,
            report=report,
            stop=stop,
            on_progress=on_progress,
            crawl=given or self.make_crawl(site, stop=stop, channels=channels),
        )
        try:
            async with self.executions.keep_alive(execution):
                report.status = await run.carry_out()
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

    def make_crawl(
        self, site: Site, *, stop: Stop, channels: frozenset[Channel] = frozenset({Channel.INDEXNOW})
    ) -> Crawl:
        """A walk over the site's sitemaps that asks again only for what may have changed."""
        memory = SitemapMemory(self.database, site=site.number)

        async def recall(url: str) -> Remembered | None:
            expired_before = self.rules.expired_before(to_milliseconds(self.clock.now()))
            return await memory.recall(url, expired_before=expired_before, channels=sum(channels))

        return Crawl(site, client=self.client, clock=self.clock, policy=self.policy, stop=stop, recall=recall)

    async def _finish(self, execution: Execution, report: Report) -> None:
        report.duration = self.clock.now() - execution.started_at
        findings = examine(report, usual_total=await self._find_usual_total(execution))
        await self.executions.finish(
            execution,
            report.status,
            processed=report.submitted,
            failed=report.failed,
            result=report.to_json(),
            also=lambda connection: tell(connection, findings, alerts=self.alerts),
        )
        log_summary(report)
        self.alerts.wake()

    async def _find_usual_total(self, execution: Execution) -> int:
        """The largest sitemap among the last executions that read it whole."""
        recent = await self.executions.list_recent(execution.workflow_name, limit=_LOOKED_AT)
        ended = (ExecutionStatus.SUCCEEDED, ExecutionStatus.PARTIAL)
        # Without files it was for given pages, or a correction, and says nothing of the sitemap.
        whole = [record.result for record in recent if record.status in ended and record.result.get("files")]
        return max((result.get("total", 0) for result in whole[:_USUAL_EXECUTIONS]), default=0)


class _Run:
    """One execution at work."""

    def __init__(
        self,
        announcer: Announcer,
        site: Site,
        execution: Execution,
        *,
        channels: frozenset[Channel],
        report: Report,
        stop: Stop,
        on_progress: Callable[[Report], None],
        crawl: Crawl | GivenPages,
    ) -> None:
        self._announcer = announcer
        self._site = site
        self._execution = execution
        self._channels = channels
        self._report = report
        self._stop = stop
        self._on_progress = on_progress
        self._means = Means(
            announcer.client, announcer.clock, announcer.pace, announcer.policy, stop, announcer.concurrency
        )
        self._crawl = crawl

    async def carry_out(self) -> ExecutionStatus:
        bing = await self._open_bing() if Channel.BING in self._channels else None
        delivery = await self._open_delivery() if Channel.INDEXNOW in self._channels else None
        if delivery is None and (bing is None or bing.chooser is None):
            return self._conclude_without_crawl()
        if delivery is None:
            await self._read(None, bing)
        else:
            async with delivery:
                await self._read(delivery, bing)
                await delivery.finish()
        if bing is not None and self._crawl.result.roots_read:
            await self._save_progress()
            await bing.submit()
            if delivery is None:
                self._report.count_bing(bing.report)
        await self._purge(delivery, bing)
        return conclude(self._report, self._crawl.result, stop=self._stop)

    async def _save_progress(self) -> None:
        """What the engines took is on record before Bing is asked for anything."""
        report, executions = self._report, self._announcer.executions
        async with executions.guard(self._execution) as connection:
            await executions.save_progress(
                connection,
                self._execution,
                processed=report.submitted,
                failed=report.failed,
                progress=report.to_json(),
            )

    async def _open_bing(self) -> BingChannel:
        announcer = self._announcer
        channel = BingChannel(
            self._site,
            self._execution,
            api=BingApi(announcer.client, announcer.clock, announcer.bing_base),
            database=announcer.database,
            executions=announcer.executions,
            means=self._means,
            rules=announcer.rules,
            on_progress=lambda: self._on_progress(self._report),
        )
        self._report.bing = channel.report
        await channel.open()
        # That the quota is used up is the normal course; all else is worth a warning.
        if channel.report.skipped and (channel.report.trouble or channel.report.engine.broken):
            self._report.warnings.append(f"Bing: {channel.report.skipped}")
        return channel

    async def _open_delivery(self) -> Delivery | None:
        """The way to the engines; None where every one of them refuses the site's key."""
        engines, absent = await self._choose_engines()
        if not engines:
            return None
        announcer = self._announcer
        return Delivery(
            self._site,
            self._execution,
            engines=engines,
            absent=absent,
            database=announcer.database,
            executions=announcer.executions,
            means=self._means,
            rules=announcer.rules,
            report=self._report,
            on_progress=self._on_progress,
        )

    async def _choose_engines(self) -> tuple[list[Engine], list[Engine]]:
        """The site's engines, and apart from them those that refuse its key for good."""
        site, report = self._site, self._report
        broken = await BrokenEngines(self._announcer.database, site=site, channel=Channel.INDEXNOW).list_broken()
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
            report.errors.append(f"every engine refuses this site's key; nothing was sent to them. {ROTATE_KEY}")
        return usable, [engine for engine in site.engines if engine.endpoint in reasons]

    async def _read(self, delivery: Delivery | None, bing: BingChannel | None) -> None:
        """Crawl, and hand over what is due. After a stop, what was read and handed over so far counts."""
        intake = Intake(
            self._site,
            destination=delivery,
            chooser=None if bing is None else bing.chooser,
            rules=self._announcer.rules,
            clock=self._announcer.clock,
            report=self._report,
        )
        with closing(intake):
            try:
                await self._stop.wait_for(self._read_sitemaps(intake))
            except StopRequestedError:
                self._report.cut_short = True
            self._report.total = intake.count_total()

    async def _read_sitemaps(self, intake: Intake) -> None:
        async with aclosing(self._crawl.events()) as events:
            async for event in events:
                await intake.take(event)
                self._on_progress(self._report)
        # Not the report's total: files that are unchanged are not yet in that.
        if self._site.announce_removed and self._crawl.result.complete and intake.count_total():
            await intake.send_removed()

    def _conclude_without_crawl(self) -> ExecutionStatus:
        """Nothing can be sent on any channel: that Bing's quota is used up is no failure, all else is."""
        bing = self._report.bing
        if self._report.engines or bing is None or bing.trouble or bing.engine.broken:
            return ExecutionStatus.FAILED
        return ExecutionStatus.SUCCEEDED

    async def _purge(self, delivery: Delivery | None, bing: BingChannel | None) -> None:
        """Once a day, delete what no longer counts."""
        now = to_milliseconds(self._announcer.clock.now())
        before = self._announcer.rules.expired_before(now)
        async with self._announcer.executions.guard(self._execution) as connection:
            if not await claim_purge(connection, site=self._site.number, now=now):
                return
            deleted = 0 if delivery is None else await delivery.purge(connection, before=before)
        _log.info("ledger.purged", site=self._site.id, entries=deleted)
        if bing is not None:
            await bing.purge(before=before)
