"""The files that list the pages of the site: which pages each lists, when it changed, and its bytes."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidings.sandbox.site.pages import SitePages, page_path

ENTRY_PATH = "/sitemap.xml"

_UNCHANGED_SINCE = datetime(2026, 1, 1, tzinfo=UTC)
_CHILD = re.compile(r"/sitemaps/([1-9]\d{0,6})\.xml")
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_SPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


@dataclass(frozen=True, slots=True)
class Document:
    """One version of a file. All together identify its bytes."""

    path: str
    # 0 for the entry, 1 and more for the children of an index.
    part: int
    modified: datetime
    # The pages that the site began with: another sandbox may listen on the same port later, with the same dates.
    first_pages: int

    @property
    def etag(self) -> str:
        """A strong ETag, quotes included."""
        version = f"{self.path} {self.modified} {self.first_pages}"
        return f'"{hashlib.blake2b(version.encode(), digest_size=12).hexdigest()}"'


class Documents:
    """All files that list pages: an index with children of `per_sitemap` pages each; one file of all pages for None."""

    def __init__(self, pages: SitePages, *, per_sitemap: int | None) -> None:
        self._pages = pages
        self._first_pages = pages.highest
        self._per_sitemap = per_sitemap
        self._modified: dict[int, datetime] = {}
        self._seen: set[int] = set()

    @property
    def part_count(self) -> int:
        """The number of children of the index."""
        return -(-self._pages.highest // self._per_sitemap) if self._per_sitemap else 0

    def find(self, path: str) -> Document | None:
        found = _CHILD.fullmatch(path)
        part = int(found[1]) if found else 0
        if (found is None and path != ENTRY_PATH) or part > self.part_count:
            return None
        self._seen.add(part)
        return Document(path, part, self._modified_at(part), self._first_pages)

    def paths(self) -> list[str]:
        return [ENTRY_PATH, *map(_name_child, range(1, self.part_count + 1))]

    def touch(self, numbers: Iterable[int]) -> None:
        """Mark the files that list these pages as changed."""
        parts = {(number - 1) // self._per_sitemap + 1 for number in numbers} if self._per_sitemap else set()
        for part in parts | {0}:
            # Last-Modified has whole seconds, so a file that was served must move on by one to show its change.
            step = timedelta(seconds=1) if part in self._seen else timedelta(0)
            self._modified[part] = max(datetime.now(UTC).replace(microsecond=0), self._modified_at(part) + step)
            self._seen.discard(part)

    def render(self, document: Document, *, origin: str, everything_at: datetime | None) -> bytes:
        """The bytes of a file. With `everything_at`, every timestamp in it is this one."""
        if self._per_sitemap and document.part == 0:
            parts = range(1, self.part_count + 1)
            entries = [
                f"<sitemap><loc>{origin}{_name_child(part)}</loc>"
                f"<lastmod>{_write_seconds(everything_at or self._modified_at(part))}</lastmod></sitemap>\n"
                for part in parts
            ]
            return f"{_HEAD}<sitemapindex {_SPACE}>\n{''.join(entries)}</sitemapindex>\n".encode()
        entries = [
            f"<url><loc>{origin}{page_path(number)}</loc>"
            f"<lastmod>{self._write_lastmod(number, everything_at)}</lastmod>"
            "<changefreq>weekly</changefreq><priority>0.5</priority></url>\n"
            for number in self._pages.within(self._number_pages(document.part))
        ]
        return f"{_HEAD}<urlset {_SPACE}>\n{''.join(entries)}</urlset>\n".encode()

    def _number_pages(self, part: int) -> range:
        size = self._per_sitemap or self._pages.highest
        first = max(0, part - 1) * size + 1
        return range(first, min(first + size, self._pages.highest + 1))

    def _write_lastmod(self, number: int, everything_at: datetime | None) -> str:
        """With fractions of a second for a page that was changed."""
        changed = everything_at or self._pages.changed.get(number)
        if changed is not None:
            return changed.isoformat(timespec="microseconds")
        return _write_seconds(self._pages.lastmod(number))

    def _modified_at(self, part: int) -> datetime:
        return self._modified.get(part, _UNCHANGED_SINCE)


def _name_child(part: int) -> str:
    return f"/sitemaps/{part}.xml"


def _write_seconds(timestamp: datetime) -> str:
    return timestamp.isoformat(timespec="seconds")
