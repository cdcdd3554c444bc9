"""Malformed XML: what stands before the fault is given out, and nothing after it."""

import pytest

from tests.announce.sitemap.outcome import Outcome, read_body
from tidings.announce.sitemap.reader import SitemapKind

HEAD = b'<?xml version="1.0"?><urlset>'
GOOD = [b"<url><loc>https://example.com/%d</loc></url>" % number for number in range(100)]
LATE = b"<url><loc>https://example.com/late</loc></url></urlset>"


@pytest.fixture(params=[(True, 65_536), (True, 1), (False, 65_536)], ids=["fast", "fast by byte", "parser"])
def options(request: pytest.FixtureRequest) -> dict[str, int]:
    fast, size = request.param
    return {"fast": fast, "size": size, "block": size}


def check_outcome(outcome: Outcome, fault: str) -> None:
    assert (outcome.refusal, outcome.kind) == (None, SitemapKind.URLSET)
    assert outcome.locs == [f"https://example.com/{number}" for number in range(100)]
    assert outcome.fault is not None
    assert fault in outcome.fault
    assert "\n" not in outcome.fault


@pytest.mark.parametrize(
    ("injury", "fault"),
    [
        (b"<url><loc>https://example.com/?a=1&b=2</loc></url>", "not well-formed"),
        (b"<url><loc>https://example.com/&nbsp;</loc></url>", "undefined entity"),
        (b"<url><loc>https://example.com/</url></loc>", "mismatched tag"),
        (b"<url><loc>https://example.com/\x00</loc></url>", "not well-formed"),
        (b"<url><loc>https://example.com/\xe9</loc></url>", "not well-formed"),
        (b"<url><loc>https://example.com/]]></loc></url>", "not well-formed"),
        (b"<url><loc>https://example.com/</loc><changefreq>]]></changefreq></url>", "not well-formed"),
        (b"<url><loc>https://example.com/</loc><priority>\x01</priority></url>", "not well-formed"),
        (b"</urlset><urlset>", "junk after document element"),
        (b"<!DOCTYPE urlset>", "not well-formed"),
        (b"<br>", "mismatched tag"),
    ],
)
def test_what_stands_before_the_fault_is_given_out(injury: bytes, fault: str, options: dict[str, int]) -> None:
    """A7: a bare `&` does not corrupt a URL, it ends the reading."""
    check_outcome(read_body(HEAD + b"".join(GOOD) + injury + LATE, **options), fault)


@pytest.mark.parametrize(
    "tail",
    [b"", b"<url>", b"<url><loc>https://example.com/late", b"</urlset", b"<!-- ", b"<![CDATA[", b"<url><loc>x</loc>"],
)
def test_early_end_is_a_fault(tail: bytes, options: dict[str, int]) -> None:
    """A7: a page whose entry has no end is not given out, because its URL may have been cut too."""
    check_outcome(read_body(HEAD + b"".join(GOOD) + tail, **options), "ends early")


def test_fault_names_the_byte_where_it_is(options: dict[str, int]) -> None:
    """A7: the place in the document, though most of it never went through the parser."""
    body = HEAD + b"".join(GOOD) + b"<url><loc>" + b"&" + LATE
    outcome = read_body(body, **options)
    assert outcome.fault == f"not well-formed (invalid token) at byte {body.index(b'&') + 1}"


def test_nothing_after_a_fault_is_read_or_refused(options: dict[str, int]) -> None:
    """A7: what follows is ignored, no matter what it is."""
    body = HEAD + b"".join(GOOD) + b"</wrong>" + b"<a>" * 1_000 + LATE
    check_outcome(read_body(body, **options), "mismatched tag")


def test_fault_in_an_index_or_a_feed_keeps_what_was_read() -> None:
    """A7: the same for children and for entries."""
    index = b"<sitemapindex><sitemap><loc>https://example.com/a.xml</loc></sitemap><sitemap>"
    assert read_body(index).locs == ["https://example.com/a.xml"]
    feed = b"<feed><entry><link href='https://example.com/a'/></entry><entry><title>a & b"
    assert read_body(feed).locs == ["https://example.com/a"]
    assert read_body(feed).fault is not None
