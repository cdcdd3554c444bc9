"""Bing's quota under real processes: many that reserve at once never send more than there is, and none that is killed
at any point leaves the count below what Bing counted. The sandbox's own quota is so large that only ours limits."""

import asyncio
import random
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import count, islice
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.announce.bing_stage import KEY
from tests.cli.fork_server import Command
from tests.cli.terminal import Terminal, end
from tests.processes import FORKED
from tests.stage import LOOPBACK
from tidings.announce.channels.protocols.bing import BING_KIND, MOST_URLS, BingApi
from tidings.announce.channels.quota.quota import Quota, channel_quota
from tidings.announce.ledger.ledger import Channel, ledger
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.site import Site, make_site
from tidings.core.clock import SystemClock
from tidings.core.db.database import Database, open_database
from tidings.core.net.client import GuardedClient
from tidings.sandbox.bundle import Sandbox
from tidings.sandbox.engines.bing import SandboxBing
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded

QUOTA = 500
PLENTY = 10_000
PATIENCE = 60
# Whatever happens at midnight, Bing counts all of it for one day.
NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
ORIGIN = "https://example.com"

# A batch and a little more. Four kills at Bing then leave enough quota for the rest: 3 × 100 + 31 of 500.
PAGES = 101
MOST_ADDED = 3

# MAX_CONCURRENT_REQUESTS: as many requests can be in flight at an engine.
IN_FLIGHT = 3

PROCESSES = 16
# Small, so that each process gets more than one and the last one gets less than it asks for.
LARGEST_BATCH = 40


def make_bing() -> SandboxBing:
    return SandboxBing(keys={KEY: [ORIGIN]}, daily_quota=PLENTY, now=lambda: NOON)


def make_spender_site() -> Site:
    bing = BingSettings.make(enabled=True, key=KEY, daily_quota=QUOTA)
    return replace(make_site(sitemap_urls=[f"{ORIGIN}/sitemap.xml"], key="spender-key", bing=bing), number=1)


def make_quota(database: Database, site: Site) -> Quota:
    return Quota(
        database,
        terms=BING_KIND,
        site=site.number,
        day=NOON.date(),
        limit=site.bing.daily_quota,
        clock=SystemClock(),
    )


def spend(database_url: str, base: str, number: int, barrier: Barrier) -> None:
    """What each process does: reserve, send, settle, until nothing remains."""
    asyncio.run(_spend(database_url, base, number, barrier))


async def _spend(database_url: str, base: str, number: int, barrier: Barrier) -> None:
    database = open_database(database_url)
    site, rng = make_spender_site(), random.Random(number)
    quota = make_quota(database, site)
    pages = (f"{ORIGIN}/{number}/{at}" for at in count())
    async with GuardedClient(user_agent="tests", allow_networks=LOOPBACK) as client:
        api = BingApi(client, SystemClock(), base)
        await asyncio.to_thread(barrier.wait, PATIENCE)
        while granted := await reserve(database, quota, rng.randint(1, LARGEST_BATCH)):
            outcome = await api.submit(site, api.build_request(site, list(islice(pages, granted))), count=granted)
            assert outcome.accepted, outcome
            async with database.write() as connection:
                await quota.confirm(connection, granted)
    await database.close()


async def reserve(database: Database, quota: Quota, wanted: int) -> int:
    async with database.write() as connection:
        return await quota.reserve(connection, wanted)


@pytest.mark.thorough
async def test_processes_that_reserve_at_once_send_exactly_the_quota(database: Database, database_url: str) -> None:
    """A28, A29: sixteen processes that want more and more, a quota of 500, on both databases."""
    async with make_bing() as bing:
        await run_together([(database_url, bing.address, number) for number in range(PROCESSES)])
        assert bing.accepted.total() == bing.used(ORIGIN) == QUOTA
        assert set(bing.accepted.values()) == {1}
        assert len({url.split("/")[3] for url in bing.accepted}) >= PROCESSES / 4, "they did not collide"
    assert (await make_quota(database, make_spender_site()).read()).used == QUOTA


async def run_together(works: list[tuple[str, str, int]]) -> None:
    """A process for each; all begin to send at the same time."""
    barrier = FORKED.Barrier(len(works))
    processes = [FORKED.Process(target=spend, args=(*work, barrier), daemon=True) for work in works]
    for process in processes:
        process.start()
    for process in processes:
        await asyncio.to_thread(process.join, PATIENCE)
    assert [process.exitcode for process in processes] == [0] * len(works)


