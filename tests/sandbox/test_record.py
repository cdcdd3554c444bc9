"""The record of requests, the hooks, and waiting without sleeping."""

import asyncio
import time
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from aiohttp import ClientSession
from yarl import URL

from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.request_log import Recorded

POST_HEAD = b"POST /indexnow HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def submission(site: SandboxSite, engine: SandboxEngine, number: int = 1) -> str:
    return f"{engine.endpoint}?url={site.url(number)}&key={site.key}"


async def status_of(client: ClientSession, url: str) -> int:
    async with client.get(url) as response:
        await response.read()
        return response.status


async def test_every_request_is_recorded_with_its_time(client: ClientSession, site: SandboxSite) -> None:
    """A17: monotonic and wall time, method, path, raw query, headers and status of each request."""
    began, wall = time.monotonic(), datetime.now(UTC)
    async with client.get(URL(f"{site.origin}/robots.txt?a=%20b", encoded=True), headers={"X-Mark": "m"}) as response:
        await response.read()
    ended = time.monotonic()
    await status_of(client, f"{site.origin}/nowhere")
    first, second = site.requests
    assert began <= first.at <= ended <= second.at
    assert wall <= first.wall <= second.wall <= datetime.now(UTC)
    assert (first.method, first.path, first.status) == ("GET", "/robots.txt", 200)
    assert (first.query, second.query, second.status) == ("a=%20b", "", 404)
    assert (first.headers["x-mark"], first.urls) == ("m", (f"{site.origin}/robots.txt?a=%20b",))
    with pytest.raises(FrozenInstanceError):
        first.status = 500  # type: ignore[misc]


