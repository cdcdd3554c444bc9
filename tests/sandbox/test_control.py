"""The sandbox steered over HTTP."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession

from tidings.sandbox.bundle import Sandbox
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.feishu.bitable import SandboxBitable
from tidings.sandbox.feishu.tables import BitableFieldType
from tidings.sandbox.media.bilibili import DEMO_BILIBILI_COOKIE, SandboxBilibili
from tidings.sandbox.media.openweb import SandboxOpenWeb
from tidings.sandbox.media.weibo import SandboxWeibo
from tidings.sandbox.media.xiaohongshu import SandboxXiaohongshu
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.webhook_sink import SandboxSink


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    engines = [SandboxEngine("alpha"), SandboxEngine("beta")]
    async with Sandbox(site=SandboxSite(pages=20, per_sitemap=10), engines=engines) as running:
        yield running


async def send(client: ClientSession, sandbox: Sandbox, method: str, path: str, document: object = None) -> int:
    async with client.request(method, sandbox.control_url + path, json=document) as response:
        return response.status


async def read_record(client: ClientSession, sandbox: Sandbox, query: str = "") -> dict[str, Any]:
    async with client.get(sandbox.control_url + "record" + query) as response:
        document: dict[str, Any] = await response.json()
        return document


async def submit(client: ClientSession, sandbox: Sandbox, name: str, number: int = 1) -> int:
    site = sandbox.site
    url = f"{sandbox.engine(name).endpoint}?url={site.url(number)}&key={site.key}"
    async with client.get(url) as response:
        return response.status


async def test_the_record_counts_each_stand_in(client: ClientSession, sandbox: Sandbox) -> None:
    """A18: counts of requests and acceptances by engine; control requests are not among them."""
    await submit(client, sandbox, "alpha", 1)
    await submit(client, sandbox, "alpha", 1)
    await submit(client, sandbox, "alpha", 2)
    idle = {"requests": 0, "maxInFlight": 0, "acceptedUrls": 0, "acceptances": 0, "acceptedTwice": 0}
    assert await read_record(client, sandbox) == {
        "site": {"pages": 20, "requests": 1, "maxInFlight": 1},
        "engines": {
            "alpha": {"requests": 3, "maxInFlight": 1, "acceptedUrls": 2, "acceptances": 3, "acceptedTwice": 1},
            "beta": idle,
        },
    }
    assert len(sandbox.site.requests) == 1


async def test_the_full_record_has_every_request(client: ClientSession, sandbox: Sandbox) -> None:
    """A18: with full=1, each request and each accepted URL."""
    await submit(client, sandbox, "beta", 3)
    beta = (await read_record(client, sandbox, "?full=1"))["engines"]["beta"]
    assert beta["accepted"] == {sandbox.site.url(3): 1}
    (entry,) = beta["record"]
    assert (entry["method"], entry["path"], entry["status"], entry["inFlight"]) == ("GET", "/indexnow", 200, 1)
    assert entry["urls"] == [sandbox.site.url(3)]
    assert entry["fields"] == {"key": sandbox.site.key}
    assert entry["at"] == sandbox.engine("beta").requests[0].at


async def test_pages_can_be_changed_added_and_removed(client: ClientSession, sandbox: Sandbox) -> None:
    """A12, A14: the site's pages from outside."""
    before = sandbox.site.lastmod(1)
    assert await send(client, sandbox, "POST", "pages", {"change": [1, 2], "add": 3, "remove": [4, 4]}) == 200
    assert sandbox.site.lastmod(1) > before
    assert list(sandbox.site.urls())[-1] == sandbox.site.url(23)
    assert sandbox.site.url(4) not in list(sandbox.site.urls())
    assert (await read_record(client, sandbox))["site"]["pages"] == 22


@pytest.mark.parametrize(
    "document",
    [
        {"change": [1, 21]},
        {"remove": [0]},
        {"change": 1},
        {"change": ["1"]},
        {"change": [True]},
        {"add": -1},
        {"add": "3"},
        {"add": 10**12},
        {"rename": [1]},
        [],
    ],
)
async def test_a_wish_that_makes_no_sense_changes_nothing(
    client: ClientSession, sandbox: Sandbox, document: object
) -> None:
    """A14: all of a wish or none of it."""
    before = sandbox.site.lastmod(1)
    assert await send(client, sandbox, "POST", "pages", document) == 400
    assert (sandbox.site.lastmod(1), len(sandbox.site.pages)) == (before, 20)


async def test_an_engine_misbehaves_and_recovers(client: ClientSession, sandbox: Sandbox) -> None:
    """A21: faults set and cleared from outside, for one engine alone."""
    assert await send(client, sandbox, "POST", "engines/alpha/faults", {"status": 429, "times": None}) == 204
    assert await submit(client, sandbox, "alpha") == 429
    assert await submit(client, sandbox, "beta") == 200
    assert await send(client, sandbox, "DELETE", "engines/alpha/faults") == 204
    assert await submit(client, sandbox, "alpha") == 200


async def test_the_site_misbehaves_and_recovers(client: ClientSession, sandbox: Sandbox) -> None:
    """A6: faults of a path of the site."""
    assert await send(client, sandbox, "POST", "site/faults", {"status": 503, "path": "/robots.txt"}) == 204
    async with client.get(sandbox.site.robots_url) as response:
        assert response.status == 503
    assert await send(client, sandbox, "DELETE", "site/faults") == 204
    async with client.get(sandbox.site.robots_url) as response:
        assert response.status == 200


