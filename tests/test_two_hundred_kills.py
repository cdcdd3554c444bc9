"""Two hundred kills while a site grows to 20,000 pages, which go to two engines, Bing and Baidu. Each process dies at a
request that is drawn by lot: at the site, an engine, Bing or Baidu, before it is taken or after. The next goes on."""

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.announce.bing_stage import KEY
from tests.cli.fork_server import Command
from tests.cli.terminal import Terminal
from tidings.announce.channels.quota.quota import channel_quota
from tidings.announce.ledger.ledger import Channel, ledger
from tidings.core.db.database import Database, open_database
from tidings.sandbox.bundle import Sandbox
from tidings.sandbox.engines.baidu import SandboxBaidu
from tidings.sandbox.engines.bing import SandboxBing
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded

pytestmark = pytest.mark.slow

KILLS = 200
FIRST_PAGES = 2_000
PAGES = 20_000
ADDED = (PAGES - FIRST_PAGES) // KILLS
PER_SITEMAP = 2_000
BING_QUOTA = 500
LARGEST_BING_BATCH = 100
TOKEN = "a1B2c3D4e5F6g7H8"
# Bing's and Baidu's own quotas are so large that only ours limits.
PLENTY = 1_000_000
# MAX_CONCURRENT_REQUESTS: as many requests can be in flight at a receiver.
IN_FLIGHT = 3
PATIENCE = 300.0
# Whatever happens at midnight, both count all of it for one day.
NOON = datetime(2026, 11, 15, 4, 0, tzinfo=UTC)

Receiver = SandboxEngine | SandboxBing | SandboxBaidu


@dataclass(slots=True)
class LongRun:
    """One installation and its only site, killed again and again on one day."""

    terminal: Terminal
    database: Database
    sandbox: Sandbox
    bing: SandboxBing
    baidu: SandboxBaidu
    rng: random.Random = field(default_factory=lambda: random.Random(20261116))
    # By name of the stand-in that the process had asked when it died.
    kills: Counter[str] = field(default_factory=Counter)
    # By name of the receiver: URLs of the requests that can have been in flight at a kill.
    in_flight: Counter[str] = field(default_factory=Counter)

    @property
    def receivers(self) -> tuple[Receiver, ...]:
        return (*self.sandbox.engines, self.bing, self.baidu)

    async def run_and_kill(self) -> None:
        """Let a process run until it meets the request of its lot, or to its end."""
        self.sandbox.site.add(ADDED)
        stand_in, number = await self._draw()
        before = [len(each.requests) for each in self.receivers]
        code = await self._run(lambda process: self._arm(process, stand_in, number=number))
        assert code in (0, -signal.SIGKILL)
        if code:
            self.kills[stand_in.name] += 1
            for start, each in zip(before, self.receivers, strict=True):
                last = each.requests[start:][-IN_FLIGHT:]
                self.in_flight[each.name] += sum(len(request.urls) for request in last)

    async def run_to_the_end(self) -> None:
        assert await self._run(lambda _: None) == 0

    async def read_used(self, channel: Channel) -> int:
        """Of all days: the test may run over midnight."""
        statement = select(func.sum(channel_quota.c.used)).where(channel_quota.c.channel == channel.value)
        # By the door for writing: after a clean end, SQLite has no log that the other one could read.
        async with self.database.write() as connection:
            return (await connection.execute(statement)).scalar() or 0

    async def count_entered(self, channel: Channel) -> int:
        statement = select(func.count()).select_from(ledger).where(ledger.c.channel == channel.value)
        async with self.database.write() as connection:
            return int((await connection.execute(statement)).scalar_one())

    async def check_quota(self) -> None:
        """Never below what the channel counted."""
        for channel, stand_in in ((Channel.BING, self.bing), (Channel.BAIDU, self.baidu)):
            assert await self.read_used(channel) >= stand_in.used(self.sandbox.site.origin), channel

    async def _run(self, arm: Callable[[Command], None]) -> int:
        process = await self.terminal.start("run", "shop", "--channel", "all", "--json")
        arm(process)
        async with asyncio.timeout(PATIENCE):
            await process.communicate()
        for stand_in in (self.sandbox.site, *self.receivers):
            stand_in.on_answer = stand_in.on_request = None
            await stand_in.wait_until_idle()
            stand_in.recover()
        assert process.returncode is not None
        return process.returncode

    async def _draw(self) -> tuple[SandboxSite | Receiver, int]:
        """Where the process dies, and at the how many-th request there."""
        if await self.read_used(Channel.BING) <= BING_QUOTA - LARGEST_BING_BATCH:
            # Each kill costs the quota of its batch, so there are few of them.
            return self.bing, 1
        files = len(self.sandbox.site.document_urls())
        # Baidu's first request of a day has one page, the next has the others.
        lots: list[tuple[SandboxSite | Receiver, int]] = [(self.sandbox.site, files), (self.baidu, 2)]
        stand_in, most = self.rng.choice([*lots, *((engine, 1) for engine in self.sandbox.engines)])
        return stand_in, self.rng.randint(1, most)

    def _arm(self, process: Command, stand_in: SandboxSite | Receiver, *, number: int) -> None:
        """The process dies before the request is taken, or before it is answered."""
        met, taken = 0, self.rng.random() < 0.5

        def strike(recorded: Recorded) -> None:
            nonlocal met
            met += 1
            if met == number:
                process.kill()
                if recorded.urls and not taken:
                    stand_in.misbehave(Fault(FaultKind.RESET, times=1, matching=recorded.urls[0]))

        stand_in.on_answer, stand_in.on_request = (strike, None) if taken else (None, strike)


