"""The end of the demo: the dashboard, with data that moves until Ctrl-C."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count, cycle
from random import Random

from rich.console import Console

from tidings.announce.site.site import Site
from tidings.announce.site.table import Origin
from tidings.cli.demo.collect import KEYWORD, DemoPlatforms
from tidings.cli.demo.neighbours import DOCS, Neighbour
from tidings.cli.language import say
from tidings.cli.session import stop_on_signals
from tidings.core.executions import AlreadyRunningError
from tidings.core.secrets.scopes import Scope
from tidings.core.stop import Stop, StopRequestedError
from tidings.sandbox.bundle import Sandbox
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault
from tidings.web.service import Service
from tidings.wiring.crawl import open_crawler
from tidings.wiring.installation import Installation

# A site changes this often, and is announced after each change.
CHANGE_EVERY = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class MovingSite:
    """A site that grows while the dashboard is open, and the engine that has a bad day at times."""

    site: Site
    web: SandboxSite
    engine: SandboxEngine
    # Pages that are new at once.
    least: int
    most: int


async def show_dashboard(
    installation: Installation,
    sandbox: Sandbox,
    neighbours: Mapping[str, Neighbour],
    platforms: DemoPlatforms,
    *,
    console: Console,
) -> None:
    """Serve the dashboard until Ctrl-C. Meanwhile pages change and are announced, and new posts are collected."""
    moving = await _list_moving(installation, sandbox, neighbours[DOCS])
    token = await installation.tokens.make(Scope.ADMIN, name="demo")
    installation.redactor.add(token)
    stop = Stop(clock=installation.clock)

    def show_address(host: str, port: int) -> None:
        console.print()
        console.print(say("Dashboard: [bold]{address}[/]", address=f"http://{host}:{port}"), soft_wrap=True)
        console.print(say("Token:     [bold]{token}[/]", token=token.reveal()), soft_wrap=True)
        console.print(say("Ctrl-C ends it."))

    settings = installation.settings
    async with open_crawler(installation) as crawler:
        service = Service(installation, crawler=crawler, stop=stop)
        with stop_on_signals(stop):
            changing = asyncio.create_task(_keep_moving(installation, moving, platforms, stop))
            try:
                port = settings.port if _is_free(settings.host, settings.port) else 0
                await service.run(host=settings.host, port=port, on_listening=show_address)
            finally:
                stop.request("the demo ends")
                await asyncio.gather(changing, return_exceptions=True)


async def _list_moving(installation: Installation, sandbox: Sandbox, docs: Neighbour) -> Sequence[MovingSite]:
    """The site of the first steps, which was announced by hand so far and is scheduled from now on, and another."""
    found = {site.id: installation.know(site) for site in await installation.sites.list_all()}
    own = await installation.sites.save(found[sandbox.site.host], origin=Origin.API)
    return [
        MovingSite(found[DOCS], docs.web, docs.engines[1], least=3, most=30),
        MovingSite(own, sandbox.site, sandbox.engine("beta"), least=10, most=90),
    ]


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


async def _keep_moving(
    installation: Installation, moving: Sequence[MovingSite], platforms: DemoPlatforms, stop: Stop
) -> None:
    """Announce every site once, then publish pages and posts again and again, on one site after the other."""
    chance, sites = Random(), cycle(moving)  # noqa: S311 - which pages change is no secret
    for site in await installation.sites.list_all():
        with suppress(AlreadyRunningError):
            await installation.service.trigger(installation.know(site))
    with suppress(StopRequestedError):
        for number in count(1):
            await stop.sleep(CHANGE_EVERY)
            await _change_site(installation, next(sites), chance, number)
            await _publish_posts(installation, platforms, number)


async def _change_site(installation: Installation, moving: MovingSite, chance: Random, number: int) -> None:
    """Publish some pages, change one, and announce them. At times the engine asks to slow down, or refuses a page.

    Most are new: the statistics count a page once a day, so changes of the same pages would not move them.
    """
    moving.web.change(chance.randrange(1, len(moving.web.pages) + 1))
    added = moving.web.add(chance.randrange(moving.least, moving.most))
    moving.engine.recover()
    if number % 4 > 1:
        # Long enough to watch it.
        moving.engine.misbehave(Fault(status=429, headers={"Retry-After": "8"}, times=1))
    if number % 5 == 0:
        moving.engine.misbehave(Fault(status=422, body="not welcome", matching=moving.web.url(added[0])))
    with suppress(AlreadyRunningError):
        await installation.service.trigger(moving.site)


async def _publish_posts(installation: Installation, platforms: DemoPlatforms, number: int) -> None:
    """One new post on each platform; the next search finds it."""
    for platform in (platforms.bilibili, platforms.weibo):
        platform.library.add(
            f"{KEYWORD}日记 {number}", f"今天的{KEYWORD}：第 {number} 杯。", published=installation.clock.now()
        )
    async with installation.database.write() as connection:
        await installation.periodic.make_due(connection, "collect.discover")
    installation.wake()
