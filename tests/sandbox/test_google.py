"""The sandbox's Google: which claims it signs in, what its tokens open, and that it keeps both to itself."""

import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientSession
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.fakes import FakeClock
from tidings.sandbox.engines import google
from tidings.sandbox.engines.google import SandboxGoogle

SITE = "https://example.com/"
FEED = f"{SITE}sitemap.xml"
NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
async def service(clock: FakeClock) -> AsyncIterator[SandboxGoogle]:
    async with SandboxGoogle(daily_quota=2, now=clock.now) as running:
        running.add_property(SITE)
        yield running


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(service: SandboxGoogle, *, scope: str = google.WEBMASTERS, alg: str = "RS256", **changes: Any) -> str:
    account, issued = json.loads(service.credentials), int(NOW.timestamp())
    claims = {"iss": account["client_email"], "scope": scope, "aud": account["token_uri"], "iat": issued}
    claims |= {"exp": issued + 3_600} | changes
    text = f"{encode(json.dumps({'alg': alg}).encode())}.{encode(json.dumps(claims).encode())}"
    key: Any = load_pem_private_key(account["private_key"].encode(), password=None)
    return f"{text}.{encode(key.sign(text.encode(), PKCS1v15(), SHA256()))}"


async def exchange(client: ClientSession, service: SandboxGoogle, claim: str, grant: str = GRANT) -> tuple[int, Any]:
    form = {"grant_type": grant, "assertion": claim}
    async with client.post(f"{service.address}/token", data=form) as response:
        return response.status, await response.json()


async def ask(
    client: ClientSession, service: SandboxGoogle, method: str, path: str, token: str, **body: Any
) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    async with client.request(method, service.address + path, headers=headers, json=body or None) as response:
        return response.status, json.loads(await response.text() or "{}")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"iss": "stranger@example.com"}, google.UNKNOWN_ACCOUNT),
        ({"aud": "https://oauth2.googleapis.com/token"}, google.BAD_AUDIENCE),
        ({"exp": int(NOW.timestamp()) + 3_601}, google.BAD_TIMES),
        ({"exp": int(NOW.timestamp())}, google.BAD_TIMES),
        ({"iat": int(NOW.timestamp()) + 600}, google.BAD_TIMES),
        ({"iat": "now"}, google.BAD_TIMES),
        ({"scope": "https://mail.google.com/"}, google.BAD_SCOPE),
        ({"alg": "none"}, google.BAD_SIGNATURE),
    ],
)
async def test_a_claim_that_google_would_refuse_gets_no_token(
    client: ClientSession, service: SandboxGoogle, changes: dict[str, Any], fault: Any
) -> None:
    """A43: issuer, audience, times, scope and algorithm are verified."""
    assert await exchange(client, service, sign(service, **changes)) == (fault.status, json.loads(fault.body))


async def test_a_signature_of_another_text_is_refused(client: ClientSession, service: SandboxGoogle) -> None:
    """A43: the signature belongs to these claims."""
    head, body, _ = sign(service).split(".")
    forged = ".".join((head, body, sign(service, scope=google.INDEXING).split(".")[2]))
    assert (await exchange(client, service, forged))[1]["error_description"] == "Invalid JWT Signature."
    assert (await exchange(client, service, sign(service), grant="password"))[1]["error"] == "unsupported_grant_type"


async def test_a_token_opens_its_scope_for_an_hour(
    client: ClientSession, service: SandboxGoogle, clock: FakeClock
) -> None:
    """A43: sitemaps of an owned property are taken and described; nothing of it is in the log."""
    status, answer = await exchange(client, service, sign(service))
    token, path = answer["access_token"], f"/webmasters/v3/sites/{quote(SITE, safe='')}/sitemaps/{quote(FEED, safe='')}"
    foreign = path.replace("example.com", "example.net")
    assert (status, answer["token_type"], answer["expires_in"]) == (200, "Bearer", 3599)
    assert (await ask(client, service, "GET", path, token))[0] == 404
    assert await ask(client, service, "PUT", path, token) == (204, {})
    shown = (await ask(client, service, "GET", path, token))[1]
    assert (shown["path"], shown["isPending"], shown["warnings"], shown["errors"]) == (FEED, False, "0", "0")
    assert (await ask(client, service, "PUT", foreign, token))[0] == 403
    publish = google.PUBLISH_PATH
    assert (await ask(client, service, "POST", publish, token, url=f"{SITE}1", type="URL_UPDATED"))[0] == 401
    clock.advance(timedelta(hours=1))
    assert (await ask(client, service, "GET", path, token))[0] == 401
    assert token not in json.dumps(service.describe(full=True))


async def test_pages_are_taken_within_the_quota_of_a_day(
    client: ClientSession, service: SandboxGoogle, clock: FakeClock
) -> None:
    """A43: two a day here; a page of somebody else and what is no URL count for nothing."""
    token = (await exchange(client, service, sign(service, scope=google.INDEXING)))[1]["access_token"]
    answers = [
        (await ask(client, service, "POST", google.PUBLISH_PATH, token, url=url, type="URL_UPDATED"))[0]
        for url in (f"{SITE}1", "https://other.example/1", "page", f"{SITE}2", f"{SITE}3")
    ]
    assert answers == [200, 403, 400, 200, 429]
    assert service.accepted == {f"{SITE}1": 1, f"{SITE}2": 1}