class KillPoint(StrEnum):
    """When a process dies."""

    CRAWL = "while a sitemap is fetched"
    ENGINE_UNTAKEN = "before the engine takes a page"
    ENGINE_TAKEN = "after the engine took it and before it answers"
    BING_UNTAKEN = "before Bing judges a batch"
    BING_TAKEN = "after Bing counted it and before it answers"


AT_BING = (KillPoint.BING_UNTAKEN, KillPoint.BING_TAKEN)
TAKEN = (KillPoint.ENGINE_TAKEN, KillPoint.BING_TAKEN)
AnyStandIn = SandboxSite | SandboxEngine | SandboxBing


def arm(stand_in: AnyStandIn, point: KillPoint, *, number: int, process: Command) -> asyncio.Future[Recorded]:
    """The process dies at the `number`-th request of this kind; the future has that request then."""
    struck: asyncio.Future[Recorded] = asyncio.get_running_loop().create_future()
    met = 0

    async def strike(recorded: Recorded) -> None:
        nonlocal met
        met += point is not KillPoint.CRAWL or recorded.path.startswith("/sitemap")
        if met != number or struck.done():
            return
        process.kill()
        await process.wait()
        if recorded.urls and point not in TAKEN:
            # Set while this request waits in its hook, so it is the one that is hit.
            stand_in.misbehave(Fault(FaultKind.RESET, times=1, matching=recorded.urls[0]))
        struck.set_result(recorded)

    stand_in.on_answer, stand_in.on_request = (strike, None) if point in TAKEN else (None, strike)
    return struck


@dataclass(slots=True)
class Round:
    """One installation with a site of its own and two engines, killed again and again on one day."""

    terminal: Terminal
    database: Database
    sandbox: Sandbox
    bing: SandboxBing
    rng: random.Random
    # `get` or `post`.
    method: str
    # URLs that Bing never judged, and those that it took without the process learning of it.
    untaken: int = 0
    repeated: int = 0
    # By engine: the URLs of the requests that can have been in flight at a kill.
    in_flight: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    async def play(self, *, times: int) -> None:
        """Die at each point so many times, in any order. Some pages are added before every kill, so that each channel
        has something to do."""
        plan = list(KillPoint) * times
        self.rng.shuffle(plan)
        while plan:
            self.sandbox.site.add(self.rng.randint(1, MOST_ADDED))
            point = plan.pop()
            stand_in = self._find_stand_in(point)
            number = await self._draw_number(point, stand_in, kills_left=len(plan))
            struck = await self._run_and_kill(point, stand_in, number=number)
            for engine in self.sandbox.engines:
                last = engine.requests[-IN_FLIGHT:]
                self.in_flight[engine.name].update(url for request in last for url in request.urls)
            self.untaken += len(struck.urls) if point is KillPoint.BING_UNTAKEN else 0
            self.repeated += len(struck.urls) if point is KillPoint.BING_TAKEN else 0
            await self._check_quota()
        await self._check_end()

    async def _draw_number(self, point: KillPoint, stand_in: AnyStandIn, *, kills_left: int) -> int:
        """Which of the requests of this kind it is to be, of those that are sure to come."""
        if point is KillPoint.CRAWL:
            return self.rng.randint(1, len(self.sandbox.site.document_urls()))
        if isinstance(stand_in, SandboxEngine):
            waiting = len(self.sandbox.site.pages) - len(stand_in.accepted)
            return self.rng.randint(1, waiting) if self.method == "get" else 1
        # A kill costs the quota of its batch, and enough must remain for every page there will be.
        waiting = await self._count_waiting(Channel.BING)
        spare = QUOTA - await self._read_used() - waiting - MOST_ADDED * kills_left
        batches = [min(MOST_URLS, waiting - start) for start in range(0, waiting, MOST_URLS)]
        return self.rng.choice([number for number, urls in enumerate(batches, start=1) if urls <= spare])

    async def _run_and_kill(self, point: KillPoint, stand_in: AnyStandIn, *, number: int) -> Recorded:
        """Returns the request at which the process died."""
        process = await self.terminal.start("run", "shop", "--channel", "all", "--json")
        struck = arm(stand_in, point, number=number, process=process)
        ended = await end(process)
        assert ended.code == -signal.SIGKILL, (point, number, ended)
        async with asyncio.timeout(PATIENCE):
            request = await struck
        stand_in.on_answer = stand_in.on_request = None
        await stand_in.wait_until_idle()
        return request

    def _find_stand_in(self, point: KillPoint) -> AnyStandIn:
        if point is KillPoint.CRAWL:
            return self.sandbox.site
        return self.bing if point in AT_BING else self.rng.choice(self.sandbox.engines)

    async def _check_quota(self) -> None:
        """Never below what Bing counted, and above it by no more than what it never judged."""
        assert await self._read_used() == self.bing.used(self.sandbox.site.origin) + self.untaken

    async def _check_end(self) -> None:
        """An execution that is not killed finishes it all; a page is repeated only if it was in flight at a kill."""
        last = await self.terminal.run("run", "shop", "--channel", "all", "--json")
        assert last.code == 0, last
        await self._check_quota()
        urls = set(self.sandbox.site.urls())
        assert [await self._count_waiting(channel) for channel in (Channel.INDEXNOW, Channel.BING)] == [0, 0]
        assert set(self.bing.accepted) == urls
        assert self.bing.accepted.total() - len(urls) == self.repeated
        for engine in self.sandbox.engines:
            assert set(engine.accepted) == urls
            assert engine.accepted - Counter(urls) <= self.in_flight[engine.name]

    async def _read_used(self) -> int:
        """Of all days: the test may run over midnight."""
        # By the door for writing: after a clean end, SQLite has no log that the other one could read.
        async with self.database.write() as connection:
            return (await connection.execute(select(func.sum(channel_quota.c.used)))).scalar() or 0

    async def _count_waiting(self, channel: Channel) -> int:
        """Pages that are not in the ledger."""
        statement = select(func.count()).select_from(ledger).where(ledger.c.channel == channel)
        async with self.database.write() as connection:
            return len(self.sandbox.site.pages) - (await connection.execute(statement)).scalar_one()


