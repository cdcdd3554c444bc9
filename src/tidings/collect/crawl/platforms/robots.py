"""What robots.txt of a site allows (RFC 9309), fetched once an hour at most. A site without one allows everything; one
whose robots.txt cannot be had for now allows nothing until it can, and is asked again after a minute.
"""

import asyncio
import gzip
import math
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Final

from tidings.collect.crawl.platforms.client import judge_failure
from tidings.collect.crawl.platforms.protocol import PlatformTools
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.core.net.addresses import Url
from tidings.core.net.client import FetchError

if TYPE_CHECKING:
    from protego import Protego

_LIFETIME: Final = timedelta(hours=1)
_FAILURE_LIFETIME: Final = timedelta(minutes=1)
_LONGEST: Final = 500 * 1024
# One byte more tells whether the rest is left out.
_TAKEN: Final = _LONGEST + 1
_MOST_SITES: Final = 1_000
_LONGEST_DELAY: Final = timedelta(hours=1)


@dataclass(slots=True)
class _Site:
    """What is known of one origin. `rules` is None where there is no robots.txt, `failure` says why it could not be
    had."""

    rules: "Protego | None" = None
    failure: CrawlError | None = None
    until: datetime | None = None
    fetching: asyncio.Lock = field(default_factory=asyncio.Lock)


class Robots:
    """The robots.txt of every site that was asked, as far as there is room."""

    def __init__(self, tools: PlatformTools) -> None:
        self._tools = tools
        self._sites: OrderedDict[tuple[str, str, int], _Site] = OrderedDict()

    async def admit(self, url: Url) -> timedelta:
        """The least time between two requests that the site asks for. Raises CrawlError where it admits none."""
        site = self._find_site(url)
        async with site.fetching:
            if site.until is None or self._tools.clock.now() >= site.until:
                await self._renew(site, url)
        if site.failure is not None:
            # A new one each time: an exception that is raised again drags all its tracebacks along.
            raise CrawlError(site.failure.code, site.failure.message)
        if site.rules is None:
            return timedelta(0)
        if not site.rules.can_fetch(url.text, self._tools.user_agent):
            raise CrawlError(ErrorCode.INVALID_INPUT, f"{url} is not to be fetched: robots.txt of the site says so")
        return _read_delay(site.rules.crawl_delay(self._tools.user_agent))

    def _find_site(self, url: Url) -> _Site:
        site = self._sites.setdefault(url.origin, _Site())
        self._sites.move_to_end(url.origin)
        if len(self._sites) > _MOST_SITES:
            self._sites.popitem(last=False)
        return site

    async def _renew(self, site: _Site, url: Url) -> None:
        try:
            site.rules, site.failure, lifetime = await self._fetch(url), None, _LIFETIME
        except CrawlError as error:
            site.rules, site.failure, lifetime = None, error, _FAILURE_LIFETIME
        site.until = self._tools.clock.now() + lifetime

    async def _fetch(self, url: Url) -> "Protego | None":
        address = f"{url.text.removesuffix(url.target)}/robots.txt"
        await self._tools.pace.wait_turn(name_pace_key(url))
        try:
            async with self._tools.client.stream(
                "GET", address, timeout=self._tools.timeout, follow_redirects=True
            ) as answer:
                body = await answer.read_start(_TAKEN)
        except FetchError as error:
            raise judge_failure(error, refused=ErrorCode.INVALID_INPUT) from None
        if answer.status == 429 or answer.status >= 500:
            raise _refuse(address, f"cannot be had (HTTP {answer.status})")
        if answer.status != 200:
            return None
        try:
            return _read_rules(_cut_to_lines(_unpack(body, encoding=answer.headers.get("Content-Encoding", ""))))
        except (ValueError, OSError, EOFError, zlib.error):
            raise _refuse(address, "is packed in a way that cannot be read") from None


def name_pace_key(url: Url) -> str:
    """What requests to a site are paced by."""
    return f"{url.host}:{url.port}"


def _refuse(address: str, trouble: str) -> CrawlError:
    return CrawlError(ErrorCode.PLATFORM_ERROR, f"{address} {trouble}, so nothing is fetched from the site")


def _unpack(body: bytes, *, encoding: str) -> bytes:
    """The body without its Content-Encoding, as much of it as is read of one that has none. What is damaged raises
    whatever the library does, and an unknown encoding ValueError."""
    match encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip" | "x-gzip":
            with gzip.GzipFile(fileobj=BytesIO(body)) as file:
                return file.read(_TAKEN)
        case "deflate":
            inflater = zlib.decompressobj()
            text = inflater.decompress(body, _TAKEN)
            if not inflater.eof and len(text) < _TAKEN:
                raise EOFError
            return text
        case _:
            raise ValueError("an unknown encoding")


def _cut_to_lines(text: bytes) -> bytes:
    """As many whole lines as may be read. Half a line would be another rule: `Allow: /` instead of `Allow: /public`."""
    if len(text) < _TAKEN:
        return text
    return text[: max(text.rfind(b"\n"), text.rfind(b"\r")) + 1]


def _read_rules(body: bytes) -> "Protego":
    from protego import Protego

    # Some editors begin a text with a byte order mark, which would hide the first line.
    return Protego.parse(body.decode("utf-8-sig", "replace"))


def _read_delay(seconds: float | None) -> timedelta:
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        return timedelta(0)
    return min(timedelta(seconds=min(seconds, 1e6)), _LONGEST_DELAY)
