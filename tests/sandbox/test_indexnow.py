"""The sandbox engine: what it takes, what it refuses, and that it looks as closely as real ones do."""

import json
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import ClientSession
from yarl import URL

from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault


def encode(text: str) -> str:
    """As encodeURIComponent does."""
    return quote(text, safe="!'()*-._~")


async def submit(client: ClientSession, engine: SandboxEngine, **values: str) -> tuple[int, str]:
    query = "&".join(f"{name}={encode(value)}" for name, value in values.items())
    async with client.get(URL(f"{engine.endpoint}?{query}", encoded=True)) as response:
        return response.status, await response.text()


async def post(client: ClientSession, engine: SandboxEngine, document: object) -> tuple[int, str]:
    async with client.post(engine.endpoint, json=document) as response:
        return response.status, await response.text()


def batch(site: SandboxSite, *urls: object, **changes: object) -> dict[str, object]:
    return {"host": site.host, "key": site.key, "urlList": list(urls), **changes}


async def test_get_is_taken_and_recorded_as_it_was_sent(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A15: url, key and keyLocation by GET; the raw query shows the exact percent-encoding."""
    url = f"{site.origin}/page?id=1&name=a+b"
    assert await submit(client, engine, url=url, key=site.key, keyLocation=site.key_location) == (200, "")
    (recorded,) = engine.requests
    assert recorded.query == f"url={encode(url)}&key={site.key}&keyLocation={encode(site.key_location)}"
    assert "page%3Fid%3D1%26name%3Da%2Bb" in recorded.query
    assert (recorded.method, recorded.path, recorded.urls) == ("GET", "/indexnow", (url,))
    assert recorded.fields == {"key": site.key, "keyLocation": site.key_location}
    assert engine.accepted == {url: 1}


async def test_an_unencoded_plus_is_a_space_to_the_engine(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A15: values that are not encoded as encodeURIComponent does are misread, as they are by real engines."""
    raw = URL(f"{engine.endpoint}?url={site.origin}/a+b&key={site.key}", encoded=True)
    async with client.get(raw) as response:
        assert response.status == 400
    assert engine.requests[0].urls == (f"{site.origin}/a b",)


async def test_post_is_taken_and_counted(client: ClientSession, site: SandboxSite, engine: SandboxEngine) -> None:
    """A16: a JSON body with host, key, keyLocation and urlList."""
    first, second = site.url(1), site.url(2)
    assert (await post(client, engine, batch(site, first, second, keyLocation=site.key_location)))[0] == 200
    assert (await post(client, engine, batch(site, second)))[0] == 200
    assert engine.accepted == {first: 1, second: 2}
    assert engine.requests[0].urls == (first, second)
    assert engine.requests[1].fields == {"host": site.host, "key": site.key}


async def test_ten_thousand_urls_are_the_most(client: ClientSession, site: SandboxSite, engine: SandboxEngine) -> None:
    """A16: up to 10,000 URLs a request."""
    urls = [f"{site.origin}/{number}" for number in range(10_001)]
    assert (await post(client, engine, batch(site, *urls[:10_000])))[0] == 200
    assert (await post(client, engine, batch(site, *urls)))[0] == 422
    assert engine.accepted.total() == 10_000


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"key": "seven-7"}, 422),
        ({"key": "x" * 129}, 422),
        ({"key": "under_score"}, 422),
        ({"key": None}, 422),
        ({"key": 12345678}, 400),
        ({"host": None}, 422),
        ({"host": "example.org"}, 422),
        ({"urlList": []}, 422),
        ({"urlList": "http://127.0.0.1/"}, 422),
        ({"urlList": [1]}, 400),
        ({"keyLocation": "http://example.org/key.txt"}, 422),
        ({"keyLocation": "key.txt"}, 422),
        ({"keyLocation": 5}, 422),
    ],
)
async def test_what_is_wrong_with_a_post_is_refused(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine, changes: dict[str, object], status: int
) -> None:
    """A4, A21: wrong key form, host, list or keyLocation; nothing is counted as accepted."""
    answer = await post(client, engine, batch(site, site.url(1)) | changes)
    assert answer[0] == status
    assert json.loads(answer[1])["message"]
    assert not engine.accepted


async def test_keys_of_eight_and_of_128_characters_are_taken(client: ClientSession, site: SandboxSite) -> None:
    """A4: the limits themselves are allowed."""
    async with SandboxEngine("alpha", checks_keys=False) as engine:
        for key in ("Aa0-Aa0-", "k" * 128):
            assert (await post(client, engine, batch(site, site.url(1), key=key)))[0] == 200


@pytest.mark.parametrize(
    "url",
    [
        "",
        "not a url",
        "/relative",
        "ftp://127.0.0.1/",
        "http:///path",
        "http://127.0.0.1:port/",
        "http://[::1/",
        "http://127.0.0.1/a b",
        "http://127.0.0.1/\n",
        "http://127.0.0.1/" + "x" * 2048,
    ],
)
async def test_one_malformed_url_spoils_the_batch(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine, url: str
) -> None:
    """A22: 400 for the whole batch, and for the URL alone; the others go through without it."""
    assert (await post(client, engine, batch(site, site.url(1), url)))[0] == 400
    assert (await post(client, engine, batch(site, url)))[0] == 400
    assert (await submit(client, engine, url=url, key=site.key))[0] == 400
    assert (await post(client, engine, batch(site, site.url(1))))[0] == 200
    assert engine.accepted == {site.url(1): 1}