async def test_unknown_controls_are_refused(client: ClientSession, sandbox: Sandbox) -> None:
    """A wrong name or a wrong value is said, not ignored."""
    assert await send(client, sandbox, "POST", "engines/gamma/faults", {}) == 404
    assert await send(client, sandbox, "PUT", "engines/alpha/faults") == 405
    assert await send(client, sandbox, "POST", "engines/alpha/faults", {"kind": "tantrum"}) == 400
    assert await send(client, sandbox, "POST", "record") == 404
    for body, reason in ((b"{", "Invalid JSON"), (b"[]", "Input should be an object"), (b'{"add": -1}', "add: ")):
        async with client.post(sandbox.control_url + "pages", data=body) as response:
            assert response.status == 400
            assert (await response.json())["error"].startswith(reason)


async def test_a_site_alone_has_no_controls(client: ClientSession, site: SandboxSite) -> None:
    """Only a bundle is steered from outside."""
    async with client.get(f"{site.origin}/__sandbox/record") as response:
        assert response.status == 404


async def call(client: ClientSession, url: str, method: str = "GET", document: object = None) -> tuple[int, Any]:
    async with client.request(method, url, json=document) as response:
        content = await response.read()
        return response.status, json.loads(content) if content else None


async def test_every_stand_in_of_collect_misbehaves_by_name_and_recovers(client: ClientSession) -> None:
    """C33: platforms, Feishu and the receiver of webhooks; the refusals of each have names."""
    platforms = (SandboxBilibili(), SandboxXiaohongshu(), SandboxWeibo(), SandboxOpenWeb())
    feishu, sink = SandboxBitable(), SandboxSink()
    async with Sandbox(others=(*platforms, feishu, sink)) as sandbox:
        control = sandbox.control_url
        for name, fault in (
            ("bilibili", "v_voucher"),
            ("xiaohongshu", "account_abnormal"),
            ("weibo", "session_refused"),
            ("openweb", "captcha_page"),
            ("feishu", "write_conflict"),
        ):
            assert fault in (await call(client, f"{control}{name}/faults"))[1]["named"]
            wanted = {"name": fault, "times": 1, "matching": "咖啡"}
            assert (await call(client, f"{control}{name}/faults", "POST", wanted))[0] == 204
            assert (await call(client, f"{control}{name}/faults", "DELETE"))[0] == 204
        assert (await call(client, f"{control}webhook/faults", "POST", {"status": 500, "times": 1}))[0] == 204
        assert (await call(client, sink.address, "POST", {}))[0] == 500
        assert (await call(client, sink.address, "POST", {}))[0] == 204
        wanted = {"name": "v_voucher", "times": 1}
        await call(client, f"{control}bilibili/faults", "POST", wanted)
        assert "v_voucher" in (await call(client, f"{platforms[0].origin}/x/web-interface/nav"))[1]["data"]
        assert "v_voucher" not in str(await call(client, f"{platforms[0].origin}/x/web-interface/nav"))
        status, said = await call(client, f"{control}weibo/faults", "POST", {"name": "v_voucher"})
        assert (status, "session_refused" in said["error"]) == (400, True)
        record = (await call(client, f"{control}record"))[1]
        assert (record["bilibili"]["requests"], record["webhook"]["taken"]) == (2, 1)


async def test_people_change_records_and_log_out_over_the_control_address(client: ClientSession) -> None:
    """C21, C32, C33: what a person does in Feishu's page and on a platform."""
    bilibili, feishu = SandboxBilibili(), SandboxBitable(tables={"tbl_keyword": {"keyword": BitableFieldType.TEXT}})
    async with Sandbox(others=[bilibili, feishu]) as sandbox:
        control = sandbox.control_url
        table = f"{control}feishu/tables/tbl_keyword"
        added = await call(client, table, "POST", {"add": [{"keyword": "tea"}, {"keyword": "bread"}]})
        first, second = added[1]["records"]
        changed = await call(client, table, "POST", {"change": {first: {"keyword": "coffee"}}, "remove": [second]})
        assert changed == (200, {"records": {first: {"keyword": "coffee"}}})
        assert await call(client, table) == changed
        refused: list[Any] = [{"add": [{"no_field": 1}]}, {"remove": ["rec1"]}, {"drop": []}, {"add": ["x"]}]
        for wrong in refused:
            assert (await call(client, table, "POST", wrong))[0] == 400
        assert (await call(client, f"{control}feishu/tables/none"))[0] == 400

        async def is_logged_in() -> bool:
            headers = {"Cookie": DEMO_BILIBILI_COOKIE}
            async with client.get(f"{bilibili.origin}/x/web-interface/nav", headers=headers) as response:
                return bool((await response.json())["data"]["isLogin"])

        posts, before = f"{control}bilibili/posts", bilibili.library.find(2)
        edits = {"edit": {"2": {"text": "new"}}, "grow": 5, "remove": [3]}
        assert (await call(client, posts, "POST", edits))[0] == 204
        edited = bilibili.library.find(2)
        assert before is not None
        assert edited is not None
        assert (edited.text, edited.likes, bilibili.library.find(3)) == ("new", before.likes + 5, None)
        for wrong in ({"edit": {"3": {"text": "x"}}}, {"edit": {"2": {"likes": 1}}}, {"edit": [2]}, {"drop": []}):
            assert (await call(client, posts, "POST", wrong))[0] == 400
        assert (await call(client, f"{control}bilibili/log-out", "POST"))[0] == 204
        assert not await is_logged_in()
        assert (await call(client, f"{control}bilibili/log-out", "DELETE"))[0] == 204
        assert await is_logged_in()
