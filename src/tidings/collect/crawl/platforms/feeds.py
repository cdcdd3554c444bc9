"""RSS and Atom feeds: what entries one holds, and where the feed of a page is. Pure; `web` fetches."""

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
    """One entry; `words` is all of it that a keyword is looked for in."""

    url: str
    title: str
    words: str


def read_feed(body: bytes, *, url: Url, content_type: str) -> tuple[FeedEntry, ...] | None:
    """The entries in the feed's order, each address once; None for what is no feed."""
    # Without the zeros, UTF-16 looks like ASCII as well.
    if not _FEED_ROOT.search(body[:_PROLOGUE].replace(b"\0", b"")):
        return None
    import feedparser  # type: ignore[import-untyped]

    headers = {"content-type": content_type, "content-location": url.text}
    # As a stream: given text, it would take an address for something to fetch, and a path for something to open.
    # Its own cleaning of HTML is slow on what was made for it, and is done here anyway.
    parsed = feedparser.parse(BytesIO(body), response_headers=headers, sanitize_html=False, resolve_relative_uris=False)
    if not parsed.get("version"):
        return None
    read = (_read_entry(entry, base=url) for entry in parsed.entries)
    return tuple({entry.url: entry for entry in read if entry is not None}.values())


def find_feed(body: bytes, *, url: Url) -> Url | None:
    """The first feed that an HTML page points to."""
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
