"""Hostile bodies end in a clear refusal, soon and in little memory. The bombs are built here and small."""

import gzip
import re
import struct
import time
import tracemalloc
import zlib
from collections.abc import Iterator

import pytest

from tests.announce.sitemap.outcome import Outcome, cut_body, read_body
from tidings.announce.sitemap.reader import RefusedSitemapError, SitemapReader

MEGABYTE = 1_048_576
# The requirement is 100 MB; what is meant to be bounded stays far below, and what is held by mistake does not.
BOUND = 5 * MEGABYTE

LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
DOCTYPES = {
    "billion laughs": f'<!DOCTYPE urlset [<!ENTITY l0 "lol">{LAUGHS}]>',
    "quadratic": f'<!DOCTYPE urlset [<!ENTITY l9 "{"a" * 50_000}">]>',
    "external DTD": '<!DOCTYPE urlset SYSTEM "http://127.0.0.1/evil.dtd">',
    "external entity": '<!DOCTYPE urlset [<!ENTITY l9 SYSTEM "file:///etc/passwd">]>',
    "parameter entity": '<!DOCTYPE urlset [<!ENTITY % x SYSTEM "http://127.0.0.1/x"> %x;]>',
    "harmless": "<!DOCTYPE urlset>",
}
EXPANSION = f"<urlset><url><loc>{'&l9;' * 9_000}</loc></url></urlset>"


@pytest.fixture
def growth() -> Iterator[None]:
    """Hold the test to the bound. What exists before the test (the bombs) does not count."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < BOUND
    finally:
        tracemalloc.stop()


def make_gzip_bomb(megabytes: int, *, of: bytes = b" ") -> bytes:
    """Build a gzip file of that size in no time: one flushed block, repeated."""
    packer = zlib.compressobj(9, wbits=-15)
    block = packer.compress(of * (MEGABYTE // len(of))) + packer.flush(zlib.Z_FULL_FLUSH)
    end = packer.flush()
    return gzip.compress(b"")[:10] + block * megabytes + end + struct.pack("<II", 0, megabytes * MEGABYTE % 2**32)


BOMB = make_gzip_bomb(1_024)
URL_BOMB = gzip.compress(b"<urlset>" + b"<url><loc>http://a/</loc></url>" * 400_000 + b"</urlset>")
DEEP = b"<urlset>" + b"<a>" * 100_000
LONG_LOC = b"<urlset><url><loc>http://a/%b</loc></url><url><loc>http://b/</loc></url></urlset>" % (b"x" * 10_000_000)
LONG_SPACE = b"<urlset><url><loc>%bhttp://b/</loc></url></urlset>" % (b" " * 10_000_000)
LONG_STAMP = b"<urlset><url><loc>http://b/</loc><lastmod>%b</lastmod></url></urlset>" % (b"2" * 10_000_000)
LONG_COMMENT = b"<urlset><url></url><!-- " + b"</url>" * 1_700_000
LONG_TAG = b"<urlset><url a='" + b"x" * 10_000_000
MANY_NAMES = b"<urlset>" + b"".join(b"<n%x/>" % number for number in range(1_000_000))
MANY_ATTRIBUTES = b"<urlset><url " + b"".join(b"n%x='' " % number for number in range(70_000)) + b"/>"
MANY_MEMBERS = gzip.compress(b"") * 500_000
LONG_LINE = b"http://a/\nhttp://" + b"x" * 10_000_000 + b"\nhttp://b/"


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "parser"])
@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("name", DOCTYPES)
@pytest.mark.usefixtures("growth")
def test_doctype_is_refused(name: str, codec: str, fast: bool) -> None:
    """A7: with all that it could declare, in UTF-16 too, before any entity is expanded."""
    body = ('<?xml version="1.0"?>\n' + DOCTYPES[name] + EXPANSION).encode(codec)
    assert read_body(body, fast=fast) == Outcome(refusal="DOCTYPE is not allowed")


@pytest.mark.parametrize("coding", [None, "gzip"])
@pytest.mark.usefixtures("growth")
def test_gzip_of_1_gb_stops_at_50_mib(coding: str | None) -> None:
    """A5, A7: 1 MB that stands for 1 GB, fed at once."""
    assert len(BOMB) < 1.1 * MEGABYTE
    assert read_body(BOMB, size=len(BOMB), content_encoding=coding).refusal == "larger than 52428800 bytes"


def test_bomb_is_a_gzip_file_of_that_size() -> None:
    """A7: the bomb above would go off in a reader without a limit."""
    header = 10
    assert zlib.decompressobj(-15).decompress(make_gzip_bomb(3)[header:]) == b" " * 3 * MEGABYTE


@pytest.mark.usefixtures("growth")
def test_gzip_in_gzip_is_refused() -> None:
    """A7: a bomb within a bomb is not opened."""
    assert read_body(gzip.compress(BOMB)).refusal == "gzip in gzip"


@pytest.mark.usefixtures("growth")
def test_gzip_of_very_many_members_is_refused() -> None:
    """A7: each member costs time and gives nothing."""
    assert read_body(MANY_MEMBERS).refusal == "gzip of more than 10000 members"


@pytest.mark.thorough
@pytest.mark.usefixtures("growth")
def test_stream_holds_little_of_a_small_gzip_with_very_many_urls() -> None:
    """A5: memory does not grow with the size of the sitemap; all of these pairs at once would be 40 MB."""
    assert len(URL_BOMB) < 65_536
    reader = SitemapReader()
    assert sum(len(pairs) for pairs in reader.stream(URL_BOMB)) + len(reader.close()) == 400_000


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "parser"])
@pytest.mark.usefixtures("growth")
def test_100000_levels_are_refused(fast: bool) -> None:
    """A7: at 64, long before the parser's own stack matters."""
    assert read_body(DEEP, fast=fast).refusal == "nested deeper than 64"


