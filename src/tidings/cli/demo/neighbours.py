"""Further sites of the demo's dashboard, which show the other states. One has three channels and keeps changing, one is
paused, one has URLs that an engine refuses, and one has a key that is refused.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from tidings.announce.site.channel_settings import BaiduSettings, BingSettings
from tidings.announce.site.site import Site, make_site
from tidings.announce.site.table import Origin
from tidings.core.clock import Clock
from tidings.sandbox.bundle import Sandbox
from tidings.sandbox.engines.baidu import DEMO_BAIDU_TOKEN, SandboxBaidu
from tidings.sandbox.engines.bing import DEMO_BING_KEY
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault
from tidings.settings.settings import Settings
from tidings.wiring.installation import Installation

DOCS, ARCHIVE, BLOG, SHOP = "docs.example", "archive.example", "blog.example", "shop.example"
BING_QUOTA = 40
REFUSED_URLS = (7, 19)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One further site: its server and its engines."""

    web: SandboxSite
    engines: tuple[SandboxEngine, ...]


@asynccontextmanager
async def open_neighbours(
    settings: Settings, sandbox: Sandbox, *, clock: Clock
) -> AsyncIterator[tuple[Settings, dict[str, Neighbour]]]:
    """Their servers by the ids of the sites, and the settings that lead to Baidu."""
    async with AsyncExitStack() as stack:
        docs, archive, blog, shop = [await stack.enter_async_context(SandboxSite(pages=n)) for n in (40, 60, 8, 30)]
        gamma, delta, epsilon, zeta = [
            await stack.enter_async_context(SandboxEngine(name)) for name in ("gamma", "delta", "epsilon", "zeta")
        ]
        for number in REFUSED_URLS:
            epsilon.misbehave(Fault(status=422, body="the URL is not of this host", matching=archive.url(number)))
        baidu = await stack.enter_async_context(SandboxBaidu(sites={docs.origin: DEMO_BAIDU_TOKEN}, now=clock.now))
        if sandbox.bing is not None:
            sandbox.bing.add_site(docs.origin, key=DEMO_BING_KEY)
        neighbours = {
            DOCS: Neighbour(docs, (gamma, delta)),
            ARCHIVE: Neighbour(archive, (gamma, epsilon)),
            BLOG: Neighbour(blog, (gamma,)),
            SHOP: Neighbour(shop, (zeta,)),
        }
        yield replace(settings, bases=replace(settings.bases, baidu=baidu.address)), neighbours


async def add_neighbours(installation: Installation, neighbours: dict[str, Neighbour]) -> dict[str, Site]:
    """Store the sites, without a schedule as yet; returns them by their ids."""
    sites = {}
    for name, neighbour in neighbours.items():
        has_all = name == DOCS
        made = make_site(
            site_id=name,
            sitemap_urls=[neighbour.web.sitemap_url],
            key=neighbour.web.key,
            engines=[engine.endpoint for engine in neighbour.engines],
            bing=BingSettings.make(enabled=True, key=DEMO_BING_KEY, daily_quota=BING_QUOTA) if has_all else None,
            baidu=BaiduSettings.make(enabled=True, key=DEMO_BAIDU_TOKEN) if has_all else None,
            group="shops" if name == SHOP else "texts",
            enabled=False,
        )
        sites[name] = await installation.sites.save(installation.know(made), origin=Origin.API)
    return sites
