"""Misbehaviour on request, seen from the client's end of the wire."""

import asyncio
import time
from datetime import timedelta
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import ClientSession

from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultError, FaultKind, parse_fault


def submission(site: SandboxSite, engine: SandboxEngine, number: int = 1) -> str:
    return f"{engine.endpoint}?url={quote(site.url(number), safe='')}&key={site.key}"


async def status_of(client: ClientSession, url: str) -> int:
    async with client.get(url) as response:
        await response.read()
        return response.status


async def statuses_of(client: ClientSession, url: str, *, count: int) -> list[int]:
    return [await status_of(client, url) for _ in range(count)]


async def exchange_raw(host: str, port: int, path: str) -> bytes:
    """Everything that comes back on a bare connection until it ends; ConnectionResetError where it is reset."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        async with asyncio.timeout(5):
            return await reader.read()
    finally:
        writer.close()


async def test_a_status_is_answered_for_the_next_requests_only(client: ClientSession, site: SandboxSite) -> None:
    """A6, A21: `times` bounds a fault; the record has what was answered."""
    site.misbehave(Fault(status=503, times=2, path="/sitemap.xml"))
    assert await status_of(client, site.robots_url) == 200
    assert await statuses_of(client, site.sitemap_url, count=3) == [503, 503, 200]
    assert [entry.status for entry in site.requests] == [200, 503, 503, 200]


@pytest.mark.parametrize("headers", [{"Retry-After": "7"}, {}])
async def test_429_comes_with_or_without_retry_after(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine, headers: dict[str, str]
) -> None:
    """A21: both forms of a 429, and a body as it was set."""
    engine.misbehave(Fault(status=429, headers=headers, body="slow down"))
    async with client.get(submission(site, engine)) as response:
        assert (response.status, await response.text()) == (429, "slow down")
        assert response.headers.get("Retry-After") == headers.get("Retry-After")
    assert not engine.accepted


async def test_faults_last_until_recovery(client: ClientSession, site: SandboxSite, engine: SandboxEngine) -> None:
    """A21: without `times` a fault stays until it is cleared."""
    engine.misbehave(Fault(status=500))
    assert await statuses_of(client, submission(site, engine), count=4) == [500] * 4
    engine.recover()
    assert await status_of(client, submission(site, engine)) == 200


async def test_every_and_after_choose_the_requests(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A21: spare the first two, then hit each third, twice."""
    engine.misbehave(Fault(status=500, after=2, every=3, times=2))
    answers = await statuses_of(client, submission(site, engine), count=12)
    assert [number for number, status in enumerate(answers, start=1) if status == 500] == [5, 8]


async def test_several_faults_take_turns(client: ClientSession, site: SandboxSite, engine: SandboxEngine) -> None:
    """A21: the one set first goes first; one that is spent makes room."""
    engine.misbehave(Fault(status=500, times=2))
    engine.misbehave(Fault(status=429, times=1))
    assert await statuses_of(client, submission(site, engine), count=4) == [500, 500, 429, 200]


