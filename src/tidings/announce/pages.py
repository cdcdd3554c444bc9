"""Pages: what a sitemap's entries become once they are known to be this site's own.

Millions pass through here, so they are handled in columns: the URLs, their 64-bit hashes, and the latest moment that
each lastmod can mean. Which of them are due is decided in `due`.
"""

import re
import sys
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from tidings.announce.sitemap.lastmod import parse_lastmod
from tidings.announce.sites import Site, find_netloc
from tidings.core.addresses import UrlError, parse_url

NO_LASTMOD = -1
NOW_WITHIN_MS = 10 * 60 * 1000

_DAY_MS = 24 * 60 * 60 * 1000


class Page(NamedTuple):
    """One page: the hash of its URL, the URL, and the latest moment that its lastmod can mean (milliseconds)."""

    url_hash: int
    url: str
    lastmod: int | None = None


@dataclass(slots=True)
class Pages:
    """Pages in columns, which take a third of the memory of as many objects. `removed`: they have left the sitemap."""

    urls: list[bytes] = field(default_factory=list)
    hashes: "array[int]" = field(default_factory=lambda: array("q"))
    lastmods: "array[int]" = field(default_factory=lambda: array("q"))
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
            array("q", [self.hashes[at] for at in positions]),
            array("q", [self.lastmods[at] for at in positions]),
            self.removed,
        )

    def cut(self, start: int, stop: int) -> "Pages":
        """Those from `start` up to `stop`."""
        return Pages(self.urls[start:stop], self.hashes[start:stop], self.lastmods[start:stop], self.removed)

    def without(self, hashes: Collection[int]) -> "Pages":
        """Those whose hashes are not among `hashes`."""
        if not hashes:
            return self
        return self.pick([at for at, url_hash in enumerate(self.hashes) if url_hash not in hashes])


@dataclass(slots=True)
class Dropped:
    """Entries that are not announced, by reason."""

    invalid: int = 0
    foreign_host: int = 0
    outside_key_location: int = 0

    @property
    def total(self) -> int:
        return self.invalid + self.foreign_host + self.outside_key_location

    def add(self, other: "Dropped") -> None:
        self.invalid += other.invalid
        self.foreign_host += other.foreign_host
        self.outside_key_location += other.outside_key_location


class PageFilter:
    """Turns a sitemap's entries into this site's pages, and counts what it drops."""

    def __init__(self, site: Site) -> None:
        self.dropped = Dropped()
        self._host = site.host
        self._folder = site.key_folder
        # Most URLs are plain: this host, the key's folder, nothing to encode. One look is enough for them.
        root = re.escape(f"{site.host}{site.key_folder}".encode())
        self._is_plain = re.compile(rb"https?://" + root + rb"[A-Za-z0-9/._~!$&'()*+,;=:@%?-]*").fullmatch

    def forget_dropped(self) -> None:
        """Begin to count anew."""
        self.dropped = Dropped()

    def read_pages(self, pairs: Sequence[tuple[bytes, bytes]], *, fetched_at: int) -> tuple[Pages, int]:
        """What is this site's own, and how many of these carry the time of the fetch as lastmod."""
        is_plain = self._is_plain
        urls = [loc for loc, _ in pairs if is_plain(loc)]
        if len(urls) < len(pairs):
            kept = [(url, stamp) for loc, stamp in pairs if (url := self._read_url(loc)) is not None]
            urls = [url for url, _ in kept]
            moments = [parse_lastmod(stamp) for _, stamp in kept]
        else:
            moments = [parse_lastmod(stamp) for _, stamp in pairs]
        lastmods = array("q", [NO_LASTMOD if moment is None else moment[1] for moment in moments])
        return Pages(urls, hash_urls(urls), lastmods), _count_stamped_now(moments, lastmods, fetched_at)

    def _read_url(self, loc: bytes) -> bytes | None:
        """The URL as it is announced, or None where it is dropped."""
        if self._is_plain(loc):
            return loc
        try:
            url = parse_url(loc.decode())
        except (UrlError, UnicodeDecodeError):
            self.dropped.invalid += 1
            return None
        if find_netloc(url) != self._host:
            self.dropped.foreign_host += 1
            return None
        if not url.path.startswith(self._folder):
            self.dropped.outside_key_location += 1
            return None
        return url.text.encode()


def _count_stamped_now(moments: Sequence[tuple[int, int] | None], lastmods: "array[int]", fetched_at: int) -> int:
    if not lastmods or max(lastmods) < fetched_at - NOW_WITHIN_MS:
        return 0
    return sum(
        1
        for moment in moments
        if moment is not None
        and moment[1] - moment[0] < _DAY_MS
        and moment[0] - NOW_WITHIN_MS <= fetched_at <= moment[1] + NOW_WITHIN_MS
    )


def hash_urls(urls: Iterable[bytes]) -> "array[int]":
    """64 bits for each URL, the same on every machine: with a million URLs, 3 in 100 million for any clash."""
    hashes = array("q", b"".join([blake2b(url, digest_size=8).digest() for url in urls]))
    if sys.byteorder == "big":
        hashes.byteswap()
    return hashes


class DistinctCount:
    """Counts how many different hashes it was given, exactly, in memory that does not grow with their number.

    They are set aside in a temporary file, sorted into buckets by their top bits, and each bucket is counted alone.
    """

    _BUCKETS = 64
    _KEEP = 1 << 16

    def __init__(self) -> None:
        self._kept = array("q")
        self._file: IO[bytes] | None = None
        self._places: list[list[tuple[int, int]]] = [[] for _ in range(self._BUCKETS)]

    def add(self, hashes: "array[int]") -> None:
        self._kept += hashes
        if len(self._kept) >= self._KEEP:
            self._set_aside()

    def count(self) -> int:
        if self._file is None:
            return len(set(self._kept))
        self._set_aside()
        return sum(len(set(bucket)) for bucket in self._read_buckets())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _set_aside(self) -> None:
        if self._file is None:
            self._file = TemporaryFile()  # noqa: SIM115 - closed by `close`
        ordered = sorted(self._kept)
        self._kept = array("q")
        start = 0
        for number, places in enumerate(self._places):
            stop = _find_end(ordered, number, self._BUCKETS)
            places.append((self._file.tell(), stop - start))
            array("q", ordered[start:stop]).tofile(self._file)
            start = stop

    def _read_buckets(self) -> Iterator["array[int]"]:
        assert self._file is not None  # noqa: S101 - only called once there is one
        for places in self._places:
            bucket = array("q")
            for offset, length in places:
                self._file.seek(offset)
                bucket.fromfile(self._file, length)
            yield bucket
        self._file.seek(0, 2)


def _find_end(ordered: list[int], bucket: int, buckets: int) -> int:
    width = (1 << 64) // buckets
    return bisect_left(ordered, (bucket + 1) * width - (1 << 63))