@asynccontextmanager
async def open_round(folder: Path, *, seed: int, method: str, database_url: str | None = None) -> AsyncIterator[Round]:
    terminal = Terminal(folder)
    if database_url is not None:
        terminal.variables["TIDINGS_DATABASE_URL"] = database_url
    bing = make_bing()
    site = SandboxSite(pages=PAGES, per_sitemap=40)
    engines = [SandboxEngine("alpha"), SandboxEngine("beta")]
    async with Sandbox(site=site, engines=engines, bing=bing) as sandbox:
        bing.add_site(site.origin, key=KEY)
        terminal.variables["BING_API_BASE"] = bing.address
        words = ["--key", site.key, "--id", "shop", "--method", method]
        for engine in engines:
            words += ["--engine", engine.endpoint]
        added = await terminal.run(
            "sites", "add", site.sitemap_url, *words, "--bing-key", terminal.keep(KEY), "--bing-quota", str(QUOTA)
        )
        assert added.code == 0, added
        database = open_database(database_url or f"sqlite:///{terminal.data_dir / 'tidings.db'}")
        try:
            yield Round(terminal, database, sandbox, bing, random.Random(seed), method)
        finally:
            await database.close()
            await terminal.close()


def make_folder(path: Path) -> Path:
    path.mkdir()
    return path


async def play_round(
    folder: Path, *, seed: int, times: int, method: str = "get", database_url: str | None = None
) -> None:
    async with open_round(folder, seed=seed, method=method, database_url=database_url) as opened:
        await opened.play(times=times)


@pytest.mark.slow
async def test_fifty_kills_lose_no_page_and_never_undercount_the_quota(tmp_path: Path) -> None:
    """A10, A11, A13, A18, A28, A29, design decision 4: after each kill the quota is at least Bing's own, the next
    execution goes on at once, every page reaches both engines and Bing, and only requests in flight are repeated. Five
    rounds of ten, by GET and by POST, side by side."""
    async with asyncio.TaskGroup() as group:
        for seed in range(5):
            method = ("get", "post")[seed % 2]
            group.create_task(play_round(make_folder(tmp_path / str(seed)), seed=seed, times=2, method=method))


@pytest.mark.slow
async def test_kills_on_postgresql_never_leave_the_quota_undercounted(tmp_path: Path, postgres_url: str) -> None:
    """A28, A29, design decision 2: the same on the other database."""
    await play_round(tmp_path, seed=5, times=1, database_url=postgres_url)
