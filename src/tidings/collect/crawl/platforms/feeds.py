"""Reads RSS and Atom feeds, and finds the feed of a page. Pure; `web` fetches."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from tidings.collect.notes import clean_html, clean_text
from tidings.core.net.addresses import Url, UrlError, join_url

_FEED_TYPES: Final = frozenset({"application/rss+xml", "application/atom+xml"})
_FEED_ROOT: Final = re.compile(rb"<(?:\w+:)?(?:rss|feed|rdf)\b", re.IGNORECASE)
_PROLOGUE: Final = 64 * 1024
_LONGEST_TITLE: Final = 300


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One entry of a feed."""

    url: str
    title: str
    # Title, summary and tags in lower case, for the search.
    words: str


def read_feed(body: bytes, *, url: Url, content_type: str) -> tuple[FeedEntry, ...] | None:
    """The entries in the feed's order, each URL once; None if the body is not a feed."""
    # Without its zero bytes, UTF-16 looks like ASCII.
    if not _FEED_ROOT.search(body[:_PROLOGUE].replace(b"\0", b"")):
        return None
    import feedparser  # type: ignore[import-untyped]

    headers = {"content-type": content_type, "content-location": url.text}
    # A stream, because feedparser fetches a text that is a URL and opens one that is a path. Its HTML sanitizer is off:
    # hostile input makes it slow, and `clean_html` cleans the text anyway.
    parsed = feedparser.parse(BytesIO(body), response_headers=headers, sanitize_html=False, resolve_relative_uris=False)
    if not parsed.get("version"):
        return None
    read = (_read_entry(entry, base=url) for entry in parsed.entries)
    return tuple({entry.url: entry for entry in read if entry is not None}.values())


def find_feed(body: bytes, *, url: Url) -> Url | None:
    """The first feed that an HTML page links to."""
    from lxml import etree, html  # type: ignore[import-untyped]

    try:
        document = html.document_fromstring(body)
    except (etree.LxmlError, ValueError):
        return None
    for link in document.iter("link"):
        if "alternate" in link.get("rel", "").lower().split() and link.get("type", "").lower() in _FEED_TYPES:
            try:
                return join_url(url, link.get("href", ""))
            except UrlError:
                continue
    return None


def _read_entry(entry: Mapping[str, Any], *, base: Url) -> FeedEntry | None:
    link = entry.get("link")
    if not isinstance(link, str) or not link:
        return None
    try:
        url = join_url(base, link)
    except UrlError:
        return None
    title = clean_html(entry.get("title"))[:_LONGEST_TITLE]
    tags = (clean_text(tag.get("term")) for tag in entry.get("tags", ()))
    words = " ".join((title, clean_html(entry.get("summary")), *tags)).casefold()
    return FeedEntry(url.text, title, words)
