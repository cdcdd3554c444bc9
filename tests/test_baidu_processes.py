"""Baidu's quota under real processes: many that push at once send exactly what Baidu takes."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count, islice
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from tests.processes import FORKED
from tests.stage import LOOPBACK, open_stage
from tests.waiting import wait_until
from tidings.announce.channels.choice import ChannelChoice
from tidings.announce.channels.protocols.baidu import BAIDU_KIND, BaiduApi
from tidings.announce.channels.quota.kinds import ApiBases
from tidings.announce.channels.quota.quota import Quota
from tidings.announce.due.pages import hash_urls
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.site.channel_settings import BaiduSettings
from tidings.announce.site.site import Site, make_site
from tidings.announce.site.table import Origin
from tidings.core.clock import Clock, SystemClock
from tidings.core.db.database import Database, open_database
from tidings.core.executions import AlreadyRunningError, ExecutionStatus
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.master_key import new_master_key
from tidings.core.secrets.secret import Secret
from tidings.core.stop import Stop
from tidings.sandbox.engines.baidu import SandboxBaidu
from tidings.sandbox.site.site import SandboxSite

TOKEN = "a1B2c3D4e5F6g7H8"
ORIGIN = "https://example.com"
SITE = "shop"
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
    terms = BAIDU_KIND
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


def announce(database_url: str, folder: Path, base: str, master_key: str, barrier: Barrier) -> None:
    """Each process runs the site for Baidu once, as `tidings run SITE --channel baidu` does, as soon as it is free."""
    asyncio.run(_announce(database_url, folder, base, master_key, barrier))


async def _announce(database_url: str, folder: Path, base: str, master_key: str, barrier: Barrier) -> None:
    clock = NoonClock()
    settings: dict[str, Any] = {"master_key": Secret(master_key), "bases": ApiBases(baidu=base)}
    async with open_stage(database_url, folder, clock=clock, **settings) as installation:
        site = await installation.sites.find(SITE)
        assert site is not None

        async def run() -> bool:
            with suppress(AlreadyRunningError):
                report = await installation.announcer.announce(
                    site, stop=Stop(clock=clock), channel=ChannelChoice.BAIDU
                )
                assert report.status is ExecutionStatus.SUCCEEDED, report
                return True
            return False

        await asyncio.to_thread(barrier.wait, PATIENCE)
        await wait_until(run)


async def join_all(target: Callable[..., None], works: Sequence[tuple[object, ...]]) -> None:
    """Run this in processes of their own; all of them have to end well."""
    processes = [FORKED.Process(target=target, args=work, daemon=True) for work in works]
    for process in processes:
        process.start()
    for process in processes:
        await asyncio.to_thread(process.join, PATIENCE)
    assert [process.exitcode for process in processes] == [0] * len(works)


@pytest.mark.thorough
async def test_sixteen_processes_that_run_a_site_send_exactly_the_quota(database_url: str, tmp_path: Path) -> None:
    """A29, A39, A42: the whole pipeline in each of them, from the sitemap to Baidu: ten URLs arrive, the newest ones,
    each once, and each of the ten is in the ledger."""
    key = new_master_key()
    async with SandboxSite(pages=40) as web, SandboxBaidu(sites={}, daily_quota=QUOTA, now=lambda: NOON) as baidu:
        baidu.add_site(web.origin, token=TOKEN)
        async with open_stage(database_url, tmp_path, master_key=Secret(key)) as installation:
            settings = BaiduSettings.make(enabled=True, key=TOKEN)
            site = await installation.sites.save(
                make_site(site_id=SITE, sitemap_urls=[web.sitemap_url], key=web.key, baidu=settings), origin=Origin.API
            )
            barrier = FORKED.Barrier(PROCESSES)
            await join_all(announce, [(database_url, tmp_path, baidu.address, key, barrier)] * PROCESSES)
            arrived = [url for request in baidu.requests for url in request.urls]
            newest = sorted(range(1, 41), key=web.lastmod, reverse=True)[:QUOTA]
            assert sorted(arrived) == sorted(map(web.url, newest))
            ledger = Ledger(installation.database, site=site.number, channel=Channel.BAIDU)
            assert len(await ledger.find_entries(sorted(hash_urls(url.encode() for url in web.urls())))) == QUOTA
            executions = await installation.executions.list_recent(site.workflow_name, limit=100)
            assert len(executions) == PROCESSES


@pytest.mark.thorough
async def test_sixteen_processes_push_exactly_the_quota(database: Database, database_url: str) -> None:
    """A29, A42: exactly ten URLs arrive; what an answer says while others push never raises the limit."""
    async with SandboxBaidu(sites={ORIGIN: TOKEN}, daily_quota=QUOTA, now=lambda: NOON) as baidu:
        barrier = FORKED.Barrier(PROCESSES)
        works = [(database_url, baidu.address, number, barrier) for number in range(PROCESSES)]
        await join_all(push, works)
        arrived = [url for request in baidu.requests for url in request.urls]
        assert len(arrived) == len(set(arrived)) == baidu.accepted.total() == QUOTA
    assert (await open_quota(database, NoonClock()).read()).used == QUOTA
