"""Sitemap files of this machine, such as those that a site's build wrote. They are answered where the crawl asks for
their URL; everything else of the crawl goes over the network.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from tidings.announce.sitemap.reader import SitemapReader
from tidings.core.net.addresses import Url, parse_url
from tidings.core.net.client import NetworkError

_BLOCK = 256 * 1024


class LocalAnswer:
    """A file as the answer to a request for its URL."""

    status = 200

    def __init__(self, path: Path, *, url: str) -> None:
        self.url: Url = parse_url(url)
        self.headers: Mapping[str, str] = {}
        self._path = path

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes of the file. Raises NetworkError if it cannot be read."""
        try:
            with await asyncio.to_thread(self._path.open, "rb") as file:
                while block := await asyncio.to_thread(file.read, _BLOCK):
                    yield block
        except OSError as error:
            raise NetworkError(str(self._path), error.strerror or type(error).__name__, sent=False) from None


class LocalSitemaps:
    """Answers the URL of `path` from that file, and other URLs of its host from the files beside it.

    An index names its children by URL. A child that lies beside the index is read there; any other is fetched.
    """

    def __init__(self, path: Path, *, url: str) -> None:
        self._path = path
        self._url = url

    def find(self, url: str) -> LocalAnswer | None:
        """The answer to a request for this URL; None if it has to be fetched."""
        path = self._find_file(url)
        return None if path is None else LocalAnswer(path, url=url)

    def _find_file(self, url: str) -> Path | None:
        if url == self._url:
            return self._path
        split = urlsplit(url)
        beside = self._path.parent / PurePosixPath(split.path).name
        return beside if split.netloc == urlsplit(self._url).netloc and beside.is_file() else None


def find_first_url(path: Path) -> str | None:
    """The first URL that a sitemap file lists. Raises OSError, RefusedSitemapError."""
    reader = SitemapReader()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            for loc, _ in reader.feed(block):
                return loc.decode(errors="replace")
    return next((loc.decode(errors="replace") for loc, _ in reader.close()), None)
