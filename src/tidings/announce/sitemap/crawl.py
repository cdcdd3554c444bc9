"""Fetches a site's sitemaps file by file, and yields `events`. `reader` reads the bytes of a file."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta

from tidings.announce.site.site import Site
from tidings.announce.sitemap.events import (
    CrawlEvent,
    CrawlResult,
    FileDropped,
    FileRead,
    FileUnchanged,
    PagesRead,
    Pairs,
    Remembered,
    SitemapFile,
    Validators,
)
from tidings.announce.sitemap.local import LocalAnswer, LocalSitemaps
from tidings.announce.sitemap.other_hosts import MOST_REQUESTS, OtherHosts
from tidings.announce.sitemap.reader import RefusedSitemapError, SitemapKind, SitemapReader
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.logs.logger import get_logger
from tidings.core.net.addresses import show_url
from tidings.core.net.client import FetchError, GuardedClient, NetworkError, PrivateAddressError, Stream
from tidings.core.net.pace import Pace
from tidings.core.net.retry import RetryPolicy, Trouble
from tidings.core.stop import Stop

FETCH_TIMEOUT = timedelta(seconds=30)
MOST_CHILDREN = 50_000
MOST_PAGES = 50_000
DEEPEST = 3
MOST_FILES = 100_000


_log = get_logger(__name__)


class UnavailableError(Exception):
    """The server answered with another status than 200. `retryable`: a retry may succeed."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


Recall = Callable[[str], Awaitable[Remembered | None]]
SitemapAnswer = Stream | LocalAnswer


