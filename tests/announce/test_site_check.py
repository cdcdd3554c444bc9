"""What `check` finds before anything is sent: each way in which a key file or a sitemap is wrong."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tests.announce.stage import write_index, write_urlset
from tests.fakes import FakeClock
from tidings.announce.site.check import SiteFinding, check_key_file, check_site, check_sitemap
from tidings.announce.site.site import Site, make_site
from tidings.core.clock import SystemClock
from tidings.core.net.client import GuardedClient
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import Fault, FaultKind

KEY = "Key-For-Checking-0123456789"


@pytest.fixture
async def web() -> AsyncIterator[SandboxSite]:
    async with SandboxSite(pages=5, key=KEY) as served:
        yield served


@pytest.fixture
def site(web: SandboxSite) -> Site:
    return make_site(sitemap_urls=[web.sitemap_url], key=KEY)


def assert_bad(finding: SiteFinding, *words: str) -> None:
    assert not finding.good
    assert all(word in finding.message for word in words)
    assert finding.advice
    assert KEY not in finding.message + finding.advice


async def test_a_site_that_is_ready_has_two_good_findings(web: SandboxSite, site: Site, client: GuardedClient) -> None:
    """A25, A4: key file and sitemap; the key itself is not repeated."""
    findings = await check_site(site, client=client, clock=SystemClock())
    assert [(finding.subject, finding.good) for finding in findings] == [("key file", True), ("sitemap", True)]
    assert KEY not in f"{findings}"


@pytest.mark.parametrize(
    "body",
    [KEY, f"{KEY}\n", f"  {KEY}\r\n", b"\xef\xbb\xbf" + KEY.encode()],
    ids=["plain", "newline", "spaces", "byte order mark"],
)
async def test_a_key_file_may_have_white_space_and_a_byte_order_mark(
    web: SandboxSite, site: Site, client: GuardedClient, body: str | bytes
) -> None:
    """A25: as editors write it."""
    web.serve(f"/{KEY}.txt", body)
    assert (await check_key_file(site, client=client)).good


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("<!DOCTYPE html><title>Home</title>", "an HTML page"),
        (f"<html><body>{KEY}</body></html>", "an HTML page"),
        ("another-key-0123456789", "another key"),
        (KEY.lower(), "upper and lower case"),
        (f"{KEY}\n{KEY}x", "more than the key"),
        (f"key={KEY}", "more than the key"),
        ("", "empty"),
        (KEY[:-1], "another key"),
    ],
)
async def test_a_key_file_with_anything_else_in_it_is_distinguished(
    web: SandboxSite, site: Site, client: GuardedClient, body: str, words: str
) -> None:
    """A25: the message says what is there instead, and what to do."""
    web.serve(f"/{KEY}.txt", body)
    assert_bad(await check_key_file(site, client=client), words, "Key-****")


@pytest.mark.parametrize(
    ("status", "words"), [(404, "missing"), (410, "missing"), (403, "HTTP 403"), (500, "HTTP 500")]
)
async def test_a_key_file_that_is_not_served_is_named_with_its_status(
    web: SandboxSite, site: Site, client: GuardedClient, status: int, words: str
) -> None:
    """A25: missing, forbidden, or a server in trouble."""
    web.serve(f"/{KEY}.txt", KEY, status=status)
    assert_bad(await check_key_file(site, client=client), words)


async def test_a_key_file_on_a_server_that_gives_no_answer_is_reported(
    web: SandboxSite, site: Site, client: GuardedClient
) -> None:
    """A25: the network's failure is the finding; nothing is raised."""
    web.misbehave(Fault(FaultKind.RESET))
    assert_bad(await check_key_file(site, client=client), "without an answer")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/login", "an HTML page"),
        ("http://169.254.169.254/latest/", "not a public address"),
        (f"/{KEY}.txt", "redirects go in a circle"),
    ],
)
async def test_a_redirect_is_judged_by_where_it_leads(
    web: SandboxSite, site: Site, client: GuardedClient, target: str, words: str
) -> None:
    """A25: to a page, inside a private network, or nowhere: none of them is the key."""
    web.serve("/login", "<!doctype html><title>Sign in</title>")
    web.serve(f"/{KEY}.txt", "", status=302, headers={"Location": target})
    assert_bad(await check_key_file(site, client=client), words)


async def test_a_site_on_a_private_address_is_refused_without_a_packet(client: GuardedClient) -> None:
    """A25: an engine could not fetch it either."""
    site = make_site(sitemap_urls=["http://10.255.255.1/sitemap.xml"], key=KEY)
    findings = await check_site(site, client=client, clock=SystemClock())
    for finding in findings:
        assert_bad(finding, "not a public address")
    assert "TIDINGS_ALLOW_NETWORKS lets Tidings read" in findings[1].advice


async def test_a_key_file_of_endless_length_is_not_read_to_its_end(
    web: SandboxSite, site: Site, client: GuardedClient
) -> None:
    """A25: no key file is that long."""
    web.serve(f"/{KEY}.txt", "x" * 1_000_000)
    assert_bad(await check_key_file(site, client=client), "longer than")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (write_urlset(["https://example.com/1", "https://example.com/2"]), "none of its URLs is of"),
        (write_urlset([]), "lists no pages"),
        ("<!doctype html><title>Home</title>", "an HTML page"),
    ],
)
async def test_a_sitemap_that_lists_none_of_the_sites_pages_is_reported(
    web: SandboxSite, site: Site, client: GuardedClient, body: str, words: str
) -> None:
    """A25, A7: foreign, empty, or not a sitemap at all."""
    web.serve("/sitemap.xml", body)
    assert_bad(await check_sitemap(site, client=client, clock=SystemClock()), words)


async def test_a_sitemap_outside_the_key_files_folder_is_reported(web: SandboxSite, client: GuardedClient) -> None:
    """A25, A7: the key does not vouch for any of its pages, which is not the same as having none."""
    web.serve("/blog/key.txt", KEY)
    site = make_site(sitemap_urls=[web.sitemap_url], key=KEY, key_location=f"{web.origin}/blog/key.txt")
    finding = await check_sitemap(site, client=client, clock=SystemClock())
    assert not finding.good
    assert "key file's folder" in finding.message + finding.advice


class SlowClock(FakeClock):
    """Each look at the clock takes a second."""

    def monotonic(self) -> float:
        self.advance(timedelta(seconds=1))
        return super().monotonic()


async def test_an_index_without_the_sites_pages_is_not_read_for_ever(
    web: SandboxSite, site: Site, client: GuardedClient
) -> None:
    """A25: a person waits for the check, and an index may lead to a hundred thousand files."""
    children = [f"{web.origin}/{number}.xml" for number in range(300)]
    web.serve("/sitemap.xml", write_index(children))
    for child in children:
        web.serve(child.removeprefix(web.origin), write_urlset(["https://example.com/1"]))
    finding = await check_sitemap(site, client=client, clock=SlowClock())
    assert_bad(finding, "read in 1m list no pages of")
    assert len(web.requests) < 100


async def test_many_troubles_of_a_sitemap_are_shown_as_the_first_few(
    web: SandboxSite, site: Site, client: GuardedClient
) -> None:
    """A25: 1,500 missing files were a message of 140,000 characters."""
    web.serve("/sitemap.xml", write_index(f"{web.origin}/{number}.xml" for number in range(20)))
    finding = await check_sitemap(site, client=client, clock=SystemClock())
    assert_bad(finding, "/0.xml failed", "/2.xml failed", "; and 17 more")
    assert "/3.xml" not in finding.message
