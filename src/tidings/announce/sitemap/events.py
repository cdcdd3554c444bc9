"""The values of a crawl: files and their validators, events, and the result. Pure, except that trouble is logged.

The pages of a file may be used after its `FileRead`. Until then the file may be refused, or start again after a lost
connection (`FileDropped`), and its pages so far do not count.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

from tidings.core.logs.logger import get_logger
from tidings.core.net.addresses import show_url

_log = get_logger(__name__)

_LONGEST_VALIDATOR = 1_000


_FINGERPRINTS = 1 << 62


Pairs = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Validators:
    """The validators of a response, for a conditional request."""

    # The header ETag, as it was sent.
    etag: str | None = None
    # The header Last-Modified, as it was sent.
    last_modified: str | None = None

    @classmethod
    def read(cls, headers: Mapping[str, str]) -> "Validators":
        """The validators that can be sent back unchanged."""
        values = (headers.get("ETag"), headers.get("Last-Modified"))
        return cls(*(value if value and _is_fit(value) else None for value in values))

    def __bool__(self) -> bool:
        return bool(self.etag or self.last_modified)


@dataclass(frozen=True, slots=True)
class Remembered:
    """The stored validators of a file whose pages are all on record."""

    validators: Validators
    # The number of its pages.
    pages: int
    # The checksum of its content; 0 where an earlier release stored it.
    digest: int = 0


@dataclass(slots=True)
class SitemapFile:
    """One file of the crawl."""

    url: str
    # 0 for a sitemap of the site, 1 for a child of it, and so on.
    depth: int = 0
    # The sitemap that it belongs to, as it is submitted to a search engine: the index at the top, or the file itself.
    feed: str = ""
    # Milliseconds since the epoch.
    fetched_at: int = 0
    # The checksum of its content.
    digest: int = 0
    validators: Validators = field(default_factory=Validators)
    # URLs that were dropped because of their length.
    too_long: int = 0
    # Whether it lists pages, not sitemaps. Known at its end.
    lists_pages: bool = False
    # Why it was not read to its end.
    fault: str | None = None

    def __str__(self) -> str:
        return show_url(self.url)


@dataclass(frozen=True, slots=True)
class PagesRead:
    """Some entries of a file of pages."""

    file: SitemapFile
    pairs: Pairs


@dataclass(frozen=True, slots=True)
class FileRead:
    """The file was read to its end, or to its `fault`."""

    file: SitemapFile


@dataclass(frozen=True, slots=True)
class FileUnchanged:
    """The server answered 304: the file is the remembered one, with this number of pages."""

    file: SitemapFile
    pages: int


@dataclass(frozen=True, slots=True)
class FileDropped:
    """The pages of this file so far do not count: it is refused, or starts again after a failure."""

    file: SitemapFile


CrawlEvent = PagesRead | FileRead | FileUnchanged | FileDropped


@dataclass(slots=True)
class CrawlResult:
    """The result of a whole crawl."""

    # Files that were read, including unchanged ones.
    files: int = 0
    # Files that the server answered with 304.
    unchanged: int = 0
    # A checksum for each sitemap that can be submitted to a search engine; it changes when one of its files does.
    fingerprints: dict[str, int] = field(default_factory=dict)
    # Sitemaps of the site that were read, themselves or through a backup.
    roots_read: int = 0
    # Every file was read to its end.
    complete: bool = True
    # Why it is not complete, for people: one line per file.
    troubles: list[str] = field(default_factory=list)
    # The address of a file is not public, and no setting allows it.
    is_private: bool = False
    # Warnings that do not make it incomplete.
    warnings: list[str] = field(default_factory=list)
    # The pages were given instead of a sitemap, so each one that is not sent is reported.
    given: bool = False

    def add_fingerprint(self, file: SitemapFile) -> None:
        """Count one file of a sitemap. The order of the files does not matter."""
        if file.feed:
            text = f"{file.url} {file.digest}".encode()
            number = int.from_bytes(blake2b(text, digest_size=7).digest())
            self.fingerprints[file.feed] = (self.fingerprints.get(file.feed, 0) + number) % _FINGERPRINTS

    def add_trouble(self, message: str) -> None:
        self.complete = False
        self.troubles.append(message)
        _log.warning("sitemap.trouble", reason=message)


class PageSource(Protocol):
    """The pages that an execution plans: a crawl, or given pages in the same form. `result` is final when `events`
    ends."""

    @property
    def result(self) -> CrawlResult: ...

    def events(self) -> AsyncGenerator[CrawlEvent]: ...


def _is_fit(value: str) -> bool:
    """Whether the value of a header is plain text that can be stored and sent back."""
    return value.isascii() and value.isprintable() and len(value) <= _LONGEST_VALIDATOR