class Crawl:
    """One crawl of one site's sitemaps. `result` is final when `events` ends. `pace`: the queues that all crawls
    share."""

    def __init__(
        self,
        site: Site,
        *,
        client: GuardedClient,
        clock: Clock,
        policy: RetryPolicy,
        stop: Stop,
        recall: Recall | None = None,
        local: LocalSitemaps | None = None,
        pace: Pace | None = None,
        most_files: int = MOST_FILES,
        most_other_requests: int = MOST_REQUESTS,
    ) -> None:
        self.result = CrawlResult()
        self._site = site
        self._client = client
        self._local = local
        self._clock = clock
        self._policy = policy
        self._stop = stop
        self._recall = recall
        self._most_files = most_files
        self._visited: set[str] = set()
        self._other_hosts = OtherHosts(
            site, client=client, clock=clock, stop=stop, pace=pace, most_requests=most_other_requests
        )
        # Files that were skipped at the limit of requests to other hosts.
        self._left_out = 0

    async def events(self) -> AsyncGenerator[CrawlEvent]:
        """The events of all files, in order. Raises StopRequestedError after a stop signal."""
        try:
            async for event in self._walk_all():
                yield event
        finally:
            await self._other_hosts.close()
        if self._left_out:
            self.result.add_trouble(
                f"{self._left_out:,} files of other hosts were not read: {self._other_hosts.limit}; "
                "name a sitemap of that host as a sitemap of the site"
            )

    async def _walk_all(self) -> AsyncIterator[CrawlEvent]:
        backups = list(self._site.backup_sitemap_urls)
        for root in self._site.sitemap_urls:
            candidates = [root]
            while candidates:
                url = candidates.pop()
                pages_read = False
                async for event in self._walk(url):
                    pages_read = pages_read or (isinstance(event, FileRead | FileUnchanged) and event.file.lists_pages)
                    if isinstance(event, FileRead | FileUnchanged):
                        self.result.add_fingerprint(event.file)
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
        waiting = [SitemapFile(root, feed="" if _is_robots(root) else root)]
        while waiting:
            file = waiting.pop()
            if file.url in self._visited:
                continue
            if len(self._visited) >= self._most_files:
                self.result.add_trouble(f"{show_url(root)} leads to more than {self._most_files:,} files")
                return
            self._visited.add(file.url)
            if self._other_hosts.used_up and not self._other_hosts.is_own(file.url):
                self._left_out += 1
                continue
            children: Pairs = []
            async for event in self._read_file(file, children):
                yield event
            waiting += reversed(self._list_children(file, children))

    async def _read_file(self, file: SitemapFile, children: Pairs) -> AsyncIterator[CrawlEvent]:
        """The events of one file, with retries. Adds the children of an index to `children`."""
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
                    self.result.is_private |= isinstance(error, PrivateAddressError)
                    # The message of this error names the URL.
                    self.result.add_trouble(str(error))
                    yield _drop(file, children)
                    return
                _log.warning(
                    "sitemap.retry",
                    sitemap=str(file),
                    retry=f"retry {retry}/{self._policy.retries}",
                    reason=str(error),
                )
                yield _drop(file, children)
                await self._stop.sleep(delay)
            except RefusedSitemapError as error:
                self.result.add_trouble(f"{file}: {error}")
                yield _drop(file, children)
                return
            else:
                return

    async def _fetch(self, file: SitemapFile, children: Pairs) -> AsyncIterator[CrawlEvent]:
        remembered = None if self._recall is None else await self._recall(file.url)
        file.fetched_at = to_milliseconds(self._clock.now())
        async with self._open(file.url, headers=_make_headers(remembered)) as answer:
            if answer.status == 304 and remembered is not None:
                self.result.files += 1
                self.result.unchanged += 1
                file.lists_pages = True
                file.digest = remembered.digest
                yield FileUnchanged(file, remembered.pages)
                return
            _check_status(file, answer)
            file.validators = Validators.read(answer.headers)
            reader = SitemapReader(content_encoding=answer.headers.get("Content-Encoding"), robots=_is_robots(file.url))
            read = 0
            async for pairs in self._read_body(answer, reader):
                if reader.kind in (SitemapKind.INDEX, SitemapKind.ROBOTS):
                    # One more than the limit shows that there are too many; an index may list a million.
                    children += pairs[: MOST_CHILDREN + 1 - len(children)]
                else:
                    read += len(pairs)
                    yield PagesRead(file, pairs)
        self._finish_file(file, reader, read)
        yield FileRead(file)

    def _open(self, url: str, *, headers: Mapping[str, str]) -> AbstractAsyncContextManager[SitemapAnswer]:
        found = None if self._local is None else self._local.find(url)
        if found is not None:
            return nullcontext(found)
        return self._client.stream(
            "GET", url, headers=headers, timeout=FETCH_TIMEOUT, follow_redirects=True, admit=self._other_hosts.admit
        )

    async def _read_body(self, answer: SitemapAnswer, reader: SitemapReader) -> AsyncIterator[Pairs]:
        async for chunk in answer.chunks():
            for pairs in reader.stream(chunk):
                yield pairs
            self._stop.check()
        if pairs := reader.close():
            yield pairs

    def _finish_file(self, file: SitemapFile, reader: SitemapReader, read: int) -> None:
        self.result.files += 1
        file.too_long = reader.too_long
        file.digest = reader.digest
        file.lists_pages = reader.kind not in (SitemapKind.INDEX, SitemapKind.ROBOTS)
        if reader.fault is not None:
            file.fault = reader.fault
            self.result.add_trouble(f"{file}: {reader.fault}; the pages before it were used")
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
        urls = [loc.decode(errors="replace") for loc, _ in children[:MOST_CHILDREN]]
        # A robots.txt is not submitted, but each sitemap that it names.
        return [SitemapFile(url, depth=file.depth + 1, feed=file.feed or url) for url in urls]


def _drop(file: SitemapFile, children: Pairs) -> FileDropped:
    children.clear()
    return FileDropped(file)


def _make_headers(remembered: Remembered | None) -> dict[str, str]:
    headers = {"Accept": "application/xml, text/xml, text/plain;q=0.8, */*;q=0.5", "Accept-Encoding": "gzip"}
    if remembered is not None and remembered.validators.etag:
        headers["If-None-Match"] = remembered.validators.etag
    if remembered is not None and remembered.validators.last_modified:
        headers["If-Modified-Since"] = remembered.validators.last_modified
    return headers


def _check_status(file: SitemapFile, answer: SitemapAnswer) -> None:
    if answer.status == 200:
        return
    raise UnavailableError(
        f"{file} failed: the server answered {answer.status} instead of a sitemap",
        retryable=answer.status == 429 or answer.status >= 500,
    )


def _may_retry(error: FetchError | UnavailableError) -> bool:
    return error.retryable if isinstance(error, UnavailableError) else isinstance(error, NetworkError)


def _is_robots(url: str) -> bool:
    return url.partition("?")[0].endswith("/robots.txt")
