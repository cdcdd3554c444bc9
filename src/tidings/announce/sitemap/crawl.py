"""Walks a site's sitemaps, file by file, and tells what it meets as events. What a file means is read by `reader`.

A file's pages may be used once `FileRead` has come for it: until then it may still be refused (`FileDropped`) or begun
again after a lost connection (`FileRestarted`), and then none of what came of it counts.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from tidings.announce.site.site import Site
from tidings.announce.sitemap.reader import Kind, RefusedSitemapError, SitemapReader
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.logs.logger import get_logger
from tidings.core.net.addresses import show_url
from tidings.core.net.client import FetchError, GuardedClient, NetworkError, Stream
from tidings.core.net.retry import RetryPolicy, Trouble
from tidings.core.stop import Stop

FETCH_TIMEOUT = timedelta(seconds=30)
MOST_CHILDREN = 50_000
MOST_PAGES = 50_000
DEEPEST = 3

_LONGEST_VALIDATOR = 1_000

_log = get_logger(__name__)

Pairs = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Validators:
    """What a server gave to ask again with: "has it changed since?"."""

    etag: str | None = None
    last_modified: str | None = None

    @classmethod
    def read(cls, headers: Mapping[str, str]) -> "Validators":
        """From an answer's headers, where they can be sent back as they are."""
        values = (headers.get("ETag"), headers.get("Last-Modified"))
        return cls(*(value if value and _is_fit(value) else None for value in values))

    def __bool__(self) -> bool:
        return bool(self.etag or self.last_modified)


@dataclass(frozen=True, slots=True)
class Remembered:
    """The validators of a file all of whose pages were accepted, and how many pages it has."""

    validators: Validators
    pages: int


@dataclass(slots=True)
class SitemapFile:
    """One file on its way through. `fetched_at` is in milliseconds since the epoch."""

    url: str
    depth: int = 0
    fetched_at: int = 0
    validators: Validators = field(default_factory=Validators)
    too_long: int = 0
    lists_pages: bool = False
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
    """The file was read to its end, or to the fault it names."""

    file: SitemapFile


@dataclass(frozen=True, slots=True)
class FileUnchanged:
    """The server says that nothing has changed since all its pages were accepted."""

    file: SitemapFile
    pages: int


@dataclass(frozen=True, slots=True)
class FileRestarted:
    """The connection was lost; what came of this file before does not count."""

    file: SitemapFile


@dataclass(frozen=True, slots=True)
class FileDropped:
    """None of this file's pages is used; its `fault` says why."""

    file: SitemapFile


CrawlEvent = PagesRead | FileRead | FileUnchanged | FileRestarted | FileDropped


