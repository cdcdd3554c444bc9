"""Every format that lists URLs is recognised by what it holds, and gives its URLs and nothing else."""

import pytest

from tests.announce.sitemap.outcome import read_body
from tidings.announce.sitemap.reader import SitemapKind, SitemapReader

A, B = b"https://example.com/a", b"https://example.com/b"


def wrap(*entries: bytes, root: bytes = b"urlset") -> bytes:
    return b'<?xml version="1.0" encoding="UTF-8"?><%b>%b</%b>' % (root, b"".join(entries), root.split()[0])


@pytest.fixture(params=[True, False], ids=["fast", "parser"])
def fast(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_urlset_gives_pages_with_their_stamps(fast: bool) -> None:
    """A5, A8: loc and lastmod, white space stripped, b"" where there is no timestamp."""
    body = wrap(
        b"<url><loc>%b</loc><lastmod>2026-11-15</lastmod><priority>0.5</priority></url>" % A,
        b"\n<url>\n<loc>\n %b\t</loc>\r\n</url>" % B,
        b"<url><loc>%b/2</loc><lastmod> 2026 </lastmod></url>" % B,
        root=b'urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"',
    )
    outcome = read_body(body, fast=fast)
    assert outcome.kind is SitemapKind.URLSET
    assert outcome.pairs == [(A, b"2026-11-15"), (B, b""), (B + b"/2", b"2026")]
    assert (outcome.fault, outcome.too_long, outcome.skimmed) == (None, 0, 2 if fast else 0)


def test_index_gives_children(fast: bool) -> None:
    """A5: the pairs of an index are sitemaps, which its kind says."""
    entries = [b"<sitemap><loc>%b.xml</loc><lastmod>2026-11</lastmod></sitemap>" % loc for loc in (A, B)]
    outcome = read_body(wrap(*entries, root=b"sitemapindex"), fast=fast)
    assert outcome.kind is SitemapKind.INDEX
    assert outcome.pairs == [(A + b".xml", b"2026-11"), (B + b".xml", b"2026-11")]


@pytest.mark.parametrize(
    "body",
    [
        b"<sm:urlset xmlns:sm='x'><sm:url><sm:loc>%b</sm:loc></sm:url></sm:urlset>" % A,
        b"<urlset xmlns:sm='x'><sm:url><sm:loc>%b</sm:loc></sm:url></urlset>" % A,
        b"<sm:urlset><url><loc>%b</loc></url></sm:urlset>" % A,
        b"<urlset xmlns='http://wrong.example/'><url><loc>%b</loc></url></urlset>" % A,
    ],
)
def test_namespace_and_prefix_do_not_matter(body: bytes, fast: bool) -> None:
    """A5: files without the namespace, with a wrong one or with a prefix are common."""
    assert read_body(body, fast=fast).pairs == [(A, b"")]


@pytest.mark.parametrize(
    "extension",
    [
        b"<image:image><image:loc>%b</image:loc></image:image>" % B,
        b"<image:loc>%b</image:loc><image:lastmod>2020</image:lastmod>" % B,
        b"<xhtml:link rel='alternate' hreflang='de' href='%b'/>" % B,
        b"<video:video><video:player_loc>%b</video:player_loc><loc>%b</loc></video:video>" % (B, B),
        b"<url><loc>%b</loc></url>" % B,
        b"<!-- <loc>%b</loc> -->" % B,
    ],
)
def test_only_the_loc_of_a_url_is_a_page(extension: bytes, fast: bool) -> None:
    """A8: image:loc, xhtml:link and whatever else names a URL is no page, before the loc as well as after it."""
    loc = b"<loc>%b</loc>" % A
    body = wrap(b"<url>%b%b</url>" % (extension, loc), b"<url>%b%b</url>" % (loc, extension))
    assert read_body(body, fast=fast).pairs == [(A, b""), (A, b"")]


def test_loc_outside_a_url_is_no_page(fast: bool) -> None:
    """A8: neither under the root nor in an unknown element."""
    assert read_body(wrap(b"<loc>%b</loc><x><url><loc>%b</loc></url></x>" % (A, B)), fast=fast).pairs == []


def test_first_loc_and_first_lastmod_win_and_an_empty_url_gives_nothing(fast: bool) -> None:
    """A8: one page a url."""
    first = b"<url><loc>%b</loc><lastmod>2026</lastmod><loc>%b</loc><lastmod>2027</lastmod></url>" % (A, B)
    body = wrap(first, b"<url><lastmod>2026</lastmod></url>", b"<url/>", b"<url><loc> </loc></url>")
    assert read_body(body, fast=fast).pairs == [(A, b"2026")]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (b"https://example.com/?a=1&amp;b=&#50;", b"https://example.com/?a=1&b=2"),
        (b"<![CDATA[ https://example.com/?a=1&b=2 ]]>", b"https://example.com/?a=1&b=2"),
        (b"https://example.com/<!-- not this -->x", b"https://example.com/x"),
        ("https://example.com/é&#228;".encode(), "https://example.com/éä".encode()),
    ],
)
def test_entities_and_cdata_are_decoded(written: bytes, meant: bytes, fast: bool) -> None:
    """A5: the URL is given as it is meant, in UTF-8."""
    assert read_body(wrap(b"<url><loc>%b</loc></url>" % written), fast=fast).pairs == [(meant, b"")]


