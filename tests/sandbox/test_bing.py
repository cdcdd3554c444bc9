"""The sandbox's Bing: accounts and sites, the quota of a UTC day, both families of errors, and that it keeps the API
key to itself."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from tests.fakes import FakeClock
from tests.sandbox.test_bundle import find_ports
from tidings.sandbox.bundle import Sandbox
from tidings.sandbox.engines import bing
from tidings.sandbox.engines.bing import SandboxBing
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault

KEY, OTHER_KEY = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
SITE, SECOND, FOREIGN = "https://example.org", "https://shop.example.org:8443", "https://example.net"
ACCOUNTS = {KEY: [SITE, SECOND], OTHER_KEY: [FOREIGN]}
Reply = tuple[int, dict[str, Any]]


@pytest.fixture
async def service(clock: FakeClock) -> AsyncIterator[SandboxBing]:
    async with SandboxBing(keys=ACCOUNTS, now=clock.now) as running:
        yield running


def pages(count: int, *, site: str = SITE, start: int = 1) -> list[str]:
    return [f"{site}/{number}" for number in range(start, start + count)]


async def post(client: ClientSession, service: SandboxBing, document: object, *, key: str = KEY) -> Reply:
    address = f"{service.address}/SubmitUrlbatch?apikey={key}"
    headers = {"Content-Type": "application/json; charset=utf-8"}
    async with client.post(address, data=json.dumps(document).encode(), headers=headers) as response:
        return response.status, json.loads(await response.text() or "{}")


async def submit(
    client: ClientSession, service: SandboxBing, urls: list[str], *, site: str = SITE, key: str = KEY
) -> Reply:
    return await post(client, service, {"siteUrl": site, "urlList": urls}, key=key)


async def ask_quota(client: ClientSession, service: SandboxBing, *, site: str = SITE, key: str = KEY) -> Reply:
    params = {"siteUrl": site, "apikey": key}
    async with client.get(f"{service.address}/GetUrlSubmissionQuota", params=params) as response:
        return response.status, json.loads(await response.text() or "{}")


def reported(code: int | str, text: str, *, status: int = 400) -> Reply:
    return status, {"ErrorCode": code, "Message": text}


async def test_a_batch_is_taken_counted_and_recorded(client: ClientSession, service: SandboxBing) -> None:
    """A26: siteUrl and urlList by POST, answered 200 {"d":null}."""
    address = f"http://127.0.0.1:{service.port}/webmaster/api.svc/json/SubmitUrlbatch?apikey={KEY}"
    body = json.dumps({"siteUrl": SITE, "urlList": pages(2)})
    kind = "application/json; charset=utf-8"
    async with client.post(address, data=body.encode(), headers={"Content-Type": kind}) as response:
        assert (response.status, await response.text()) == (200, '{"d":null}')
        assert response.headers["Content-Type"] == kind
    assert await submit(client, service, pages(1) * 2) == (200, {"d": None})
    assert service.accepted == {f"{SITE}/1": 3, f"{SITE}/2": 1}
    assert service.used(SITE) == 4
    (first, _) = service.requests
    assert (first.method, first.path, first.status) == ("POST", bing.SUBMIT_PATH, 200)
    assert (first.urls, first.fields) == (tuple(pages(2)), {"siteUrl": SITE})
    assert first.headers["content-type"] == kind


@pytest.mark.parametrize(
    ("site", "urls"),
    [
        (SITE + "/", [SITE, f"{SITE}/", f"{SITE}?q=1", "https://EXAMPLE.org:443/a"]),
        ("HTTPS://Example.ORG:443", pages(1)),
        (SECOND, pages(1, site=SECOND)),
    ],
)
async def test_a_site_is_its_origin_however_it_is_written(
    client: ClientSession, service: SandboxBing, site: str, urls: list[str]
) -> None:
    """A26: siteUrl is an origin: a slash, capitals or the default port make no other site of it."""
    assert await submit(client, service, urls, site=site) == (200, {"d": None})
    assert service.used(site) == service.used(site.lower().rstrip("/")) == len(urls)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/relative",
        "ftp://example.org/",
        "https:///path",
        "https://example.org:port/",
        "https://[::1/",
        "https://example.org/a b",
        "https://example.org/\n",
        "https://example.org/" + "x" * 2048,
        "http://example.org/",
        "https://example.org:8443/",
        "https://www.example.org/",
        "https://me@example.org/",
        f"{FOREIGN}/",
    ],
)
async def test_one_bad_url_refuses_the_whole_batch(client: ClientSession, service: SandboxBing, url: str) -> None:
    """A31: 7 InvalidUrl for a malformed or a foreign URL; the rest goes through without it."""
    assert await submit(client, service, [*pages(2), url]) == reported(7, "ERROR!!! InvalidUrl")
    assert (service.accepted, service.used(SITE)) == ({}, 0)
    assert await submit(client, service, pages(2)) == (200, {"d": None})
    assert service.used(SITE) == 2


async def test_five_hundred_urls_are_the_most(client: ClientSession, service: SandboxBing) -> None:
    """A26: Bing itself takes 500 a batch, and not one more."""
    service.daily_quota = 1_000
    assert await submit(client, service, pages(501)) == reported(8, "ERROR!!! InvalidParameter")
    assert not service.accepted
    assert await submit(client, service, pages(500)) == (200, {"d": None})
    assert service.used(SITE) == 500


@pytest.mark.parametrize(
    ("site", "key", "expected"),
    [
        (SITE, "nobody-has-this-key", reported(3, "ERROR!!! InvalidApiKey")),
        (SITE, "", reported(3, "ERROR!!! InvalidApiKey")),
        (FOREIGN, KEY, reported(14, "ERROR!!! NotAuthorized")),
        (SITE, OTHER_KEY, reported(14, "ERROR!!! NotAuthorized")),
        (f"{SITE}/blog", KEY, reported(14, "ERROR!!! NotAuthorized")),
        ("example.org", KEY, reported(14, "ERROR!!! NotAuthorized")),
        ("", KEY, reported(8, "ERROR!!! InvalidParameter")),
    ],
)
async def test_strangers_are_refused_for_submission_and_quota_alike(
    client: ClientSession, service: SandboxBing, site: str, key: str, expected: Reply
) -> None:
    """A31: an unknown key is 3, a site that is not in the key's account 14, and nothing is counted."""
    assert await submit(client, service, pages(1), site=site, key=key) == expected
    assert await ask_quota(client, service, site=site, key=key) == expected
    assert (service.accepted, service.used(SITE)) == ({}, 0)


