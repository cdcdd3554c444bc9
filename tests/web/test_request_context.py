"""What every answer has: a request id, careful headers, one log line, one figure."""

import re
from datetime import timedelta

import aiohttp
import pytest
from structlog.typing import EventDict

from tests.fakes import FakeClock
from tests.web.stage import ADMIN, CANARY, FIXED, Stage, run_server, send_raw
from tidings.core.secrets.scopes import Scope
from tidings.web.middleware.request_context import MOST_LINES

POLICY = "default-src 'none'; frame-ancestors 'none'"
MADE = re.compile(r"req-[0-9a-f]{16}")


@pytest.mark.parametrize(
    ("method", "target", "token", "body"),
    [
        ("GET", "/health/live", None, None),
        ("GET", "/things/one", ADMIN, None),
        ("DELETE", "/things/one", ADMIN, None),
        ("GET", "/things/one", "wrong", None),
        ("GET", "/nowhere", ADMIN, None),
        ("PUT", "/things/one", ADMIN, None),
        ("POST", "/things", ADMIN, b"{"),
        ("GET", "/fail", ADMIN, None),
        ("GET", "/metrics", ADMIN, None),
        ("GET", "/openapi.json", ADMIN, None),
    ],
)
async def test_every_answer_keeps_browsers_careful(
    stage: Stage, method: str, target: str, token: str | None, body: bytes | None
) -> None:
    """Attack cases "Dashboard": nothing is sniffed, stored, framed, run or passed to the next page."""
    answer = await stage.ask(method, target, token=token, body=body)
    headers = {name: answer.headers.get(name) for name in ("x-content-type-options", "cache-control")}
    assert headers == {"x-content-type-options": "nosniff", "cache-control": "no-store"}
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert MADE.fullmatch(answer.headers["x-request-id"])
    assert "server" not in answer.headers


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("a", True),
        ("deploy-7_b.c", True),
        ("x" * 64, True),
        ("", False),
        ("x" * 65, False),
        ("a b", False),
        ("a\x1b[31m", False),
        ("<script>", False),
        ("é", False),
    ],
)
async def test_a_sane_request_id_is_kept_and_any_other_replaced(stage: Stage, sent: str, kept: bool) -> None:
    """A23: what a caller sends is in its answer and in our log, so it must be harmless there."""
    answer = await stage.ask("GET", "/health/live", headers=[("X-Request-ID", sent)])
    given = answer.headers["x-request-id"]
    assert given == sent if kept else MADE.fullmatch(given)


async def test_header_injection_gets_nowhere(stage: Stage) -> None:
    """Attack cases "API": a line break in a header is no request at all, and its text is in no answer."""
    request = f"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-ID: a\r{CANARY}: b\r\n\r\n"
    async with run_server(stage) as port:
        bare = await send_raw(port, request.encode())
        folded = await send_raw(port, request.replace(f"\r{CANARY}", f"\r\n {CANARY}").encode())
        encoded = await send_raw(port, request.replace(f"a\r{CANARY}: b", f"a%0d%0a{CANARY}").encode())
    assert bare.startswith(b"HTTP/1.1 400 ")
    assert encoded.startswith(b"HTTP/1.1 200 ")
    assert not any(CANARY.encode() in answer for answer in (bare, folded, encoded))


async def test_each_request_is_one_line_with_its_route_and_not_its_path(
    stage: Stage, events: list[EventDict], clock: FakeClock
) -> None:
    """A23: method, route template, status and milliseconds; what stands in the path or the query stays out."""
    await stage.ask("GET", f"/things/{CANARY}?days=7")
    await stage.ask("POST", "/things", body=b'{"name": "x"}')
    await stage.ask("GET", f"/{CANARY}")
    await stage.ask("BREW", "/things/one")
    lines = [(each["method"], each["route"], each["status"]) for each in events if each["event"] == "http.request"]
    assert lines == [
        ("GET", "/things/{name}", 200),
        ("POST", "/things", 201),
        ("GET", "-", 404),
        ("other", "/things/{name}", 405),
    ]
    assert all(event["ms"] == 0 for event in events)
    assert CANARY not in str(events)


async def test_strangers_cannot_fill_the_log(stage: Stage, events: list[EventDict], clock: FakeClock) -> None:
    """Attack cases "API": refused requests without a token get a few lines a minute; the others always have theirs."""

    async def count_lines(method: str, path: str) -> int:
        events.clear()
        for _ in range(MOST_LINES + 10):
            assert (await stage.ask(method, path)).status == 405
        return sum(each["event"] == "http.request" and each["log_level"] == "info" for each in events)

    # Nobody looks at the token of an open path.
    assert await count_lines("POST", "/health/live") == MOST_LINES
    assert await count_lines("POST", "/health/live") == 0
    assert await count_lines("PUT", "/things/one") == MOST_LINES + 10
    clock.advance(timedelta(minutes=1))
    assert await count_lines("POST", "/health/live") == MOST_LINES


async def test_what_is_no_http_leaves_no_line(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Attack cases "API": uvicorn warns of garbage, and twice of every `Upgrade`."""
    caplog.set_level("DEBUG")
    upgrade = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: upgrade, close\r\nUpgrade: x\r\n\r\n"
    async with run_server(stage) as port:
        assert (await send_raw(port, b"GARBAGE\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        assert (await send_raw(port, upgrade)).startswith(b"HTTP/1.1 200 ")
    assert [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")] == []


async def test_the_figures_count_requests_by_route_and_status(stage: Stage) -> None:
    """Total and duration; odd methods and unknown paths cannot make metrics without end."""
    for number in range(50):
        await stage.ask(f"ODD{number}", f"/nowhere/{number}")
        await stage.ask("GET", f"/things/{number}", token=FIXED[Scope.CRAWL].reveal())
    counts = (await stage.ask("GET", "/metrics")).body.decode()
    assert 'tidings_http_requests_total{method="GET",route="/things/{name}",status="200"} 50.0' in counts
    assert 'tidings_http_request_seconds_count{method="other",route="-",status="404"} 50.0' in counts
    assert counts.count("tidings_http_requests_total{") == 2


async def test_the_server_says_nothing_of_itself_and_writes_no_access_log_of_its_own(
    stage: Stage, events: list[EventDict], caplog: pytest.LogCaptureFixture
) -> None:
    """A23: one line for a request; over a real connection, which stays open for the next one."""
    caplog.set_level("INFO")
    async with (
        run_server(stage) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {ADMIN}"}) as session,
    ):
        for _ in range(3):
            async with session.get("/things/one") as answer:
                assert (answer.status, await answer.json()) == (200, {"name": "one", "days": 7, "scope": "admin"})
                assert "server" not in answer.headers
    assert [event["event"] for event in events] == ["http.request"] * 3
    assert not [record for record in caplog.records if "/things" in record.getMessage()]
