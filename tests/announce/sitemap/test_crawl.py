"""A crawl is polite to hosts that an index names, and ends however many files there are."""

import gzip
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.fakes import FakeClock
from tidings.announce.site.site import make_site
from tidings.announce.sitemap.crawl import Crawl
from tidings.announce.sitemap.events import FileRead
from tidings.announce.sitemap.other_hosts import OTHER_HOST_PAUSE
from tidings.core.db.database import Database
from tidings.core.net.client import GuardedClient
from tidings.core.net.pace import Pace
from tidings.core.net.retry import RetryPolicy
from tidings.core.stop import Stop
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.request_log import Recorded

pytestmark = pytest.mark.one_database


def make_index(urls: Sequence[str]) -> str:
    return f"<sitemapindex>{''.join(f'<sitemap><loc>{url}</loc></sitemap>' for url in urls)}</sitemapindex>"


def make_child(site: SandboxSite) -> str:
    return f"<urlset><url><loc>{site.url(1)}</loc></url></urlset>"


async def read_all(
    own: SandboxSite, *, client: GuardedClient, clock: FakeClock, more: Sequence[str] = (), **limits: Any
) -> Crawl:
    site = make_site(sitemap_urls=[f"{own.origin}/index.xml", *more], key="0123456789abcdef")
    crawl = Crawl(
        site,
        client=client,
        clock=clock,
        policy=RetryPolicy(retries=0),
        stop=Stop(clock=clock),
        **limits,
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
        assert [request.path for request in other.requests] == ["/robots.txt", *paths]
    assert crawl.result.complete
    assert clock.slept == [OTHER_HOST_PAUSE] * 5


async def test_many_crawls_together_ask_another_host_no_faster_than_one(
    client: GuardedClient, clock: FakeClock, database: Database
) -> None:
    """A5: a hundred sites may name one host; over all of them it is asked once a second, and others do not wait."""
    asked: list[datetime] = []

    def record(_: Recorded) -> None:
        asked.append(clock.now())

    pace = Pace(database, clock=clock, interval=timedelta(0), concurrency=6)
    async with SandboxSite() as own, SandboxSite() as other:
        other.on_request = record
        own.serve("/index.xml", make_index([f"{other.origin}/child.xml"]))
        other.serve("/child.xml", make_child(own))
        for _ in range(4):
            await read_all(own, client=client, clock=clock, pace=pace)
    assert len(asked) == 8
    assert min(after - before for before, after in pairwise(asked)) >= OTHER_HOST_PAUSE
    assert asked[-1] - asked[0] < 8 * OTHER_HOST_PAUSE


@pytest.mark.parametrize(
    ("status", "robots", "reason"),
    [
        (200, "User-agent: *\nDisallow: /*.xml", "robots.txt of that host, which is not the site's, forbids it"),
        (503, "", "robots.txt of that host cannot be fetched (HTTP 503)"),
    ],
)
async def test_another_host_is_asked_only_for_what_its_robots_txt_allows(
    client: GuardedClient, clock: FakeClock, status: int, robots: str, reason: str
) -> None:
    """A5: a host that never heard of this site decides itself; a redirect through it counts as well."""
    async with SandboxSite() as own, SandboxSite() as other:
        own.serve("/own.xml", make_child(own))
        own.serve("/away.xml", "", status=302, headers={"Location": f"{other.origin}/back.xml"})
        other.serve("/back.xml", "", status=302, headers={"Location": f"{own.origin}/own.xml"})
        other.serve("/robots.txt", robots, status=status)
        children = [f"{other.origin}/named.xml", f"{own.origin}/away.xml", f"{own.origin}/own.xml"]
        own.serve("/index.xml", make_index(children))
        crawl = await read_all(own, client=client, clock=clock)
        assert [request.path for request in other.requests] == ["/robots.txt"]
        named, back = f"{other.origin}/named.xml", f"{other.origin}/back.xml"
    assert crawl.result.files == 2
    assert crawl.result.troubles == [f"{named} refused: {reason}", f"{back} refused: {reason}"]


@pytest.mark.parametrize(
    ("body", "encoding", "reason"),
    [
        (gzip.compress(b"User-agent: *\nDisallow: /"), "gzip", "forbids it"),
        (b"no gzip", "gzip", "cannot be read"),
        (b"User-agent: *\nAllow: /", "br", "cannot be read"),
    ],
    ids=["gzip", "damaged", "unknown"],
)
async def test_a_robots_txt_of_another_host_is_read_in_its_encoding(
    client: GuardedClient, clock: FakeClock, body: bytes, encoding: str, reason: str
) -> None:
    """A5: some servers compress what nobody asked them to; rules that are not known cannot be respected."""
    async with SandboxSite() as own, SandboxSite() as other:
        other.serve("/robots.txt", body, headers={"Content-Encoding": encoding})
        own.serve("/index.xml", make_index([f"{other.origin}/named.xml"]))
        crawl = await read_all(own, client=client, clock=clock)
        assert [request.path for request in other.requests] == ["/robots.txt"]
    assert reason in crawl.result.troubles[0]


async def test_other_hosts_get_a_bounded_number_of_requests(client: GuardedClient, clock: FakeClock) -> None:
    """A5: an index may name 50,000 files of other hosts; the rest is left out, and the crawl says what to do."""
    async with SandboxSite() as own, SandboxSite() as other:
        own.serve("/own.xml", make_child(own))
        named = [f"{other.origin}/{number}.xml" for number in range(15)]
        own.serve("/index.xml", make_index([*named, f"{own.origin}/own.xml"]))
        other.serve("/robots.txt", "", status=404)
        crawl = await read_all(own, client=client, clock=clock, most_other_requests=5)
        assert len(other.requests) == 5
    assert crawl.result.files == 2
    assert crawl.result.troubles[-1] == (
        "11 files of other hosts were not read: a crawl makes at most 5 requests to other hosts than the site's; "
        "name a sitemap of that host as a sitemap of the site"
    )


async def test_host_of_a_configured_sitemap_is_the_operators_choice(client: GuardedClient, clock: FakeClock) -> None:
    """A5: sitemaps on a file server of one's own are neither slow nor limited."""
    async with SandboxSite() as own, SandboxSite() as files:
        own.serve("/index.xml", make_index([f"{files.origin}/{number}.xml" for number in range(3)]))
        for number in range(3):
            files.serve(f"/{number}.xml", make_child(own))
        crawl = await read_all(own, client=client, clock=clock, more=[f"{files.origin}/0.xml"])
        assert "/robots.txt" not in [request.path for request in files.requests]
    assert crawl.result.complete
    assert clock.slept == []


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
