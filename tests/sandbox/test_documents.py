"""The files in which the sandbox site lists its pages, read with real parsers."""

import tracemalloc
from datetime import datetime
from email.utils import parsedate_to_datetime
from xml.etree import ElementTree

import pytest
from aiohttp import ClientSession

from tidings.sandbox.site.site import SandboxSite

SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"


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
    return [url for body in bodies for url in texts(body, f"{SITEMAP}url", f"{SITEMAP}loc")]


async def test_children_of_the_index_list_every_page_once(client: ClientSession) -> None:
    """A5: an index leads to exactly the pages of the site, in order."""
    async with SandboxSite(pages=25, per_sitemap=10) as site:
        assert len(site.document_urls()) == 4
        assert await listed_urls(client, site) == [site.url(number) for number in range(1, 26)]


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


async def test_one_urlset_can_hold_everything(client: ClientSession) -> None:
    """A5: one file without an index."""
    async with SandboxSite(pages=25, per_sitemap=None) as site:
        body = await fetch(client, site.sitemap_url)
        assert texts(body, f"{SITEMAP}url", f"{SITEMAP}loc") == list(site.urls())
        async with client.get(f"{site.origin}/sitemaps/1.xml") as response:
            assert response.status == 404


@pytest.mark.thorough
async def test_a_large_site_costs_little_memory(client: ClientSession) -> None:
    """A5: what is kept of rendered files stays under its bound, and the pages themselves cost next to nothing."""
    tracemalloc.start()
    try:
        async with SandboxSite(pages=1_000_000, per_sitemap=20_000) as site:
            assert tracemalloc.get_traced_memory()[0] < 2 * 1024 * 1024
            for url in site.document_urls()[1:21]:
                assert (await fetch(client, url)).count(b"<loc>") == 20_000
            assert tracemalloc.get_traced_memory()[0] < 40 * 1024 * 1024
    finally:
        tracemalloc.stop()