async def test_a_site_can_join_and_a_key_can_go(client: ClientSession, service: SandboxBing) -> None:
    """A31: an account changes while Bing runs: a port was not known before, a key is rotated."""
    new = "http://127.0.0.1:8801"
    assert (await submit(client, service, pages(1, site=new), site=new))[1]["ErrorCode"] == 14
    service.add_site(new, key=KEY)
    service.add_site(new, key="a-new-key")
    assert (await submit(client, service, pages(1, site=new), site=new))[0] == 200
    assert (await submit(client, service, pages(1, site=new), site=new, key="a-new-key"))[0] == 200
    service.revoke(KEY)
    assert (await submit(client, service, pages(1)))[1]["ErrorCode"] == 3
    assert service.used(new) == 2


@pytest.mark.parametrize("site", ["example.org", f"{SITE}/blog", f"{SITE}?a=1", f"{SITE}#a", ""])
def test_an_account_holds_origins_only(site: str) -> None:
    """A26: a test that names a site wrongly learns it, instead of being refused by Bing for ever."""
    with pytest.raises(ValueError, match="not the origin of a site"):
        SandboxBing(keys={KEY: [site]})
    with pytest.raises(ValueError, match="not the origin of a site"):
        SandboxBing(keys=ACCOUNTS).used(site)


