"""Connections that send nothing, or a head byte by byte, or half a body, or that do not read their answer; and more of
them than the process may open files."""

import asyncio
import errno
import os
import socket
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import h11
import pytest
from structlog.typing import EventDict

from tests.cli.terminal import SCRIPT, Terminal
from tests.waiting import wait_until
from tests.web.stage import ADMIN, LARGE, SOON, Stage, run_server
from tidings.web.connections import (
    MOST_SMALL_CHUNKS,
    SMALL_CHUNK,
    SMALL_CHUNKS_A_TURN,
    AcceptErrors,
    ConnectionLimit,
    choose_most_connections,
)

LIVE = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"


HALF_BODY = (
    f"POST /api/echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: application/json\r\n"
    "Content-Length: 60000\r\n\r\n{"
).encode()
LARGE_ANSWER = f"GET /large HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\r\n".encode()


async def ask_live(port: int) -> int:
    """The status of a request on a connection of its own."""
    async with aiohttp.request("GET", f"http://127.0.0.1:{port}/health/live") as answer:
        return answer.status


@asynccontextmanager
async def connect(
    port: int, *, count: int = 1
) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    try:
        yield opened
    finally:
        for _, writer in opened:
            writer.close()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends the connection; it has sent nothing."""
    try:
        return await asyncio.wait_for(reader.read(), SOON) == b""
    except ConnectionResetError:
        return True


CHUNKED = (
    f"POST /api/echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: application/json\r\n"
    "Transfer-Encoding: chunked\r\n\r\n"
).encode()


async def test_a_body_of_very_many_small_chunks_is_refused_before_it_occupies_the_service(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Attack cases "API": a million chunks of one byte took four seconds of the event loop; one too many ends it."""
    async with run_server(stage) as port:
        allowed = CHUNKED + b"1\r\n \r\n" * (MOST_SMALL_CHUNKS - 1) + b"2\r\n{}\r\n0\r\n\r\n"
        large = CHUNKED + (b"200\r\n" + b" " * SMALL_CHUNK + b"\r\n") * 2_000 + b"2\r\n{}\r\n0\r\n\r\n"
        refused = CHUNKED + b"1\r\n \r\n" * (MOST_SMALL_CHUNKS + 1)
        for body, status in ((allowed, b"200"), (large, b"200"), (refused, b"400")):
            assert await _send(port, body) == b"HTTP/1.1 " + status
        assert await ask_live(port) == 200
    assert caplog.records == []


async def test_small_chunks_leave_the_other_connections_their_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack cases "API": ten clients with small chunks at once kept `/health/live` waiting for more than a second."""
    loop = asyncio.get_running_loop()
    parsed = [0]

    def begin_turn() -> None:
        parsed.append(0)
        if not ended:
            loop.call_soon(begin_turn)

    def count_chunk(connection: h11.Connection) -> object:
        event = next_event(connection)
        parsed[-1] += isinstance(event, h11.Data)
        return event

    ended: list[bytes] = []
    next_event = h11.Connection.next_event
    monkeypatch.setattr(h11.Connection, "next_event", count_chunk)
    async with run_server(stage) as port:
        loop.call_soon(begin_turn)
        chunks = CHUNKED + b"1\r\n \r\n" * (MOST_SMALL_CHUNKS - 1) + b"2\r\n{}\r\n0\r\n\r\n"
        ended += await asyncio.gather(*(_send(port, 2 * chunks, answers=2) for _ in range(3)))
    assert ended == [b"HTTP/1.1 200"] * 3
    # The turn of one connection may begin in what is left of the event loop's turn before it.
    assert (sum(parsed), max(parsed) <= 2 * 3 * SMALL_CHUNKS_A_TURN) == (2 * 3 * MOST_SMALL_CHUNKS, True)


async def test_a_head_with_a_body_that_is_not_http_gets_one_answer_and_no_traceback(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Attack cases "API": anybody could fill the log with tracebacks."""
    async with run_server(stage) as port, connect(port) as [(reader, writer)]:
        writer.write(CHUNKED.replace(b"/api/echo", b"/nowhere") + b"no chunk\r\n")
        answer = await asyncio.wait_for(reader.read(), SOON)
        assert (answer[:12], answer.count(b"HTTP/1.1")) == (b"HTTP/1.1 400", 1)
        assert await ask_live(port) == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def _send(port: int, request: bytes, *, answers: int = 1) -> bytes:
    """The beginning of the last answer, which may come before the request is complete."""
    async with connect(port) as [(reader, writer)]:
        writer.write(request)
        for _ in range(answers):
            await asyncio.wait_for(reader.readuntil(b"HTTP/1.1 "), SOON)
        return b"HTTP/1.1 " + await asyncio.wait_for(reader.readexactly(3), SOON)


@pytest.mark.thorough
@pytest.mark.parametrize("pieces", [[], [b"GET /health/live HTTP/1.1\r\nHo"], [LIVE, b"GET /hea"]])
async def test_a_head_that_does_not_come_ends_the_connection(stage: Stage, pieces: list[bytes]) -> None:
    """Attack cases "API": a silent connection, half a head, half a head after a whole request."""
    limit = ConnectionLimit(100, slowest_head=timedelta(seconds=0.3))
    async with run_server(stage, limit=limit) as port, connect(port) as [(reader, writer)]:
        for piece in pieces:
            writer.write(piece)
        if LIVE in pieces:
            assert (await asyncio.wait_for(reader.readuntil(b"}"), SOON)).startswith(b"HTTP/1.1 200")
        assert await is_closed(reader)
        assert limit.waiting == {}


