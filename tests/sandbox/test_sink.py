"""The webhook sink: keeps word for word what it took, and fails on request."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession

from tidings.sandbox.webhook_sink import SandboxSink
from tidings.sandbox.wire.faults import Fault


@pytest.fixture
async def sink() -> AsyncIterator[SandboxSink]:
    async with SandboxSink() as running:
        yield running


async def post(client: ClientSession, url: str, body: bytes) -> int:
    async with client.post(url, data=body, headers={"webhook-id": "evt-1"}) as response:
        return response.status


@pytest.mark.parametrize(
    ("body", "document"),
    [
        ('{ "a": "é" }'.encode(), {"a": "é"}),
        (b"[1]", {}),
        (b"not JSON", {}),
        (b"[" * 100_000, {}),
        (b"", {}),
    ],
)
async def test_what_is_posted_is_kept_word_for_word(
    client: ClientSession, sink: SandboxSink, body: bytes, document: dict[str, object]
) -> None:
    """Alerts: a signature covers the exact body, so it is not read and written again."""
    assert await post(client, sink.address, body) == 204
    [taken] = sink.taken
    assert (taken.method, taken.headers["webhook-id"]) == ("POST", "evt-1")
    assert taken.fields == {"body": body.decode(), "document": document}


async def test_only_what_was_answered_with_yes_is_taken(client: ClientSession, sink: SandboxSink) -> None:
    """Alerts: a sink that fails has seen a request, but has not taken it."""
    sink.misbehave(Fault(status=503, times=2))
    assert [await post(client, sink.address, b"{}") for _ in range(3)] == [503, 503, 204]
    async with client.get(sink.address) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
    assert (len(sink.requests), len(sink.taken)) == (4, 1)
    assert sink.describe()["taken"] == 1