async def test_arrival_is_stamped_before_the_body_is_read(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A17: the time of a request is when its head came, however slow its body is; it is waited for as a whole."""
    body = f'{{"host":"{site.host}","key":"{site.key}","urlList":["{site.url(1)}"]}}'.encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    writer.write(POST_HEAD % len(body) + body[:10])
    await status_of(client, submission(site, engine, 2))
    slow, quick = engine.requests
    assert (slow.urls, slow.in_flight, quick.in_flight, engine.in_flight) == ((), 1, 2, 1)
    with pytest.raises(TimeoutError):
        await engine.wait_for_requests(2, timeout=timedelta(milliseconds=10))
    writer.write(body[10:])
    await engine.wait_for_requests(2)
    assert engine.requests[0].at == slow.at < quick.at
    assert engine.requests[0].urls == (site.url(1),)
    assert b"200 OK" in await reader.readuntil(b"\r\n")
    writer.close()


async def test_in_flight_counts_itself_and_those_before_it(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A17: three at once are 1, 2 and 3 in flight; the most is kept."""
    all_here = asyncio.Event()

    async def hold(_: Recorded) -> None:
        if len(engine.requests) == 3:
            all_here.set()
        await all_here.wait()

    engine.on_request = hold
    async with asyncio.timeout(5):
        await asyncio.gather(*(status_of(client, submission(site, engine, number)) for number in (1, 2, 3)))
    assert [entry.in_flight for entry in engine.requests] == [1, 2, 3]
    assert (engine.max_in_flight, engine.in_flight) == (3, 0)


@pytest.mark.parametrize("path", ["/robots.txt", "/large.bin"])
async def test_one_after_another_is_never_two_in_flight(client: ClientSession, site: SandboxSite, path: str) -> None:
    """A17: a client that waits for each answer is never counted as two, small answers or large."""
    site.serve("/large.bin", bytes(600_000))
    for _ in range(30):
        await status_of(client, site.origin + path)
    assert site.max_in_flight == 1


async def test_waiting_returns_with_the_request_and_times_out_without(client: ClientSession, site: SandboxSite) -> None:
    """Tests wait for requests, not for time; a wait that is not met says how far it came."""
    waiting = asyncio.create_task(site.wait_for_requests(2))
    await status_of(client, site.robots_url)
    assert not waiting.done()
    await status_of(client, site.robots_url)
    async with asyncio.timeout(5):
        await waiting
    with pytest.raises(TimeoutError, match="2 of 3 requests"):
        await site.wait_for_requests(3, timeout=timedelta(milliseconds=10))


async def test_hooks_see_a_request_before_and_after_it_is_judged(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A20: on_request before anything is accepted, on_answer after, both before the client knows."""
    seen: list[tuple[str, int | None, int]] = []
    engine.on_request = lambda entry: seen.append(("request", entry.status, engine.accepted[entry.urls[0]]))

    async def note(entry: Recorded) -> None:
        seen.append(("answer", entry.status, engine.accepted[entry.urls[0]]))

    engine.on_answer = note
    assert await status_of(client, submission(site, engine)) == 200
    assert seen == [("request", None, 0), ("answer", 200, 1)]


async def test_the_site_has_the_same_hooks(client: ClientSession, site: SandboxSite) -> None:
    """A6: a test can act at the hook a sitemap is asked for, and what it changes is in the answer."""
    site.on_request = lambda _: site.serve("/robots.txt", "changed in time")
    answered: list[int | None] = []
    site.on_answer = lambda entry: answered.append(entry.status)
    async with client.get(site.robots_url) as response:
        assert await response.text() == "changed in time"
    assert answered == [200]


@pytest.mark.parametrize("hook", ["on_request", "on_answer"])
async def test_a_client_killed_at_an_exact_moment_was_still_judged(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine, hook: str
) -> None:
    """A20: what arrived completely is taken, also where nobody is left to hear the answer; an awaiting hook is not
    cut short by the client's end."""
    hook_ended, judged = asyncio.Event(), asyncio.Event()
    waiting: asyncio.Task[int]

    async def kill(_: Recorded) -> None:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        hook_ended.set()
        if hook == "on_answer":
            judged.set()

    engine.on_answer = lambda _: judged.set()
    setattr(engine, hook, kill)
    waiting = asyncio.create_task(status_of(client, submission(site, engine)))
    async with asyncio.timeout(5):
        await hook_ended.wait()
        await judged.wait()
    assert waiting.cancelled()
    assert engine.accepted == {site.url(1): 1}


async def test_a_hook_that_never_ends_does_not_delay_closing(client: ClientSession, site: SandboxSite) -> None:
    """Closing ends hooks too, and a hook may close its own stand-in."""
    engine = SandboxEngine("alpha")
    await engine.start()
    forever = asyncio.Event()

    async def hang(_: Recorded) -> None:
        await forever.wait()

    engine.on_request = hang
    waiting = asyncio.create_task(status_of(client, submission(site, engine)))
    await engine.wait_for_requests(1)
    began = time.monotonic()
    await engine.close()
    assert time.monotonic() - began < 0.5
    assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], OSError)
    site.on_request = lambda _: site.close()
    async with asyncio.timeout(5):
        with pytest.raises(aiohttp.ClientConnectionError):
            await status_of(client, site.robots_url)


async def test_a_client_that_dies_in_mid_body_is_recorded_unanswered(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A21: half a request is no submission."""
    _, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    writer.write(POST_HEAD % 50 + b"{")
    await status_of(client, submission(site, engine))
    assert engine.in_flight == 1
    writer.close()
    await engine.wait_until_idle()
    assert (engine.requests[0].status, engine.requests[0].urls) == (None, ())
    assert engine.accepted == {site.url(1): 1}


async def test_large_files_to_a_client_that_does_not_read_do_not_delay_closing() -> None:
    """A5: closing waits for nobody."""
    site = SandboxSite(pages=1)
    await site.start()
    site.serve("/big.bin", bytes(20_000_000))
    _, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(b"GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n")
    await site.wait_for_requests(1)
    began = time.monotonic()
    await site.close()
    assert time.monotonic() - began < 0.5
    writer.transport.abort()
