"""The files in which the sandbox site lists its pages, read with real parsers."""

import gzip
import tracemalloc
from datetime import datetime
from email.utils import parsedate_to_datetime
from xml.etree import ElementTree

import pytest
from aiohttp import ClientSession

from tidings.sandbox.site.documents import Layout
from tidings.sandbox.site.site import SandboxSite

SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
IMAGE = "{http://www.google.com/schemas/sitemap-image/1.1}"
XHTML = "{http://www.w3.org/1999/xhtml}"


async def fetch(client: ClientSession, url: str) -> bytes:
    async with client.get(url) as response:
        assert response.status == 200
        return await response.read()


def texts(body: bytes, *path: str) -> list[str]:
    found = ElementTree.fromstring(body).findall("/".join(path))
    return [element.text or "" for element in found]


async def listed_urls(client: ClientSession, site: SandboxSite) -> list[str]:
    """All pages of an index, by way of its children."""
    children = texts(await fetch(client, site.sitemap_url), f"{SITEMAP}sitemap", f"{SITEMAP}loc")
    bodies = [await fetch(client, child) for child in children]
    plain = [gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body for body in bodies]
    return [url for body in plain for url in texts(body, f"{SITEMAP}url", f"{SITEMAP}loc")]


@pytest.mark.parametrize("gzipped", [False, True])
async def test_children_of_the_index_list_every_page_once(client: ClientSession, gzipped: bool) -> None:
    """A5: an index with plain or gzip children leads to exactly the pages of the site, in order."""
    async with SandboxSite(pages=25, per_sitemap=10, gzipped=gzipped) as site:
        assert len(site.document_urls()) == 4
        assert site.document_urls()[1].endswith(".xml.gz" if gzipped else ".xml")
        assert await listed_urls(client, site) == [site.url(number) for number in range(1, 26)]


async def test_gzip_children_are_files_not_an_encoding(client: ClientSession) -> None:
    """A5: a .gz child comes as gzip bytes without Content-Encoding, the same bytes each time."""
    async with SandboxSite(pages=5, gzipped=True) as site:
        url = f"{site.origin}/sitemaps/1.xml.gz"
        async with client.get(url) as response:
            assert "Content-Encoding" not in response.headers
            assert response.headers["Content-Type"] == "application/gzip"
            assert await response.read() == await fetch(client, url)


async def test_added_and_removed_pages_show_in_the_sitemaps(client: ClientSession) -> None:
    """A14: the sitemaps follow the pages; a new child appears once the last is full."""
    async with SandboxSite(pages=25, per_sitemap=10) as site:
        assert list(site.add(7)) == list(range(26, 33))
        site.remove(1)
        site.remove(31)
        expected = [site.url(number) for number in range(2, 33) if number != 31]
        assert len(site.document_urls()) == 5
        assert await listed_urls(client, site) == expected == list(site.urls())


async def test_changed_pages_carry_their_new_time_in_full(client: ClientSession) -> None:
    """A8, A12: the sitemap says exactly when a page changed, with fractional seconds."""
    async with SandboxSite(pages=3) as site:
        site.change_many([1, 3])
        body = await fetch(client, f"{site.origin}/sitemaps/1.xml")
        timestamps = texts(body, f"{SITEMAP}url", f"{SITEMAP}lastmod")
        assert [datetime.fromisoformat(timestamp) for timestamp in timestamps] == [
            site.lastmod(number) for number in (1, 2, 3)
        ]
        assert ["." in timestamp for timestamp in timestamps] == [True, False, True]


async def test_index_says_when_each_child_changed(client: ClientSession) -> None:
    """A9: the index's lastmod of a child is the child's Last-Modified."""
    async with SandboxSite(pages=20, per_sitemap=10) as site:
        site.change(11)
        timestamps = texts(await fetch(client, site.sitemap_url), f"{SITEMAP}sitemap", f"{SITEMAP}lastmod")
        async with client.get(f"{site.origin}/sitemaps/2.xml") as response:
            assert datetime.fromisoformat(timestamps[1]) == parsedate_to_datetime(response.headers["Last-Modified"])
        assert timestamps[0] < timestamps[1]


