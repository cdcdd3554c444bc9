"""The stand-in for Bilibili: it verifies what it is sent by itself."""

import hashlib
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from aiohttp import ClientSession
from yarl import URL

from tidings.sandbox.media import bilibili
from tidings.sandbox.media.bilibili import DEMO_BILIBILI_COOKIE, DEMO_BILIBILI_SESSION, SandboxBilibili

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.fixture
async def service() -> AsyncIterator[SandboxBilibili]:
    async with SandboxBilibili(now=lambda: NOW) as running:
        yield running


async def ask(
    client: ClientSession, service: SandboxBilibili, target: str, *, cookie: str = DEMO_BILIBILI_COOKIE
) -> dict[str, object]:
    async with client.get(URL(service.origin + target, encoded=True), headers={"Cookie": cookie}) as response:
        document: dict[str, object] = await response.json()
        return document


def sign(service: SandboxBilibili, values: Mapping[str, str], *, at: datetime = NOW) -> str:
    """A query signed by hand: sorted, escaped, with the key behind it."""
    signed = {**values, "wts": str(int(at.timestamp()))}
    query = "&".join(f"{name}={quote(signed[name], safe='')}" for name in sorted(signed))
    return f"{query}&w_rid={hashlib.md5((query + service.mixed_key()).encode()).hexdigest()}"


SEARCH = {"search_type": "video", "keyword": "咖啡", "page": "1", "page_size": "5"}


def test_keys_are_mixed_as_published() -> None:
    """C17: the example that is published with the algorithm."""
    mixed = bilibili.mix_keys("7cd084941338484aae1ad9425b84077c", "4932caff0ff746eab6f01bf08b70ac45")
    assert mixed == "ea1db124af3c7062474693fa704f4ff8"


async def test_a_signed_search_is_answered(client: ClientSession, service: SandboxBilibili) -> None:
    """C17: shaped like the real one."""
    document = await ask(client, service, f"{bilibili.SEARCH_PATH}?{sign(service, SEARCH)}")
    data = document["data"]
    assert document["code"] == 0
    assert isinstance(data, dict)
    assert (data["numResults"], data["numPages"], len(data["result"])) == (12, 3, 5)
    assert data["result"][0]["title"].startswith('<em class="keyword">咖啡</em> &amp; ')
    assert data["result"][0]["pic"].startswith("//")


@pytest.mark.parametrize("spoilt", ["none", "w_rid", "keyword", "order of the day", "old", "early", "not a time"])
async def test_a_bad_signature_gets_a_voucher_instead_of_results(
    client: ClientSession, service: SandboxBilibili, spoilt: str
) -> None:
    """C17: signatures are verified, not ignored; the refusal looks like a success."""
    query = sign(service, SEARCH)
    if spoilt == "none":
        query = query.partition("&w_rid=")[0]
    elif spoilt == "w_rid":
        query = query[:-1] + ("0" if query[-1] != "0" else "1")
    elif spoilt == "keyword":
        query = query.replace(quote("咖啡"), "tea")
    elif spoilt == "order of the day":
        service.rotate_keys()
    elif spoilt == "not a time":
        query = query.replace("wts=", "wts=x")
    else:
        query = sign(service, SEARCH, at=NOW.replace(hour=11 if spoilt == "old" else 13))
    document = await ask(client, service, f"{bilibili.SEARCH_PATH}?{query}")
    assert document["code"] == 0
    assert isinstance(document["data"], dict)
    assert list(document["data"]) == ["v_voucher"]


async def test_nav_tells_the_keys_also_to_strangers(client: ClientSession, service: SandboxBilibili) -> None:
    """C17: isLogin for accounts, -101 for others, and the keys in the names of two images."""
    known, stranger = [
        await ask(client, service, bilibili.NAV_PATH, cookie=cookie) for cookie in (DEMO_BILIBILI_COOKIE, "SESSDATA=x")
    ]
    assert (known["code"], stranger["code"]) == (0, -101)
    assert isinstance(known["data"], dict)
    assert isinstance(stranger["data"], dict)
    assert (known["data"]["isLogin"], stranger["data"]["isLogin"]) == (True, False)
    assert known["data"]["wbi_img"] == stranger["data"]["wbi_img"]
    names = [url.rpartition("/")[2].removesuffix(".png") for url in known["data"]["wbi_img"].values()]
    assert bilibili.mix_keys(*names) == service.mixed_key()


async def test_cookies_are_checked_and_sessions_end(client: ClientSession, service: SandboxBilibili) -> None:
    """C17: -101 without a known session."""
    view = f"{bilibili.VIEW_PATH}?bvid={bilibili.name_video(1)}"
    assert (await ask(client, service, view))["code"] == 0
    assert (await ask(client, service, view, cookie="buvid3=x"))["code"] == -101
    search = f"{bilibili.SEARCH_PATH}?{sign(service, SEARCH)}"
    assert (await ask(client, service, search, cookie="buvid3=x"))["code"] == -101
    service.log_out(DEMO_BILIBILI_SESSION)
    assert (await ask(client, service, view))["code"] == -101


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (f"{bilibili.VIEW_PATH}?bvid=BV1sb9999999", -404),
        (f"{bilibili.VIEW_PATH}?bvid=nonsense", -404),
        (bilibili.VIEW_PATH, -400),
        (f"{bilibili.VIEW_PATH}?aid=900000007", 0),
        ("/x/other", -404),
    ],
)
async def test_what_is_not_there_is_said_in_a_code(
    client: ClientSession, service: SandboxBilibili, target: str, code: int
) -> None:
    """C17: codes in the envelope, not statuses."""
    assert (await ask(client, service, target))["code"] == code


async def test_no_cookie_is_in_the_record(client: ClientSession, service: SandboxBilibili) -> None:
    """C7: also the sandbox keeps no cookie in clear."""
    await ask(client, service, bilibili.NAV_PATH)
    assert DEMO_BILIBILI_SESSION not in repr(service.describe(full=True))
    assert DEMO_BILIBILI_SESSION not in repr(service.requests)
    assert service.requests[0].headers["Cookie"] == "SESSDATA=***; buvid3=***"