@asynccontextmanager
async def open_long_run(folder: Path) -> AsyncIterator[LongRun]:
    terminal = Terminal(folder)
    bing = SandboxBing(keys={KEY: []}, daily_quota=PLENTY, now=lambda: NOON)
    site = SandboxSite(pages=FIRST_PAGES, per_sitemap=PER_SITEMAP)
    engines = [SandboxEngine("alpha"), SandboxEngine("beta")]
    async with (
        SandboxBaidu(sites={}, daily_quota=PLENTY, now=lambda: NOON) as baidu,
        Sandbox(site=site, engines=engines, bing=bing) as sandbox,
    ):
        bing.add_site(site.origin, key=KEY)
        baidu.add_site(site.origin, token=TOKEN)
        terminal.variables |= {"BING_API_BASE": bing.address, "BAIDU_API_BASE": baidu.address}
        words = ["--key", site.key, "--id", "shop", "--method", "post"]
        words += ["--bing-key", terminal.keep(KEY), "--bing-quota", str(BING_QUOTA)]
        words += ["--baidu-token", terminal.keep(TOKEN, name="baidu.txt"), "--baidu-quota", str(PLENTY)]
        for engine in engines:
            words += ["--engine", engine.endpoint]
        added = await terminal.run("sites", "add", site.sitemap_url, *words)
        assert added.code == 0, added
        database = open_database(f"sqlite:///{terminal.data_dir / 'tidings.db'}")
        try:
            yield LongRun(terminal, database, sandbox, bing, baidu)
        finally:
            await database.close()
            await terminal.close()


async def test_two_hundred_kills_lose_no_page_and_never_undercount_a_quota(tmp_path: Path) -> None:
    """A10, A11, A13, A18, A28, A29, design decision 4: every page reaches both engines and Baidu, Bing as many as its
    quota allows; no more than the requests in flight are repeated; after each kill both quotas are at least what Bing
    and Baidu counted."""
    async with open_long_run(tmp_path) as run:
        runs = 0
        while run.kills.total() < KILLS:
            runs += 1
            assert runs < 2 * KILLS, run.kills
            await run.run_and_kill()
            await run.check_quota()
        await run.run_to_the_end()
        await run.check_quota()
        urls = set(run.sandbox.site.urls())
        repeated = {each.name: each.accepted.total() - len(each.accepted) for each in run.receivers}
        counts = f"{len(urls)} pages, kills {dict(run.kills)}, URLs sent again {repeated}"
        sys.stdout.write(f"{counts}, quota of Bing {await run.read_used(Channel.BING)}\n")
        assert len(urls) >= PAGES
        for receiver in run.receivers:
            assert repeated[receiver.name] <= run.in_flight[receiver.name]
            assert receiver is run.bing or set(receiver.accepted) == urls
        assert run.bing.used(run.sandbox.site.origin) <= BING_QUOTA
        assert await run.count_entered(Channel.BING) <= len(run.bing.accepted)
        assert {"site", *(each.name for each in run.receivers)} == run.kills.keys()
