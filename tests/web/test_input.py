"""What a request may be: bodies that are too large, too slow or not everybody's JSON are refused before a route."""

import asyncio
import json
from datetime import timedelta

import pytest
from structlog.typing import EventDict

from tests.web.conftest import StageMaker
from tests.web.stage import ADMIN, SOON, Stage, run_server, send_raw
from tidings.web.middleware.input import DEEPEST, LARGEST_BODY, MOST_NAMES, MOST_VALUES

MEBIBYTE = 1024 * 1024
HEAD = f"POST /things HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: application/json\r\n"


def wrap(value: str, depth: int) -> bytes:
    return b'{"name":"x","tags":' + b"[" * depth + value.encode() + b"]" * depth + b"}"


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": NaN}',
        b'{"name": Infinity}',
        b'{"name": -Infinity}',
        b'{"name": 1e999}',
        b'{"name": ' + b"9" * 5_000 + b"}",
        b'{"name": "\\ud800"}',
        b'{"name": "\\udc00\\ud800"}',
        b'{"\\ud800": 1}',
        b'{"name": "a\\u0000b"}',
        b'{"a\\u0000b": 1}',
        b'{"name": "a\x00b"}',
        b'{"name": "\xff"}',
        b'{"name": "\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        '{"name": "x"}'.encode("utf-16"),
        '{"name": "x"}'.encode("utf-32-le"),
        wrap("", DEEPEST),
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"{'name': 'x'}",
        b'{"name": "x",}',
        b'{"name": "x"} {}',
        b"\x00",
        b'{"name": "first", "name": "second"}',
        b'{"tags": [{"a": 1, "b": 2, "a": 1}]}',
        json.dumps({f"n{number}": 1 for number in range(MOST_NAMES + 1)}).encode(),
        json.dumps({"tags": [0] * MOST_VALUES}).encode(),
    ],
    ids=lambda body: repr(body[:24]),
)
async def test_json_that_readers_could_read_differently_is_refused(stage: Stage, body: bytes) -> None:
    """Attack cases "API": 400 with the reason, never a 5xx."""
    answer = await stage.ask("POST", "/things", body=body)
    assert (answer.status, answer.json["code"]) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"name": "\\ud83d\\ude00"}', 201),
        ('{"name": "新闻"}'.encode(), 201),
        (wrap('"x"', 1), 201),
        (wrap('"x"', DEEPEST - 2), 400),
    ],
)
async def test_plain_json_passes(stage: Stage, body: bytes, status: int) -> None:
    """A2: a whole surrogate pair, Chinese; what is deep but allowed is the route's to judge."""
    answer = await stage.ask("POST", "/things", body=body)
    assert answer.status == status
    assert answer.json.get("code") in {None, "invalid_input"}


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 201),
        ("Application/JSON; charset=utf-8", 201),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("text/plain", 415),
        ("application/merge-patch+json", 415),
        ("", 415),
        ("application/json\xff", 415),
    ],
)
async def test_a_body_is_json_or_nothing(stage: Stage, content_type: str, status: int) -> None:
    """Attack cases "API": a form, which another site's page could send without asking, is none."""
    # Only the pages of the dashboard take forms, so a refusal is asked of a path of the API.
    path = "/things" if status == 201 else "/api/echo"
    answer = await stage.ask("POST", path, body=b'{"name": "x"}', headers=[("Content-Type", content_type)])
    assert answer.status == status


async def test_an_empty_body_needs_no_type(stage: Stage) -> None:
    """A35: `curl -X POST -d ''` sends a form of nothing."""
    answer = await stage.ask("DELETE", "/things/one", body=b"", headers=[("Content-Type", "text/plain")])
    assert answer.status == 204


@pytest.mark.parametrize("target", ["/things/a%00b", "/things/one?days=%00", "/things/one?%00=1"])
async def test_a_nul_in_the_address_is_refused(stage: Stage, target: str) -> None:
    """Attack cases "API": no database takes it as text."""
    answer = await stage.ask("GET", target)
    assert (answer.status, answer.json["code"]) == (400, "invalid_target")


