"""Whatever a sitemap is written in, its URLs come out in UTF-8."""

import codecs

import pytest

from tests.announce.sitemap.outcome import Outcome, read_body
from tidings.announce.sitemap.reader import SitemapKind

URL = "https://example.com/"


def write_sitemap(word: str, declared: str, *, before: str = "") -> str:
    entries = f"<url><loc>{URL}a</loc></url><url><loc>{URL}{word}</loc><lastmod>2026</lastmod></url>" * 40
    return f'{before}<?xml version="1.0" encoding="{declared}"?>\n<urlset>{entries}</urlset>'


def check_outcome(outcome: Outcome, word: str) -> None:
    assert (outcome.refusal, outcome.fault, outcome.kind) == (None, None, SitemapKind.URLSET)
    assert outcome.pairs == [(f"{URL}a".encode(), b""), (f"{URL}{word}".encode(), b"2026")] * 40


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "parser"])
@pytest.mark.parametrize("size", [1, 65_536])
@pytest.mark.parametrize(
    ("declared", "codec", "word"),
    [
        ("UTF-8", "utf-8", "é中文😀"),
        ("utf-8", "utf-8-sig", "é中文😀"),
        ("US-ASCII", "ascii", "plain"),
        ("ISO-8859-1", "latin-1", "café"),
        ("ISO-8859-15", "iso8859-15", "prix-€"),
        ("windows-1251", "cp1251", "привет"),
        ("windows-1252", "cp1252", "prix-€"),
        ("koi8-r", "koi8-r", "привет"),
        ("GBK", "gbk", "中文"),
        ("gb2312", "gbk", "镕"),
        ("GB18030", "gb18030", "中文😀"),
        ("Big5", "big5", "中文"),
        ("Shift_JIS", "cp932", "日本語①"),
        ("EUC-JP", "euc_jp", "日本語"),
        ("euc-kr", "euc_kr", "한국어"),
        ("UTF-16", "utf-16", "é中文😀"),
        ("UTF-16", "utf-16-le", "é中文😀"),
        ("UTF-16BE", "utf-16-be", "é中文😀"),
        ("UTF-16", "utf-8", "é"),
    ],
)
def test_declared_encoding_is_read(declared: str, codec: str, word: str, size: int, fast: bool) -> None:
    """A5: also UTF-16 without a mark, the wide set under the narrow name, and UTF-8 that calls itself UTF-16."""
    body = write_sitemap(word, declared).encode(codec)
    check_outcome(read_body(body, size=size, block=size, fast=fast), word)


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "gbk"])
@pytest.mark.parametrize("before", ["\n", " \r\n\t" * 2_000], ids=["line", "pages"])
def test_white_space_before_the_declaration_is_stripped(codec: str, before: str) -> None:
    """A5: fatal to every parser, and common."""
    declared = codec.removesuffix("-sig")
    check_outcome(read_body(write_sitemap("中", declared, before=before).encode(codec), size=100, block=100), "中")


def test_mark_after_white_space_is_stripped() -> None:
    """A5: what is left when a template engine puts files together."""
    check_outcome(read_body(b"\n" + codecs.BOM_UTF8 + write_sitemap("é", "utf-8").encode()), "é")


def test_text_in_utf16_is_read() -> None:
    """A5: the byte order mark tells, since a text declares nothing."""
    outcome = read_body(f"{URL}é\r\n{URL}b".encode("utf-16"), size=1, block=1)
    assert (outcome.kind, outcome.locs) == (SitemapKind.TEXT, [f"{URL}é", f"{URL}b"])


@pytest.mark.parametrize("name", ["klingon", "zlib", "bz2", "rot13", "unicode_escape", "utf-7", "idna", "utf-32"])
def test_unknown_encoding_is_refused_by_name(name: str) -> None:
    """A7: Python's own codecs that are no character sets, or that inflate, count as unknown."""
    assert read_body(write_sitemap("a", name).encode()).refusal == f"encoding {name!r} is not known"


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "parser"])
@pytest.mark.parametrize("codec", ["gb18030", "utf-16-be", "cp1252", "utf-8"])
def test_bytes_that_the_encoding_does_not_have_are_a_fault_after_what_was_read(codec: str, fast: bool) -> None:
    """A7: the URLs are not guessed at; those before the bad bytes are used."""
    good = write_sitemap("a", codec).removesuffix("</urlset>").encode(codec)
    bad = {"gb18030": b"\xff", "utf-16-be": b"\xd8\0\0<", "cp1252": b"\x81", "utf-8": b"\xff"}[codec]
    rest = f"<url><loc>{URL}late</loc></url></urlset>".encode(codec)
    outcome = read_body(good + bad + rest, fast=fast)
    assert len(outcome.pairs) == 80
    assert outcome.fault is not None


def test_utf16_that_ends_within_a_character_is_a_fault() -> None:
    """A7: cut short, so what was read is used."""
    outcome = read_body((write_sitemap("a", "utf-16") + "\n").encode("utf-16")[:-1])
    assert (len(outcome.pairs), outcome.fault) == (80, "not valid utf-16-le: truncated data")


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "parser"])
def test_fault_that_comes_first_is_the_one_that_is_named(fast: bool) -> None:
    """A7: malformed XML before the byte that cannot be decoded."""
    body = write_sitemap("a", "gbk").encode().replace(b"</urlset>", b"</wrong>\xff")
    assert "mismatched tag" in (read_body(body, fast=fast).fault or "")
