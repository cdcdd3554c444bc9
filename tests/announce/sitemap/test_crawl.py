"""A crawl is polite to hosts that an index names, and ends however many files there are."""

from collections.abc import Sequence

import pytest

from tests.fakes import FakeClock
from tidings.announce.site.site import make_site
from tidings.announce.sitemap.crawl import OTHER_HOST_PAUSE, Crawl, FileRead, Remembered
from tidings.core.net.client import GuardedClient
from tidings.core.net.retry import RetryPolicy
from tidings.core.stop import Stop
from tidings.sandbox import SandboxSite


def make_index(urls: Sequence[str]) -> str:
    return f"<sitemapindex>{''.join(f'<sitemap><loc>{url}</loc></sitemap>' for url in urls)}</sitemapindex>"


def make_child(site: SandboxSite) -> str:
    return f"<urlset><url><loc>{site.url(1)}</loc></url></urlset>"


async def recall_nothing(_: str) -> Remembered | None:
    return None


async def read_all(own: SandboxSite, *, client: GuardedClient, clock: FakeClock, most_files: int = 100) -> Crawl:
    site = make_site(sitemap_urls=[f"{own.origin}/index.xml"], key="0123456789abcdef")
    crawl = Crawl(
        site,
        client=client,
        clock=clock,
        policy=RetryPolicy(retries=0),
        stop=Stop(clock=clock),
        recall=recall_nothing,
        most_files=most_files,
    )
    assert [event async for event in crawl.events() if isinstance(event, FileRead)]
    return crawl


@pytest.mark.parametrize("redirected", [False, True], ids=["named", "redirected to"])
async def test_files_of_another_host_are_fetched_slowly(
    client: GuardedClient, clock: FakeClock, redirected: bool
) -> None:
    """A5: a site must not be able to turn Tidings against a host of somebody else."""
    async with SandboxSite() as own, SandboxSite() as other:
        paths = [f"/{number}.xml" for number in range(5)]
        for path in paths:
            other.serve(path, make_child(own))
            own.serve(path, "", status=302, headers={"Location": f"{other.origin}{path}"})
        own.serve("/index.xml", make_index([(own if redirected else other).origin + path for path in paths]))
        crawl = await read_all(own, client=client, clock=clock)
        assert len(other.requests) == 5
    assert crawl.result.complete
    assert clock.slept == [OTHER_HOST_PAUSE] * 4


async def test_files_of_the_site_itself_are_fetched_without_a_pause(client: GuardedClient, clock: FakeClock) -> None:
    """A5."""
    async with SandboxSite() as own:
        paths = [f"/{number}.xml" for number in range(5)]
        for path in paths:
            own.serve(path, make_child(own))
        own.serve("/index.xml", make_index([own.origin + path for path in paths]))
        await read_all(own, client=client, clock=clock)
    assert clock.slept == []


async def test_crawl_of_too_many_files_ends_and_says_so(client: GuardedClient, clock: FakeClock) -> None:
    """A5, A6: indexes of indexes can name more files than there are seconds; the crawl is then not complete."""
    async with SandboxSite() as own:
        paths = [f"/{number}.xml" for number in range(5)]
        for path in paths:
            own.serve(path, make_child(own))
        own.serve("/index.xml", make_index([own.origin + path for path in paths]))
        crawl = await read_all(own, client=client, clock=clock, most_files=3)
        assert len(own.requests) == 3
    assert crawl.result.complete is False
    assert crawl.result.troubles == [f"{own.origin}/index.xml leads to more than 3 files"]
