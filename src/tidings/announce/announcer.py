"""Announces sites: the services that all executions share, and the start of one. `pipeline` has the steps of an
execution."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.channels.enabled_channels import choose_channels
from tidings.announce.channels.google.access import GoogleTokens
from tidings.announce.channels.quota.kinds import ApiBases
from tidings.announce.due.rules import DueRules
from tidings.announce.execution.pipeline import AnnounceExecution, ignore_progress
from tidings.announce.execution.report import Report
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.site import ANNOUNCE, Site
from tidings.announce.sitemap.crawl import Crawl
from tidings.announce.sitemap.events import PageSource, Remembered
from tidings.announce.sitemap.local import LocalSitemaps
from tidings.announce.sitemap.validators import SitemapValidators
from tidings.core.alerts.service import Alerts
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.executions import Executions
from tidings.core.net.client import GuardedClient
from tidings.core.net.pace import Pace
from tidings.core.net.ping import Ping
from tidings.core.net.retry import RetryPolicy
from tidings.core.stop import Stop


@dataclass(frozen=True, slots=True)
class Announcer:
    """Everything that an execution needs; made once by the composition root."""

    database: Database
    executions: Executions
    # Reads sitemaps and key files.
    client: GuardedClient
    # Sends to engines.
    engine_client: GuardedClient
    clock: Clock
    pace: Pace
    alerts: Alerts
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    rules: DueRules = field(default_factory=DueRules)
    # Requests in flight for one engine, at most.
    concurrency: int = 3
    # An external monitor, called after each successful execution.
    ping: Ping = field(default_factory=Ping)
    # The addresses of channels.
    bases: ApiBases = field(default_factory=ApiBases)
    google_tokens: GoogleTokens = field(default_factory=GoogleTokens)

    async def announce(
        self,
        site: Site,
        *,
        stop: Stop,
        channel: ChannelChoice = ChannelChoice.ALL,
        pages: PageSource | None = None,
        on_progress: Callable[[Report], None] = ignore_progress,
    ) -> Report:
        """Run one execution for one site and return its report. `pages` replace those of the site's sitemaps.

        Raises AlreadyRunningError, ExecutionLostError, ChannelDisabledError. Any other error ends the execution as
        `failed` and is raised.
        """
        channels = choose_channels(site, channel)
        execution = await self.executions.acquire(site.workflow_name, kind=ANNOUNCE)
        work = AnnounceExecution(self, execution, site, channels=channels)
        return await work.run(stop=stop, pages=pages, on_progress=on_progress)

    def make_crawl(
        self,
        site: Site,
        *,
        stop: Stop,
        channels: frozenset[Channel] = frozenset({Channel.INDEXNOW}),
        local: LocalSitemaps | None = None,
    ) -> Crawl:
        """A walk over the site's sitemaps that reads only files which may have changed; `local` ones from this disk."""
        validators = SitemapValidators(self.database, site=site.number)

        async def recall(url: str) -> Remembered | None:
            expired_before = self.rules.expired_before(to_milliseconds(self.clock.now()))
            return await validators.recall(url, expired_before=expired_before, channels=sum(channels))

        return Crawl(
            site,
            client=self.client,
            clock=self.clock,
            policy=self.policy,
            stop=stop,
            recall=recall,
            local=local,
            pace=self.pace,
        )
