"""The stand-in for Xiaohongshu: it reads signatures by itself."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import ClientSession
from xhshow import Xhshow

from tidings.sandbox.media import xiaohongshu
from tidings.sandbox.media.xiaohongshu import DEMO_XIAOHONGSHU_COOKIE, DEMO_XIAOHONGSHU_SESSION, SandboxXiaohongshu
from tidings.sandbox.media.xiaohongshu_signature import read_signature

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
A1 = DEMO_XIAOHONGSHU_COOKIE.partition("a1=")[2].partition(";")[0]
FEED: dict[str, object] = {"source_note_id": xiaohongshu.name_note(1), "xsec_token": xiaohongshu.make_token(1)}


@pytest.fixture
async def service() -> AsyncIterator[SandboxXiaohongshu]:
    async with SandboxXiaohongshu(now=lambda: NOW) as running:
        yield running


def sign(path: str, question: dict[str, object], *, a1: str = A1, at: datetime = NOW) -> dict[str, str]:
    signer = Xhshow()
    seconds = at.timestamp()
    return {
        "x-s": signer.sign_xs_post(path, a1, payload=question, timestamp=seconds),
        "x-t": str(signer.get_x_t(seconds)),
    }


async def ask(
    client: ClientSession,
    service: SandboxXiaohongshu,
    question: dict[str, object],
    *,
    headers: dict[str, str],
    cookie: str = DEMO_XIAOHONGSHU_COOKIE,
    path: str = xiaohongshu.FEED_PATH,
) -> dict[str, object]:
    body = json.dumps(question, separators=(",", ":"), ensure_ascii=False).encode()
    async with client.post(service.origin + path, data=body, headers={"Cookie": cookie, **headers}) as response:
        document: dict[str, object] = await response.json()
        return document


async def test_a_signed_request_is_answered(client: ClientSession, service: SandboxXiaohongshu) -> None:
    """C17: shaped like the real one, with suggestions among the notes."""
    feed = await ask(client, service, FEED, headers=sign(xiaohongshu.FEED_PATH, FEED))
    assert (feed["code"], feed["success"]) == (0, True)
    question: dict[str, object] = {"keyword": "咖啡", "page": 1, "page_size": 20, "search_id": "x"}
    headers = sign(xiaohongshu.SEARCH_PATH, question)
    found = await ask(client, service, question, headers=headers, path=xiaohongshu.SEARCH_PATH)
    assert isinstance(found["data"], dict)
    kinds = [item["model_type"] for item in found["data"]["items"]]
    assert (kinds.count("note"), kinds.count("rec_query"), found["data"]["has_more"]) == (12, 1, False)
    assert found["data"]["items"][0]["xsec_token"] == xiaohongshu.make_token(5)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-s": "XYS_nonsense", "x-t": "1"},
        {"x-s": sign(xiaohongshu.FEED_PATH, FEED)["x-s"]},
        {**sign(xiaohongshu.FEED_PATH, FEED), "x-t": str(int(NOW.timestamp() * 1000) + 1)},
        sign(xiaohongshu.SEARCH_PATH, FEED),
        sign(xiaohongshu.FEED_PATH, {**FEED, "xsec_token": "other"}),
        sign(xiaohongshu.FEED_PATH, FEED, a1="19a0another"),
        sign(xiaohongshu.FEED_PATH, FEED, at=NOW - timedelta(minutes=11)),
        sign(xiaohongshu.FEED_PATH, FEED, at=NOW + timedelta(minutes=11)),
    ],
    ids=["none", "nonsense", "no time", "another time", "path", "body", "account", "old", "early"],
)
async def test_a_signature_for_anything_else_is_refused(
    client: ClientSession, service: SandboxXiaohongshu, headers: dict[str, str]
) -> None:
    """C17: signatures are verified, not ignored: path, body, account and time."""
    assert (await ask(client, service, FEED, headers=headers))["code"] == 300015


@pytest.mark.parametrize(
    ("cookie", "code"),
    [(f"a1={A1}", -101), (f"a1={A1}; web_session=x", -100), (DEMO_XIAOHONGSHU_COOKIE, 0)],
)
async def test_accounts_are_checked(client: ClientSession, service: SandboxXiaohongshu, cookie: str, code: int) -> None:
    """C17: nobody, an ended session, an account."""
    headers = sign(xiaohongshu.FEED_PATH, FEED)
    assert (await ask(client, service, FEED, headers=headers, cookie=cookie))["code"] == code
    assert DEMO_XIAOHONGSHU_SESSION not in repr(service.describe(full=True))


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ({**FEED, "xsec_token": "AB="}, -510001),
        ({"source_note_id": xiaohongshu.name_note(1)}, -510001),
        ({**FEED, "source_note_id": xiaohongshu.name_note(999)}, -510000),
        ({**FEED, "source_note_id": "zz"}, -510000),
    ],
)
async def test_a_note_is_given_only_with_its_token(
    client: ClientSession, service: SandboxXiaohongshu, question: dict[str, object], code: int
) -> None:
    """C17: xsec_token belongs to one note."""
    headers = sign(xiaohongshu.FEED_PATH, question)
    assert (await ask(client, service, question, headers=headers))["code"] == code


def test_what_is_no_signature_is_read_as_none() -> None:
    """C17: no matter what stands in the header, the stand-in survives it."""
    good = sign(xiaohongshu.FEED_PATH, FEED)["x-s"]
    assert read_signature(good) is not None
    for bad in ("", "XYS_", "XYS_!!", good[:-8], good.removeprefix("XYS_"), "XYS_" + "Z" * 400):
        assert read_signature(bad) is None