@pytest.mark.parametrize("lastmod", ["2" * 65, "am 3. März"], ids=["long", "not ASCII"])
def test_lastmod_that_cannot_be_one_is_given_as_none(lastmod: str, fast: bool) -> None:
    """A8: a wrong timestamp counts as missing."""
    body = wrap(b"<url><loc>%b</loc><lastmod>%b</lastmod></url>" % (A, lastmod.encode()))
    assert read_body(body, fast=fast).pairs == [(A, b"")]


def test_urls_of_more_than_2048_characters_are_dropped_and_counted(fast: bool) -> None:
    """A7: characters are counted, not bytes, and not the white space around them."""
    longest = "https://example.com/".ljust(2_048, "é")
    locs = [longest, longest + "é", " " * 9_000 + longest + " " * 9_000, longest.replace("é", "e") + "e"]
    locs += [f"http://a/{' ' * gap}b" for gap in (2_500, 5_000, 500_000)]
    outcome = read_body(wrap(*(f"<url><loc>{loc}</loc></url>".encode() for loc in locs)), fast=fast)
    assert outcome.locs == [longest, longest]
    assert outcome.too_long == 5


def test_rss_gives_the_links_of_its_items_with_w3c_stamps() -> None:
    """A5, A8: RSS 2.0, RFC 822 dates in their W3C form, the channel's own link left out."""
    item = b"<item><title>t</title><link>%b</link><pubDate>%b</pubDate><atom:link href='x'/></item>"
    channel = b"<link>https://example.com/</link><image><link>https://example.com/i</link></image>"
    dates = [b"Sun, 15 Nov 2026 10:00:00 +0800", b"2026-11-15T10:00:00Z", b"soon"]
    body = wrap(channel, *(item % (A, when) for when in dates), root=b"channel").partition(b"?>")[2]
    outcome = read_body(b'<rss version="2.0">%b</rss>' % body)
    assert outcome.kind is SitemapKind.FEED
    assert outcome.pairs == [(A, b"2026-11-15T02:00:00Z"), (A, b"2026-11-15T10:00:00Z"), (A, b"")]


def test_rdf_gives_the_links_of_its_items() -> None:
    """A5: RSS 1.0, with the timestamp that Dublin Core gives."""
    body = b"<channel><link>https://example.com/</link></channel><item><link>%b</link><dc:date>2026-11</dc:date></item>"
    outcome = read_body(b"<rdf:RDF xmlns='http://purl.org/rss/1.0/'>%b</rdf:RDF>" % (body % A))
    assert (outcome.kind, outcome.pairs) == (SitemapKind.FEED, [(A, b"2026-11")])


