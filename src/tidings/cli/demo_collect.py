"""The second half of the demo: a keyword is watched on two made-up platforms, and its notes are collected, once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from sqlalchemy import func, select

from tidings.cli.collect.report import print_collections, print_discovery
from tidings.collect.tables import candidates, sources
from tidings.collect.write.cookies import make_cookie
from tidings.core.secrets.secret import Secret
from tidings.core.stop import Stop
from tidings.settings import Settings
from tidings.wiring import Installation, make_collect_runner, open_crawler

if TYPE_CHECKING:
    from tidings.sandbox.media.bilibili import SandboxBilibili
    from tidings.sandbox.media.weibo import SandboxWeibo

KEYWORD = "咖啡"

_LAST_STEP = 3


@asynccontextmanager
async def open_platforms(settings: Settings) -> "AsyncIterator[tuple[Settings, Platforms]]":
    """Two platforms, and the settings that lead to them."""
    # Loaded here, not above: every other command would pay for it in memory and time.
    from tidings.sandbox.media.bilibili import SandboxBilibili
    from tidings.sandbox.media.weibo import SandboxWeibo

    async with SandboxBilibili() as bilibili, SandboxWeibo() as weibo:
        crawl = replace(
            settings.crawl,
            base_urls={"bilibili": bilibili.origin, "weibo": weibo.origin},
            platform_interval=timedelta(0),
            cookie_interval=timedelta(0),
        )
        collect = replace(settings.collect, backoff=(timedelta(seconds=1),))
        yield replace(settings, crawl=crawl, collect=collect), Platforms(bilibili, weibo)


class Platforms:
    """The made-up platforms and what happens to them."""

    def __init__(self, bilibili: "SandboxBilibili", weibo: "SandboxWeibo") -> None:
        self.bilibili = bilibili
        self.weibo = weibo

    def give_bad_day(self) -> None:
        """The line to Weibo is cut twice."""
        from tidings.sandbox import Fault, FaultKind
        from tidings.sandbox.media.weibo import SHOW_PATH

        self.weibo.misbehave(Fault(FaultKind.RESET, path=SHOW_PATH, times=2))


async def tell_collecting(installation: Installation, platforms: Platforms, *, console: Console) -> bool:
    """Three steps of the demo; whether all went as it should."""
    await _store_cookies(installation)
    for platform in ("bilibili", "weibo"):
        await installation.keywords.add(platform, KEYWORD)
    console.print(
        f"\nBilibili is at {platforms.bilibili.origin}, Weibo at {platforms.weibo.origin}; each has an account."
    )
    stop = Stop(clock=installation.clock)
    async with open_crawler(installation) as crawler:
        runner = make_collect_runner(installation, crawler=crawler)
        _begin_step(console, 1, f"Watch {KEYWORD} on both. What is found becomes candidates.")
        print_discovery(await runner.discover(stop), console=console)

        platforms.give_bad_day()
        _begin_step(console, 2, "Collect them. The line to Weibo is cut twice; what was lost is asked for again.")
        print_collections(await runner.collect(stop), console=console)

        _begin_step(console, 3, "Search and collect again. What is known is not stored twice.")
        print_discovery(await runner.discover(stop), console=console)
        print_collections(await runner.collect(stop), console=console)
    return await _went_well(installation)


async def _store_cookies(installation: Installation) -> None:
    from tidings.sandbox.media.bilibili import DEMO_BILIBILI_COOKIE
    from tidings.sandbox.media.weibo import DEMO_WEIBO_COOKIE

    for platform, cookie in (("bilibili", DEMO_BILIBILI_COOKIE), ("weibo", DEMO_WEIBO_COOKIE)):
        await installation.cookies.add(make_cookie(f"{platform}-demo", platform=platform, secret=Secret(cookie)))


async def _went_well(installation: Installation) -> bool:
    """Every candidate has its note."""
    async with installation.database.read() as connection:
        found = (await connection.execute(select(func.count()).select_from(candidates))).scalar_one()
        stored = (await connection.execute(select(func.count()).select_from(sources))).scalar_one()
    return 0 < found == stored


def _begin_step(console: Console, number: int, text: str) -> None:
    console.print(f"\n[bold]{_LAST_STEP + number}. {escape(text)}[/]")
