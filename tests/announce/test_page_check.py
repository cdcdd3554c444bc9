"""The page check before sending: what is held back and why, what becomes of it, and what bounds the check."""

from dataclasses import replace

import pytest

from tests.announce.bing_stage import BingStage, open_bing_stage
from tests.conftest import BenchMaker
from tidings.announce.ledger.ledger import Channel
from tidings.announce.page_check.settings import PageCheck, PageCheckMode
from tidings.announce.page_check.signs import find_canonical_link, is_noindex_header, is_same_page, read_page
from tidings.core.executions import ExecutionStatus
from tidings.sandbox.wire.faults import Fault

pytestmark = pytest.mark.one_database

HTML = {"Content-Type": "text/html; charset=utf-8"}


async def check_pages(stage: BingStage, mode: PageCheckMode = PageCheckMode.ALL, *, limit: int = 100) -> BingStage:
    """The same site with a page check."""
    changed = replace(stage.site, page_check=PageCheck(mode, limit))
    return replace(stage, site=await stage.bench.store(changed))


def spoil(stage: BingStage, number: int, *, status: int = 200, head: str = "", robots: str = "all") -> None:
    path = stage.web.url(number).removeprefix(stage.web.origin)
    headers = HTML | {"X-Robots-Tag": robots, "Location": "/elsewhere"}
    stage.web.misbehave(Fault(status=status, headers=headers, body=head, path=path))


async def test_pages_that_are_none_for_an_index_are_held_back_until_they_are(make_bench: BenchMaker) -> None:
    """A46: other answers, noindex and another canonical; not in the ledger of any channel, sent once they are good."""
    async with open_bing_stage(make_bench, pages=8) as opened:
        stage = await check_pages(opened)
        spoil(stage, 1, status=404)
        spoil(stage, 2, status=301)
        spoil(stage, 3, head='<html><head><meta name="Robots" content="nofollow, NOINDEX"></head>')
        spoil(stage, 4, robots="noindex")
        spoil(stage, 5, head='<link rel="canonical" href="/another">')
        spoil(
            stage, 6, head=f'<link rel="canonical" href="{stage.web.url(6)}"><body><meta name=robots content=noindex>'
        )
        report = await stage.announce()
        good = {stage.web.url(number) for number in (6, 7, 8)}
        assert (report.status, report.submitted, report.page_check.checked) == (ExecutionStatus.SUCCEEDED, 3, 8)
        assert {page.url.removeprefix(stage.web.origin): page.reason for page in report.page_check.pages} == {
            stage.web.url(number).removeprefix(stage.web.origin): reason
            for number, reason in {
                1: "it answers HTTP 404",
                2: "it answers HTTP 301",
                3: "its meta robots says noindex",
                4: "its X-Robots-Tag says noindex",
                5: "its canonical URL is another: /another",
            }.items()
        }
        assert set(stage.engine.accepted) == {url for batch in stage.batches() for url in batch} == good
        assert await stage.find_entered(Channel.INDEXNOW) == await stage.find_entered(Channel.BING) == good
        assert any("not announced: " in line for line in report.to_json()["warnings"])
        stage.web.recover()
        again = await stage.announce()
        assert (again.new, again.submitted, again.page_check.held) == (5, 5, 0)
        assert dict(stage.engine.accepted) == dict.fromkeys(stage.web.urls(), 1)
        assert sorted(url for batch in stage.batches() for url in batch) == sorted(stage.web.urls())


@pytest.mark.parametrize("mode", [PageCheckMode.ALL, PageCheckMode.SAMPLE])
async def test_the_check_ends_at_its_limit_and_the_rest_goes_out(make_bench: BenchMaker, mode: PageCheckMode) -> None:
    """A46: at most so many fetches an execution, with a pause between them."""
    async with open_bing_stage(make_bench, pages=20) as opened:
        stage = await check_pages(opened, mode, limit=3)
        for number in range(1, 21):
            spoil(stage, number, status=500)
        report = await stage.announce()
        assert (report.page_check.checked, report.page_check.held, report.submitted) == (3, 3, 17)
        assert len(stage.engine.accepted) == 17


async def test_a_site_that_asks_for_less_is_left_alone(make_bench: BenchMaker) -> None:
    """A46: after a 429 no further page is fetched, and no page is held back for it."""
    async with open_bing_stage(make_bench, pages=5) as opened:
        stage = await check_pages(opened)
        spoil(stage, 2, status=429)
        report = await stage.announce()
        fetched = [request.path for request in stage.web.requests if request.path == stage.web.url(3)]
        assert (report.page_check.checked, report.page_check.held, report.submitted, fetched) == (1, 0, 5, [])
        assert any("429" in line for line in report.warnings)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("noindex", True),
        ("nofollow, NoIndex", True),
        ("none", True),
        ("googlebot: noindex", False),
        ("googlebot: nofollow, noindex", False),
        ("*: noindex", True),
        ("unavailable_after: 25 Jun 2030 15:00:00 PST, noindex", True),
        ("max-snippet:20, noarchive", False),
    ],
)
def test_a_robots_header_for_one_crawler_is_no_rule_for_all(value: str, expected: bool) -> None:
    """A46: X-Robots-Tag as Google and Bing document it."""
    assert is_noindex_header([value]) is expected


@pytest.mark.parametrize(
    ("canonical", "same"),
    [
        ("https://a.example/caf%C3%A9?x=1", True),
        ("/café?x=1", True),
        ("HTTPS://A.example:443/caf%c3%a9?x=1#top", True),
        ("https://a.example/caf%C3%A9", False),
        ("http://a.example/caf%C3%A9?x=1", False),
        ("https://www.a.example/caf%C3%A9?x=1", False),
    ],
)
def test_spellings_of_one_url_are_one_page(canonical: str, same: bool) -> None:
    """A46: a canonical URL is compared as a URL, not as text."""
    assert is_same_page(canonical, url="https://a.example/caf%C3%A9?x=1") is same


def test_head_and_link_header_are_read_as_browsers_do() -> None:
    """A46: charset, base, the first canonical; broken HTML and a canonical in the body do no harm."""
    page = '<base href="https://a.example/b/"><link rel=canonical href=c><link rel=canonical href=d>'
    assert read_page(page.encode("utf-16"), content_type="text/html; charset=utf-16")["canonical"] == (
        "https://a.example/b/c"
    )
    assert read_page(b"<<<meta <p><body><link rel=canonical href=x>\xff", content_type="") == {
        "noindex": False,
        "canonical": None,
    }
    assert find_canonical_link(['<https://a.example/p>; rel="canonical", </s.css>; rel=preload']) == (
        "https://a.example/p"
    )
    assert find_canonical_link(["</s.css>; rel=preload"]) is None