def test_64_levels_are_read() -> None:
    """A7: the bound is where it is said to be."""
    deep = b"<urlset>" + b"<a>" * 63 + b"</a>" * 63 + b"<url><loc>http://a/</loc></url></urlset>"
    assert read_body(deep).locs == ["http://a/"]
    assert read_body(deep.replace(b"<a>", b"<a><a>", 1)).refusal == "nested deeper than 64"


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "parser"])
@pytest.mark.usefixtures("growth")
def test_loc_of_10_mb_is_dropped_without_being_held(fast: bool) -> None:
    """A7: it is counted, and what follows is read."""
    assert (outcome := read_body(LONG_LOC, fast=fast)).locs == ["http://b/"]
    assert outcome.too_long == 1


@pytest.mark.parametrize("body", [LONG_SPACE, LONG_STAMP], ids=["white space", "lastmod"])
@pytest.mark.usefixtures("growth")
def test_other_text_of_10_mb_is_not_held_either(body: bytes) -> None:
    """A7: white space around a URL, a timestamp without end."""
    assert read_body(body) == read_body(b"<urlset><url><loc>http://b/</loc></url></urlset>")


@pytest.mark.usefixtures("growth")
def test_line_of_10_mb_is_not_held() -> None:
    """A7: the same for a text sitemap."""
    assert (outcome := read_body(LONG_LINE)).locs == ["http://a/", "http://b/"]
    assert outcome.too_long == 1


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "parser"])
@pytest.mark.parametrize("body", [LONG_COMMENT, LONG_TAG], ids=["comment", "tag"])
@pytest.mark.usefixtures("growth")
def test_endless_tag_or_comment_is_refused(body: bytes, fast: bool) -> None:
    """A7: the parser would hold it as a whole and scan it again with every chunk."""
    assert read_body(body, fast=fast).refusal == "a tag or comment of more than 1048576 bytes"


@pytest.mark.parametrize("body", [MANY_NAMES, MANY_ATTRIBUTES], ids=["elements", "attributes"])
def test_very_many_names_are_refused(body: bytes) -> None:
    """A7: the parser keeps every name that it ever saw."""
    tracemalloc.start()
    try:
        assert re.match("more than 10000 different names", read_body(body).refusal or "")
        # One chunk's worth of names is kept before they are counted.
        assert tracemalloc.get_traced_memory()[1] < 4 * BOUND
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "body",
    [
        b"<urlset><url></url><!-- " + b"</url>" * 150_000 + b"--></urlset>",
        b"<urlset>" + b"<url></url>" * 100_000 + b"</urlset>",
        b"<urlset><url></url><url><loc>" + b"&amp;" * 200_000 + b"</loc></url></urlset>",
        b"<urlset><url></url>" + b"<url><loc>http://a/" * 30,
    ],
    ids=["comment of end tags", "empty blocks", "entities", "blocks without end"],
)
@pytest.mark.parametrize("size", [65_536, 100])
def test_unusual_input_takes_no_longer_than_in_the_parser_alone(body: bytes, size: int) -> None:
    """A5: no input makes the fast path quadratic (the factor is for a busy machine, quadratic would be thousands)."""
    started = time.process_time()
    expected = read_body(body, fast=False)
    alone = time.process_time() - started
    assert read_body(body, size=size) == expected
    assert time.process_time() - started - alone < 20 * alone + 0.5


def test_single_bytes_do_not_make_the_parser_scan_again_and_again() -> None:
    """A5: a comment of 1 MB in chunks of 16 bytes is gathered first; without that it is 65,000 scans of it."""
    body = b"<urlset><!-- " + b"x" * 1_000_000 + b" --><url><loc>http://a/</loc></url></urlset>"
    started = time.process_time()
    assert read_body(body, size=16).locs == ["http://a/"]
    assert time.process_time() - started < 3


def test_refusal_reaches_the_caller_whenever_it_is_known() -> None:
    """A7: from feed as well as from close."""
    with pytest.raises(RefusedSitemapError):
        SitemapReader(block=1).feed(b"<!DOCTYPE a>" + b" " * 2_000)
    reader = SitemapReader()
    assert [reader.feed(chunk) for chunk in cut_body(b"<!DOCTYPE a>", size=3)] == [[]] * 4
    with pytest.raises(RefusedSitemapError):
        reader.close()
