"""The second half of the demo: a keyword is watched on two platforms, and its notes are collected once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from rich.console import Console
from sqlalchemy import func, select

from tidings.cli.collect.report import print_collections, print_discovery
from tidings.cli.demo.announce import begin_step
from tidings.cli.language import say
from tidings.collect.tables import candidates, sources
from tidings.collect.write.cookies import make_cookie
from tidings.core.clock import Clock
from tidings.core.secrets.secret import Secret
from tidings.core.stop import Stop
from tidings.sandbox.media.bilibili import DEMO_BILIBILI_COOKIE, SandboxBilibili
from tidings.sandbox.media.weibo import DEMO_WEIBO_COOKIE, SHOW_PATH, SandboxWeibo
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.settings.settings import Settings
from tidings.wiring.crawl import make_collect_runner, open_crawler
from tidings.wiring.installation import Installation

KEYWORD = "咖啡"


@dataclass(frozen=True, slots=True)
class DemoPlatforms:
    """The platforms of the demo."""

    bilibili: SandboxBilibili
    weibo: SandboxWeibo


@asynccontextmanager
async def open_platforms(settings: Settings, *, clock: Clock) -> AsyncIterator[tuple[Settings, DemoPlatforms]]:
    """Two platforms, and the settings that lead to them."""
    async with SandboxBilibili(now=clock.now) as bilibili, SandboxWeibo(now=clock.now) as weibo:
        crawl = replace(
            settings.crawl,
            base_urls={"bilibili": bilibili.origin, "weibo": weibo.origin},
            platform_interval=timedelta(0),
            cookie_interval=timedelta(0),
        )
        collect = replace(settings.collect, backoff=(timedelta(seconds=1),))
        yield replace(settings, crawl=crawl, collect=collect), DemoPlatforms(bilibili, weibo)


async def show_collecting(installation: Installation, platforms: DemoPlatforms, *, console: Console) -> bool:
    """Steps 4 to 6. Returns whether all results were right."""
    for platform in ("bilibili", "weibo"):
        await installation.collect.keywords.add(platform, KEYWORD)
    origins = {"bilibili": platforms.bilibili.origin, "weibo": platforms.weibo.origin}
    console.print()
    console.print(say("Bilibili is at {bilibili}, Weibo at {weibo}; each has an account.", **origins))
    stop = Stop(clock=installation.clock)
    async with open_crawler(installation) as crawler:
        runner = make_collect_runner(installation, crawler=crawler)
        begin_step(
            console, say("4. Watch {keyword} on both. The notes that are found become candidates.", keyword=KEYWORD)
        )
        print_discovery(await runner.discover(stop), console=console)

        platforms.weibo.misbehave(Fault(FaultKind.RESET, path=SHOW_PATH, times=2))
        begin_step(console, say("5. Collect them. The line to Weibo is cut twice; lost notes are asked for again."))
        print_collections(await runner.collect(stop), console=console)

        begin_step(console, say("6. Search and collect again. Nothing is stored twice."))
        print_discovery(await runner.discover(stop), console=console)
        print_collections(await runner.collect(stop), console=console)
    return await _conclude(installation, console=console)


async def store_cookies(installation: Installation) -> None:
    """An account of each platform."""
    for platform, cookie in (("bilibili", DEMO_BILIBILI_COOKIE), ("weibo", DEMO_WEIBO_COOKIE)):
        await installation.collect.cookies.add(
            make_cookie(f"{platform}-demo", platform=platform, secret=Secret(cookie))
        )


async def _conclude(installation: Installation, *, console: Console) -> bool:
    """Whether every candidate has its note."""
    async with installation.database.read() as connection:
        found = (await connection.execute(select(func.count()).select_from(candidates))).scalar_one()
        stored = (await connection.execute(select(func.count()).select_from(sources))).scalar_one()
    went_well = 0 < found == stored
    console.print(
        say("Every candidate has its note, once: as it should be.")
        if went_well
        else say("[red]Not every candidate has its note. The log says more.[/]")
    )
    return went_well