class UnavailableError(Exception):
    """The server answered, but not with a sitemap. `retryable`: it may answer better in a moment."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


@dataclass(slots=True)
class CrawlResult:
    """What became of the crawl as a whole."""

    files: int = 0
    unchanged: int = 0
    roots_read: int = 0
    complete: bool = True
    troubles: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add_trouble(self, message: str) -> None:
        self.complete = False
        self.troubles.append(message)
        _log.warning("sitemap.trouble", reason=message)


Recall = Callable[[str], Awaitable[Remembered | None]]


class Crawl:
    """One walk over one site's sitemaps. `result` is complete once `events` has ended."""

    def __init__(
        self, site: Site, *, client: GuardedClient, clock: Clock, policy: RetryPolicy, stop: Stop, recall: Recall
    ) -> None:
        self.result = CrawlResult()
        self._site = site
        self._client = client
        self._clock = clock
        self._policy = policy
        self._stop = stop
        self._recall = recall
        self._visited: set[str] = set()

    async def events(self) -> AsyncGenerator[CrawlEvent]:
        """Every file's events, in order. Raises StopRequestedError when it is time to stop."""
        backups = list(self._site.backup_sitemap_urls)
        for root in self._site.sitemap_urls:
            candidates = [root]
            while candidates:
                url = candidates.pop()
                pages_read = False
                async for event in self._walk(url):
                    pages_read = pages_read or (isinstance(event, FileRead | FileUnchanged) and event.file.lists_pages)
                    yield event
                if pages_read:
                    self.result.roots_read += 1
                    if url != root:
                        self.result.warnings.append(
                            f"{show_url(root)} cannot be used; {show_url(url)} was read instead"
                        )
                elif backups:
                    candidates.append(backups.pop(0))

    async def _walk(self, root: str) -> AsyncIterator[CrawlEvent]:
        waiting = [SitemapFile(root)]
        while waiting:
            file = waiting.pop()
            if file.url in self._visited:
                continue
            self._visited.add(file.url)
            children: Pairs = []
            async for event in self._read_file(file, children):
                yield event
            waiting += reversed(self._list_children(file, children))

    async def _read_file(self, file: SitemapFile, children: Pairs) -> AsyncIterator[CrawlEvent]:
        """One file, with retries. Children of an index are added to `children`."""
        retry = 0
        while True:
            self._stop.check()
            try:
                async for event in self._fetch(file, children):
                    yield event
            except (FetchError, UnavailableError) as error:
                retry += 1
                delay = self._policy.next_delay(Trouble.NOT_FETCHED, retry=retry) if _may_retry(error) else None
                if delay is None:
                    # The message of such an error names the address itself.
                    self.result.add_trouble(str(error))
                    yield self._drop(file, str(error), children)
                    return
                _log.warning(
                    "sitemap.retry",
                    sitemap=str(file),
                    retry=f"retry {retry}/{self._policy.retries}",
                    reason=str(error),
                )
                children.clear()
                yield FileRestarted(file)
                await self._stop.sleep(delay)
            except RefusedSitemapError as error:
                self.result.add_trouble(f"{file}: {error}")
                yield self._drop(file, str(error), children)
                return
            else:
                return

    def _drop(self, file: SitemapFile, reason: str, children: Pairs) -> FileDropped:
        children.clear()
        file.fault = reason
        return FileDropped(file)

    async def _fetch(self, file: SitemapFile, children: Pairs) -> AsyncIterator[CrawlEvent]:
        remembered = await self._recall(file.url)
        file.fetched_at = to_milliseconds(self._clock.now())
        async with self._client.stream(
            "GET", file.url, headers=_make_headers(remembered), timeout=FETCH_TIMEOUT, follow_redirects=True
        ) as answer:
            if answer.status == 304 and remembered is not None:
                self.result.files += 1
                self.result.unchanged += 1
                file.lists_pages = True
                yield FileUnchanged(file, remembered.pages)
                return
            _check_status(file, answer)
            file.validators = Validators.read(answer.headers)
            reader = SitemapReader(content_encoding=answer.headers.get("Content-Encoding"), robots=_is_robots(file.url))
            read = 0
            async for pairs in self._read_body(answer, reader):
                if reader.kind in (Kind.INDEX, Kind.ROBOTS):
                    # One more than are read, to tell that there were too many; an index may name a million.
                    children += pairs[: MOST_CHILDREN + 1 - len(children)]
                else:
                    read += len(pairs)
                    yield PagesRead(file, pairs)
        self._finish_file(file, reader, read)
        yield FileRead(file)

    async def _read_body(self, answer: Stream, reader: SitemapReader) -> AsyncIterator[Pairs]:
        async for chunk in answer.chunks():
            for pairs in reader.stream(chunk):
                yield pairs
            self._stop.check()
        if pairs := reader.close():
            yield pairs

    def _finish_file(self, file: SitemapFile, reader: SitemapReader, read: int) -> None:
        self.result.files += 1
        file.too_long = reader.too_long
        file.lists_pages = reader.kind not in (Kind.INDEX, Kind.ROBOTS)
        if reader.fault is not None:
            file.fault = reader.fault
            self.result.add_trouble(f"{file}: {reader.fault}; what stood before it was used")
        if read > MOST_PAGES:
            warning = f"{file} lists {read:,} URLs; the protocol allows {MOST_PAGES:,} a file"
            self.result.warnings.append(warning)
            _log.warning("sitemap.too_many_urls", sitemap=str(file), urls=read)

    def _list_children(self, file: SitemapFile, children: Pairs) -> list[SitemapFile]:
        if len(children) > MOST_CHILDREN:
            self.result.add_trouble(f"{file} lists too many sitemaps; only the first {MOST_CHILDREN:,} were read")
        if children and file.depth >= DEEPEST:
            self.result.add_trouble(f"{file} is an index more than {DEEPEST} levels deep; its sitemaps were not read")
            return []
        return [SitemapFile(loc.decode(errors="replace"), depth=file.depth + 1) for loc, _ in children[:MOST_CHILDREN]]


def _make_headers(remembered: Remembered | None) -> dict[str, str]:
    headers = {"Accept": "application/xml, text/xml, text/plain;q=0.8, */*;q=0.5", "Accept-Encoding": "gzip"}
    if remembered is not None and remembered.validators.etag:
        headers["If-None-Match"] = remembered.validators.etag
    if remembered is not None and remembered.validators.last_modified:
        headers["If-Modified-Since"] = remembered.validators.last_modified
    return headers


def _check_status(file: SitemapFile, answer: Stream) -> None:
    if answer.status == 200:
        return
    raise UnavailableError(
        f"{file} failed: the server answered {answer.status} instead of a sitemap",
        retryable=answer.status == 429 or answer.status >= 500,
    )


def _may_retry(error: FetchError | UnavailableError) -> bool:
    return error.retryable if isinstance(error, UnavailableError) else isinstance(error, NetworkError)


def _is_fit(value: str) -> bool:
    """Whether a header's value is plain text that can be stored, and sent back."""
    return value.isascii() and value.isprintable() and len(value) <= _LONGEST_VALIDATOR


def _is_robots(url: str) -> bool:
    return url.partition("?")[0].endswith("/robots.txt")
