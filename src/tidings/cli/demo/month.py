"""The month before the demo: its further sites are announced day by day, so that the dashboard has a history to show.

The days pass by the demo's clock, which is set back and comes forward again. Everything else is the real thing.
"""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from tidings.announce.site.table import Origin
from tidings.cli.demo.collect import DemoPlatforms
from tidings.cli.demo.neighbours import ARCHIVE, BLOG, DOCS, SHOP, Neighbour, add_neighbours
from tidings.collect.write.keywords import RefreshPlan
from tidings.core.clock import SystemClock
from tidings.core.stop import Stop
from tidings.sandbox.engines.indexnow import FORBIDDEN
from tidings.wiring.crawl import make_collect_runner, open_crawler
from tidings.wiring.installation import Installation

DAYS = 29
NOTES_FOLLOWED = 6
# On this share of the days a site has new pages, at most this many, and is announced.
RHYTHM = {DOCS: (0.6, 60), ARCHIVE: (0.2, 120), BLOG: (0.1, 8), SHOP: (0.2, 60)}
KEYWORD, PLAN = "露营", RefreshPlan(every=timedelta(hours=20), period=timedelta(days=30))


class DemoClock(SystemClock):
    """The machine's clock, set back by `behind`. Measured durations and waits are real."""

    def __init__(self) -> None:
        self.behind = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) - self.behind


async def live_through_month(
    installation: Installation, neighbours: dict[str, Neighbour], platforms: DemoPlatforms, *, clock: DemoClock
) -> None:
    """Add the further sites a month ago, and announce what is new on them, day by day until yesterday."""
    chance = Random(7)  # noqa: S311 - how many pages are new is no secret
    clock.behind = timedelta(days=DAYS)
    sites = await add_neighbours(installation, neighbours)
    await installation.collect.keywords.add("bilibili", KEYWORD, refresh=PLAN)
    async with open_crawler(installation) as crawler:
        runner = make_collect_runner(installation, crawler=crawler)
        for ago in range(DAYS, 0, -1):
            clock.behind = timedelta(days=ago)
            active = [name for name, (share, _) in RHYTHM.items() if ago == DAYS or chance.random() < share]
            for name in active:
                neighbours[name].web.add(chance.randrange(RHYTHM[name][1]))
            announce, stop = installation.announcer.announce, Stop(clock=clock)
            await asyncio.gather(*(announce(sites[name], stop=stop) for name in active))
            if ago <= NOTES_FOLLOWED:
                platforms.bilibili.library.grow(chance.randrange(20, 900))
                await runner.discover(stop)
                await runner.collect(stop)
    # From now on the engine of this site refuses its key, and new pages wait for it.
    neighbours[SHOP].engines[0].misbehave(FORBIDDEN)
    neighbours[SHOP].web.add(24)
    clock.behind = timedelta(0)
    for name, site in sites.items():
        # A schedule that began a month ago would still be due for its first day.
        await installation.sites.save(replace(site, enabled=True), origin=Origin.API)
        if name == BLOG:
            await installation.schedules.pause(site.number)