@pytest.mark.parametrize(("size", "status"), [(LARGEST_BODY, 400), (LARGEST_BODY + 1, 413)])
async def test_a_body_may_have_one_mebibyte_exactly(stage: Stage, size: int, status: int) -> None:
    """Attack cases "API": the limit itself is allowed (and then the route finds its fault)."""
    answer = await stage.ask("POST", "/things", body=b'{"name": 1, "x": "' + b"a" * (size - 20) + b'"}')
    assert answer.status == status


async def refuse_flood(port: int, head: str, piece: bytes, *, pieces: int) -> tuple[bytes, int]:
    """Send a body until the server has had enough; its answer, and how much it let us send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=MEBIBYTE)
    sent = 0
    try:
        writer.write(head.encode())
        for _ in range(pieces):
            writer.write(piece)
            await asyncio.wait_for(writer.drain(), SOON)
            sent += len(piece)
    except ConnectionError:
        pass
    answer = await read_despite_reset(reader)
    writer.close()
    return answer, sent


async def read_despite_reset(reader: asyncio.StreamReader) -> bytes:
    """What has come before the connection was cut."""
    answer = b""
    try:
        while piece := await asyncio.wait_for(reader.read(MEBIBYTE), SOON):
            answer += piece
    except ConnectionError:
        pass
    return answer


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (f"{HEAD}Content-Length: {100 * MEBIBYTE}\r\n\r\n", b"x" * MEBIBYTE),
        (f"{HEAD}Transfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + b"x" * MEBIBYTE + b"\r\n"),
        (f"{HEAD}Content-Length: {10**30}\r\n\r\n", b"x" * MEBIBYTE),
    ],
    ids=["declared", "chunked", "absurd"],
)
async def test_a_body_of_100_mb_is_refused_without_being_read(stage: Stage, head: str, piece: bytes) -> None:
    """Attack cases "API": 413 at the first byte too much; the sender finds the connection closed."""
    async with run_server(stage) as port:
        answer, sent = await refuse_flood(port, head, piece, pieces=100)
    assert sent < 20 * MEBIBYTE
    # A sender that goes on may find its connection reset before it could read the answer.
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (f"{HEAD}Content-Length: {100 * MEBIBYTE}\r\nExpect: 100-continue\r\n\r\n", b""),
        (f"{HEAD}Transfer-Encoding: chunked\r\n\r\n", b"100001\r\n" + b"x" * (MEBIBYTE + 1)),
    ],
    ids=["asking first", "chunked"],
)
async def test_a_sender_that_waits_reads_the_413_and_the_end_of_the_connection(
    stage: Stage, head: str, body: bytes
) -> None:
    """Attack cases "API": the answer says what is allowed, and that the connection is closed."""
    async with run_server(stage) as port:
        answer = await send_raw(port, head.encode(), body)
    start, _, content = answer.partition(b"\r\n\r\n")
    assert start.startswith(b"HTTP/1.1 413 ")
    assert b"\r\nconnection: close" in start.lower()
    assert json.loads(content)["code"] == "body_too_large"


async def test_without_a_token_no_byte_of_the_body_is_waited_for(stage: Stage) -> None:
    """Design 8: strangers are sent away before they have sent anything."""
    head = HEAD.replace(ADMIN, "wrong")
    async with run_server(stage) as port:
        answer = await send_raw(port, f"{head}Content-Length: 1000\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"\r\nconnection: close" in answer.lower()


async def test_a_body_that_does_not_come_is_given_up(make_stage: StageMaker) -> None:
    """Attack cases "API": 408 after the time for all of it, however it trickles, and the connection is closed."""
    stage = make_stage(slowest_body=timedelta(milliseconds=50))
    async with run_server(stage) as port:
        answer = await send_raw(port, f"{HEAD}Content-Length: 13\r\n\r\n".encode(), b'{"name"')
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"body_too_slow"' in answer
    assert b"\r\nconnection: close" in answer.lower()


async def test_a_client_that_goes_away_in_its_body_leaves_one_line_in_the_log(
    stage: Stage, events: list[EventDict]
) -> None:
    """A23: no error, for there is nothing to repair."""
    async with run_server(stage) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{HEAD}Content-Length: 100\r\n\r\n{{".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    assert [(event["event"], event["status"]) for event in events] == [("http.request", 499)]
