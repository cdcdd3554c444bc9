"""The sandbox site: pages, key file, robots.txt, overrides, and conditional requests to its sitemaps."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import aiohttp
import pytest
from aiohttp import ClientSession

from tidings.sandbox.site.pages import NoSuchPageError
from tidings.sandbox.site.site import SandboxSite


async def fetch(client: ClientSession, url: str, **headers: str) -> tuple[int, bytes]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.get(url, headers=sent) as response:
        return response.status, await response.read()


async def status_of(client: ClientSession, url: str, **headers: str) -> int:
    return (await fetch(client, url, **headers))[0]


async def headers_of(client: ClientSession, url: str) -> Mapping[str, str]:
    async with client.get(url) as response:
        return response.headers


async def test_robots_txt_names_the_sitemap(client: ClientSession, site: SandboxSite) -> None:
    """A5: `Sitemap:` lines of robots.txt lead to the sitemap."""
    status, body = await fetch(client, site.robots_url)
    assert status == 200
    assert f"Sitemap: {site.sitemap_url}" in body.decode().splitlines()


async def test_key_file_holds_the_key_and_nothing_else(client: ClientSession, site: SandboxSite) -> None:
    """A15: the key file is where keyLocation points by default."""
    assert site.key_location == f"http://{site.host}/{site.key}.txt"
    assert await fetch(client, site.key_location) == (200, site.key.encode())
    site.key = "a-rotated-key-01"
    assert await fetch(client, site.key_location) == (200, b"a-rotated-key-01")


async def test_pages_answer_until_they_are_removed(client: ClientSession, site: SandboxSite) -> None:
    """A14: a removed page answers 410, one that never was 404."""
    status, body = await fetch(client, site.url(3))
    assert (status, b"Page 3" in body) == (200, True)
    site.remove(3)
    assert await status_of(client, site.url(3)) == 410
    assert await status_of(client, site.url(26)) == 404
    site.add(1)
    assert await status_of(client, site.url(26)) == 200
    assert await status_of(client, f"{site.origin}/pages/0000004/another-name.html") == 404


async def test_a_site_refuses_numbers_it_does_not_have(site: SandboxSite) -> None:
    """A14: a removed page cannot come back to life unnoticed."""
    site.remove(5)
    for number in (0, 5, 26):
        with pytest.raises(NoSuchPageError):
            site.change(number)
    with pytest.raises(NoSuchPageError):
        site.remove(5)


async def test_other_methods_than_get_and_head_are_refused(client: ClientSession, site: SandboxSite) -> None:
    """A5: a sitemap is read, never written; HEAD tells the length without the body."""
    async with client.post(site.sitemap_url) as refused:
        assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")
    length = len((await fetch(client, site.sitemap_url))[1])
    async with client.head(site.sitemap_url) as head:
        assert (head.status, head.headers["Content-Length"], await head.read()) == (200, str(length), b"")


async def test_unchanged_children_answer_304(client: ClientSession, site: SandboxSite) -> None:
    """A9: a child that did not change costs one request and no body."""
    url = f"{site.origin}/sitemaps/1.xml"
    before = await headers_of(client, url)
    etag, modified = before["ETag"], before["Last-Modified"]
    assert await fetch(client, url, If_None_Match=etag) == (304, b"")
    assert await fetch(client, url, If_None_Match=f'"other", W/{etag}') == (304, b"")
    assert await fetch(client, url, If_Modified_Since=modified) == (304, b"")
    assert await status_of(client, url, If_None_Match='"other"') == 200
    assert site.requests[-1].status == 200
    assert site.requests[-2].status == 304


async def test_if_none_match_decides_alone(client: ClientSession, site: SandboxSite) -> None:
    """A9: a date that is late enough does not make a wrong ETag right."""
    url = f"{site.origin}/sitemaps/1.xml"
    modified = (await headers_of(client, url))["Last-Modified"]
    assert await status_of(client, url, If_None_Match='"other"', If_Modified_Since=modified) == 200


async def test_another_site_on_the_same_port_is_not_unchanged(client: ClientSession) -> None:
    """A9: `tidings sandbox` is started again with more pages; its dates are the same, what it lists is not."""
    async with SandboxSite(pages=10) as first:
        url, port = f"{first.origin}/sitemaps/1.xml", int(first.host.rpartition(":")[2])
        etag = (await headers_of(client, url))["ETag"]
    second = SandboxSite(pages=20)
    await second.start(port=port)
    assert await status_of(client, url, If_None_Match=etag) == 200
    await second.close()


async def test_a_change_touches_its_child_and_the_index_only(client: ClientSession, site: SandboxSite) -> None:
    """A9: validators change with the content, and with nothing else."""
    before = {url: await headers_of(client, url) for url in site.document_urls()}
    site.change(15)
    after = {url: await headers_of(client, url) for url in site.document_urls()}
    changed = {url.removeprefix(site.origin) for url in before if before[url]["ETag"] != after[url]["ETag"]}
    dated = {
        url.removeprefix(site.origin) for url in before if before[url]["Last-Modified"] != after[url]["Last-Modified"]
    }
    assert changed == dated == {"/sitemap.xml", "/sitemaps/2.xml"}


async def test_two_changes_within_a_second_have_two_dates(client: ClientSession, site: SandboxSite) -> None:
    """A9: If-Modified-Since never hides a change, though HTTP dates have no fractions."""
    url = f"{site.origin}/sitemaps/1.xml"
    dates = []
    for _ in range(3):
        site.change(1)
        dates.append(parsedate_to_datetime((await headers_of(client, url))["Last-Modified"]))
        assert await status_of(client, url, If_Modified_Since=(await headers_of(client, url))["Last-Modified"]) == 304
    assert dates == sorted(set(dates))


async def test_many_unseen_changes_do_not_push_the_date_into_the_future(
    client: ClientSession, site: SandboxSite
) -> None:
    """A9: Last-Modified is the time of the change where nobody saw the versions between."""
    for _ in range(50):
        site.change(1)
    seen = parsedate_to_datetime((await headers_of(client, f"{site.origin}/sitemaps/1.xml"))["Last-Modified"])
    assert seen <= datetime.now(UTC)


async def test_lastmods_lie_before_2026_until_changed(site: SandboxSite) -> None:
    """A12: pages are old, spread over years and the same each time, until they change, with fractions of seconds."""
    timestamps = [site.lastmod(number) for number in range(1, 26)]
    assert timestamps == [SandboxSite(pages=25).lastmod(number) for number in range(1, 26)]
    assert max(timestamps) < datetime(2026, 1, 1, tzinfo=UTC)
    assert len({timestamp.year for timestamp in timestamps}) > 3
    before = datetime.now(UTC)
    assert before <= site.change(7) == site.lastmod(7) <= datetime.now(UTC)


async def test_any_path_can_be_overridden_and_restored(client: ClientSession, site: SandboxSite) -> None:
    """A7: every answer of a site can be put at any path, byte for byte."""
    original = await fetch(client, site.sitemap_url)
    site.serve("/sitemap.xml", "<html>oops</html>", status=500, headers={"X-Odd": "1"}, content_type="text/html")
    site.serve("/catalog/key.txt", b"\xff\xfe")
    async with client.get(site.sitemap_url) as response:
        assert (response.status, await response.text()) == (500, "<html>oops</html>")
        assert (response.headers["X-Odd"], response.headers["Content-Type"]) == ("1", "text/html")
    assert await fetch(client, f"{site.origin}/catalog/key.txt") == (200, b"\xff\xfe")
    site.restore("/sitemap.xml")
    assert await fetch(client, site.sitemap_url) == original


async def test_large_overrides_arrive_whole(client: ClientSession, site: SandboxSite) -> None:
    """A5: files over a few hundred KB are sent in pieces and arrive complete."""
    body = bytes(range(256)) * 8192
    site.serve("/big.bin", body)
    assert (await fetch(client, f"{site.origin}/big.bin"))[1] == body


async def test_stamping_everything_now_changes_every_fetch(client: ClientSession, site: SandboxSite) -> None:
    """A12: a site that stamps each page "now" is never unchanged, and every lastmod is the time of the fetch."""
    url = f"{site.origin}/sitemaps/1.xml"
    etag = (await headers_of(client, url))["ETag"]
    site.stamp_everything_now = True
    before = datetime.now(UTC)
    status, body = await fetch(client, url, If_None_Match=etag)
    lastmods = {part.split("</lastmod>")[0] for part in body.decode().split("<lastmod>")[1:]}
    assert status == 200
    assert len(lastmods) == 1
    assert before <= datetime.fromisoformat(lastmods.pop()) <= before + timedelta(seconds=10)
    assert (await fetch(client, url))[1] != body
    site.stamp_everything_now = False
    assert await status_of(client, url, If_None_Match=etag) == 304


async def test_a_restarted_site_keeps_its_address(client: ClientSession) -> None:
    """A6: a site can go down and come back where it was."""
    site = SandboxSite(pages=1)
    with pytest.raises(RuntimeError):
        _ = site.host
    async with site:
        address = site.sitemap_url
        assert await status_of(client, address) == 200
    with pytest.raises(aiohttp.ClientConnectionError):
        await status_of(client, address)
    async with site:
        assert site.sitemap_url == address
        assert await status_of(client, address) == 200


async def test_a_site_listens_on_loopback_only(site: SandboxSite) -> None:
    """Nothing of the sandbox can be reached from another machine."""
    assert site.host == f"127.0.0.1:{site.port}"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.2", site.port)
