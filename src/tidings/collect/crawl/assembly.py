"""Builds the crawler: its platforms, its pool of cookies, and the pace between requests."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from tidings.collect.crawl.cookies.pool import CookiePool
from tidings.collect.crawl.cookies.states import CookieRules
from tidings.collect.crawl.crawler import DEFAULT_LIMITS, Crawler, CrawlLimits
from tidings.collect.crawl.platforms.pace import DEFAULT_COOKIE_INTERVAL, DEFAULT_PLATFORM_INTERVAL, LocalPace
from tidings.collect.crawl.platforms.protocol import DEFAULT_TIMEOUT, PlatformTools
from tidings.collect.crawl.platforms.registry import PlatformRegistry
from tidings.collect.crawl.platforms.shared_turns import SharedTurns
from tidings.core.clock import Clock
from tidings.core.db.database import ReadableDatabase
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.redaction import Redactor

_DEFAULT_RULES: Final = CookieRules()


def make_crawler(
    database: ReadableDatabase,
    *,
    keys: KeyRing,
    clock: Clock,
    redactor: Redactor,
    client: GuardedClient,
    own_client: GuardedClient,
    user_agent: str,
    base_urls: Mapping[str, str] | None = None,
    feeds: Sequence[str] = (),
    platform_interval: timedelta = DEFAULT_PLATFORM_INTERVAL,
    cookie_interval: timedelta = DEFAULT_COOKIE_INTERVAL,
    request_timeout: timedelta = DEFAULT_TIMEOUT,
    rules: CookieRules = _DEFAULT_RULES,
    limits: CrawlLimits = DEFAULT_LIMITS,
    turns: SharedTurns | None = None,
) -> Crawler:
    """Build the crawler with all platforms. Raises TypeError for a writable database.

    `turns`: keeps the pace of platforms over all processes; None where there is one process.

    The client must send the same `user_agent` and allow as many connections to one host as there are parallel requests
    (MOST_ITEMS for a batch). `base_urls` replaces the addresses of platforms, by name; `own_client` talks to those.
    """
    if hasattr(database, "write"):
        raise TypeError("the crawler only reads: open its database with open_read_only_database")
    pool = CookiePool(
        database,
        keys=keys,
        clock=clock,
        redactor=redactor,
        rules=rules,
        # Each request has its own limit, which gives the same error earlier.
        patience=max(limits.search, limits.detail, limits.batch),
    )
    pace = LocalPace(clock=clock, platform_interval=platform_interval, cookie_interval=cookie_interval, turns=turns)

    def find_tools(name: str) -> PlatformTools:
        base_url = (base_urls or {}).get(name)
        return PlatformTools(
            client=client if base_url is None else own_client,
            clock=clock,
            pace=pace,
            user_agent=user_agent,
            base_url=base_url,
            timeout=request_timeout,
            search_limit=limits.search,
            feeds=tuple(feeds),
        )

    platforms = PlatformRegistry(find_tools)
    return Crawler(platforms.get, pool=pool, clock=clock, redactor=redactor, limits=limits, close=platforms.close)