@pytest.mark.parametrize(
    "document",
    [
        {"siteUrl": SITE},
        {"siteUrl": SITE, "urlList": []},
        {"siteUrl": SITE, "urlList": f"{SITE}/1"},
        {"siteUrl": SITE, "urlList": [f"{SITE}/1", 2]},
        {"urlList": [f"{SITE}/1"]},
    ],
)
async def test_what_is_missing_or_of_the_wrong_kind_is_refused(
    client: ClientSession, service: SandboxBing, document: object
) -> None:
    """A31: 8 InvalidParameter; but anybody who has no key learns that first."""
    assert await post(client, service, document) == reported(8, "ERROR!!! InvalidParameter")
    assert await post(client, service, document, key="wrong") == reported(3, "ERROR!!! InvalidApiKey")
    assert not service.accepted


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/plain", b'{"siteUrl":"https://example.org","urlList":["https://example.org/1"]}'),
        ("application/json; charset=utf-16", b'{"siteUrl":"https://example.org","urlList":["https://example.org/1"]}'),
        ("application/json; charset=utf-8", b"{"),
        ("application/json; charset=utf-8", b"[]"),
        ("application/json; charset=utf-8", b"[" * 100_000),
    ],
)
async def test_what_cannot_be_read_gets_a_page_not_json(
    client: ClientSession, service: SandboxBing, kind: str, body: bytes
) -> None:
    """A26, A31: another content type or broken JSON is answered 400 with HTML, which a client must survive."""
    address = f"{service.address}/SubmitUrlbatch?apikey={KEY}"
    async with client.post(address, data=body, headers={"Content-Type": kind}) as response:
        assert (response.status, response.content_type) == (400, "text/html")
    assert not service.accepted


async def test_methods_and_paths_are_kept_apart(client: ClientSession, service: SandboxBing) -> None:
    """A26, A32: submitting is a POST, asking for the quota a GET, and there is nothing else; capitals do not count."""
    for method, name, allowed in (("POST", "GetUrlSubmissionQuota", "GET"), ("GET", "SubmitUrlbatch", "POST")):
        async with client.request(method, f"{service.address}/{name}?apikey={KEY}&siteUrl={SITE}") as refused:
            assert (refused.status, refused.headers["Allow"]) == (405, allowed)
    async with client.post(f"{service.address}/SubmitFeed?apikey={KEY}") as missing:
        assert missing.status == 404
    async with client.get(f"{service.address}/geturlsubmissionquota?APIKEY={KEY}&siteurl={SITE}") as found:
        assert found.status == 200


async def test_a_batch_over_what_remains_is_refused_whole(client: ClientSession, service: SandboxBing) -> None:
    """A28, A31: 73 used, 27 remain: 73 more are refused with both numbers, 27 go, and then nothing does."""
    assert (await submit(client, service, pages(73)))[0] == 200
    over = reported(2, "ERROR!!! Quota remaining for today: 27, Submitted: 73")
    assert await submit(client, service, pages(73, start=74)) == over
    assert service.used(SITE) == 73
    assert (await submit(client, service, pages(27, start=74)))[0] == 200
    spent = reported(2, "ERROR!!! You have exceeded your daily url submission quota : 100")
    assert await submit(client, service, pages(1, start=101)) == spent
    assert service.accepted == dict.fromkeys(pages(100), 1)


async def test_batches_at_once_cannot_overspend(client: ClientSession, service: SandboxBing) -> None:
    """A29: of twenty batches of ten at once, exactly the quota is taken."""
    batches = [pages(10, start=1 + 10 * number) for number in range(20)]
    replies = await asyncio.gather(*(submit(client, service, batch) for batch in batches))
    assert sorted(status for status, _ in replies) == [200] * 10 + [400] * 10
    assert service.used(SITE) == service.accepted.total() == 100


async def test_quota_is_for_each_site_and_utc_day(client: ClientSession, clock: FakeClock) -> None:
    """A28: another site has its own, and midnight UTC gives a new one, whatever zone the clock is in."""
    india = timezone(timedelta(hours=5, minutes=30))
    clock.set(datetime(2026, 11, 15, 23, 59, 59, tzinfo=UTC))
    async with SandboxBing(keys=ACCOUNTS, now=lambda: clock.now().astimezone(india)) as service:
        assert (await submit(client, service, pages(100)))[0] == 200
        assert (await submit(client, service, pages(1)))[0] == 400
        assert (await submit(client, service, pages(1, site=SECOND), site=SECOND))[0] == 200
        clock.advance(timedelta(seconds=1))
        assert (await submit(client, service, pages(30, start=101)))[0] == 200
        days = [service.used(SITE, date(2026, 11, day)) for day in (14, 15, 16)]
        assert (days, service.used(SITE), service.used(SECOND)) == ([0, 100, 30], 30, 0)


