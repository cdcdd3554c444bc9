"""Limits requests of a crawl to hosts other than the site's own. An index or a redirect may name files of a host that
has nothing to do with this site. So such hosts get few and slow requests, and only those that their robots.txt allows
(RFC 9309).

The operator's own choice is not limited: the site's host, and the hosts of its configured sitemaps.
"""

import zlib
from datetime import timedelta
from typing import Final

from tidings.announce.site.site import Site, find_netloc
from tidings.core.clock import Clock
from tidings.core.isolation.pool import ChildError, ChildPool
from tidings.core.net.addresses import Url, UrlError, parse_url
from tidings.core.net.client import FetchError, GuardedClient, RefusedError
from tidings.core.net.pace import Pace
from tidings.core.net.robots_rules import LONGEST, unpack_robots
from tidings.core.stop import Stop

# Between two requests of one crawl to any other hosts, because many names may lead to one machine. Also between two
# requests of all crawls to one host, because many sites may name it.
OTHER_HOST_PAUSE: Final = timedelta(seconds=1)
# Hosts share this many queues, so that an index of many names cannot fill the table of all queues.
_QUEUES: Final = 1_024
# The most requests of one crawl to other hosts, with redirects and robots.txt.
MOST_REQUESTS: Final = 1_000

_ROBOTS_TIMEOUT: Final = timedelta(seconds=10)
_SELECT: Final = "tidings.core.net.robots_rules:select_rules"
_JUDGE: Final = "tidings.core.net.robots_rules:judge_url"
_FORBIDDEN: Final = "robots.txt of that host, which is not the site's, forbids it"


class OtherHosts:
    """The requests of one crawl to other hosts. `pace`: the queues that all crawls share."""

    def __init__(
        self,
        site: Site,
        *,
        client: GuardedClient,
        clock: Clock,
        stop: Stop,
        pace: Pace | None = None,
        most_requests: int = MOST_REQUESTS,
    ) -> None:
        configured = (*site.sitemap_urls, *site.backup_sitemap_urls)
        self._own = {site.host, *(find_netloc(parse_url(url)) for url in configured)}
        self._client = client
        self._clock = clock
        self._stop = stop
        self._pace = pace
        self._most_requests = most_requests
        self._requests = 0
        # Monotonic seconds.
        self._next_at = 0.0
        # By origin: the rules for our user agent, or why nothing may be fetched.
        self._rules: dict[tuple[str, str, int], bytes | str] = {}
        self._reader = ChildPool(1)

    @property
    def used_up(self) -> bool:
        """Whether no further request to another host is admitted."""
        return self._requests >= self._most_requests

    @property
    def limit(self) -> str:
        """The rule, for people."""
        return f"a crawl makes at most {self._most_requests:,} requests to other hosts than the site's"

    def is_own(self, url: str) -> bool:
        """Whether the URL is on a host that the operator named. Also true for an invalid URL, because no request is
        sent for it."""
        try:
            return find_netloc(parse_url(url)) in self._own
        except UrlError:
            return True

    async def admit(self, url: Url) -> None:
        """Wait for the turn of a request. Raises RefusedError if it must not be made, StopRequestedError at a stop."""
        if find_netloc(url) in self._own:
            return
        if url.origin not in self._rules:
            self._rules[url.origin] = await self._read_rules(url)
        rules = self._rules[url.origin]
        if isinstance(rules, str):
            raise RefusedError(url, rules)
        if rules and not await self._judge(rules, url):
            raise RefusedError(url, _FORBIDDEN)
        await self._take_turn(url)

    async def close(self) -> None:
        """End the process that reads robots.txt."""
        await self._reader.close()

    async def _take_turn(self, url: Url) -> None:
        if self.used_up:
            raise RefusedError(url, self.limit)
        self._requests += 1
        wait = self._next_at - self._clock.monotonic()
        if wait > 0:
            await self._stop.sleep(timedelta(seconds=wait))
        if self._pace is not None:
            # Not the host's own queue: otherwise an index could slow down an engine by naming its host.
            queue = f"other-host:{zlib.crc32(url.host.encode()) % _QUEUES}"
            async with self._pace.turn(queue, stop=self._stop, least=OTHER_HOST_PAUSE):
                pass
        self._next_at = self._clock.monotonic() + OTHER_HOST_PAUSE.total_seconds()

    async def _read_rules(self, url: Url) -> bytes | str:
        address = f"{url.text.removesuffix(url.target)}/robots.txt"
        try:
            answer = await self._client.request(
                "GET",
                address,
                timeout=_ROBOTS_TIMEOUT,
                limit=LONGEST,
                follow_redirects=True,
                admit=self._take_turn,
            )
            if answer.status == 429 or answer.status >= 500:
                return f"robots.txt of that host cannot be fetched (HTTP {answer.status})"
            if answer.status != 200:
                return b""
            text = unpack_robots(answer.body, encoding=answer.headers.get("Content-Encoding", ""))
            selected = await self._reader.run(_SELECT, text, user_agent=self._client.user_agent)
        except FetchError as error:
            return f"robots.txt of that host cannot be fetched ({error.reason})"
        except (ChildError, ValueError):
            return "robots.txt of that host cannot be read"
        return "robots.txt of that host has too many rules" if selected is None else str(selected).encode()

    async def _judge(self, rules: bytes, url: Url) -> bool:
        try:
            allowed, _ = await self._reader.run(_JUDGE, rules, url=url.text, user_agent=self._client.user_agent)
        except ChildError:
            return False
        return bool(allowed)
