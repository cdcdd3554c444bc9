"""Names that are slow to resolve, and the operator's own addresses in private networks."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.stage import open_stage
from tests.waiting import wait_until
from tidings.announce.channels.quota.kinds import ApiBases
from tidings.core.net.addresses import parse_networks, parse_url
from tidings.core.net.client import GuardedClient, NetworkError, RefusedError
from tidings.core.net.names import MOST_LOOKUPS, MOST_PER_DOMAIN, MOST_THREADS, NameResolver
from tidings.core.secrets.secret import Secret
from tidings.sandbox.site.site import SandboxSite
from tidings.settings.settings import Settings
from tidings.wiring.opening import list_own_hosts

PATIENCE = timedelta(seconds=0.2)
NO_TIME = timedelta(0)
ENOUGH = timedelta(seconds=10)
LONG = timedelta(seconds=60)


class SlowNames:
    """A system whose lookups of names with `slow` do not end before the test does."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.asked: list[str] = []
        # Lookups of slow names under way, and the most there were.
        self._under_way = self.most_under_way = 0
        self._lock = threading.Lock()

    async def wait_for(self, count: int) -> None:
        async def is_so() -> bool:
            return len(self.asked) == count

        await wait_until(is_so)

    def look_up(self, host: str, port: int, **options: Any) -> list[Any]:
        if "slow" in host:
            with self._lock:
                self._under_way += 1
                self.most_under_way = max(self.most_under_way, self._under_way)
                self.asked.append(host)
            self.ended.wait(60)
            with self._lock:
                self._under_way -= 1
        if host.endswith("unknown.example"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]


@pytest.fixture
async def names() -> AsyncIterator[SlowNames]:
    slow = SlowNames()
    yield slow
    slow.ended.set()


async def test_slow_names_of_one_domain_keep_no_other_name_waiting(names: SlowNames) -> None:
    """Attack cases "Fetching": fifty lookups were given up; another name resolves at once."""
    resolver = NameResolver(names.look_up)

    async def give_up(number: int) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await resolver.resolve(f"n{number}.slow.example", 80)

    await asyncio.gather(*(give_up(number) for number in range(50)))
    async with asyncio.timeout(ENOUGH.total_seconds()):
        found = await resolver.resolve("good.example", 80)
        with pytest.raises(OSError, match="not known"):
            await resolver.resolve("unknown.example", 80)
    assert [(entry["hostname"], entry["host"]) for entry in found] == [("good.example", "127.0.0.1")]
    assert len(names.asked) == MOST_PER_DOMAIN
    names.ended.set()
    async with asyncio.timeout(ENOUGH.total_seconds()):
        assert await resolver.resolve("n51.slow.example", 80)


async def test_a_hundred_slow_domains_keep_no_other_name_waiting(names: SlowNames) -> None:
    """Attack cases "Fetching": as many names of each as may be looked up at once; another name resolves at once."""
    resolver = NameResolver(names.look_up)
    slow = [f"n{number}.d{domain}-slow.example" for domain in range(100) for number in range(MOST_PER_DOMAIN)]
    pending = [asyncio.create_task(resolver.resolve(host, 80)) for host in slow]
    async with asyncio.timeout(ENOUGH.total_seconds()):
        await names.wait_for(len(slow))
        assert await resolver.resolve("good.example", 80)
        names.ended.set()
        await asyncio.gather(*pending)


async def test_names_that_hang_give_their_turns_to_others(names: SlowNames) -> None:
    """Attack cases "Fetching": all turns are taken by names that hang; another name resolves long before they end."""
    resolver = NameResolver(names.look_up, hangs_after=NO_TIME)
    domains = MOST_LOOKUPS // MOST_PER_DOMAIN
    slow = [f"n{number}.d{domain}-slow.example" for domain in range(domains) for number in range(MOST_PER_DOMAIN)]
    pending = [asyncio.create_task(resolver.resolve(host, 80)) for host in slow]
    async with asyncio.timeout(ENOUGH.total_seconds()):
        await names.wait_for(MOST_LOOKUPS)
        assert await resolver.resolve("good.example", 80)
        names.ended.set()
        await asyncio.gather(*pending)


@pytest.mark.thorough
async def test_there_is_a_bound_on_threads_and_names_beyond_it_get_their_turn_later(names: SlowNames) -> None:
    """Attack cases "Fetching": more domains hang than there may be threads."""
    resolver = NameResolver(names.look_up, hangs_after=NO_TIME)
    slow = [f"slow{domain}.example" for domain in range(MOST_THREADS + 100)]
    pending = [asyncio.create_task(resolver.resolve(host, 80)) for host in slow]
    async with asyncio.timeout(LONG.total_seconds()):
        await names.wait_for(MOST_THREADS)
        names.ended.set()
        assert all(await asyncio.gather(*pending))
    assert names.most_under_way == MOST_THREADS


