"""Builds the services that collect: the crawler, the built-in runner, its jobs and its monitor."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidings.collect.alerts.monitor import CollectMonitor
from tidings.collect.crawl.cookies.pool import CookiePool
from tidings.collect.crawl.crawler import MOST_ITEMS, Crawler, CrawlLimits
from tidings.collect.crawl.platforms.pace import LocalPace
from tidings.collect.crawl.platforms.protocol import PlatformTools
from tidings.collect.crawl.platforms.registry import BUILT_IN, PlatformRegistry
from tidings.collect.crawl.platforms.shared_turns import SharedTurns
from tidings.collect.run.jobs import CollectJobs
from tidings.collect.run.runner import CollectRunner
from tidings.collect.watching import KeywordChecks
from tidings.core.clock import Clock
from tidings.core.db.database import ReadableDatabase, open_read_only_database
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.redaction import Redactor
from tidings.settings.collect import CrawlSettings
from tidings.storage import find_database_url
from tidings.wiring.collect import list_collect_intervals, make_cookie_rules
from tidings.wiring.installation import USER_AGENT, Installation
from tidings.wiring.opening import make_client


@asynccontextmanager
async def open_crawler(installation: Installation) -> AsyncIterator[Crawler]:
    """Open the crawler, on a read-only database and with HTTP clients of its own."""
    settings = installation.settings
    agent = settings.crawl.user_agent or USER_AGENT
    # Each item of a batch may have a connection; the pace limits the requests.
    client, own_client = (
        make_client(settings, is_own=is_own, user_agent=agent, connections=MOST_ITEMS) for is_own in (False, True)
    )
    database = open_read_only_database(find_database_url(settings))
    try:
        async with client, own_client, _open_turns(installation) as turns:
            crawler = make_crawler(
                settings.crawl,
                database=database,
                keys=installation.keys,
                clock=installation.clock,
                redactor=installation.redactor,
                client=client,
                own_client=own_client,
                turns=turns,
            )
            try:
                yield crawler
            finally:
                await crawler.close()
    finally:
        await database.close()


def make_crawler(
    settings: CrawlSettings,
    *,
    database: ReadableDatabase,
    keys: KeyRing,
    clock: Clock,
    redactor: Redactor,
    client: GuardedClient,
    own_client: GuardedClient,
    turns: SharedTurns | None = None,
) -> Crawler:
    """The crawler with its platforms, its pool of cookies and its pace. Raises TypeError for a writable database.

    The clients must send the User-Agent of the settings, and allow a connection to one host for each item of a batch;
    `own_client` talks to the addresses that the settings name. `turns` keeps the pace of platforms over all processes.
    """
    if hasattr(database, "write"):
        raise TypeError("the crawler only reads: open its database with open_read_only_database")
    limits = CrawlLimits(search=settings.search_timeout, detail=settings.detail_timeout, batch=settings.batch_timeout)
    pool = CookiePool(
        database,
        keys=keys,
        clock=clock,
        redactor=redactor,
        rules=make_cookie_rules(settings),
        # Long enough: each request has its own limit, which raises the same error earlier.
        patience=max(limits.search, limits.detail, limits.batch),
    )
    intervals = {"platform_interval": settings.platform_interval, "cookie_interval": settings.cookie_interval}
    pace = LocalPace(clock=clock, **intervals, turns=turns)

    def find_tools(name: str) -> PlatformTools:
        base_url = settings.base_urls.get(name)
        return PlatformTools(
            client=client if base_url is None else own_client,
            clock=clock,
            pace=pace,
            user_agent=settings.user_agent or USER_AGENT,
            base_url=base_url,
            timeout=settings.request_timeout,
            search_limit=limits.search,
            feeds=settings.feeds,
        )

    platforms = PlatformRegistry(find_tools)
    return Crawler(platforms.get, pool=pool, clock=clock, redactor=redactor, limits=limits, close=platforms.close)


@asynccontextmanager
async def _open_turns(installation: Installation) -> AsyncIterator[SharedTurns | None]:
    """The turns that all processes on PostgreSQL share, on connections of their own."""
    if installation.database.dialect == "sqlite":
        yield None
        return

    platforms = set(BUILT_IN) - {"web"}
    database = open_read_only_database(find_database_url(installation.settings), connections=2 * len(platforms) + 1)
    turns = SharedTurns(database, clock=installation.clock, platforms=platforms)
    try:
        yield turns
    finally:
        await turns.close()
        await database.close()


def make_keyword_checks(installation: Installation, *, crawler: Crawler) -> KeywordChecks:
    """The checks before a keyword is watched."""
    return KeywordChecks(
        crawler=crawler,
        keywords=installation.collect.keywords,
        cookies=installation.collect.cookies,
        every=installation.settings.collect.discover_interval,
    )


def make_collect_runner(installation: Installation, *, crawler: Crawler) -> CollectRunner:
    """The built-in runner of discover and collect."""
    settings = installation.settings.collect
    return CollectRunner(
        crawler=crawler,
        writer=installation.collect.writer,
        comments=installation.collect.comments,
        keywords=installation.collect.keywords,
        batch_size=settings.batch_size,
        backoff=settings.backoff,
        retries=settings.retries,
    )


def make_collect_monitor(installation: Installation, *, crawler: Crawler) -> CollectMonitor:
    """The monitor that raises the alerts of collect."""
    return CollectMonitor(
        installation.database,
        installation.alerts,
        keys=installation.keys,
        clock=installation.clock,
        needs_cookie=crawler.needs_cookie,
    )


def make_collect_jobs(installation: Installation, *, crawler: Crawler) -> CollectJobs:
    """The jobs of collect that a worker does."""
    return CollectJobs(
        installation.database,
        installation.periodic,
        runner=make_collect_runner(installation, crawler=crawler),
        monitor=make_collect_monitor(installation, crawler=crawler),
        intervals=list_collect_intervals(installation.settings),
        wake=installation.wake,
    )
