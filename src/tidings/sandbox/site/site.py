"""The stand-in of a web site: robots.txt, sitemaps with conditional requests, the IndexNow key file, and pages. Each of
them can be changed, removed, replaced or made to fail.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime

from aiohttp import web

from tidings.sandbox.site.documents import ENTRY_PATH, Document, Documents
from tidings.sandbox.site.pages import SitePages, page_number, page_path
from tidings.sandbox.wire.answers import HTML, SandboxAnswer
from tidings.sandbox.wire.stand_in import SandboxExchange, StandIn, Visit

DEMO_KEY = "tidings-sandbox-demo-key-0f3a9c71"

_XML = "application/xml"


class SandboxSite(StandIn[Visit]):
    """A site of `pages` generated pages.

    `per_sitemap`: pages per child of an index; None for one sitemap without an index.
    """

    def __init__(self, *, pages: int = 3000, per_sitemap: int | None = 1000, key: str = DEMO_KEY) -> None:
        super().__init__("site")
        self.key = key
        self.stamp_everything_now = False
        self.pages = SitePages(pages)
        self._documents = Documents(self.pages, per_sitemap=per_sitemap)

    @property
    def sitemap_url(self) -> str:
        return self.origin + ENTRY_PATH

    @property
    def robots_url(self) -> str:
        return f"{self.origin}/robots.txt"

    @property
    def key_location(self) -> str:
        return f"{self.origin}/{self.key}.txt"

    def url(self, number: int) -> str:
        return self.origin + page_path(number)

    def urls(self) -> Iterable[str]:
        """The URLs of all pages, in order."""
        return (self.url(number) for number in self.pages.within(range(1, self.pages.highest + 1)))

    def document_urls(self) -> list[str]:
        """The URLs of all files that list pages, the entry first."""
        return [self.origin + path for path in self._documents.paths()]

    def lastmod(self, number: int) -> datetime:
        return self.pages.lastmod(number)

    def change(self, number: int) -> datetime:
        """Change page `number` now. Returns its new lastmod. Raises NoSuchPageError."""
        self.change_many([number])
        return self.pages.lastmod(number)

    def change_many(self, numbers: Iterable[int]) -> None:
        changed = list(numbers)
        for number in changed:
            self.pages.change(number)
        self._documents.touch(changed)

    def add(self, count: int) -> range:
        """Add pages after the last one. Returns their numbers."""
        added = self.pages.add(count)
        self._documents.touch(added)
        return added

    def remove(self, number: int) -> None:
        """Remove page `number` from the sitemap; it answers 410 from now on. Raises NoSuchPageError."""
        self.pages.remove(number)
        self._documents.touch([number])

    def describe(self, *, full: bool = False) -> dict[str, object]:
        return {"pages": len(self.pages), **super().describe(full=full)}

    def read_request(self, request: web.BaseRequest, body: bytes) -> Visit:
        return Visit(urls=(self.origin + request.raw_path,))

    async def judge(self, exchange: SandboxExchange, asked: Visit) -> SandboxAnswer:
        request = exchange.request
        path = request.raw_path.partition("?")[0]
        if request.method not in ("GET", "HEAD"):
            return SandboxAnswer(405, b"method not allowed\n", {"Allow": "GET, HEAD"})
        document = self._documents.find(path)
        return self._answer_document(request, document) if document else self._answer_path(path)

    def _answer_document(self, request: web.BaseRequest, document: Document) -> SandboxAnswer:
        now = datetime.now(UTC) if self.stamp_everything_now else None
        if now is not None:
            document = replace(document, modified=now)
        headers = {"ETag": document.etag, "Last-Modified": format_datetime(document.modified, usegmt=True)}
        if now is None and _is_unchanged(request, document):
            return SandboxAnswer(304, b"", headers, _XML)
        return SandboxAnswer(
            200, self._documents.render(document, origin=self.origin, everything_at=now), headers, _XML
        )

    def _answer_path(self, path: str) -> SandboxAnswer:
        if path == "/robots.txt":
            return SandboxAnswer(200, f"User-agent: *\nAllow: /\n\nSitemap: {self.sitemap_url}\n".encode())
        if path == f"/{self.key}.txt":
            return SandboxAnswer(200, self.key.encode())
        number = 0 if path == "/" else page_number(path)
        if number is not None and (number == 0 or number in self.pages):
            return SandboxAnswer(200, _render_page(number), {}, HTML)
        if number is not None and self.pages.was_removed(number):
            return SandboxAnswer(410, b"<!doctype html><title>Gone</title>\n", {}, HTML)
        return SandboxAnswer(404, b"<!doctype html><title>Not found</title>\n", {}, HTML)


def _is_unchanged(request: web.BaseRequest, document: Document) -> bool:
    """Whether the client has this version. If-None-Match takes precedence (RFC 9110, 13.2.2)."""
    if request.if_none_match is not None:
        return any(tag.value in ("*", document.etag.strip('"')) for tag in request.if_none_match)
    return request.if_modified_since is not None and document.modified <= request.if_modified_since


def _render_page(number: int) -> bytes:
    title = f"Page {number}" if number else "Sandbox"
    return f"<!doctype html><html lang=en><title>{title}</title><h1>{title}</h1></html>\n".encode()
