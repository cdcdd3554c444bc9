"""Reads from a page whether it may be indexed: `noindex` and the canonical URL. Pure.

`read_page` gets foreign HTML: only a child process calls it.
"""

import re
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Final
from urllib.parse import unquote, urljoin, urlsplit

from tidings.core.charsets import find_charset

_CHARSET: Final = re.compile(r"charset=[\"']?([\w.:-]+)", re.IGNORECASE)
_LINK: Final = re.compile(r"<([^<>]{1,2048})>((?:\s*;[^,<>]{1,200})*)")
_NOINDEX: Final = frozenset({"noindex", "none"})
# These have a value after a colon; any other word before a colon names a crawler.
_WITH_VALUE: Final = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_LONGEST_URL: Final = 2_048


def is_noindex_header(values: Iterable[str]) -> bool:
    """Whether X-Robots-Tag excludes a page from every index. Rules for a single crawler do not count."""
    for value in values:
        agent = ""
        for part in value.split(","):
            name, colon, rest = part.partition(":")
            if colon and name.strip().lower() not in _WITH_VALUE:
                agent, part = name.strip(), rest
            if agent in ("", "*") and part.strip().lower() in _NOINDEX:
                return True
    return False


def find_canonical_link(values: Iterable[str]) -> str | None:
    """The canonical URL of the header Link."""
    for value in values:
        for target, parameters in _LINK.findall(value):
            if re.search(r"rel\s*=\s*\"?[^\";]*\bcanonical\b", parameters, re.IGNORECASE):
                return str(target).strip()
    return None


def is_same_page(canonical: str, *, url: str) -> bool:
    """Whether a canonical URL, perhaps a relative one, is the page's own. Spellings of one URL are the same."""
    return _normalise(urljoin(url, canonical)) == _normalise(url)


def _normalise(url: str) -> tuple[str, ...]:
    split = urlsplit(url)
    port = {"http": ":80", "https": ":443"}.get(split.scheme, "")
    return (split.scheme, split.netloc.lower().removesuffix(port), unquote(split.path) or "/", unquote(split.query))


def read_page(body: bytes, *, content_type: str) -> dict[str, object]:
    """`noindex` and `canonical` of the head of an HTML page."""
    named = _CHARSET.search(content_type)
    charset = (find_charset(named[1]) if named else None) or "utf-8"
    reader = _HeadReader()
    reader.feed(body.decode(charset, "replace"))
    return {"noindex": reader.noindex, "canonical": reader.canonical}


class _HeadReader(HTMLParser):
    """Reads `meta` and `link` elements up to the body."""

    def __init__(self) -> None:
        super().__init__()
        self.noindex = False
        self.canonical: str | None = None
        self._base: str | None = None
        self._ended = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._ended = self._ended or tag == "body"
        if self._ended or tag not in ("meta", "link", "base"):
            return
        given = {name: (value or "").strip() for name, value in reversed(attrs)}
        if tag == "meta" and given.get("name", "").lower() == "robots":
            words = re.split(r"[,\s]+", given.get("content", "").lower())
            self.noindex = self.noindex or not _NOINDEX.isdisjoint(words)
        elif tag == "base" and self._base is None:
            self._base = given.get("href") or None
        elif tag == "link" and "canonical" in given.get("rel", "").lower().split() and self.canonical is None:
            href = given.get("href", "")[:_LONGEST_URL]
            self.canonical = (urljoin(self._base, href) if self._base else href) or None
