"""The stand-in for a small site of the open web."""

from collections.abc import AsyncIterator
from xml.etree import ElementTree

import pytest
from aiohttp import ClientSession

from tidings.sandbox.media import openweb
from tidings.sandbox.media.openweb import SandboxOpenWeb


@pytest.fixture
async def blog() -> AsyncIterator[SandboxOpenWeb]:
    async with SandboxOpenWeb() as running:
        yield running


async def fetch(client: ClientSession, blog: SandboxOpenWeb, path: str) -> tuple[int, str, str]:
    async with client.get(blog.origin + path) as response:
        return response.status, response.content_type, await response.text()


async def test_both_feeds_list_the_same_articles(client: ClientSession, blog: SandboxOpenWeb) -> None:
    """C17: RSS with RFC 822 dates and whole addresses, Atom with W3C dates and relative ones."""
    status, kind, rss = await fetch(client, blog, openweb.RSS_PATH)
    assert (status, kind) == (200, "application/rss+xml")
    links = [link.text for link in ElementTree.fromstring(rss).iterfind("channel/item/link")]
    _, _, atom = await fetch(client, blog, openweb.ATOM_PATH)
    entries = ElementTree.fromstring(atom).iterfind("{*}entry/{*}link")
    assert links == [blog.origin + str(entry.get("href")) for entry in entries]
    assert links == [blog.url(number) for number in range(1, 31)]


async def test_articles_the_home_page_and_what_is_missing(client: ClientSession, blog: SandboxOpenWeb) -> None:
    """C17: a page has more than its article; the home page names the feed."""
    status, kind, page = await fetch(client, blog, openweb.article_path(5))
    assert (status, kind) == (200, "text/html")
    assert all(part in page for part in ("<nav>", "<article>", "<footer>", "<script>"))
    assert f'href="{openweb.RSS_PATH}"' in (await fetch(client, blog, "/"))[2]
    assert (await fetch(client, blog, openweb.article_path(99)))[0] == 404


async def test_robots_txt_is_absent_until_it_is_set_and_anything_can_be_served(
    client: ClientSession, blog: SandboxOpenWeb
) -> None:
    """C17: the site's owner decides."""
    assert (await fetch(client, blog, "/robots.txt"))[0] == 404
    blog.robots = "User-agent: *\nDisallow: /\n"
    assert (await fetch(client, blog, "/robots.txt"))[2] == blog.robots
    blog.serve("/x", "here", status=202, content_type="text/plain")
    assert await fetch(client, blog, "/x") == (202, "text/plain", "here")
