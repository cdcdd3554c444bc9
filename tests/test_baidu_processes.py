"""Baidu's quota under real processes: many that push at once send exactly what Baidu takes."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count, islice
from multiprocessing.synchronize import Barrier

import pytest

from tests.processes import FORKED
from tests.stage import LOOPBACK
from tidings.announce.channels.protocols.baidu import BAIDU_KIND, BaiduApi
from tidings.announce.channels.quota.quota import Quota
from tidings.announce.site.channel_settings import BaiduSettings
from tidings.announce.site.site import Site, make_site
from tidings.core.clock import Clock, SystemClock
from tidings.core.db.database import Database, open_database
from tidings.core.net.client import GuardedClient
from tidings.sandbox import SandboxBaidu

TOKEN = "a1B2c3D4e5F6g7H8"
ORIGIN = "https://example.com"
QUOTA = 10
PROCESSES = 16
PATIENCE = 60
NOON = datetime(2026, 11, 15, 4, 0, tzinfo=UTC)


class NoonClock(SystemClock):
    """The system's clock, on a day that does not end during the test."""

    def now(self) -> datetime:
        return NOON


def make_pushing_site() -> Site:
    baidu = BaiduSettings.make(enabled=True, key=TOKEN)
    return replace(make_site(sitemap_urls=[f"{ORIGIN}/sitemap.xml"], key="spender-key", baidu=baidu), number=1)


def open_quota(database: Database, clock: Clock) -> Quota:
    terms = BAIDU_KIND.terms
    return Quota(database, terms=terms, site=1, day=terms.find_day(NOON), limit=QUOTA, clock=clock)


def push(database_url: str, base: str, number: int, barrier: Barrier) -> None:
    """Each process reserves, pushes and settles, until nothing remains."""
    asyncio.run(_push(database_url, base, number, barrier))


async def _push(database_url: str, base: str, number: int, barrier: Barrier) -> None:
    database, site, clock = open_database(database_url), make_pushing_site(), NoonClock()
    quota = open_quota(database, clock)
    pages = (f"{ORIGIN}/{number}/{at}" for at in count())
    async with GuardedClient(user_agent="tests", allow_networks=LOOPBACK) as client:
        api = BaiduApi(client, clock, base)
        await asyncio.to_thread(barrier.wait, PATIENCE)
        while True:
            async with database.write() as connection:
                granted = await quota.reserve(connection, 3)
            if not granted:
                break
            request = api.build_request(site, list(islice(pages, granted)))
            outcome = await api.submit(site, request, count=granted)
            assert outcome.accepted, outcome
            async with database.write() as connection:
                await quota.confirm(connection, granted, remaining=outcome.remaining)
    await database.close()


@pytest.mark.thorough
async def test_sixteen_processes_push_exactly_the_quota(database: Database, database_url: str) -> None:
    """A29, A42: exactly ten URLs arrive; what an answer says while others push never raises the limit."""
    async with SandboxBaidu(sites={ORIGIN: TOKEN}, daily_quota=QUOTA, now=lambda: NOON) as baidu:
        barrier = FORKED.Barrier(PROCESSES)
        works = [(database_url, baidu.base_url, number, barrier) for number in range(PROCESSES)]
        processes = [FORKED.Process(target=push, args=work, daemon=True) for work in works]
        for process in processes:
            process.start()
        for process in processes:
            await asyncio.to_thread(process.join, PATIENCE)
        assert [process.exitcode for process in processes] == [0] * PROCESSES
        arrived = [url for request in baidu.requests for url in request.urls]
        assert len(arrived) == len(set(arrived)) == baidu.accepted.total() == QUOTA
    assert (await open_quota(database, NoonClock()).read()).used == QUOTA
