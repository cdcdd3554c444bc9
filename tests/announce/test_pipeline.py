"""The whole way from a sitemap to the engines, against the sandbox over loopback, on both databases."""

from tests.conftest import BenchMaker
from tidings.announce.sites import make_site
from tidings.core.executions import ExecutionStatus
from tidings.sandbox import Sandbox, SandboxEngine, SandboxSite


async def test_every_page_is_announced_once_and_nothing_is_sent_twice(make_bench: BenchMaker) -> None:
    """A10, A11, A18: what was accepted is in the ledger and is not due again."""
    bench = make_bench()
    engines = [SandboxEngine("alpha"), SandboxEngine("beta")]
    async with Sandbox(site=SandboxSite(pages=250, per_sitemap=100), engines=engines) as sandbox:
        site = await bench.store(
            make_site(
                sitemap_urls=[sandbox.site.sitemap_url],
                key=sandbox.site.key,
                engines=[engine.endpoint for engine in engines],
            )
        )
        first = await bench.announcer.announce(site, stop=bench.make_stop())
        second = await bench.announcer.announce(site, stop=bench.make_stop())
        assert (first.status, first.total, first.new, first.submitted) == (ExecutionStatus.SUCCEEDED, 250, 250, 250)
        assert (second.status, second.total, second.new, second.cached) == (ExecutionStatus.SUCCEEDED, 250, 0, 250)
        for engine in engines:
            assert dict(engine.accepted) == dict.fromkeys(sandbox.site.urls(), 1)