async def test_every_tenth_page_has_extensions(client: ClientSession) -> None:
    """A8: image and alternate links are there to be mistaken for pages, and are none."""
    async with SandboxSite(pages=30, layout=Layout.URLSET, extensions=True) as site:
        root = ElementTree.fromstring(await fetch(client, site.sitemap_url))
        extended = [
            url.findtext(f"{SITEMAP}loc")
            for url in root
            if url.find(f"{IMAGE}image/{IMAGE}loc") is not None and url.find(f"{XHTML}link") is not None
        ]
        assert extended == [site.url(10), site.url(20), site.url(30)]
        assert len(root) == 30


async def test_one_urlset_can_hold_everything(client: ClientSession) -> None:
    """A5: the layout of one file, whatever `per_sitemap` says."""
    async with SandboxSite(pages=25, per_sitemap=10, layout=Layout.URLSET) as site:
        body = await fetch(client, site.sitemap_url)
        assert texts(body, f"{SITEMAP}url", f"{SITEMAP}loc") == list(site.urls())
        async with client.get(f"{site.origin}/sitemaps/1.xml") as response:
            assert response.status == 404


async def test_rss_feed_is_valid_and_lists_every_page(client: ClientSession) -> None:
    """A5: RSS 2.0 with the elements it must have, links and dates."""
    async with SandboxSite(pages=5, layout=Layout.RSS) as site:
        site.change(2)
        assert site.sitemap_url.endswith("/feed.xml")
        root = ElementTree.fromstring(await fetch(client, site.sitemap_url))
        channel = root.find("channel")
        assert (root.tag, root.get("version")) == ("rss", "2.0")
        assert channel is not None
        assert all(channel.findtext(name) for name in ("title", "link", "description"))
        items = channel.findall("item")
        assert [item.findtext("link") for item in items] == list(site.urls())
        dates = [parsedate_to_datetime(item.findtext("pubDate") or "") for item in items]
        assert dates == [site.lastmod(number).replace(microsecond=0) for number in range(1, 6)]


async def test_text_sitemap_has_one_url_a_line(client: ClientSession) -> None:
    """A5: the text layout."""
    async with SandboxSite(pages=5, layout=Layout.TEXT) as site:
        site.remove(4)
        assert (await fetch(client, site.sitemap_url)).decode().splitlines() == list(site.urls())
        async with client.get(site.robots_url) as response:
            assert f"Sitemap: {site.origin}/sitemap.txt" in await response.text()


@pytest.mark.thorough
async def test_a_large_site_costs_little_memory(client: ClientSession) -> None:
    """A5: what is kept of rendered files stays under its bound, and the pages themselves cost next to nothing."""
    bound = 8 * 1024 * 1024
    tracemalloc.start()
    try:
        async with SandboxSite(pages=1_000_000, per_sitemap=20_000, cache_bytes=bound) as site:
            assert tracemalloc.get_traced_memory()[0] < 2 * 1024 * 1024
            for url in site.document_urls()[1:5]:
                body = await fetch(client, url)
                assert body.count(b"<loc>") == 20_000
                assert 0 < site.cached_bytes <= bound
            del body
            assert tracemalloc.get_traced_memory()[1] < 40 * 1024 * 1024
    finally:
        tracemalloc.stop()


async def test_warmed_files_are_kept_and_served_unchanged(client: ClientSession) -> None:
    """A5: rendering ahead of time gives the same bytes, and a change replaces them."""
    async with SandboxSite(pages=200, per_sitemap=100) as cold, SandboxSite(pages=200, per_sitemap=100) as warm:
        warm.warm()
        kept = warm.cached_bytes
        body = await fetch(client, warm.document_urls()[1])
        assert body == (await fetch(client, cold.document_urls()[1])).replace(cold.host.encode(), warm.host.encode())
        assert warm.cached_bytes == kept > len(body)
        warm.remove(1)
        assert len(await fetch(client, warm.document_urls()[1])) < len(body)
        assert warm.cached_bytes < kept
