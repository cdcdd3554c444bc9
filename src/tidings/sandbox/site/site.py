"""A web site that exists only here: robots.txt, sitemaps that answer conditional requests, the IndexNow key file and
the pages themselves, all of which can change, vanish, be overridden or fail on request."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime

from aiohttp import web

from tidings.sandbox.site.documents import Document, Documents, Layout, RenderedDocuments, digest_body
from tidings.sandbox.site.pages import SitePages, page_number, page_path
from tidings.sandbox.wire.answers import SandboxAnswer
from tidings.sandbox.wire.stand_in import SandboxExchange, StandIn

DEMO_KEY = "tidings-sandbox-demo-key-0f3a9c71"

_MIB = 1024 * 1024
_CONTENT_TYPES = {
    ".xml": "application/xml",
    ".txt": "text/plain; charset=utf-8",
    ".gz": "application/gzip",
    ".json": "application/json",
}
_HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Visit:
    """A request to a site: its one URL is the one that was asked for."""

    urls: tuple[str, ...]
    fields: Mapping[str, object] = field(default_factory=dict)


class SandboxSite(StandIn[Visit]):
    """A site of `pages` generated pages. `gzipped` makes the children of an index .xml.gz files; `cache_bytes` bounds
    the rendered files that are kept."""

    def __init__(
        self,
        *,
        pages: int = 3000,
        per_sitemap: int = 1000,
        key: str = DEMO_KEY,
        layout: Layout = Layout.INDEX,
        gzipped: bool = False,
        extensions: bool = False,
        cache_bytes: int = 32 * _MIB,
        port: int = 0,
    ) -> None:
        super().__init__("site", port=port)
        self.key = key
        self.stamp_everything_now = False
        self.pages = SitePages(pages)
        self._documents = Documents(
            self.pages, layout=layout, per_sitemap=per_sitemap, gzipped=gzipped, extensions=extensions
        )
        self._cache_bytes = cache_bytes
        self._rendered = self._new_rendered()
        self._overrides: dict[str, SandboxAnswer] = {}

    async def start(self, *, port: int | None = None) -> None:
        await super().start(port=port)
        # Rendered files name the port, which may be another one now.
        self._rendered = self._new_rendered()

    @property
    def sitemap_url(self) -> str:
        return self.origin + self._documents.entry_path

    @property
    def robots_url(self) -> str:
        return f"{self.origin}/robots.txt"

    @property
    def key_location(self) -> str:
        return f"{self.origin}/{self.key}.txt"

    @property
    def cached_bytes(self) -> int:
        """The size of all rendered files that are kept now."""
        return self._rendered.size

    def url(self, number: int) -> str:
        return self.origin + page_path(number)

    def urls(self) -> Iterable[str]:
        """The URLs of all pages that the site has, in order."""
        return (self.url(number) for number in self.pages.within(range(1, self.pages.highest + 1)))

    def document_urls(self) -> list[str]:
        """The URLs of all files that list pages, the entry first."""
        return [self.origin + path for path in self._documents.paths()]

    def lastmod(self, number: int) -> datetime:
        return self.pages.lastmod(number)

    def change(self, number: int) -> datetime:
        """Page `number` was changed just now; returns its new lastmod. Raises NoSuchPageError."""
        self.change_many([number])
        return self.pages.lastmod(number)

    def change_many(self, numbers: Iterable[int]) -> None:
        changed = list(numbers)
        for number in changed:
            self.pages.change(number)
        self._documents.touch(changed)

    def add(self, count: int) -> range:
        """Add pages behind the last; returns their numbers."""
        added = self.pages.add(count)
        self._documents.touch(added)
        return added

    def remove(self, number: int) -> None:
        """Page `number` leaves the sitemap and answers 410 from now on. Raises NoSuchPageError."""
        self.pages.remove(number)
        self._documents.touch([number])

    def serve(
        self,
        path: str,
        body: bytes | str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> None:
        """Answer `path` with exactly this, whatever lies there otherwise."""
        raw = body.encode() if isinstance(body, str) else body
        self._overrides[path] = SandboxAnswer(status, raw, headers or {}, content_type or _guess_type(path))

    def restore(self, path: str) -> None:
        """Undo `serve`."""
        self._overrides.pop(path, None)

    def warm(self) -> None:
        """Render all files now, as far as they may be kept, so that no request has to wait for it."""
        for path in self._documents.paths():
            document = self._documents.find(path)
            if document is not None:
                self._rendered.body(document)

    def describe(self, *, full: bool = False) -> dict[str, object]:
        return {"pages": len(self.pages), **super().describe(full=full)}

    def read_request(self, request: web.BaseRequest, body: bytes) -> Visit:
        return Visit(urls=(self.origin + request.raw_path,))

    async def judge(self, exchange: SandboxExchange, asked: Visit) -> SandboxAnswer:
        request = exchange.request
        path = request.raw_path.partition("?")[0]
        if path in self._overrides:
            return self._overrides[path]
        if request.method not in ("GET", "HEAD"):
            return SandboxAnswer(405, b"method not allowed\n", {"Allow": "GET, HEAD"})
        document = self._documents.find(path)
        return self._answer_document(request, document) if document else self._answer_path(path)

    def _answer_document(self, request: web.BaseRequest, document: Document) -> SandboxAnswer:
        if self.stamp_everything_now:
            now = datetime.now(UTC)
            body = self._documents.render(document, origin=self.origin, everything_at=now)
            return SandboxAnswer(200, body, _validators(digest_body(body), now), document.content_type)
        etag = self._rendered.etag(document)
        headers = _validators(etag, document.modified)
        if _is_unchanged(request, etag=etag, modified=document.modified):
            return SandboxAnswer(304, b"", headers, document.content_type)
        return SandboxAnswer(200, self._rendered.body(document), headers, document.content_type)

    def _answer_path(self, path: str) -> SandboxAnswer:
        if path == "/robots.txt":
            return SandboxAnswer(200, f"User-agent: *\nAllow: /\n\nSitemap: {self.sitemap_url}\n".encode())
        if path == f"/{self.key}.txt":
            return SandboxAnswer(200, self.key.encode())
        number = 0 if path == "/" else page_number(path)
        if number is not None and (number == 0 or number in self.pages):
            return SandboxAnswer(200, _render_page(number), {}, _HTML)
        if number is not None and self.pages.was_removed(number):
            return SandboxAnswer(410, b"<!doctype html><title>Gone</title>\n", {}, _HTML)
        return SandboxAnswer(404, b"<!doctype html><title>Not found</title>\n", {}, _HTML)

    def _new_rendered(self) -> RenderedDocuments:
        return RenderedDocuments(
            capacity=self._cache_bytes,
            render=lambda document: self._documents.render(document, origin=self.origin, everything_at=None),
        )


def _validators(etag: str, modified: datetime) -> dict[str, str]:
    return {"ETag": etag, "Last-Modified": format_datetime(modified, usegmt=True)}


def _is_unchanged(request: web.BaseRequest, *, etag: str, modified: datetime) -> bool:
    """Whether the client has this version; If-None-Match decides alone where it is sent (RFC 9110, 13.2.2)."""
    if request.if_none_match is not None:
        return any(tag.value in ("*", etag.strip('"')) for tag in request.if_none_match)
    return request.if_modified_since is not None and modified <= request.if_modified_since


def _guess_type(path: str) -> str:
    return next((kind for suffix, kind in _CONTENT_TYPES.items() if path.endswith(suffix)), _HTML)


def _render_page(number: int) -> bytes:
    title = f"Page {number}" if number else "Sandbox"
    return f"<!doctype html><html lang=en><title>{title}</title><h1>{title}</h1></html>\n".encode()
