"""The files that list the pages of the site: which pages each lists, when it changed, and its rendered bytes.
`rendering` makes the bytes.
"""

import gzip
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from tidings.sandbox.site.pages import SitePages
from tidings.sandbox.site.rendering import render_index, render_rss, render_text, render_urlset

_UNCHANGED_SINCE = datetime(2026, 1, 1, tzinfo=UTC)
_CHILD = re.compile(r"/sitemaps/([1-9]\d{0,6})\.xml(?:\.gz)?")


class Layout(StrEnum):
    INDEX = "index"
    URLSET = "urlset"
    RSS = "rss"
    TEXT = "text"


_ENTRY = {
    Layout.INDEX: "/sitemap.xml",
    Layout.URLSET: "/sitemap.xml",
    Layout.RSS: "/feed.xml",
    Layout.TEXT: "/sitemap.txt",
}
_CONTENT_TYPE = {
    Layout.INDEX: "application/xml",
    Layout.URLSET: "application/xml",
    Layout.RSS: "application/rss+xml; charset=utf-8",
    Layout.TEXT: "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Document:
    """One version of a file. Path and `modified` together identify its bytes."""

    path: str
    # 0 for the entry, 1 and more for the children of an index.
    part: int
    modified: datetime
    content_type: str


class Documents:
    """All files that list pages."""

    def __init__(self, pages: SitePages, *, layout: Layout, per_sitemap: int, gzipped: bool, extensions: bool) -> None:
        self._pages = pages
        self._layout = layout
        self._per_sitemap = per_sitemap
        self._suffix = ".xml.gz" if gzipped else ".xml"
        self._extensions = extensions
        self._modified: dict[int, datetime] = {}
        self._seen: set[int] = set()

    @property
    def entry_path(self) -> str:
        return _ENTRY[self._layout]

    @property
    def part_count(self) -> int:
        """The number of children of the index."""
        return -(-self._pages.highest // self._per_sitemap) if self._layout is Layout.INDEX else 0

    def find(self, path: str) -> Document | None:
        if path == self.entry_path:
            return self._document(path, 0, _CONTENT_TYPE[self._layout])
        found = _CHILD.fullmatch(path)
        if found is None or not path.endswith(self._suffix) or int(found[1]) > self.part_count:
            return None
        return self._document(path, int(found[1]), "application/gzip" if path.endswith(".gz") else "application/xml")

    def paths(self) -> list[str]:
        return [self.entry_path, *(self._child_path(part) for part in range(1, self.part_count + 1))]

    def touch(self, numbers: Iterable[int]) -> None:
        """Mark the files that list these pages as changed."""
        parts = {(number - 1) // self._per_sitemap + 1 for number in numbers} if self._layout is Layout.INDEX else set()
        for part in parts | {0}:
            # Last-Modified has whole seconds, so a file that was served must move on by one to show its change.
            step = timedelta(seconds=1) if part in self._seen else timedelta(0)
            self._modified[part] = max(datetime.now(UTC).replace(microsecond=0), self._modified_at(part) + step)
            self._seen.discard(part)

    def render(self, document: Document, *, origin: str, everything_at: datetime | None) -> bytes:
        """The bytes of a file. With `everything_at`, every timestamp in it is this one."""
        if self._layout is Layout.RSS:
            return render_rss(self._pages, self._numbers(0), origin=origin, everything_at=everything_at)
        if self._layout is Layout.TEXT:
            return render_text(self._pages, self._numbers(0), origin=origin)
        if self._layout is Layout.INDEX and document.part == 0:
            return self._render_index(origin, everything_at)
        body = render_urlset(
            self._pages,
            self._numbers(document.part),
            origin=origin,
            extensions=self._extensions,
            everything_at=everything_at,
        )
        return gzip.compress(body, compresslevel=6, mtime=0) if document.path.endswith(".gz") else body

    def _render_index(self, origin: str, everything_at: datetime | None) -> bytes:
        parts = range(1, self.part_count + 1)
        return render_index(
            (origin + self._child_path(part), everything_at or self._modified_at(part)) for part in parts
        )

    def _numbers(self, part: int) -> range:
        if self._layout is not Layout.INDEX:
            return range(1, self._pages.highest + 1)
        first = (part - 1) * self._per_sitemap + 1
        return range(first, min(first + self._per_sitemap, self._pages.highest + 1))

    def _child_path(self, part: int) -> str:
        return f"/sitemaps/{part}{self._suffix}"

    def _modified_at(self, part: int) -> datetime:
        return self._modified.get(part, _UNCHANGED_SINCE)

    def _document(self, path: str, part: int, content_type: str) -> Document:
        self._seen.add(part)
        return Document(path, part, self._modified_at(part), content_type)


def digest_body(body: bytes) -> str:
    """A strong ETag, quotes included."""
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


class RenderedDocuments:
    """Rendered files, rendered once per change. Keeps at most `capacity` bytes, and the ETags of all files."""

    def __init__(self, *, capacity: int, render: Callable[[Document], bytes]) -> None:
        self._capacity = capacity
        self._render = render
        self._bodies: OrderedDict[str, tuple[datetime, bytes]] = OrderedDict()
        self._etags: dict[str, tuple[datetime, str]] = {}
        self.size = 0

    def etag(self, document: Document) -> str:
        known = self._etags.get(document.path)
        if known is None or known[0] != document.modified:
            self.body(document)
        return self._etags[document.path][1]

    def body(self, document: Document) -> bytes:
        kept = self._bodies.get(document.path)
        if kept is not None and kept[0] == document.modified:
            self._bodies.move_to_end(document.path)
            return kept[1]
        body = self._render(document)
        self._etags[document.path] = (document.modified, digest_body(body))
        self._keep(document, body)
        return body

    def _keep(self, document: Document, body: bytes) -> None:
        _, previous = self._bodies.pop(document.path, (None, b""))
        self.size += len(body) - len(previous)
        self._bodies[document.path] = (document.modified, body)
        while self.size > self._capacity:
            _, (_, dropped) = self._bodies.popitem(last=False)
            self.size -= len(dropped)
