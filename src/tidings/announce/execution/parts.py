"""Builds the parts of one execution: planner, senders, channels and records. It decides nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.broken_engines import BrokenEngines
from tidings.announce.channels.channel import ExecutionContext, SendingChannel
from tidings.announce.channels.google.access import GoogleAccess
from tidings.announce.channels.google.indexing import GoogleIndexingApi
from tidings.announce.channels.google.search_console import SearchConsole
from tidings.announce.channels.google.sitemap_submitter import SitemapSubmitter
from tidings.announce.channels.protocols.baidu import BaiduApi
from tidings.announce.channels.protocols.bing import BingApi
from tidings.announce.channels.protocols.indexnow import IndexNowChannel, find_limits
from tidings.announce.channels.quota.key_cooldowns import KeyRests
from tidings.announce.channels.quota.kinds import find_kind
from tidings.announce.channels.quota.ranked import RankedApi, RankedChannel, RankedKind, open_quota
from tidings.announce.channels.sender import Sender, WakeUp
from tidings.announce.execution.plan import Planner
from tidings.announce.execution.ranked_plan import RankedPlan
from tidings.announce.execution.results import CutShort, Result
from tidings.announce.execution.senders import Senders
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.recorder import Recorder, TakenPages
from tidings.announce.ledger.stranded_pages import StrandedPages
from tidings.announce.page_check.checker import PageChecker
from tidings.announce.page_check.settings import PageCheckMode
from tidings.announce.site.site import Engine, Site
from tidings.announce.sitemap.validators import SitemapValidators
from tidings.core.clock import to_milliseconds
from tidings.core.executions import Execution
from tidings.core.stop import Stop

if TYPE_CHECKING:
    from tidings.announce.announcer import Announcer


class ExecutionParts:
    """The parts of one execution of one site."""

    def __init__(
        self,
        announcer: "Announcer",
        execution: Execution,
        site: Site,
        *,
        emit: Callable[[Result], None],
        save_progress: Callable[[], Awaitable[None]],
    ) -> None:
        self._announcer = announcer
        self._execution = execution
        self._site = site
        self._context = ExecutionContext(
            database=announcer.database,
            clock=announcer.clock,
            pace=announcer.pace,
            policy=announcer.policy,
            rules=announcer.rules,
            transaction=self.transaction,
            emit=emit,
            save_progress=save_progress,
        )
        self._validators = SitemapValidators(announcer.database, site=site.number)
        self._taken = TakenPages(to_milliseconds(execution.started_at))

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction that only the running execution can write in."""
        return self._announcer.executions.guard(self._execution)

    def open_recorder(self, channel: Channel) -> Recorder:
        number = self._site.number
        return Recorder.open(
            self._announcer.database, site=number, channel=channel, execution=self._execution.id, taken=self._taken
        )

    def open_broken(self, channel: Channel) -> BrokenEngines:
        return BrokenEngines(self._announcer.database, site=self._site, channel=channel)

    def open_stranded_pages(self) -> StrandedPages:
        engines = [engine.endpoint for engine in self._site.engines]
        return StrandedPages(
            self._announcer.database, site=self._site.number, channel=Channel.INDEXNOW, engines=engines
        )

    def make_planner(self) -> Planner:
        return Planner(
            self.open_recorder(Channel.INDEXNOW),
            context=self._context,
            # Engines that refuse the key get their pages once the site has another one.
            engines=tuple(engine.endpoint for engine in self._site.engines),
            batch_size=find_limits(self._site).batch_size,
            validators=self._validators,
        )

    @asynccontextmanager
    async def open_checker(self, stop: Stop) -> AsyncIterator[PageChecker | None]:
        """The page check, if the site wants one."""
        settings = self._site.page_check
        if settings.mode is PageCheckMode.OFF:
            yield None
            return
        checker = PageChecker(settings, client=self._announcer.client, clock=self._announcer.clock, stop=stop)
        try:
            yield checker
        finally:
            await checker.close()

    def make_ranked_plan(self, channel: Channel) -> RankedPlan:
        return RankedPlan(
            self._make_ranked_channel(find_kind(channel)),
            self.open_recorder(channel),
            context=self._context,
            broken=self.open_broken(channel),
            validators=self._validators,
        )

    def make_submitter(self) -> SitemapSubmitter:
        return SitemapSubmitter(self._site, context=self._context, console=SearchConsole(self._make_access()))

    def start_senders(self, engines: Sequence[Engine], *, stop: Stop) -> Senders:
        """One sender for each engine of IndexNow."""
        clock, announcer = self._context.clock, self._announcer
        channels = [IndexNowChannel(self._site, engine, announcer.engine_client, clock) for engine in engines]
        senders = [self._make_sender(each, stop, WakeUp(), concurrency=announcer.concurrency) for each in channels]
        return Senders(senders, stop=stop, clock=clock, on_cut_short=lambda: self._context.emit(CutShort()))

    def make_ranked_sender(self, channel: RankedChannel, stop: Stop) -> Sender:
        """A sender of everything that is planned for a channel with a quota by now, one request at a time."""
        return self._make_sender(channel, stop, WakeUp(ended=True), concurrency=1)

    def _make_sender(self, channel: SendingChannel, stop: Stop, wake: WakeUp, *, concurrency: int) -> Sender:
        return Sender(
            channel,
            context=self._context,
            recorder=self.open_recorder(channel.channel),
            broken=self.open_broken(channel.channel),
            stop=stop,
            wake=wake,
            concurrency=concurrency,
        )

    def _make_ranked_channel(self, kind: RankedKind) -> RankedChannel:
        database, clock, site = self._context.database, self._context.clock, self._site
        # The day on which the execution began, also past midnight.
        quota = open_quota(site, kind, database=database, clock=clock, at=self._execution.started_at)
        return RankedChannel(site, kind, self._make_api(kind), quota, KeyRests(database), self._context)

    def _make_access(self) -> GoogleAccess:
        announcer = self._announcer
        return GoogleAccess(announcer.engine_client, announcer.clock, announcer.bases.google, announcer.google_tokens)

    def _make_api(self, kind: RankedKind) -> RankedApi:
        client, clock, bases = self._announcer.engine_client, self._announcer.clock, self._announcer.bases
        if kind.channel is Channel.BAIDU:
            return BaiduApi(client, clock, bases.baidu)
        if kind.channel is Channel.GOOGLE:
            return GoogleIndexingApi(self._make_access())
        return BingApi(client, clock, bases.bing)
