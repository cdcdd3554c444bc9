"""What the tests of Bing, Baidu and Google play on: a stored site, its engine, and an announcer on the test's clock."""

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from tests.conftest import Bench
from tests.fakes import FakeClock
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.channels.quota.kinds import find_kind
from tidings.announce.channels.quota.quota import QuotaState
from tidings.announce.channels.quota.ranked import open_quota
from tidings.announce.due.pages import hash_urls
from tidings.announce.execution.report import Report
from tidings.announce.ledger.failed_pages import FailedPage, FailedPages
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.site.site import Site
from tidings.core.stop import Stop
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStage:
    """A stored site with one channel switched on, and everything it is announced to."""

    channel: ClassVar[Channel]

    bench: Bench
    clock: FakeClock
    web: SandboxSite
    engine: SandboxEngine
    site: Site

    async def announce(self, *, channel: ChannelChoice = ChannelChoice.ALL, stop: Stop | None = None) -> Report:
        return await self.bench.announcer.announce(
            self.site, stop=stop or Stop(clock=self.clock, budget=timedelta(hours=1)), channel=channel
        )

    async def read_quota(self) -> QuotaState:
        return await open_quota(
            self.site, find_kind(self.channel), database=self.bench.database, clock=self.clock
        ).read()

    async def find_entered(self, channel: Channel | None = None) -> set[str]:
        """The site's pages that stand in the ledger of a channel; of its own by default."""
        asked = dict(zip(hash_urls(url.encode() for url in self.web.urls()), self.web.urls(), strict=True))
        ledger = Ledger(self.bench.database, site=self.site.number, channel=channel or self.channel)
        return {asked[url_hash] for url_hash in await ledger.find_entries(sorted(asked))}

    async def list_failed(self) -> list[FailedPage]:
        return await FailedPages(self.bench.database, site=self.site.number, channel=self.channel).list(limit=100_000)