@pytest.mark.parametrize("suffix", ["com.cn", "gd.cn", "co.uk"])
async def test_a_slow_domain_keeps_no_other_waiting_that_the_same_country_registered(
    names: SlowNames, suffix: str
) -> None:
    """Attack cases "Fetching": com.cn is not one domain, although slow.com.cn with all its names is."""
    resolver = NameResolver(names.look_up)
    slow = [f"n{number}.slow.{suffix}" for number in range(MOST_PER_DOMAIN + 1)]
    pending = [asyncio.create_task(resolver.resolve(host, 80)) for host in slow]
    async with asyncio.timeout(ENOUGH.total_seconds()):
        await names.wait_for(MOST_PER_DOMAIN)
        assert await resolver.resolve(f"www.good.{suffix}", 80)
        assert len(names.asked) == MOST_PER_DOMAIN
        names.ended.set()
        await asyncio.gather(*pending)


async def test_a_lookup_without_a_thread_is_an_error_and_blocks_no_later_one(names: SlowNames) -> None:
    """Attack cases "Fetching": the system may refuse a thread; the domain and the total stay free."""
    resolver = NameResolver(names.look_up)
    # No system gives a thread that much.
    before = threading.stack_size(1 << 50)
    try:
        for _ in range(MOST_PER_DOMAIN + 1):
            with pytest.raises(OSError, match="no further thread"):
                await resolver.resolve("good.example", 80)
    finally:
        threading.stack_size(before)
    async with asyncio.timeout(ENOUGH.total_seconds()):
        assert await resolver.resolve("good.example", 80)


async def test_the_client_looks_names_up_in_its_own_threads(names: SlowNames) -> None:
    """Attack cases "Fetching": while a slow name is looked up, the process's shared threads are free."""
    async with GuardedClient(user_agent="t", resolver=NameResolver(names.look_up)) as client:
        with pytest.raises(NetworkError):
            await client.request("GET", "http://a.slow.example/", timeout=PATIENCE)
        assert [each.daemon for each in threading.enumerate() if each.name == "tidings-names"] == [True]
        # A name that the system knows is still not reached where the guard forbids it.
        with pytest.raises(RefusedError):
            await client.request("GET", "http://good.example/", timeout=ENOUGH)


@pytest.fixture
async def service() -> AsyncIterator[SandboxSite]:
    async with SandboxSite(pages=1) as running:
        running.serve("/", "own")
        yield running


async def test_requests_that_wait_for_slow_names_keep_no_other_request_waiting(
    names: SlowNames, service: SandboxSite
) -> None:
    """Attack cases "Fetching": aiohttp allows 100 connections by itself, and counts these requests as such."""
    async with GuardedClient(
        user_agent="t", resolver=NameResolver(names.look_up), allow_networks=parse_networks("127.0.0.0/8")
    ) as client:
        slow = [f"http://d{number}-slow.example/" for number in range(200)]
        pending = [asyncio.create_task(client.request("GET", url, timeout=LONG)) for url in slow]
        await names.wait_for(len(slow))
        good = f"http://good.example:{parse_url(service.origin).port}/"
        assert (await client.request("GET", good, timeout=ENOUGH)).status == 200
        for each in pending:
            each.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


async def test_an_address_of_the_settings_is_reached_by_its_own_host_and_port_alone(service: SandboxSite) -> None:
    """Attack cases "Fetching": neither another port of the host, nor by code that fetches what others name."""
    async with (
        GuardedClient(user_agent="t", allow_hosts={("127.0.0.1", parse_url(service.origin).port)}) as own,
        GuardedClient(user_agent="t") as other,
    ):
        assert (await own.request("GET", f"{service.origin}/", timeout=ENOUGH)).status == 200
        for client, url in ((own, "http://127.0.0.1:1/"), (own, "http://127.0.0.2/"), (other, f"{service.origin}/")):
            with pytest.raises(RefusedError):
                await client.request("GET", url, timeout=ENOUGH)


def test_every_address_of_the_settings_is_the_operators_own(tmp_path: Path) -> None:
    """Attack cases "Fetching": engines, Bing, platforms, the webhook."""
    settings = Settings(
        engines=("http://10.0.0.1:8801/indexnow", "api.indexnow.org"),
        webhook_url=Secret("https://hooks.internal/abc"),
        bases=ApiBases(bing="http://10.0.0.2:8802"),
    )
    assert {("10.0.0.1", 8801), ("api.indexnow.org", 443), ("hooks.internal", 443), ("10.0.0.2", 8802)} <= (
        list_own_hosts(settings)
    )


async def test_an_installation_reaches_its_own_addresses_and_no_site_beside_them(
    service: SandboxSite, sqlite_url: str, tmp_path: Path
) -> None:
    """Attack cases "Fetching": a webhook on this machine is reached, a sitemap there is not."""
    webhook = Secret(f"{service.origin}/")
    async with open_stage(sqlite_url, tmp_path, allow_networks=(), webhook_url=webhook) as installation:
        assert (await installation.own_client.request("GET", f"{service.origin}/", timeout=ENOUGH)).status == 200
        with pytest.raises(RefusedError):
            await installation.client.request("GET", f"{service.origin}/", timeout=ENOUGH)
