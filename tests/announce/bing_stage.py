"""What the tests of Bing play on: a site, an engine and Bing of the sandbox, all on one clock that the test sets, and a
real announcer between them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from tests.announce.channel_stage import ChannelStage
from tests.announce.stage import read_json
from tests.conftest import BenchMaker
from tests.fakes import StageClock
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.channels.protocols.bing import BING_KIND
from tidings.announce.channels.quota.kinds import ApiBases
from tidings.announce.channels.quota.quota import Quota, QuotaState
from tidings.announce.execution.report import RankedReport, Report
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.channel_settings import BingSettings, PagePriority
from tidings.announce.site.site import make_site
from tidings.core.executions import ExecutionRecord, ExecutionStatus
from tidings.sandbox.engines.bing import SandboxBing
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault

KEY = "b1a2c3d4e5f60718293a4b5c6d7e8f90"
MORNING = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
# What belongs to the one execution, and not to what IndexNow did in it.
_OF_THE_RUN = ("site", "executionId", "status", "durationMs", "bingStats", "baiduStats", "googleStats", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class BingStage(ChannelStage):
    """A stored site with Bing switched on, and everything it is announced to."""

    channel = Channel.BING

    bing: SandboxBing

    async def submit(self, *, channel: ChannelChoice = ChannelChoice.ALL) -> RankedReport:
        """Bing's part of an execution."""
        report = (await self.announce(channel=channel)).ranked.get(Channel.BING)
        assert report is not None
        return report

    def quota(self, day: date | None = None) -> Quota:
        return Quota(
            self.bench.database,
            terms=BING_KIND,
            site=self.site.number,
            day=day or self.clock.now().date(),
            limit=self.site.bing.daily_quota,
            clock=self.clock,
        )

    async def read_quota(self, day: date | None = None) -> QuotaState:
        return await self.quota(day).read()

    async def use(self, count: int) -> None:
        """So many of today's quota are used, here and at Bing."""
        async with self.bench.database.write() as connection:
            await self.quota().record(connection, count)
        self.bing.spend(self.web.origin, count)

    def used_at_bing(self, day: date | None = None) -> int:
        return self.bing.used(self.web.origin, day or self.clock.now().date())

    async def list_executions(self) -> list[ExecutionRecord]:
        """The newest first."""
        return await self.bench.executions.list_recent(self.site.workflow_name)

    def batches(self) -> list[list[str]]:
        """The URLs of every submission that Bing was sent, in order."""
        return [list(request.urls) for request in self.bing.requests if request.method == "POST"]

    def list_waits(self) -> list[float]:
        """The seconds that were waited by rule; the fractions of one are the pace's."""
        return [each.total_seconds() for each in self.clock.slept if each >= timedelta(seconds=1)]

    def misbehave(self, *faults: Fault) -> None:
        for fault in faults:
            self.bing.misbehave(fault)

    async def change(self, **settings: object) -> "BingStage":
        """The same site with other settings of Bing."""
        changed = replace(self.site, bing=replace(self.site.bing, **settings))  # type: ignore[arg-type]
        return replace(self, site=await self.bench.store(changed))


@asynccontextmanager
async def open_bing_stage(
    make_bench: BenchMaker,
    *,
    web: SandboxSite | None = None,
    pages: int = 20,
    quota: int = 100,
    priority: PagePriority = PagePriority.NEWEST,
    now: datetime = MORNING,
    bing: SandboxBing | None = None,
    key: str = KEY,
    bing_enabled: bool = True,
    sitemaps: Sequence[str] = (),
    resubmit_gap: timedelta = timedelta(0),
) -> AsyncIterator[BingStage]:
    """Set a stage up. Waits cost nothing: the clock moves by itself when somebody sleeps."""
    clock = StageClock(now)
    served = web or SandboxSite(pages=pages)
    stand_in = bing or SandboxBing(keys={key: []}, daily_quota=quota, now=clock.now)
    async with served, SandboxEngine("alpha") as engine, stand_in:
        stand_in.add_site(served.origin, key=key)
        bench = make_bench(clock=clock, retry_scale=1, bases=ApiBases(bing=stand_in.address), resubmit_gap=resubmit_gap)
        site = make_site(
            sitemap_urls=[served.origin + path for path in sitemaps] or [served.sitemap_url],
            key=served.key,
            engines=[engine.endpoint],
            bing=BingSettings.make(enabled=bing_enabled, key=key, daily_quota=quota, priority=priority),
        )
        stored = await bench.store(site)
        yield BingStage(bench=bench, clock=clock, web=served, engine=engine, bing=stand_in, site=stored)


@asynccontextmanager
async def open_twin(stage: BingStage, *, bing: BingSettings) -> AsyncIterator[BingStage]:
    """Another site with as many pages, and an engine of its own, on the same database and the same Bing."""
    served = SandboxSite(pages=len(list(stage.web.urls())))
    async with served, SandboxEngine("twin") as engine:
        if bing.key is not None:
            stage.bing.add_site(served.origin, key=bing.key.reveal())
        site = make_site(sitemap_urls=[served.sitemap_url], key=served.key, engines=[engine.endpoint], bing=bing)
        yield replace(stage, web=served, engine=engine, site=await stage.bench.store(site))


async def check_indexnow(stage: BingStage, report: Report) -> None:
    """A27: the same ledger and the same counts as a site of the same pages has that knows nothing of Bing."""
    every = dict.fromkeys(stage.web.urls(), 1)
    assert dict(stage.engine.accepted) == every
    assert await stage.find_entered(Channel.INDEXNOW) == set(every)
    async with open_twin(stage, bing=BingSettings()) as twin:
        alone = await twin.announce()
    assert alone.status is ExecutionStatus.SUCCEEDED
    assert _describe_indexnow(report) == _describe_indexnow(alone)


def _describe_indexnow(report: Report) -> dict[str, Any]:
    counts = {name: value for name, value in read_json(report).items() if name not in _OF_THE_RUN}
    for name in ("errors", "warnings"):
        counts[name] = [line for line in counts[name] if not line.lower().startswith("bing: ")]
    engines = [{**engine, "engine": None, "meanResponseMs": None} for engine in counts.pop("engines")]
    return {**counts, "engines": engines}
