"""Builds the parts of one execution: planner, senders, channels and records. It decides nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.broken_engines import BrokenEngines
from tidings.announce.channels.channel import SendingChannel
from tidings.announce.channels.google.access import GoogleAccess
from tidings.announce.channels.google.indexing import GoogleIndexingApi
from tidings.announce.channels.google.search_console import SearchConsole
from tidings.announce.channels.google.sitemap_submitter import SitemapSubmitter
from tidings.announce.channels.google.submissions import SitemapSubmissions
from tidings.announce.channels.protocols.baidu import BaiduApi
from tidings.announce.channels.protocols.bing import BingApi
from tidings.announce.channels.protocols.indexnow import IndexNowChannel, find_batch_size
from tidings.announce.channels.quota.key_cooldowns import KeyRests
from tidings.announce.channels.quota.kinds import find_kind
from tidings.announce.channels.quota.quota import Quota
from tidings.announce.channels.quota.ranked import RankedApi, RankedChannel, RankedKind
from tidings.announce.channels.sender import Sender, SendingContext, WakeUp
from tidings.announce.execution.plan import Planner
from tidings.announce.execution.ranked_plan import RankedPlan
from tidings.announce.execution.results import CutShort, Result
from tidings.announce.execution.senders import Senders
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.recorder import Recorder, TakenPages
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
        self._emit = emit
        self._save_progress = save_progress
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

    def make_planner(self, wake: Callable[[], None]) -> Planner:
        return Planner(
            self.open_recorder(Channel.INDEXNOW),
            # Engines that refuse the key get their pages once there is another.
            engines=[engine.endpoint for engine in self._site.engines],
            batch_size=find_batch_size(self._site),
            validators=self._validators,
            transaction=self.transaction,
            clock=self._announcer.clock,
            emit=self._emit,
            wake=wake,
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
            broken=self.open_broken(channel),
            validators=self._validators,
            rules=self._announcer.rules,
            transaction=self.transaction,
            clock=self._announcer.clock,
            emit=self._emit,
        )

    def make_submitter(self) -> SitemapSubmitter:
        announcer = self._announcer
        return SitemapSubmitter(
            self._site,
            console=SearchConsole(self._make_access()),
            submissions=SitemapSubmissions(announcer.database, site=self._site.number),
            transaction=self.transaction,
            policy=announcer.policy,
            pace=announcer.pace,
            clock=announcer.clock,
            emit=self._emit,
        )

    def start_senders(self, engines: Sequence[Engine], *, stop: Stop) -> Senders:
        """One sender for each engine of IndexNow."""
        announcer = self._announcer

        def prepare(engine: Engine) -> Callable[[WakeUp], Sender]:
            channel = IndexNowChannel(self._site, engine, announcer.engine_client, announcer.clock)
            return lambda wake: self._make_sender(channel, stop, wake, concurrency=announcer.concurrency)

        return Senders(
            [prepare(engine) for engine in engines],
            stop=stop,
            clock=announcer.clock,
            on_cut_short=lambda: self._emit(CutShort()),
        )

    def make_ranked_sender(self, channel: RankedChannel, stop: Stop) -> Sender:
        """A sender of everything that is planned for a channel with a quota by now, one request at a time."""
        return self._make_sender(channel, stop, WakeUp(ended=True), concurrency=1)

    def _make_sender(self, channel: SendingChannel, stop: Stop, wake: WakeUp, *, concurrency: int) -> Sender:
        announcer = self._announcer
        context = SendingContext(
            clock=announcer.clock,
            pace=announcer.pace,
            policy=announcer.policy,
            stop=stop,
            transaction=self.transaction,
            emit=self._emit,
            save_progress=self._save_progress,
        )
        return Sender(
            channel,
            recorder=self.open_recorder(channel.channel),
            broken=self.open_broken(channel.channel),
            context=context,
            wake=wake,
            concurrency=concurrency,
        )

    def _make_ranked_channel(self, kind: RankedKind) -> RankedChannel:
        announcer, site = self._announcer, self._site
        quota = Quota(
            announcer.database,
            terms=kind.terms,
            site=site.number,
            # The day on which the execution began, also past midnight.
            day=kind.terms.find_day(self._execution.started_at),
            limit=kind.pick(site).daily_quota,
            clock=announcer.clock,
            asked=kind.pick(site).auto,
            project=kind.pick(site).quota_project,
        )
        return RankedChannel(site, kind, self._make_api(kind), quota, KeyRests(announcer.database), self.transaction)

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
