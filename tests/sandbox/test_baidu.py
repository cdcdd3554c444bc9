"""The sandbox's Baidu: what it answers, what it counts, and that it keeps the token to itself."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.fakes import FakeClock
from tidings.sandbox.engines import baidu
from tidings.sandbox.engines.baidu import SandboxBaidu

TOKEN, SITE = "a1B2c3D4e5F6g7H8", "https://www.example.com"
# 15:59 of UTC+8's day.
NOW = datetime(2025, 1, 15, 7, 59, tzinfo=UTC)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
async def service(clock: FakeClock) -> AsyncIterator[SandboxBaidu]:
    async with SandboxBaidu(sites={SITE: TOKEN}, daily_quota=3, now=clock.now) as running:
        yield running


async def push(
    client: ClientSession, service: SandboxBaidu, *urls: str, site: str = SITE, token: str = TOKEN, path: str = "/urls"
) -> tuple[int, Any]:
    address = f"{service.address}{path}?site={site}&token={token}"
    async with client.post(address, data="\n".join(urls).encode()) as response:
        return response.status, json.loads(await response.text())


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"token": "wrong"}, baidu.TOKEN_NOT_VALID),
        ({"site": "https://example.com"}, baidu.SITE_ERROR),
        ({"urls": ()}, baidu.EMPTY_CONTENT),
        ({"urls": tuple(f"{SITE}/{n}" for n in range(4))}, baidu.OVER_QUOTA),
        ({"urls": tuple(f"{SITE}/{n}" for n in range(2_001))}, baidu.TOO_MANY_URLS),
        ({"path": "/other"}, baidu.NOT_FOUND),
    ],
)
async def test_what_it_refuses_counts_for_nothing(
    client: ClientSession, service: SandboxBaidu, given: dict[str, Any], fault: Any
) -> None:
    """A42: each refusal as Baidu words it, with the status in the body too."""
    urls = given.pop("urls", (f"{SITE}/1",))
    assert await push(client, service, *urls, **given) == (fault.status, json.loads(fault.body))
    assert (service.accepted, service.used(SITE)) == ({}, 0)


async def test_what_it_takes_is_counted_until_midnight_of_utc_8(
    client: ClientSession, service: SandboxBaidu, clock: FakeClock
) -> None:
    """A42: foreign and invalid URLs are named and not counted; the next day begins at 16:00 UTC."""
    status, answer = await push(client, service, f"{SITE}/1", "https://other.example/", "no-url")
    assert (status, answer) == (
        200,
        {"remain": 2, "success": 1, "not_same_site": ["https://other.example/"], "not_valid": ["no-url"]},
    )
    clock.advance(timedelta(hours=8))
    assert (await push(client, service, f"{SITE}/2"))[1]["remain"] == 1
    clock.advance(timedelta(minutes=2))
    assert (await push(client, service, f"{SITE}/3"))[1]["remain"] == 2
    assert service.accepted == {f"{SITE}/{n}": 1 for n in (1, 2, 3)}
    assert TOKEN not in json.dumps(service.describe(full=True))
