"""Further sites of the demo's dashboard, so that each state can be seen: one in order and paused, one with URLs that an
engine refuses, one whose key is refused.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tidings.announce.site.site import Site, make_site
from tidings.announce.site.table import Origin
from tidings.sandbox import Fault, SandboxEngine, SandboxSite
from tidings.sandbox.engines.indexnow import FORBIDDEN
from tidings.wiring import Installation

REFUSED_URLS = (7, 19, 42, 77, 101)


@asynccontextmanager
async def open_neighbours(installation: Installation) -> AsyncIterator[None]:
    """The sites are there, and each has been asked to run once."""
    async with AsyncExitStack() as stack:
        blog, archive, shop = [await stack.enter_async_context(SandboxSite(pages=n)) for n in (120, 900, 300)]
        engine, picky, strict = [
            await stack.enter_async_context(SandboxEngine(name)) for name in ("gamma", "delta", "epsilon")
        ]
        for number in REFUSED_URLS:
            picky.misbehave(Fault(status=422, body="the URL is not of this host", matching=archive.url(number)))
        strict.misbehave(FORBIDDEN)
        paused = await _add(installation, "blog.example", blog, engine)
        await _add(installation, "archive.example", archive, engine, picky)
        await _add(installation, "shop.example", shop, strict)
        await installation.schedules.pause(paused.number)
        yield


async def _add(installation: Installation, name: str, web: SandboxSite, *engines: SandboxEngine) -> Site:
    made = make_site(
        site_id=name,
        sitemap_urls=[web.sitemap_url],
        key=web.key,
        engines=[engine.endpoint for engine in engines],
    )
    site = await installation.sites.save(installation.know(made), origin=Origin.API)
    await installation.service.trigger(site)
    return site
