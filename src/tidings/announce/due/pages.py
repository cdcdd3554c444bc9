"""Pages: the entries of a sitemap that are this site's own.

Millions pass through here, so they are columns, and nothing is computed for a page before it is needed. A `Listing` has
URLs, their 64-bit hashes and raw lastmods. `rules` decides which of them are due; only those become `Pages`, with
their lastmods parsed.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple
from urllib.parse import quote

from xxhash import xxh3_64_intdigest

from tidings.announce.site.site import Site, find_netloc
from tidings.announce.sitemap.lastmod import parse_lastmod
from tidings.core.net.addresses import MAX_URL_LENGTH, UrlError, parse_url

NO_LASTMOD = -1
# Hashes count as near to each other if they share this many of their first bits.
_NEAR_BITS = 6

# Characters that need no check and no encoding in a request.
_PLAIN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._~!$&'()*+,;=:@%?-"

# WHATWG's sets of characters that are percent-encoded. A quote in the query stays, because the ledger knows such URLs
# as they are.
_UNFIT_IN_PATH = re.compile(r"[^\x00-\x1f\x7f\x21\x24-\x3b\x3d\x40-\x5d\x5f\x61-\x7a|~]")
_UNFIT_IN_QUERY = re.compile(r"[^\x00-\x1f\x7f\x21\x24-\x3b\x3d\x3f-\x5b\x5d-\x7e]")
_PARTS = re.compile(
    r"(?P<origin>[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\]*)(?P<path>(?:/[^?#]*)?)(?P<query>(?:\?[^#]*)?)(?:#[^\x00-\x1f]*)?",
)

_CLIMB = re.compile(rb"/(?:\.|%2e){2}(?![^/?#\n])", re.IGNORECASE)


class Page(NamedTuple):
    """One page."""

    url_hash: int
    url: str
    # The latest time that its lastmod can mean, in milliseconds since the epoch.
    lastmod: int | None = None


@dataclass(slots=True)
class Listing:
    """This site's own entries of a sitemap, in columns and in order."""

    urls: list[bytes] = field(default_factory=list)
    hashes: "array[int]" = field(default_factory=lambda: array("q"))
    # As they stand in the file.
    lastmods: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.urls)

    def extend(self, other: "Listing") -> None:
        self.urls += other.urls
        self.hashes += other.hashes
        self.lastmods += other.lastmods

    def pick(self, positions: Sequence[int]) -> "Pages":
        """The pages at these positions, which are in order and different, with their lastmods read."""
        urls, hashes, lastmods = self.urls, self.hashes, self.lastmods
        if len(positions) < len(self):
            urls = [urls[at] for at in positions]
            hashes = array("q", [hashes[at] for at in positions])
            lastmods = [lastmods[at] for at in positions]
        spans = map(parse_lastmod, lastmods)
        return Pages(urls, hashes, array("q", [NO_LASTMOD if span is None else span[1] for span in spans]))


@dataclass(slots=True)
class Pages:
    """Pages to be announced, in columns: a third of the memory of as many objects."""

    urls: list[bytes] = field(default_factory=list)
    hashes: "array[int]" = field(default_factory=lambda: array("q"))
    # Milliseconds since the epoch, or NO_LASTMOD.
    lastmods: "array[int]" = field(default_factory=lambda: array("q"))
    # Whether they left the sitemap.
    removed: bool = False

    @classmethod
    def gather(cls, pages: Iterable[Page], *, removed: bool = False) -> "Pages":
        rows = list(pages)
        return cls(
            [row.url.encode() for row in rows],
            array("q", [row.url_hash for row in rows]),
            array("q", [NO_LASTMOD if row.lastmod is None else row.lastmod for row in rows]),
            removed,
        )

    def __len__(self) -> int:
        return len(self.urls)

    def __iter__(self) -> Iterator[Page]:
        for url, url_hash, lastmod in zip(self.urls, self.hashes, self.lastmods, strict=True):
            yield Page(url_hash, url.decode(), None if lastmod == NO_LASTMOD else lastmod)

    def extend(self, other: "Pages") -> None:
        self.urls += other.urls
        self.hashes += other.hashes
        self.lastmods += other.lastmods

    def pick(self, positions: Sequence[int]) -> "Pages":
        """Those at these positions."""
        return Pages(
            [self.urls[at] for at in positions],
            array("q", map(self.hashes.__getitem__, positions)),
            array("q", map(self.lastmods.__getitem__, positions)),
            self.removed,
        )

    def gather_near(self) -> "Pages":
        """The same pages, in the order of the first bits of their hashes. To sort them would take megabytes."""
        groups = [array("q") for _ in range(1 << _NEAR_BITS)]
        for at, url_hash in enumerate(self.hashes):
            # A negative number has a negative index, which counts from the end.
            groups[url_hash >> (64 - _NEAR_BITS)].append(at)
        return self.pick(array("q", chain.from_iterable(groups)))

    def cut(self, start: int, stop: int) -> "Pages":
        """Those from `start` up to `stop`."""
        return Pages(self.urls[start:stop], self.hashes[start:stop], self.lastmods[start:stop], self.removed)