async def test_a_request_under_way_and_a_stream_have_no_such_limit(stage: Stage) -> None:
    """A stream of events stays open longer than a head may take."""
    limit = ConnectionLimit(100, slowest_head=timedelta(seconds=0.1))
    async with run_server(stage, limit=limit) as port, connect(port) as [(reader, writer), *_]:
        writer.write(f"GET /events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\r\n".encode())
        await asyncio.wait_for(reader.readuntil(b"data: "), SOON)
        async with connect(port) as [(silent, _)]:
            assert await is_closed(silent)
        assert not reader.at_eof()


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /hea", HALF_BODY, LIVE, LIVE + HALF_BODY, LARGE_ANSWER],
    ids=[
        "nothing",
        "half a head",
        "half a body",
        "one request",
        "half a body after a request",
        "an answer is not read",
    ],
)
async def test_connections_that_wait_make_room_for_new_ones(stage: Stage, sent: bytes) -> None:
    """Attack cases "API": at the limit, the connection that has waited longest for its client gives way."""
    limit = ConnectionLimit(20, slowest_head=timedelta(minutes=5))
    async with run_server(stage, limit=limit) as port, connect(port, count=20) as opened:
        for reader, writer in opened:
            # The stream stops reading soon; the system's own buffers are full then.
            writer.write(sent)
            if sent.startswith(LIVE):
                await asyncio.wait_for(reader.readuntil(b"}"), SOON)

        async def all_wait() -> bool:
            return len(limit.waiting) == 20

        await wait_until(all_wait)
        for _ in range(5):
            assert await ask_live(port) == 200
        assert len(limit.waiting) <= 20


async def test_an_answer_that_nobody_reads_ends_the_connection(stage: Stage) -> None:
    """Attack cases "API": once its time is up; the rest of the answer is not kept."""
    limit = ConnectionLimit(100, slowest_read=timedelta(seconds=0.3))
    async with run_server(stage, limit=limit) as port, connect(port) as [(reader, writer)]:
        writer.write(LARGE_ANSWER)

        async def is_waiting() -> bool:
            return bool(limit.waiting)

        async def has_ended() -> bool:
            return not limit.waiting

        await wait_until(is_waiting)
        await wait_until(has_ended)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(len(LARGE)), SOON)


async def test_a_client_may_read_slowly(stage: Stage) -> None:
    """Only a client that reads nothing between two looks is ended."""
    limit = ConnectionLimit(100, slowest_read=timedelta(hours=1))
    async with run_server(stage, limit=limit) as port, connect(port) as [(reader, writer)]:
        writer.write(LARGE_ANSWER)

        async def is_unread() -> bool:
            return any(each.transport.get_write_buffer_size() for each in limit.waiting)

        await wait_until(is_unread)
        [protocol] = limit.waiting
        before = protocol.transport.get_write_buffer_size()

        async def has_been_read() -> bool:
            return protocol.transport.get_write_buffer_size() < before

        await asyncio.wait_for(reader.readexactly(len(LARGE) // 2), SOON)
        await wait_until(has_been_read)
        protocol.check_reading()
        assert list(limit.waiting) == [protocol]

        async def is_ended() -> bool:
            # The system may have taken a little more since the last look.
            protocol.check_reading()
            return not limit.waiting

        await wait_until(is_ended)


def test_there_are_fewer_connections_than_files() -> None:
    """Attack cases "API": our own requests and the database need files too."""
    assert [choose_most_connections(files) for files in (256, 1_024, 65_536)] == [192, 768, 4_096]


async def test_connections_that_cannot_be_accepted_are_logged_once_a_minute(events: list[EventDict]) -> None:
    """Attack cases "API": asyncio reports each of them, hundreds in a second."""
    handler, loop = AcceptErrors(), asyncio.get_running_loop()
    for _ in range(1_000):
        error = OSError(errno.EMFILE, "Too many open files")
        handler.handle(loop, {"message": "socket.accept() out of system resource", "exception": error})
    assert [(event["event"], event["reason"]) for event in events] == [
        ("connection.not_accepted", "Too many open files")
    ]


@pytest.mark.slow
async def test_the_service_answers_beside_more_silent_connections_than_it_has_files(tmp_path: Path) -> None:
    """Attack cases "API": with 256 files and 300 silent connections, others are answered and the log is short."""
    terminal = Terminal(tmp_path)
    command = f"ulimit -n 256; exec {SCRIPT} serve --port 0 --quiet"
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", command, cwd=terminal.folder, env=terminal.variables, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None
    async with AsyncExitStack() as stack:
        stack.push_async_callback(process.communicate)
        stack.callback(process.kill)
        line = ""
        while "listens on" not in line:
            line = (await asyncio.wait_for(process.stdout.readline(), SOON * 6)).decode()
        port = int(line.split("(")[0].rstrip().rpartition(":")[2])
        sockets = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(300)]
        for _ in range(20):
            assert await ask_live(port) == 200
        assert len(sockets) == 300
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < 256  # noqa: PTH208
    assert terminal.log.count("\n") < 30
