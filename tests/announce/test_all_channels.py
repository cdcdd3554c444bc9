"""All channels on one site at once, each failing in turn: the others are complete and on record."""

from datetime import timedelta
from typing import Any

import pytest

from tests.announce.bing_stage import KEY, MORNING
from tests.announce.stage import read_json
from tests.conftest import BenchMaker
from tests.fakes import StageClock
from tidings.announce.channels.quota.kinds import ApiBases
from tidings.announce.due.pages import hash_urls
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.site.channel_settings import BaiduSettings, BingSettings
from tidings.announce.site.google_settings import GoogleSettings, IndexedContent
from tidings.announce.site.site import make_site
from tidings.core.executions import ExecutionStatus
from tidings.core.stop import Stop
from tidings.sandbox.engines.baidu import SandboxBaidu
from tidings.sandbox.engines.bing import SandboxBing
from tidings.sandbox.engines.google import SandboxGoogle
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultKind

TOKEN = "a1B2c3D4e5F6g7H8"
PAGES = 20
FAULTS = {
    "refuses": Fault(status=403, body="no"),
    "is down": Fault(status=503),
    "is limited": Fault(status=429),
    "breaks off": Fault(FaultKind.RESET),
}


CASES = [(None, "well"), *((channel, name) for channel in Channel for name in FAULTS)]


@pytest.mark.thorough
@pytest.mark.one_database
@pytest.mark.parametrize(("channel", "fault"), CASES, ids=[f"{channel} {name}" for channel, name in CASES])
async def test_a_channel_that_fails_harms_no_other(make_bench: BenchMaker, channel: Channel | None, fault: str) -> None:
    """A10, A18, A27, A42, A43: the others took every page, have it in their ledgers, and the report says who failed."""
    clock, web, engine = StageClock(MORNING), SandboxSite(pages=PAGES), SandboxEngine("alpha")
    bing = SandboxBing(keys={KEY: []}, now=clock.now)
    baidu = SandboxBaidu(sites={}, daily_quota=100, now=clock.now)
    google = SandboxGoogle(now=clock.now)
    stand_ins: dict[Channel, Any] = dict(zip(Channel, (engine, bing, baidu, google), strict=True))
    async with web, engine, bing, baidu, google:
        bing.add_site(web.origin, key=KEY)
        baidu.add_site(web.origin, token=TOKEN)
        google.add_property(f"{web.origin}/")
        bases = ApiBases(bing=bing.address, baidu=baidu.address, google=google.address)
        bench = make_bench(clock=clock, retry_scale=1, bases=bases)
        content = IndexedContent.JOB_POSTING
        site = await bench.store(
            make_site(
                sitemap_urls=[web.sitemap_url],
                key=web.key,
                engines=[engine.endpoint],
                bing=BingSettings.make(enabled=True, key=KEY),
                baidu=BaiduSettings.make(enabled=True, key=TOKEN),
                google=GoogleSettings.make(enabled=True, key=google.credentials, content=content),
            )
        )
        if channel is not None:
            stand_ins[channel].misbehave(FAULTS[fault])
        report = await bench.announcer.announce(site, stop=Stop(clock=clock, budget=timedelta(hours=1)))
        urls = list(web.urls())
        for each, stand_in in stand_ins.items():
            ledger = Ledger(bench.database, site=site.number, channel=each)
            entered = await ledger.find_entries(sorted(hash_urls(url.encode() for url in urls)))
            expected = 0 if each is channel else PAGES
            assert len(entered) == expected, each
            assert stand_in.accepted == dict.fromkeys(urls if expected else (), 1), each
        assert report.submitted == PAGES
        assert report.status is (ExecutionStatus.SUCCEEDED if channel is None else ExecutionStatus.PARTIAL)
        shown = read_json(report)
        stats = [shown[f"{each}Stats"]["success"] for each in Channel if each.has_quota]
        assert [shown["engines"][0]["succeeded"] == PAGES, *stats] == [each is not channel for each in Channel]
        reported = [(each["submitted"], each["failure"] is None) for each in shown["googleSitemaps"]]
        assert reported == [(channel is not Channel.GOOGLE,) * 2]
