"""Builds the parts of one execution: senders, channels with a quota, the page check. It decides nothing."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tidings.announce.channels.channel import ExecutionContext
from tidings.announce.channels.google.access import GoogleAccess
from tidings.announce.channels.google.indexing import GoogleIndexingApi
from tidings.announce.channels.google.search_console import SearchConsole
from tidings.announce.channels.google.sitemap_submitter import SitemapSubmitter
from tidings.announce.channels.protocols.baidu import BaiduApi
from tidings.announce.channels.protocols.bing import BingApi
from tidings.announce.channels.protocols.indexnow import IndexNowChannel
from tidings.announce.channels.quota.kinds import find_kind
from tidings.announce.channels.quota.ranked import RankedApi, RankedChannel, open_quota
from tidings.announce.channels.sender import Sender
from tidings.announce.execution.ranked_plan import RankedPlan
from tidings.announce.execution.senders import Senders
from tidings.announce.ledger.ledger import Channel
from tidings.announce.page_check.checker import PageChecker
from tidings.announce.page_check.settings import PageCheckMode
from tidings.announce.site.site import Engine
from tidings.core.stop import Stop

if TYPE_CHECKING:
    from tidings.announce.announcer import Announcer


@dataclass(frozen=True, slots=True)
class ExecutionParts:
    """The parts of one execution of one site."""

    announcer: "Announcer"
    context: ExecutionContext

    @asynccontextmanager
    async def open_checker(self, stop: Stop, *, budget: timedelta | None) -> AsyncIterator[PageChecker | None]:
        """The page check, if the site wants one. `budget`: the rest of the execution's."""
        settings = self.context.site.page_check
        if settings.mode is PageCheckMode.OFF:
            yield None
            return
        checker = PageChecker(
            settings, client=self.announcer.client, clock=self.context.clock, stop=stop, budget=budget
        )
        try:
            yield checker
        finally:
            await checker.close()

    def make_ranked_plan(self, channel: Channel) -> RankedPlan:
        context, kind = self.context, find_kind(channel)
        # The day on which the execution began, also past midnight.
        began = context.execution.started_at
        quota = open_quota(context.site, kind, database=context.database, clock=context.clock, at=began)
        return RankedPlan(RankedChannel(kind, self._make_api(channel), quota, context))

    def make_submitter(self) -> SitemapSubmitter:
        return SitemapSubmitter(self.context, SearchConsole(self._make_access()))

    def start_senders(self, engines: Sequence[Engine], *, stop: Stop) -> Senders:
        """One sender for each engine of IndexNow."""
        context, announcer = self.context, self.announcer
        channels = [IndexNowChannel(context.site, each, announcer.engine_client, context.clock) for each in engines]
        senders = [Sender(each, context=context, stop=stop, concurrency=announcer.concurrency) for each in channels]
        return Senders(senders, context=context, stop=stop)

    def make_ranked_sender(self, channel: RankedChannel, stop: Stop) -> Sender:
        """A sender of everything that is planned for a channel with a quota by now, one request at a time."""
        return Sender(channel, context=self.context, stop=stop, concurrency=1, all_planned=True)

    def _make_access(self) -> GoogleAccess:
        announcer = self.announcer
        return GoogleAccess(announcer.engine_client, announcer.clock, announcer.bases.google, announcer.google_tokens)

    def _make_api(self, channel: Channel) -> RankedApi:
        client, clock, bases = self.announcer.engine_client, self.announcer.clock, self.announcer.bases
        if channel is Channel.BAIDU:
            return BaiduApi(client, clock, bases.baidu)
        if channel is Channel.GOOGLE:
            return GoogleIndexingApi(self._make_access())
        return BingApi(client, clock, bases.bing)
