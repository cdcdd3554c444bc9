"""A site and its engines as one, and the sandbox as a process of its own."""

import asyncio
import socket

import aiohttp
import pytest
from aiohttp import ClientSession

from tidings.sandbox.bundle import Sandbox, serve_sandbox
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.webhook_sink import SandboxSink


def find_ports(count: int) -> int:
    """The first of `count` free ports in a row."""
    for first in range(20_000, 32_000, 7):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise RuntimeError("no free ports")


async def status_of(client: ClientSession, url: str) -> int:
    async with client.get(url) as response:
        return response.status


async def test_a_bundle_starts_and_closes_as_one(client: ClientSession) -> None:
    """A18: one site, several engines, each on its own port, none left open afterwards."""
    engines = [SandboxEngine("alpha"), SandboxEngine("beta")]
    async with Sandbox(site=SandboxSite(pages=5), engines=engines) as sandbox:
        site = sandbox.site
        assert len({site.port, *(engine.port for engine in engines)}) == 3
        for engine in engines:
            assert await status_of(client, f"{engine.endpoint}?url={site.url(1)}&key={site.key}") == 200
        assert sandbox.engine("beta").accepted == {site.url(1): 1}
    for url in (site.sitemap_url, *(engine.endpoint for engine in engines)):
        with pytest.raises(aiohttp.ClientConnectionError):
            await status_of(client, url)


async def test_with_a_port_the_engines_follow_the_site(client: ClientSession) -> None:
    """`port=P`: the site on P, the engines on P+1 and P+2."""
    port = find_ports(3)
    async with Sandbox(port=port) as sandbox:
        site = sandbox.site
        assert site.host == f"127.0.0.1:{port}"
        assert site.sitemap_url == f"http://127.0.0.1:{port}/sitemap.xml"
        assert site.robots_url == f"http://127.0.0.1:{port}/robots.txt"
        assert site.key_location == f"http://127.0.0.1:{port}/{site.key}.txt"
        assert {engine.name: engine.endpoint for engine in sandbox.engines} == {
            "alpha": f"http://127.0.0.1:{port + 1}/indexnow",
            "beta": f"http://127.0.0.1:{port + 2}/indexnow",
        }
        assert sandbox.control_url == f"http://127.0.0.1:{port}/__sandbox/"
        assert await status_of(client, site.sitemap_url) == 200


async def test_a_taken_port_starts_nothing(client: ClientSession) -> None:
    """All or none: where an engine's port is taken, the site does not stay behind."""
    port = find_ports(3)
    in_the_way = SandboxEngine("in the way")
    await in_the_way.start(port=port + 1)
    with pytest.raises(OSError, match="address already in use"):
        await Sandbox(port=port).__aenter__()
    with pytest.raises(aiohttp.ClientConnectionError):
        await status_of(client, f"http://127.0.0.1:{port}/")
    await in_the_way.close()


def test_two_stand_ins_of_one_name_are_refused() -> None:
    """The control address names each, so one of two would not even start."""
    with pytest.raises(ValueError, match="same name"):
        Sandbox(engines=[SandboxEngine("alpha"), SandboxEngine("alpha")])
    with pytest.raises(ValueError, match="same name"):
        Sandbox(others=[SandboxSink(), SandboxSink()])


async def test_serving_lasts_until_cancelled(client: ClientSession) -> None:
    """`tidings sandbox`: says where it is once it listens, serves, and is gone when cancelled."""
    ready: asyncio.Future[Sandbox] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_sandbox(port=0, pages=12, on_ready=ready.set_result))
    async with asyncio.timeout(5):
        sandbox = await ready
    async with client.get(sandbox.control_url + "record") as response:
        assert (await response.json())["site"]["pages"] == 12
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    with pytest.raises(aiohttp.ClientConnectionError):
        await status_of(client, sandbox.site.sitemap_url)
