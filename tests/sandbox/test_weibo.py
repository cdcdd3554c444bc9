"""The stand-in for Weibo's mobile site."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from aiohttp import ClientSession

from tidings.sandbox.media import weibo
from tidings.sandbox.media.weibo import DEMO_WEIBO_COOKIE, DEMO_WEIBO_SESSION, SandboxWeibo


@pytest.fixture
async def service() -> AsyncIterator[SandboxWeibo]:
    async with SandboxWeibo() as running:
        yield running


async def ask(
    client: ClientSession, service: SandboxWeibo, path: str, cookie: str = DEMO_WEIBO_COOKIE, **query: str
) -> dict[str, object]:
    async with client.get(service.origin + path, params=query, headers={"Cookie": cookie}) as response:
        document: dict[str, object] = await response.json()
        return document


async def search(client: ClientSession, service: SandboxWeibo, keyword: str, **more: str) -> dict[str, object]:
    return await ask(client, service, weibo.SEARCH_PATH, containerid=f"100103type=1&q={keyword}", **more)


async def test_a_search_answers_in_cards_of_several_types(client: ClientSession, service: SandboxWeibo) -> None:
    """C17: posts alone, in a group, and what is no post."""
    document = await search(client, service, "咖啡", page="1")
    data = document["data"]
    assert document["ok"] == 1
    assert isinstance(data, dict)
    assert [card["card_type"] for card in data["cards"]] == [11, 8] + [9] * 9
    assert data["cardlistInfo"] == {"page": 2, "total": 12}
    post = data["cards"][0]["card_group"][0]["mblog"]
    assert (post["id"], post["created_at"]) == (weibo.name_post(5), "Wed Jan 07 03:30:00 +0800 2026")
    assert "<br />" in post["text"]
    assert "<img alt=[" in post["text"]
    last = await search(client, service, "咖啡", page="2")
    assert isinstance(last["data"], dict)
    assert last["data"]["cardlistInfo"]["page"] is None


async def test_the_containers_query_may_also_be_written_without_escapes(
    client: ClientSession, service: SandboxWeibo
) -> None:
    """C17: as the address bar shows it."""
    document = await ask(client, service, weibo.SEARCH_PATH, containerid="100103type=1", q="tea", page="1")
    assert document["ok"] == 1


async def test_nothing_found_gone_and_logged_out_are_all_http_200(client: ClientSession, service: SandboxWeibo) -> None:
    """C17: what is wrong is said in `ok`."""
    nothing = await search(client, service, "no such thing", page="1")
    assert (nothing["ok"], nothing["msg"]) == (0, "这里还没有内容")
    gone = await ask(client, service, weibo.SHOW_PATH, id="4999999999999999")
    assert (gone["ok"], gone["errno"]) == (0, "20101")
    assert (await search(client, service, "tea", page="x"))["ok"] == 0
    service.log_out(DEMO_WEIBO_SESSION)
    ended = await ask(client, service, weibo.SHOW_PATH, id=weibo.name_post(1))
    assert ended["ok"] == -100


async def test_a_post_has_counts_as_numbers_and_as_text(client: ClientSession, service: SandboxWeibo) -> None:
    """C17: ten thousand is a unit."""
    small = await ask(client, service, weibo.SHOW_PATH, id=weibo.name_post(5))
    large = await ask(client, service, weibo.SHOW_PATH, id="Sb0000030")
    assert isinstance(small["data"], dict)
    assert isinstance(large["data"], dict)
    assert (small["data"]["attitudes_count"], large["data"]["attitudes_count"]) == (4_985, "3.0万")
    assert large["data"]["id"] == weibo.name_post(30)


async def test_a_fault_can_be_aimed_at_one_post(client: ClientSession, service: SandboxWeibo) -> None:
    """C8: of three asked for, one fails."""
    service.misbehave(replace(weibo.SESSION_REFUSED, matching=weibo.name_post(2)))
    statuses = []
    for number in (1, 2, 3):
        url = f"{service.origin}{weibo.SHOW_PATH}?id={weibo.name_post(number)}"
        async with client.get(url, headers={"Cookie": DEMO_WEIBO_COOKIE}) as response:
            statuses.append(response.status)
    assert statuses == [200, 432, 200]
    assert DEMO_WEIBO_SESSION not in repr(service.describe(full=True))


def test_a_moment_is_written_as_weibo_does() -> None:
    """C17: in China's time, with the year at the end."""
    assert weibo.format_timestamp(datetime(2026, 9, 22, 2, 0, tzinfo=UTC)) == "Tue Sep 22 10:00:00 +0800 2026"