@dataclass(slots=True)
class PageKeys:
    """Pages without their URLs, in columns: all that the ledger needs."""

    hashes: "array[int]" = field(default_factory=lambda: array("q"))
    # Milliseconds since the epoch, or NO_LASTMOD.
    lastmods: "array[int]" = field(default_factory=lambda: array("q"))
    # Whether they left the sitemap.
    removed: bool = False

    def __len__(self) -> int:
        return len(self.hashes)

    def extend(self, other: "PageKeys") -> None:
        self.hashes += other.hashes
        self.lastmods += other.lastmods

    def pick(self, positions: Sequence[int]) -> "PageKeys":
        """Those at these positions."""
        return PageKeys(
            array("q", [self.hashes[at] for at in positions]),
            array("q", [self.lastmods[at] for at in positions]),
            self.removed,
        )

    def cut(self, start: int, stop: int) -> "PageKeys":
        """Those from `start` up to `stop`."""
        return PageKeys(self.hashes[start:stop], self.lastmods[start:stop], self.removed)


@dataclass(slots=True)
class Dropped:
    """Entries that are not announced, by reason."""

    # No URL, or a longer one than a request may carry.
    invalid: int = 0
    # Of another host than the site's.
    foreign_host: int = 0
    # Outside the folder that the key file is valid for.
    outside_key_location: int = 0

    @property
    def total(self) -> int:
        return self.invalid + self.foreign_host + self.outside_key_location

    @property
    def by_settings(self) -> int:
        """Those that other settings of the site would let in."""
        return self.foreign_host + self.outside_key_location

    def __add__(self, other: "Dropped") -> "Dropped":
        return Dropped(
            self.invalid + other.invalid,
            self.foreign_host + other.foreign_host,
            self.outside_key_location + other.outside_key_location,
        )


class PageFilter:
    """Turns a sitemap's entries into a listing of this site's own, and counts what it drops."""

    def __init__(self, site: Site) -> None:
        self.dropped = Dropped()
        self._host = site.host
        self._folder = site.key_folder
        roots = [f"{scheme}://{site.host}{site.key_folder}".encode() for scheme in ("http", "https")]
        self._roots = tuple(roots)
        self._is_plain = re.compile(b"(?:%b)[%b]*" % (b"|".join(map(re.escape, roots)), re.escape(_PLAIN))).fullmatch

    def forget_dropped(self) -> None:
        """Start counting from zero."""
        self.dropped = Dropped()

    def read(self, pairs: Sequence[tuple[bytes, bytes]]) -> Listing:
        """What is this site's own, among pairs of URL and lastmod."""
        urls = [loc for loc, _ in pairs]
        if self._are_plain(urls):
            return Listing(urls, hash_urls(urls), [lastmod for _, lastmod in pairs])
        kept = [(url, lastmod) for loc, lastmod in pairs if (url := self._read_url(loc)) is not None]
        urls = [url for url, _ in kept]
        return Listing(urls, hash_urls(urls), [lastmod for _, lastmod in kept])

    def _are_plain(self, urls: list[bytes]) -> bool:
        """Whether all are of this host, in the key's folder, with nothing to encode: one look for thousands of them."""
        joined = b"\n".join([b"", *urls])
        return (
            joined.translate(None, _PLAIN) == b"\n" * len(urls)
            and sum(joined.count(b"\n" + root) for root in self._roots) == len(urls)
            and not self._may_climb(joined)
        )

    def _may_climb(self, text: bytes) -> bool:
        """Whether a `..` could lead out of the key's folder; out of the whole host none can."""
        return self._folder != "/" and _CLIMB.search(text) is not None

    def _read_url(self, loc: bytes) -> bytes | None:
        """The URL as it is announced, or None where it is dropped."""
        if self._is_plain(loc) and not self._may_climb(loc):
            return loc
        try:
            url = parse_url(encode_unfit(loc.decode()))
        except (UrlError, UnicodeDecodeError):
            self.dropped.invalid += 1
            return None
        if find_netloc(url) != self._host:
            self.dropped.foreign_host += 1
            return None
        if not url.path.startswith(self._folder) or self._may_climb(url.path.encode()):
            self.dropped.outside_key_location += 1
            return None
        if len(url.text) > MAX_URL_LENGTH:
            self.dropped.invalid += 1
            return None
        return url.text.encode()


def encode_unfit(text: str) -> str:
    """The URL as a browser sends it (WHATWG): what path and query must not contain is percent-encoded.

    A backslash in the path is a slash. Control characters stay, and so does the host as it is: a strange character
    there is a mistake, or an attack, and the URL is refused for it.
    """
    found = _PARTS.fullmatch(text)
    if found is None:
        return text
    path = _UNFIT_IN_PATH.sub(_encode_match, found["path"].replace("\\", "/"))
    query = _UNFIT_IN_QUERY.sub(_encode_match, found["query"])
    return f"{found['origin']}{path}{query}"


def _encode_match(match: re.Match[str]) -> str:
    return quote(match[0])


def hash_urls(urls: Iterable[bytes]) -> "array[int]":
    """64 bits for each URL, the same on every machine: with a million URLs, 3 in 100 million for any clash."""
    # The tables' integers have a sign, the hash has none: the same 64 bits are read in the other way.
    return array("q", array("Q", [xxh3_64_intdigest(url) for url in urls]).tobytes())