def test_atom_gives_the_alternate_link_of_its_entries() -> None:
    """A5: rel="alternate" or none, the first of them."""
    links = b"<link rel='self' href='https://example.com/self'/><link rel='edit' href='https://example.com/edit'/>"
    entries = [
        b"<entry>%b<link rel='alternate' href=' %b '/><updated>2026-11-15T10:00:00Z</updated></entry>" % (links, A),
        b"<entry><link href='%b'/><link href='%b'/><source><link href='%b'/></source></entry>" % (B, A, A),
        b"<entry>%b</entry>" % links,
    ]
    outcome = read_body(wrap(links, *entries, root=b"feed xmlns='http://www.w3.org/2005/Atom'"))
    assert (outcome.kind, outcome.pairs) == (SitemapKind.FEED, [(A, b"2026-11-15T10:00:00Z"), (B, b"")])


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("size", [1, 7, 65_536])
def test_text_gives_one_url_a_line(end: bytes, size: int) -> None:
    """A5: blank lines, white space and a missing last line end do no harm; a URL that is too long is dropped."""
    body = end.join([b"\xef\xbb\xbf" + A, b"", b"  %b\t" % B, b"http://" + b"x" * 9_000, "HTTP://é.example/".encode()])
    outcome = read_body(body, size=size, block=1)
    assert (outcome.kind, outcome.too_long) == (SitemapKind.TEXT, 1)
    assert outcome.pairs == [(A, b""), (B, b""), ("HTTP://é.example/".encode(), b"")]


@pytest.mark.parametrize("size", [1, 65_536])
def test_robots_gives_its_sitemap_lines(size: int) -> None:
    """A5: in any case, after a byte order mark, with comments and either line end."""
    lines = [b"\xef\xbb\xbfSITEMAP: %b" % A, b"User-agent: *", b"  sitemap :%b # ours" % B, b"#Sitemap: https://no/"]
    lines += [b"#" + b"<" * 2_000, b"Disallow: /sitemap: x", b"Sitemap:"]
    outcome = read_body(b"\r\n".join(lines), size=size, robots=True, block=1)
    assert (outcome.kind, outcome.pairs) == (SitemapKind.ROBOTS, [(A, b""), (B, b"")])


def test_robots_that_names_no_sitemap_is_no_fault() -> None:
    """A5: nor is an empty one."""
    assert read_body(b"User-agent: *\nDisallow:\n", robots=True).pairs == []
    assert read_body(b"", robots=True).kind is SitemapKind.ROBOTS


def test_kind_is_known_before_the_first_pair_is_given_out() -> None:
    """A5: the caller must know whether a pair is a page or a child."""
    body = wrap(*[b"<sitemap><loc>%b</loc></sitemap>" % A] * 50, root=b"sitemapindex")
    reader = SitemapReader(block=1)
    for place in range(len(body)):
        if reader.feed(body[place : place + 1]):
            assert reader.kind is SitemapKind.INDEX
            break
    else:
        pytest.fail("no pair before the end: nothing was streamed")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b" \n\t ", "empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "not a sitemap"),
        (b"\0\0\0\0\1\2\3", "not a sitemap"),
        (b'{"urls": []}', "not a sitemap"),
        (b"https://example.com/\nnot a URL\n", "not a sitemap"),
        (b"https://example.com/\xe9\n", "not UTF-8"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "HTML page"),
        (b"<!doctype html>\n<html><br></html>", "HTML page"),
        (b"\n<HTML><head></head></HTML>", "HTML page"),
        (b"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'/>", "HTML page"),
        (b"<catalog><url><loc>https://example.com/</loc></url></catalog>", "root is 'catalog'"),
        (b"<?xml version='1.0'?>", "not a sitemap: ends early"),
        (b"<urlset", "not a sitemap: ends early"),
    ],
)
def test_what_is_no_sitemap_is_refused(body: bytes, reason: str, fast: bool) -> None:
    """A7: an HTML error page with status 200, a picture, JSON, nothing at all."""
    refusal = read_body(body, fast=fast).refusal
    assert refusal is not None
    assert reason in refusal
    assert refusal.isprintable()


def test_html_page_instead_of_robots_is_refused() -> None:
    """A7: it must not pass for a robots.txt without sitemaps."""
    assert "HTML page" in (read_body(b"\n<!DOCTYPE html><p>Sitemap: https://x/", robots=True).refusal or "")
