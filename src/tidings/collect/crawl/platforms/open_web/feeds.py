"""Reads RSS and Atom feeds, and finds the feed of a page. Pure; `web` fetches.

`web` calls it in a child process. The parsers are imported by the functions, because the service needs `FeedEntry`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final
from urllib.parse import quote

from tidings.collect.notes import clean_html, clean_text
from tidings.core.charsets import decode_text
from tidings.core.net.addresses import Url, UrlError, join_url, parse_url

# The charset of a Content-Type header.
CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)

_DECLARED: Final = re.compile(rb"\A\s*<\?xml[^>]*?\sencoding\s*=\s*[\"']([A-Za-z0-9._:-]{1,40})[\"']")
_FEED_TYPES: Final = frozenset({"application/rss+xml", "application/atom+xml"})
_FEED_ROOT: Final = re.compile(rb"<(?:\w+:)?(?:rss|feed|rdf)\b", re.IGNORECASE)
# Characters that no URL may hold, but that feeds write into links.
_UNSAFE: Final = re.compile(r"[\s<>\"{}|\\^`]")
_PROLOGUE: Final = 64 * 1024
_LONGEST_TITLE: Final = 300


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One entry of a feed."""

    url: str
    title: str
    # Title, summary and tags in lower case, for the search.
    words: str


def list_entries(body: bytes, *, url: str, content_type: str) -> list[tuple[str, str, str]] | None:
    """The fields of `FeedEntry`, in the feed's order, each URL once; None if the body is not a feed."""
    # Without its zero bytes, UTF-16 looks like ASCII.
    if not _FEED_ROOT.search(body[:_PROLOGUE].replace(b"\0", b"")):
        return None
    import feedparser  # type: ignore[import-untyped]

    headers = {"content-type": "application/xml; charset=utf-8", "content-location": url}
    # A stream, because feedparser fetches a text that is a URL and opens one that is a path. Its HTML sanitizer is off:
    # hostile input makes it slow, and `clean_html` cleans the text anyway.
    text = BytesIO(_decode(body, content_type).encode())
    parsed = feedparser.parse(text, response_headers=headers, sanitize_html=False, resolve_relative_uris=False)
    if not parsed.get("version"):
        return None
    base = parse_url(url)
    read = (_read_entry(entry, base=base) for entry in parsed.entries)
    return list({entry[0]: entry for entry in read if entry is not None}.values())


def find_feed(body: bytes, *, url: str) -> str | None:
    """The URL of the first feed that an HTML page links to."""
    from lxml import etree, html  # type: ignore[import-untyped]

    try:
        document = html.document_fromstring(body)
    except (etree.LxmlError, ValueError):
        return None
    base = parse_url(url)
    for link in document.iter("link"):
        if "alternate" in link.get("rel", "").lower().split() and link.get("type", "").lower() in _FEED_TYPES:
            try:
                return join_url(base, link.get("href", "")).text
            except UrlError:
                continue
    return None


def _decode(body: bytes, content_type: str) -> str:
    """Decode by the header, then by the XML declaration, which feedparser replaces."""
    labels = CHARSET.findall(content_type)[:1] + [each.decode() for each in _DECLARED.findall(body[:_PROLOGUE])[:1]]
    return decode_text(body, *labels)


def _read_entry(entry: Mapping[str, Any], *, base: Url) -> tuple[str, str, str] | None:
    link = entry.get("link")
    if not isinstance(link, str) or not link:
        return None
    try:
        url = join_url(base, _UNSAFE.sub(lambda found: quote(found[0]), link.strip()))
    except UrlError:
        return None
    title = clean_html(entry.get("title"))[:_LONGEST_TITLE]
    tags = (clean_text(tag.get("term")) for tag in entry.get("tags", ()))
    words = " ".join((title, clean_html(entry.get("summary")), *tags)).casefold()
    return url.text, title, words
