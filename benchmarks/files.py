"""The sitemaps that everything here reads, as files on disk. How they are served is in `stage`.

Each file lists 50,000 pages with lastmod, changefreq and priority; every tenth has an image and a link to its
translation. A site of two million pages begins with the files of the site of one million.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from tidings.sandbox.site.pages import page_path

PER_FILE = 50_000
KEY = "tidings-benchmark-key-5b1e77"

_URLSET = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    ' xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"'
    ' xmlns:xhtml="http://www.w3.org/1999/xhtml">\n'
)
_INDEX = '<?xml version="1.0" encoding="UTF-8"?>\n<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
_FIRST = datetime(2019, 1, 1, tzinfo=UTC)
_STEP = timedelta(seconds=21)
# A prime and a power of ten have no common factor: no stamp comes twice in ten million pages, the last in August 2025.
_PRIME, _STAMPS, _FEW_STAMPS = 7_919, 10_000_000, 2_500


class Variant(StrEnum):
    """How the files are written."""

    DIFFERENT = "different"  # every page has a lastmod of its own
    REPEATING = "repeating"  # 2,500 lastmods that come again and again, which a reader may remember
    ENTITIES = "entities"  # `&amp;` in every URL, as most shops have it
    IMAGES = "images"  # an image and a translation for every page


def write_site(folder: Path, *, origin: str, sizes: Iterable[int], variant: Variant) -> list[str]:
    """Write the sitemaps of one site, and the key file; returns the address of an index for each of `sizes`."""
    (folder / f"{KEY}.txt").write_text(KEY)
    sizes = list(sizes)
    for number in range(count_files(max(sizes))):
        first = number * PER_FILE + 1
        last = min(first + PER_FILE, max(sizes) + 1)
        (folder / f"{number + 1}.xml").write_text(_render_file(range(first, last), origin=origin, variant=variant))
    return [_write_index(folder, origin=origin, size=size) for size in sizes]


def count_files(size: int) -> int:
    return -(-size // PER_FILE)


def _write_index(folder: Path, *, origin: str, size: int) -> str:
    entries = (f"<sitemap><loc>{origin}/{number + 1}.xml</loc></sitemap>\n" for number in range(count_files(size)))
    (folder / f"index-{size}.xml").write_text(_INDEX + "".join(entries) + "</sitemapindex>\n")
    return f"{origin}/index-{size}.xml"


def _render_file(numbers: range, *, origin: str, variant: Variant) -> str:
    timestamps = _FEW_STAMPS if variant is Variant.REPEATING else _STAMPS
    every = 1 if variant is Variant.IMAGES else 10
    query = "?from=sitemap&amp;page=1" if variant is Variant.ENTITIES else ""
    blocks = (
        f"<url><loc>{origin}{page_path(number)}{query}</loc>"
        f"<lastmod>{(_FIRST + number * _PRIME % timestamps * _STEP).isoformat()}</lastmod>"
        f"<changefreq>weekly</changefreq><priority>0.5</priority>"
        f"{_render_extensions(origin, number) if number % every == 0 else ''}</url>\n"
        for number in numbers
    )
    return _URLSET + "".join(blocks) + "</urlset>\n"


def _render_extensions(origin: str, number: int) -> str:
    return (
        f"<image:image><image:loc>{origin}/images/{number:07d}.jpg</image:loc></image:image>"
        f'<xhtml:link rel="alternate" hreflang="zh" href="{origin}/zh{page_path(number)}"/>'
    )