async def test_others_can_spend_the_quota_even_beyond_it(
    client: ClientSession, service: SandboxBing, clock: FakeClock
) -> None:
    """A29: what someone else used is used, and what remains is never less than nothing."""
    service.spend(SITE, 95)
    over = reported(2, "ERROR!!! Quota remaining for today: 5, Submitted: 6")
    assert await submit(client, service, pages(6)) == over
    service.spend(SITE, 10)
    assert (service.used(SITE), service.accepted) == (105, {})
    assert (await ask_quota(client, service))[1]["d"]["DailyQuota"] == 0
    assert "exceeded" in (await submit(client, service, pages(1)))[1]["Message"]
    clock.advance(timedelta(days=1))
    assert (await submit(client, service, pages(100)))[0] == 200


@pytest.mark.parametrize(("remaining", "daily"), [(True, 85), (False, 100)])
async def test_the_quota_is_reported_as_what_remains_or_as_the_total(
    client: ClientSession, clock: FakeClock, remaining: bool, daily: int
) -> None:
    """A32: reports differ about which of the two DailyQuota is, so either can be had."""
    kind = "UrlSubmissionQuota:#Microsoft.Bing.Webmaster.Api"
    async with SandboxBing(keys=ACCOUNTS, now=clock.now, reports_remaining=remaining) as service:
        service.spend(SECOND, 40)
        assert (await submit(client, service, pages(15)))[0] == 200
        expected = {"d": {"__type": kind, "DailyQuota": daily, "MonthlyQuota": 3_100}}
        assert await ask_quota(client, service) == (200, expected)
        assert service.requests[-1].fields == {"siteUrl": SITE}


@pytest.mark.parametrize(("fault", "counted"), [(bing.RESET_AFTER_ACCEPTING, 3), (bing.RESET, 0)])
async def test_no_answer_may_have_been_counted_or_not(
    service: SandboxBing, client: ClientSession, fault: Fault, counted: int
) -> None:
    """A28, A31: the connection ends without an answer; only Bing knows whether the batch was counted."""
    service.misbehave(replace(fault, times=1))
    with pytest.raises(aiohttp.ClientConnectionError):
        await submit(client, service, pages(3))
    assert (service.used(SITE), service.accepted.total()) == (counted, counted)
    assert [entry.status for entry in service.requests] == [None]
    assert (await ask_quota(client, service))[1]["d"]["DailyQuota"] == 100 - counted


async def test_a_refused_batch_without_an_answer_is_not_counted(client: ClientSession, service: SandboxBing) -> None:
    """A28: what Bing would have refused costs nothing, though nobody hears of that either."""
    service.misbehave(bing.RESET_AFTER_ACCEPTING)
    with pytest.raises(aiohttp.ClientConnectionError):
        await submit(client, service, ["nonsense"])
    assert (service.used(SITE), service.accepted) == (0, {})


Leak = Callable[[str], tuple[str, str, dict[str, str]]]
LEAKS: dict[str, Leak] = {
    "submission": lambda key: ("POST", f"{bing.SUBMIT_PATH}?apikey={key}", {}),
    "quota": lambda key: ("GET", f"{bing.QUOTA_PATH}?siteUrl={SITE}&ApiKey={key}&x=1", {}),
    "twice": lambda key: ("GET", f"{bing.QUOTA_PATH}?apikey={key}&apikey={key}", {}),
    "in the path": lambda key: ("POST", f"{bing.SUBMIT_PATH}&apikey={key}", {}),
    "in siteUrl": lambda key: ("GET", f"{bing.QUOTA_PATH}?apikey={key}&siteUrl={SITE}?apikey={key}", {}),
    "in a header": lambda key: ("GET", bing.QUOTA_PATH, {"Referer": f"{SITE}/?apikey={key}"}),
}


