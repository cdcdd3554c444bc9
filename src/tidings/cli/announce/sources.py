"""Where `tidings announce` gets its pages: a sitemap of the network or of this machine, or a list of URLs."""

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from tidings.announce.channels.choice import ChannelChoice
from tidings.cli.language import label, translate
from tidings.cli.session import Session, fail, fail_to_read
from tidings.core.clock import parse_duration
from tidings.core.secrets.escapes import escape_controls

if TYPE_CHECKING:
    from tidings.announce.site.site import Site
    from tidings.announce.sitemap.events import PageSource
    from tidings.core.stop import Stop
    from tidings.wiring.installation import Installation

_LONGEST_SINCE_DAYS = 3_650


@dataclass(frozen=True, slots=True)
class Source:
    """The source that the arguments name."""

    # The sitemap. For a local file: the URL that stands for it. For a list: where a site usually has its sitemap.
    sitemap_url: str
    # The local sitemap.
    path: Path | None = None
    # The lines of a list of pages.
    lines: Iterable[str] | None = None
    # Pages with an older lastmod are left out.
    since: timedelta | None = None

    @property
    def is_remote(self) -> bool:
        """Whether the sitemap is fetched."""
        return self.path is None and self.lines is None

    def open(
        self,
        installation: "Installation",
        site: "Site",
        *,
        stop: "Stop",
        channel: ChannelChoice = ChannelChoice.INDEXNOW,
    ) -> "PageSource":
        """The pages, for one execution."""
        from tidings.announce.channels.enabled_channels import choose_channels
        from tidings.announce.due.given_pages import GivenPages
        from tidings.announce.due.recent_pages import RecentPages
        from tidings.announce.sitemap.local import LocalSitemaps

        now = installation.clock.now()
        if self.lines is not None:
            return GivenPages(self.lines, at=now)
        local = None if self.path is None else LocalSitemaps(self.path, url=self.sitemap_url)
        channels = choose_channels(site, channel)
        crawl = installation.announcer.make_crawl(site, stop=stop, channels=channels, local=local)
        return crawl if self.since is None else RecentPages(crawl, since=now - self.since)


def find_source(
    session: Session,
    sitemap: str | None,
    *,
    urls: Sequence[str],
    urls_from: str | None,
    since: str | None,
    host: str | None,
) -> Source:
    """The source that the arguments name, open until the command ends. Ends it if they name none, or two."""
    listed = bool(urls) or urls_from is not None
    if (sitemap is not None) == listed:
        fail("name either a sitemap, or pages with --url or --urls-from")
    if listed and since is not None:
        fail("--since goes by the lastmod of a sitemap; pages that are named count as changed just now")
    if sitemap is not None:
        return _find_sitemap(sitemap, since=_read_since(since), host=host)
    lines = chain(urls, _read_lines(_open_list(session, urls_from)))
    first = next(lines, None)
    if first is None:
        fail("there are no URLs to announce: the list is empty")
    if not urlsplit(first).netloc:
        line = first[:80]
        fail("{line!r} is not a URL; a list names one page a line, such as https://example.com/page", line=line)
    return Source(f"{_find_origin(first, host=host)}/sitemap.xml", lines=chain([first], lines))


def _read_since(since: str | None) -> timedelta | None:
    try:
        return None if since is None else parse_duration(since, unit="d", most=_LONGEST_SINCE_DAYS)
    except ValueError as error:
        fail(label("--since", translate(str(error))))


def _find_sitemap(sitemap: str, *, since: timedelta | None, host: str | None) -> Source:
    path = Path(sitemap)
    if "://" in sitemap:
        return Source(sitemap, since=since)
    if not path.exists():
        fail(
            "{sitemap} is neither a file here nor a URL such as https://example.com/sitemap.xml",
            sitemap=escape_controls(sitemap),
        )
    from tidings.announce.sitemap.local import find_first_url
    from tidings.announce.sitemap.reader import RefusedSitemapError

    try:
        first = find_first_url(path)
    except RefusedSitemapError as error:
        fail(label(str(path), translate(str(error))))
    except OSError as error:
        fail_to_read(path, error)
    if first is None and host is None:
        fail("{path} lists no URLs; --host would say whose sitemap it is", path=path)
    return Source(f"{_find_origin(first or '', host=host)}/{quote(path.name)}", path=path, since=since)


def _find_origin(url: str, *, host: str | None) -> str:
    """Scheme and host of a page, or the host that was given. A wrong one is refused when the site is made."""
    split = urlsplit(url)
    return f"{split.scheme or 'https'}://{host or split.netloc}"


def _open_list(session: Session, urls_from: str | None) -> Iterable[bytes]:
    """The list. Standard input is stored in a file first, so that no execution waits for a slow pipe."""
    if urls_from is None:
        return ()
    if urls_from == "-":
        spool = session.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the session closes it
        shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.seek(0)
        return spool
    try:
        return session.enter_context(Path(urls_from).open("rb"))
    except OSError as error:
        fail_to_read(urls_from, error)


def _read_lines(lines: Iterable[bytes]) -> Iterator[str]:
    """The lines that are neither empty nor a comment."""
    for line in lines:
        text = line.decode("utf-8", "replace").strip().removeprefix("\ufeff")
        if text and not text.startswith("#"):
            yield text
