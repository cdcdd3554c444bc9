"""The server: where it listens, how it begins and how it ends."""

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from structlog.typing import EventDict

from tests.waiting import wait_until
from tests.web.conftest import StageMaker
from tests.web.stage import ADMIN, CANARY, SOON, Stage, run_server, send_raw
from tidings.core.clock import SystemClock
from tidings.web.middleware.callers import WRONG_TRIES
from tidings.web.server import bind_sockets, serve

TOKEN = {"Authorization": f"Bearer {ADMIN}"}


@asynccontextmanager
async def open_stream(port: int, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """A stream of events whose first event has come."""
    async with aiohttp.ClientSession(headers=TOKEN) as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert await asyncio.wait_for(answer.content.readline(), SOON) == b'data: {"number":1}\n'
        yield answer


async def test_open_streams_end_properly_and_at_once_when_the_service_stops(
    make_stage: StageMaker, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten seconds are allowed; a stream does not use them, and its reader sees a proper end."""
    stage = make_stage(clock=SystemClock())
    async with run_server(stage) as port, open_stream(port, "/events") as one, open_stream(port, "/events") as other:
        began = time.monotonic()
        stage.stop.request("the machine goes down")
        for answer in (one, other):
            assert (await asyncio.wait_for(answer.content.read(), SOON)).strip() == b""
    assert time.monotonic() - began < 3
    assert caplog.records == []


async def test_a_stream_that_breaks_is_cut_and_logged(
    stage: Stage, events: list[EventDict], caplog: pytest.LogCaptureFixture
) -> None:
    """A23: the reader must not take it for a proper end; the secret is in nothing that it gets."""
    request = f"GET /broken-stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\r\n"
    async with run_server(stage) as port:
        answer = await send_raw(port, request.encode())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert not answer.endswith(b"0\r\n\r\n")
    assert [event["event"] for event in events] == ["http.failed", "http.request"]
    assert CANARY not in answer.decode() + caplog.text


async def test_a_reader_that_goes_away_ends_its_stream(stage: Stage, events: list[EventDict]) -> None:
    """Nothing goes on for nobody; the server then has nothing to wait for."""
    async with run_server(stage) as port:
        async with open_stream(port, "/events"):
            pass
        async with aiohttp.ClientSession(headers=TOKEN) as session:
            for _ in range(200):
                async with session.get(f"http://127.0.0.1:{port}/health/live"):
                    pass
                if any(event["route"] == "/events" for event in events):
                    break
    assert [event["status"] for event in events if event["route"] == "/events"] == [200]


async def test_a_request_under_way_is_finished_before_the_end(make_stage: StageMaker) -> None:
    """A clean stop; new connections are refused meanwhile."""
    begun, finish = asyncio.Event(), asyncio.Event()

    async def take_time() -> bool:
        begun.set()
        await finish.wait()
        return True

    stage = make_stage(clock=SystemClock(), checks={"slow": take_time})
    async with run_server(stage) as port, aiohttp.ClientSession() as session:
        asked = asyncio.create_task(session.get(f"http://127.0.0.1:{port}/health/ready"))
        await asyncio.wait_for(begun.wait(), SOON)
        stage.stop.request("the machine goes down")
        await wait_until_refused(port)
        finish.set()
        answer = await asyncio.wait_for(asked, SOON)
        assert (answer.status, await answer.json()) == (200, {"status": "ready", "checks": {"slow": "ok"}})


async def wait_until_refused(port: int) -> None:
    """Return once nobody listens. A connection that comes while the listener closes is never closed by Python 3.11."""

    async def is_free() -> bool:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            return False
        return True

    await wait_until(is_free)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_no_answer_waits_for_the_client_s_acknowledgement(stage: Stage) -> None:
    """A header and a body are two packets; with Nagle's delay, each answer would take 40 ms more."""
    taken = []
    async with run_server(stage) as port, aiohttp.ClientSession() as session:
        for _ in range(40):
            began = time.monotonic()
            async with session.get(f"http://127.0.0.1:{port}/health/live") as answer:
                await answer.read()
            taken.append(time.monotonic() - began)
    assert min(taken[20:]) < 0.03


async def test_a_port_that_is_taken_is_an_error_before_anything_has_begun(stage: Stage) -> None:
    """A33: the service starts its scheduler once it listens, so no scheduler runs in a process that cannot serve."""
    listening: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        await serve(
            stage.app,
            host="127.0.0.1",
            port=taken.getsockname()[1],
            stop=stage.stop,
            on_listening=lambda _host, port: listening.append(port),
        )
    assert listening == []


async def test_the_server_itself_believes_no_forwarded_address(stage: Stage) -> None:
    """Attack cases "API": a caller from loopback cannot get new tries by naming another address each time."""
    statuses = []
    async with run_server(stage) as port, aiohttp.ClientSession() as session:
        for number in range(WRONG_TRIES + 1):
            headers = {"Authorization": "Bearer wrong", "X-Forwarded-For": f"198.51.100.{number}"}
            async with session.get(f"http://127.0.0.1:{port}/things/one", headers=headers) as answer:
                statuses.append(answer.status)
    assert statuses == [401] * WRONG_TRIES + [429]


async def test_signals_stay_with_the_command(stage: Stage) -> None:
    """`tidings serve` owns them, before, during and after."""
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    async with run_server(stage):
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_name_with_several_addresses_is_bound_on_one_port() -> None:
    """Whichever address of `localhost` a client takes, it finds us."""
    sockets = bind_sockets("localhost", port=0)
    try:
        assert len({each.getsockname()[1] for each in sockets}) == 1
        assert len({each.getsockname()[0] for each in sockets}) == len(sockets) >= 1
    finally:
        for each in sockets:
            each.close()


def test_a_host_that_does_not_exist_is_an_os_error() -> None:
    """The command can tell it in one line."""
    with pytest.raises(OSError, match=r"[Nn]ame|[Nn]ot known|host"):
        bind_sockets("no-such-host.invalid", port=0)
