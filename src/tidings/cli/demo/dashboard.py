"""The end of the demo: the dashboard, with data that moves until Ctrl-C."""

import asyncio
import socket
from contextlib import suppress
from datetime import timedelta
from random import Random

from rich.console import Console

from tidings.announce.site.site import Site
from tidings.announce.site.table import Origin
from tidings.cli.demo.collect import KEYWORD, DemoPlatforms
from tidings.cli.demo.neighbours import open_neighbours
from tidings.cli.session import stop_on_signals
from tidings.core.executions import AlreadyRunningError
from tidings.core.secrets.scopes import Scope
from tidings.core.stop import Stop, StopRequestedError
from tidings.sandbox import Fault, Sandbox
from tidings.web.service import Service
from tidings.wiring import Installation
from tidings.wiring.crawl import open_crawler

# The site changes this often, and is announced after each change.
CHANGE_EVERY = timedelta(seconds=20)
MOST_CHANGED = 400


async def show_dashboard(
    installation: Installation, sandbox: Sandbox, platforms: DemoPlatforms, *, console: Console
) -> None:
    """Serve the dashboard until Ctrl-C. Meanwhile pages change and are announced, and new posts are collected."""
    token = await installation.tokens.make(Scope.ADMIN, name="demo")
    installation.redactor.add(token)
    stop = Stop(clock=installation.clock)
    # Announced by hand so far; from now on it runs by its schedule too.
    [site] = await installation.sites.list_all()
    site = await installation.sites.save(installation.know(site), origin=Origin.API)

    def show_address(host: str, port: int) -> None:
        address = f"[bold]http://{host}:{port}[/]"
        console.print(f"\nDashboard: {address}  Token: [bold]{token.reveal()}[/]  (Ctrl-C ends it)", soft_wrap=True)

    settings = installation.settings
    async with open_crawler(installation) as crawler, open_neighbours(installation):
        service = Service(installation, crawler=crawler, stop=stop)
        with stop_on_signals(stop):
            changing = asyncio.create_task(_keep_moving(installation, site, sandbox, platforms, stop))
            try:
                port = settings.port if _is_free(settings.host, settings.port) else 0
                await service.run(host=settings.host, port=port, on_listening=show_address)
            finally:
                stop.request("the demo ends")
                await asyncio.gather(changing, return_exceptions=True)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


async def _keep_moving(
    installation: Installation, site: Site, sandbox: Sandbox, platforms: DemoPlatforms, stop: Stop
) -> None:
    """Change pages and publish posts again and again. At times an engine asks to slow down, or refuses a page."""
    chance, round_number = Random(), 0  # noqa: S311 - which pages change is no secret
    with suppress(StopRequestedError):
        while True:
            await stop.sleep(CHANGE_EVERY)
            numbers = chance.sample(range(1, len(sandbox.site.pages) + 1), chance.randrange(20, MOST_CHANGED))
            sandbox.site.change_many(numbers)
            round_number += 1
            beta = sandbox.engine("beta")
            beta.recover()
            if round_number % 2 == 0:
                # Long enough to watch it.
                beta.misbehave(Fault(status=429, headers={"Retry-After": "8"}, times=1))
            if round_number % 3 == 0:
                beta.misbehave(Fault(status=422, body="not welcome", matching=sandbox.site.url(numbers[0])))
            with suppress(AlreadyRunningError):
                await installation.service.trigger(site)
            await _publish_posts(installation, platforms, round_number)


async def _publish_posts(installation: Installation, platforms: DemoPlatforms, number: int) -> None:
    """One new post on each platform; the next search finds it."""
    for platform in (platforms.bilibili, platforms.weibo):
        platform.library.add(
            f"{KEYWORD}日记 {number}", f"今天的{KEYWORD}：第 {number} 杯。", published=installation.clock.now()
        )
    async with installation.database.write() as connection:
        await installation.periodic.make_due(connection, "collect.discover")
    installation.wake()