@pytest.mark.parametrize("key", [KEY, "a-key-bing-does-not-know", "odd#key%2F+~"], ids=["good", "unknown", "odd"])
@pytest.mark.parametrize("leak", LEAKS)
async def test_the_key_is_in_no_record(client: ClientSession, key: str, leak: str) -> None:
    """A31, facts: the key is in the address, so neither the record's repr nor what control tells may show it."""
    service = SandboxBing(keys=ACCOUNTS)
    hooked: list[str] = []
    service.on_request = lambda entry: hooked.append(repr(entry))
    async with Sandbox(site=SandboxSite(pages=1), engines=[], bing=service) as sandbox:
        method, target, headers = LEAKS[leak](key)
        await send_raw(service, method, target, headers)
        async with client.get(sandbox.control_url + "record?full=1") as response:
            shown = await response.text()
    assert "apikey=***" in shown.lower()
    for text in (shown, repr(service.requests), repr(service.describe(full=True)), repr(service), *hooked):
        assert key not in text
        assert key[:8] not in text
        assert key[-5:] not in text


async def send_raw(service: SandboxBing, method: str, target: str, headers: dict[str, str]) -> None:
    """As a client without manners would: the target byte for byte."""
    lines = [f"{method} {target} HTTP/1.1", "Host: x", "Connection: close", "Content-Length: 0"]
    head = "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""])
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(head.encode())
    async with asyncio.timeout(5):
        assert (await reader.read()).startswith(b"HTTP/1.1 ")
    writer.close()
    await writer.wait_closed()


async def test_an_encoded_key_is_read_as_what_it_means(client: ClientSession) -> None:
    """A26: a key is percent-decoded, as any value of a query is."""
    async with SandboxBing(keys={"a/b+c d": [SITE]}) as service:
        assert (await submit(client, service, pages(1), key="a%2Fb%2Bc%20d"))[0] == 200
        assert service.requests[0].query == "apikey=***"


async def test_in_a_bundle_bing_comes_after_the_engines(client: ClientSession) -> None:
    """With `port=P` and one engine, Bing is on P+2; without Bing there is no address of it."""
    port = find_ports(3)
    service = SandboxBing(keys={})
    async with Sandbox(engines=[SandboxEngine("alpha")], bing=service, port=port) as sandbox:
        assert sandbox.bing is service
        assert (
            sandbox.others["bing"].address == f"http://127.0.0.1:{port + 2}/webmaster/api.svc/json" == service.address
        )
        service.add_site(sandbox.site.origin, key=KEY)
        urls = [sandbox.site.url(1)]
        assert (await submit(client, service, urls, site=sandbox.site.origin))[0] == 200
    with pytest.raises(aiohttp.ClientConnectionError):
        await submit(client, service, urls)
    async with Sandbox(engines=[]) as without:
        assert "bing" not in without.others
        async with client.post(without.control_url + "bing/faults", json={}) as response:
            assert response.status == 404


async def test_bing_is_steered_and_read_over_control(client: ClientSession, clock: FakeClock) -> None:
    """A31: faults are set and cleared from outside, and the record tells of Bing beside the others."""
    service = SandboxBing(keys=ACCOUNTS, now=clock.now)
    async with Sandbox(site=SandboxSite(pages=1), engines=[], bing=service) as sandbox:
        control = sandbox.control_url
        service.spend(SITE, 70)
        service.spend(SECOND, 70)
        clock.advance(timedelta(days=1))
        async with client.post(control + "bing/faults", json={"status": 503}) as response:
            assert response.status == 204
        assert (await submit(client, service, pages(1)))[0] == 503
        async with client.delete(control + "bing/faults") as response:
            assert response.status == 204
        service.spend(SITE, 5)
        for batch in (pages(2), pages(1)):
            assert (await submit(client, service, batch))[0] == 200
        async with client.get(control + "record") as response:
            assert (await response.json())["bing"] == {
                "requests": 3,
                "maxInFlight": 1,
                "acceptedUrls": 2,
                "acceptances": 3,
                "acceptedTwice": 1,
                "usedToday": {SITE: 8},
            }
        async with client.get(control + "record?full=1") as response:
            full = (await response.json())["bing"]
    assert full["accepted"] == {f"{SITE}/1": 2, f"{SITE}/2": 1}
    assert [entry["status"] for entry in full["record"]] == [503, 200, 200]
