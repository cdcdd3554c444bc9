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
from tidings.core.net.addresses import parse_url
from tidings.core.net.client import GuardedClient, NetworkError, RefusedError
from tidings.core.net.names import MOST_PER_DOMAIN, NameResolver
from tidings.core.secrets.secret import Secret
from tidings.sandbox.site.site import SandboxSite
from tidings.settings.settings import Settings
from tidings.wiring.opening import list_own_hosts

PATIENCE = timedelta(seconds=0.2)
ENOUGH = timedelta(seconds=10)
LOOPBACK = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))]


class SlowNames:
    """A system whose lookups below slow.example do not end before the test does."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.asked: list[str] = []

    async def wait_for(self, count: int) -> None:
        async def is_so() -> bool:
            return len(self.asked) == count

        await wait_until(is_so)

    def look_up(self, host: str, port: int, **options: Any) -> list[Any]:
        if host.endswith("slow.example"):
            self.asked.append(host)
            self.ended.wait(60)
        if host.endswith("unknown.example"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return LOOPBACK


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
