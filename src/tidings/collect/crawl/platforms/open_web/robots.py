"""robots.txt of sites (RFC 9309), fetched at most once an hour. A site without one allows everything. While its
robots.txt cannot be fetched, a site allows nothing; the next try is after a minute. `robots_rules` reads it. Also the
sites that asked us to wait.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from tidings.collect.crawl.platforms.client import judge_failure, read_retry_after
from tidings.collect.crawl.platforms.protocol import PlatformTools
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.core.isolation.pool import ChildError, ChildKilledError, ChildPool
from tidings.core.net.addresses import Url
from tidings.core.net.client import FetchError
from tidings.core.net.robots_rules import LONGEST, unpack_robots

# The wait after a 429 without Retry-After.
DEFAULT_RETRY_AFTER: Final = timedelta(minutes=1)

_LIFETIME: Final = timedelta(hours=1)
_FAILURE_LIFETIME: Final = timedelta(minutes=1)
_MOST_SITES: Final = 1_000
# Sites that asked us to wait. Of them only the time is kept, so they are many more.
_MOST_CLOSED: Final = 10_000
# The size of all cached rules together; most sites have less than a kilobyte.
_MOST_BYTES: Final = 32 * 1024 * 1024
_SELECT: Final = "tidings.core.net.robots_rules:select_rules"
_JUDGE: Final = "tidings.core.net.robots_rules:judge_url"


@dataclass(slots=True)
class _Site:
    """One origin."""

    # The part of robots.txt that concerns us; empty if everything is allowed.
    rules: bytes = b""
    # Why robots.txt could not be fetched.
    failure: CrawlError | None = None
    # When it is fetched again.
    until: datetime | None = None
    fetching: asyncio.Lock = field(default_factory=asyncio.Lock)


class Robots:
    """The robots.txt of the sites that were used last. `readers` parse it."""

    def __init__(self, tools: PlatformTools, readers: ChildPool) -> None:
        self._tools = tools
        self._readers = readers
        self._sites: OrderedDict[tuple[str, str, int], _Site] = OrderedDict()
        # Until when a site itself asked us to wait.
        self._closed: dict[tuple[str, str, int], datetime] = {}

    async def admit(self, url: Url) -> timedelta:
        """The site's Crawl-delay. Raises CrawlError if robots.txt forbids the URL or cannot be fetched."""
        site = self._find_site(url)
        async with site.fetching:
            if site.until is None or self._tools.clock.now() >= site.until:
                await self._renew(site, url)
        if site.failure is not None:
            # A new exception each time: raising the same one again would collect tracebacks.
            left = None if site.failure.retry_after is None else _measure_wait(site.until, at=self._tools.clock.now())
            raise CrawlError(site.failure.code, site.failure.message, retry_after=left)
        if not site.rules:
            return timedelta(0)
        allowed, delay = await self._read(_JUDGE, site.rules, _name_file(url), url=url.text)
        if not allowed:
            raise CrawlError(ErrorCode.INVALID_INPUT, f"robots.txt of the site forbids {url}")
        return timedelta(seconds=delay)

    def close(self, url: Url, wait: timedelta) -> None:
        """The site asks us to wait. If there are too many, the one that asked the longest ago is forgotten."""
        self._closed.pop(url.origin, None)
        self._closed[url.origin] = self._tools.clock.now() + wait
        if len(self._closed) > _MOST_CLOSED:
            del self._closed[next(iter(self._closed))]

    def find_wait(self, url: Url) -> timedelta:
        """How long the site still asks us to wait."""
        return _measure_wait(self._closed.get(url.origin), at=self._tools.clock.now())

    def _find_site(self, url: Url) -> _Site:
        site = self._sites.setdefault(url.origin, _Site())
        self._sites.move_to_end(url.origin)
        return site

    async def _renew(self, site: _Site, url: Url) -> None:
        try:
            site.rules, site.failure, lifetime = await self._fetch(url), None, _LIFETIME
        except CrawlError as error:
            site.rules, site.failure, lifetime = b"", error, error.retry_after or _FAILURE_LIFETIME
        site.until = self._tools.clock.now() + lifetime
        size = sum(len(each.rules) for each in self._sites.values())
        while len(self._sites) > _MOST_SITES or (size > _MOST_BYTES and len(self._sites) > 1):
            size -= len(self._sites.popitem(last=False)[1].rules)

    async def _fetch(self, url: Url) -> bytes:
        """The rules that concern us; empty if there are none."""
        address = _name_file(url)
        await self._tools.pace.wait_turn(name_pace_key(url))
        try:
            async with self._tools.client.stream(
                "GET", address, timeout=self._tools.timeout, follow_redirects=True
            ) as answer:
                body = await answer.read_start(LONGEST + 1)
        except FetchError as error:
            raise judge_failure(error, refused=ErrorCode.INVALID_INPUT) from None
        if answer.status == 429 or answer.status >= 500:
            asked = read_retry_after(answer.headers, clock=self._tools.clock)
            wait = DEFAULT_RETRY_AFTER if asked is None and answer.status == 429 else asked
            raise _refuse(address, f"cannot be fetched (HTTP {answer.status})", retry_after=wait)
        if answer.status != 200:
            return b""
        try:
            text = unpack_robots(body, encoding=answer.headers.get("Content-Encoding", ""))
        except ValueError:
            raise _refuse(address, "has an encoding that cannot be read") from None
        rules = await self._read(_SELECT, text, address)
        if rules is None:
            raise _refuse(address, "has too many rules")
        return str(rules).encode()

    async def _read(self, function: str, text: bytes, address: str, **arguments: str) -> Any:
        try:
            return await self._readers.run(function, text, user_agent=self._tools.user_agent, **arguments)
        except ChildKilledError as error:
            raise _refuse(address, f"could not be read ({error})") from None
        except ChildError as error:
            raise _refuse(address, f"cannot be read ({error})") from None


def _name_file(url: Url) -> str:
    return f"{url.text.removesuffix(url.target)}/robots.txt"


def name_pace_key(url: Url) -> str:
    """The pace key of a site: its host and port."""
    return f"{url.host}:{url.port}"


def _measure_wait(until: datetime | None, *, at: datetime) -> timedelta:
    return timedelta(0) if until is None else max(timedelta(0), until - at)


def _refuse(address: str, trouble: str, *, retry_after: timedelta | None = None) -> CrawlError:
    message = f"{address} {trouble}, so nothing is fetched from the site"
    return CrawlError(ErrorCode.PLATFORM_ERROR, message, retry_after=retry_after)