async def test_a_foreign_url_spoils_the_batch(client: ClientSession, site: SandboxSite, engine: SandboxEngine) -> None:
    """A7, A22: a URL of another host, or of another port, is answered 422."""
    for foreign in ("http://example.org/", f"http://127.0.0.1:{engine.port}/", f"http://me@{site.host}/"):
        assert (await post(client, engine, batch(site, site.url(1), foreign)))[0] == 422
    assert not engine.accepted


async def test_missing_parts_of_a_get_are_refused(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A15: url and key must be there."""
    assert (await submit(client, engine, key=site.key))[0] == 422
    assert (await submit(client, engine, url=site.url(1)))[0] == 422
    assert (await submit(client, engine, url=site.url(1), key="short"))[0] == 422


async def test_post_needs_json_and_says_so(client: ClientSession, site: SandboxSite, engine: SandboxEngine) -> None:
    """A16: another content type, broken JSON or no object are bad requests; a charset is allowed."""
    body = json.dumps(batch(site, site.url(1))).encode()
    for kind, sent, status in (
        ("text/plain", body, 400),
        ("application/json", body[:-1], 400),
        ("application/json", b"[]", 400),
        ("application/json", b"[" * 100_000, 400),
        ("application/json", body.replace(b"http://", b"\\ud800"), 400),
        ("application/json; charset=utf-8", body, 200),
    ):
        async with client.post(engine.endpoint, data=sent, headers={"Content-Type": kind}) as response:
            assert response.status == status


async def test_other_methods_and_paths_are_refused(client: ClientSession, engine: SandboxEngine) -> None:
    """A21: 405 for a wrong method, 404 beside the endpoint."""
    async with client.put(engine.endpoint) as refused:
        assert (refused.status, refused.headers["Allow"]) == (405, "GET, POST")
    async with client.get(f"{engine.origin}/elsewhere") as missing:
        assert missing.status == 404


async def test_a_missing_key_file_is_not_verified(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A22: 403 SiteVerificationNotCompleted until the key file is there."""
    other = "a-key-nobody-has-put-up"
    assert await post(client, engine, batch(site, site.url(1), key=other)) == (
        403,
        '{"errorCode":"SiteVerificationNotCompleted"}',
    )
    site.serve(f"/{other}.txt", other + "\n")
    assert (await post(client, engine, batch(site, site.url(1), key=other)))[0] == 200


async def test_another_key_in_the_file_is_forbidden(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A22: 403 UserForbiddedToAccessSite where the file says something else."""
    site.serve(f"/{site.key}.txt", "another-key")
    status, body = await submit(client, engine, url=site.url(1), key=site.key)
    assert status == 403
    assert json.loads(body)["errorCode"] == "UserForbiddedToAccessSite"
    assert json.loads(body)["message"]
    assert not engine.accepted


@pytest.mark.parametrize("checks_keys", [True, False])
async def test_a_key_file_that_was_right_once_is_not_fetched_again(
    client: ClientSession, site: SandboxSite, checks_keys: bool
) -> None:
    """A15: a key that was right once is remembered."""
    async with SandboxEngine("alpha", checks_keys=checks_keys) as engine:
        for number in (1, 2, 3):
            assert (await submit(client, engine, url=site.url(number), key=site.key))[0] == 200
    assert [entry.path for entry in site.requests] == [f"/{site.key}.txt"] * checks_keys


async def test_a_failed_key_check_is_not_remembered(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A22: a verification that failed is tried again."""
    site.misbehave(Fault(status=500, times=1))
    assert (await submit(client, engine, url=site.url(1), key=site.key))[0] == 403
    assert (await submit(client, engine, url=site.url(1), key=site.key))[0] == 200


async def test_a_redirected_key_file_is_not_followed(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A25: the key file must be where keyLocation says."""
    site.serve(f"/{site.key}.txt", "", status=302, headers={"Location": f"{site.origin}/moved.txt"})
    site.serve("/moved.txt", site.key)
    assert (await submit(client, engine, url=site.url(1), key=site.key))[0] == 403
    assert [entry.path for entry in site.requests] == [f"/{site.key}.txt"]


async def test_a_key_in_a_folder_vouches_for_that_folder_only(
    client: ClientSession, site: SandboxSite, engine: SandboxEngine
) -> None:
    """A7, A15: a key at /catalog/key.txt is good for /catalog/… and for nothing else."""
    location = f"{site.origin}/catalog/key.txt"
    site.serve("/catalog/key.txt", site.key)
    inside, outside = f"{site.origin}/catalog/shoes", f"{site.origin}/catalogue"
    assert (await submit(client, engine, url=inside, key=site.key, keyLocation=location))[0] == 200
    assert (await submit(client, engine, url=outside, key=site.key, keyLocation=location))[0] == 422
    assert (await post(client, engine, batch(site, inside, outside, keyLocation=location)))[0] == 422
    assert (await post(client, engine, batch(site, inside, keyLocation=location)))[0] == 200
    assert (await submit(client, engine, url=site.origin, key=site.key, keyLocation=site.key_location))[0] == 200
    assert engine.accepted == {inside: 2, site.origin: 1}


async def test_nothing_is_fetched_from_beyond_this_machine(client: ClientSession, engine: SandboxEngine) -> None:
    """A submission of a host elsewhere is not verified, and no packet leaves for it."""
    assert (await submit(client, engine, url="http://192.0.2.1/page", key="some-good-key"))[0] == 403
    assert (await submit(client, engine, url="http://example.invalid/page", key="some-good-key"))[0] == 403


async def test_engines_are_closed_to_the_site_when_it_is_down(client: ClientSession, engine: SandboxEngine) -> None:
    """A22: a host that cannot be reached is not verified."""
    async with SandboxSite(pages=1) as site:
        gone = site.url(1)
    assert (await submit(client, engine, url=gone, key=site.key))[0] == 403
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.get(gone)
