"""Renders pages as urlset, sitemapindex, RSS and text. Pure functions; `documents` decides which file lists which
pages.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from email.utils import format_datetime
from functools import cache

from tidings.sandbox.site.pages import TIMESTAMPS, SitePages, page_path, timestamp_index

_URLSET = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    ' xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"'
    ' xmlns:xhtml="http://www.w3.org/1999/xhtml">\n'
)
_INDEX = '<?xml version="1.0" encoding="UTF-8"?>\n<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
_EXTENDED = 10


def format_w3c(timestamp: datetime) -> str:
    """Date and time with fractional seconds, as for a page that was just changed."""
    return timestamp.isoformat(timespec="microseconds")


def _format_seconds(timestamp: datetime) -> str:
    return timestamp.isoformat(timespec="seconds")


def render_urlset(
    pages: SitePages, numbers: range, *, origin: str, extensions: bool, everything_at: datetime | None
) -> bytes:
    lastmod = _choose_timestamps(pages, everything_at, changed=format_w3c, generated=_format_seconds)
    lines = [_URLSET]
    for number in pages.within(numbers):
        extra = _render_extensions(origin, number) if extensions and number % _EXTENDED == 0 else ""
        lines.append(
            f"<url><loc>{origin}{page_path(number)}</loc><lastmod>{lastmod(number)}</lastmod>"
            f"<changefreq>weekly</changefreq><priority>0.5</priority>{extra}</url>\n"
        )
    lines.append("</urlset>\n")
    return "".join(lines).encode()


def _render_extensions(origin: str, number: int) -> str:
    return (
        f"<image:image><image:loc>{origin}/images/{number:07d}.jpg</image:loc></image:image>"
        f'<xhtml:link rel="alternate" hreflang="zh" href="{origin}/zh{page_path(number)}"/>'
    )


def render_index(children: Iterable[tuple[str, datetime]]) -> bytes:
    """An index of children, given by URL and timestamp."""
    entries = (
        f"<sitemap><loc>{url}</loc><lastmod>{_format_seconds(modified)}</lastmod></sitemap>\n"
        for url, modified in children
    )
    return (_INDEX + "".join(entries) + "</sitemapindex>\n").encode()


def render_rss(pages: SitePages, numbers: range, *, origin: str, everything_at: datetime | None) -> bytes:
    published = _choose_timestamps(pages, everything_at, changed=format_datetime, generated=format_datetime)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>\n<rss version="2.0"><channel>\n<title>Sandbox</title>'
        f"<link>{origin}/</link><description>Pages of the sandbox site</description>\n"
    ]
    for number in pages.within(numbers):
        url = f"{origin}{page_path(number)}"
        lines.append(
            f"<item><title>Page {number}</title><link>{url}</link>"
            f'<guid isPermaLink="true">{url}</guid><pubDate>{published(number)}</pubDate></item>\n'
        )
    lines.append("</channel></rss>\n")
    return "".join(lines).encode()


def render_text(pages: SitePages, numbers: range, *, origin: str) -> bytes:
    return "".join(f"{origin}{page_path(number)}\n" for number in pages.within(numbers)).encode()


def _choose_timestamps(
    pages: SitePages,
    everything_at: datetime | None,
    *,
    changed: Callable[[datetime], str],
    generated: Callable[[datetime], str],
) -> Callable[[int], str]:
    """The function that writes the timestamp of a page. Generated timestamps are formatted once."""
    if everything_at is not None:
        text = changed(everything_at)
        return lambda _: text
    written = _write_timestamps(generated)

    def write(number: int) -> str:
        timestamp = pages.changed.get(number)
        return changed(timestamp) if timestamp is not None else written[timestamp_index(number)]

    return write


@cache
def _write_timestamps(write: Callable[[datetime], str]) -> Sequence[str]:
    return [write(timestamp) for timestamp in TIMESTAMPS]