async def test_one_bad_url_is_refused_with_its_whole_batch(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A22: `matching` refuses every request that has the URL, so that splitting finds it."""
    engine.misbehave(Fault(status=422, matching="/pages/0000003/"))

    async def post(*numbers: int) -> int:
        document = {"host": site.host, "key": site.key, "urlList": [site.url(number) for number in numbers]}
        async with client.post(engine.endpoint, json=document) as response:
            return response.status

    assert [await post(1, 2, 3, 4), await post(1, 2), await post(3, 4), await post(3), await post(4)] == [
        422,
        200,
        422,
        422,
        200,
    ]
    assert engine.accepted == {site.url(1): 1, site.url(2): 1, site.url(4): 1}


async def test_reset_is_a_real_reset_and_nothing_is_accepted(site: SandboxSite, engine: SandboxEngine) -> None:
    """A21: the client's kernel sees RST, not an orderly end."""
    engine.misbehave(Fault(FaultKind.RESET, times=1))
    path = submission(site, engine).removeprefix(engine.origin)
    with pytest.raises(ConnectionResetError):
        await exchange_raw("127.0.0.1", engine.port, path)
    assert not engine.accepted
    assert [entry.status for entry in engine.requests] == [None]
    assert engine.in_flight == 0


async def test_reset_after_accepting_counts_and_says_nothing(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A21: the ambiguous case: taken, but the client never hears of it."""
    engine.misbehave(Fault(FaultKind.RESET_AFTER_ACCEPTING, times=1))
    path = submission(site, engine).removeprefix(engine.origin)
    assert await exchange_raw("127.0.0.1", engine.port, path) == b""
    assert engine.accepted == {site.url(1): 1}
    assert [entry.status for entry in engine.requests] == [None]
    engine.misbehave(Fault(FaultKind.RESET_AFTER_ACCEPTING, times=1))
    async with aiohttp.ClientSession() as fresh:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await fresh.post(engine.endpoint, json={"host": site.host, "key": site.key, "urlList": [site.url(2)]})
    assert engine.accepted == {site.url(1): 1, site.url(2): 1}


async def test_reset_after_accepting_does_not_accept_what_is_wrong(site: SandboxSite, engine: SandboxEngine) -> None:
    """A22: what would have been refused is not counted, though nobody hears of that either."""
    engine.misbehave(Fault(FaultKind.RESET_AFTER_ACCEPTING))
    assert await exchange_raw("127.0.0.1", engine.port, f"/indexnow?url=http://example.org/&key={site.key}") == b""
    assert not engine.accepted


async def test_a_hanging_request_never_gets_an_answer(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A21: the client must give up by itself; from then on the request is no longer in flight."""
    engine.misbehave(Fault(FaultKind.HANG, times=1))
    waiting = asyncio.create_task(status_of(client, submission(site, engine)))
    await engine.wait_for_requests(1)
    assert await status_of(client, submission(site, engine, 2)) == 200
    assert not waiting.done()
    assert engine.in_flight == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await engine.wait_until_idle()
    assert engine.requests[0].status is None
    assert site.url(1) not in engine.accepted


async def test_hanging_requests_do_not_delay_closing(client: ClientSession, site: SandboxSite) -> None:
    """A21: closing is quick, ends what hangs, and leaves no task behind."""
    engine = SandboxEngine("alpha")
    await engine.start()
    engine.misbehave(Fault(FaultKind.HANG))
    before = asyncio.all_tasks()
    waiting = [asyncio.create_task(status_of(client, submission(site, engine, number))) for number in range(1, 6)]
    await engine.wait_for_requests(5)
    began = time.monotonic()
    await engine.close()
    assert time.monotonic() - began < 0.5
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(outcome, aiohttp.ClientConnectionError) for outcome in outcomes)
    assert asyncio.all_tasks() <= before
    assert engine.in_flight == 0


async def test_latency_comes_before_the_judgement(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A20: a slow engine answers rightly, but late."""
    engine.misbehave(Fault(FaultKind.SLOW, latency=timedelta(milliseconds=80)))
    began = time.monotonic()
    assert await status_of(client, submission(site, engine)) == 200
    assert time.monotonic() - began >= 0.08


async def test_a_slow_engine_takes_what_its_client_gave_up(site: SandboxSite, engine: SandboxEngine) -> None:
    """A21: a time-out does not mean that nothing was accepted."""
    engine.misbehave(Fault(FaultKind.SLOW, latency=timedelta(milliseconds=100)))
    judged = asyncio.Event()
    engine.on_answer = lambda _: judged.set()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.03)) as hasty:
        with pytest.raises(TimeoutError):
            await hasty.get(submission(site, engine))
    async with asyncio.timeout(5):
        await judged.wait()
    assert engine.accepted == {site.url(1): 1}
    assert [entry.status for entry in engine.requests] == [None]


async def test_a_dripping_body_arrives_whole_but_slowly(client: ClientSession, site: SandboxSite) -> None:
    """A5: a body in small pieces with pauses between them."""
    site.serve("/slow.txt", b"0123456789")
    site.misbehave(
        Fault(FaultKind.DRIP, path="/slow.txt", drip_bytes=2, drip_pause=timedelta(milliseconds=15), times=1)
    )
    began = time.monotonic()
    async with client.get(f"{site.origin}/slow.txt") as response:
        pieces = [piece async for piece in response.content.iter_any()]
    assert time.monotonic() - began >= 4 * 0.015
    assert b"".join(pieces) == b"0123456789"
    assert len(pieces) > 1


async def test_a_truncated_body_ends_half_way(client: ClientSession, site: SandboxSite) -> None:
    """A7: less arrives than Content-Length promised, and it is the beginning."""
    site.serve("/cut.txt", b"0123456789")
    site.misbehave(Fault(FaultKind.TRUNCATE, path="/cut.txt"))
    raw = await exchange_raw("127.0.0.1", site.port, "/cut.txt")
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"content-length: 10" in head.lower()
    assert body == b"01234"
    with pytest.raises(aiohttp.ClientPayloadError):
        await status_of(client, f"{site.origin}/cut.txt")


async def test_a_large_truncated_file_loses_its_end(client: ClientSession, site: SandboxSite) -> None:
    """A7: also where the body is sent in pieces."""
    site.serve("/cut.bin", bytes(3_000_000))
    site.misbehave(Fault(FaultKind.TRUNCATE, path="/cut.bin"))
    raw = await exchange_raw("127.0.0.1", site.port, "/cut.bin")
    assert len(raw.partition(b"\r\n\r\n")[2]) == 1_500_000


async def test_a_reset_site_resets_for_its_path_only(client: ClientSession, site: SandboxSite) -> None:
    """A6: one child fails on the wire, the others are well."""
    site.misbehave(Fault(FaultKind.RESET, path="/sitemaps/2.xml"))
    with pytest.raises(ConnectionResetError):
        await exchange_raw("127.0.0.1", site.port, "/sitemaps/2.xml")
    assert await status_of(client, f"{site.origin}/sitemaps/1.xml") == 200


def test_a_fault_says_what_it_fits() -> None:
    """A22: by path, by URL, by both, or everything."""
    urls = ("http://h/a", "http://h/b")
    assert Fault(FaultKind.HANG).fits(path="/p", urls=())
    assert Fault(path="/p", matching="/b").fits(path="/p", urls=urls)
    assert not Fault(path="/q", matching="/b").fits(path="/p", urls=urls)
    assert not Fault(matching="/c").fits(path="/p", urls=urls)


def test_a_fault_is_read_from_json() -> None:
    """A21: all fields of a fault, durations in seconds."""
    fault = parse_fault(
        {
            "kind": "reset_after_accepting",
            "status": 429,
            "headers": {"Retry-After": "1"},
            "body": "b",
            "times": 2,
            "every": 3,
            "after": 1,
            "matching": "/a",
            "path": "/p",
            "latency": 0.5,
            "drip_bytes": 9,
            "drip_pause": 1,
        }
    )
    assert fault == Fault(
        FaultKind.RESET_AFTER_ACCEPTING,
        status=429,
        headers={"Retry-After": "1"},
        body="b",
        times=2,
        every=3,
        after=1,
        matching="/a",
        path="/p",
        latency=timedelta(milliseconds=500),
        drip_bytes=9,
        drip_pause=timedelta(seconds=1),
    )
    assert parse_fault({"times": None}) == Fault()


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"kind": "unheard-of"},
        {"kind": None},
        {"status": "503"},
        {"status": 0},
        {"every": 0},
        {"times": -1},
        {"times": True},
        {"latency": -1},
        {"latency": "1"},
        {"headers": {"a": 1}},
        {"body": 1},
        {"surprise": 1},
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(document: object) -> None:
    """A21: an unknown field or a value that does not fit is an error, not a silent default."""
    with pytest.raises(FaultError):
        parse_fault(document)
