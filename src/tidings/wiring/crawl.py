"""Builds what collects: the crawler, the runner that drives it, its jobs and its monitor."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidings.collect.alerts import CollectMonitor
from tidings.collect.crawl.assembly import make_crawler
from tidings.collect.crawl.crawler import MOST_ITEMS, Crawler, CrawlLimits
from tidings.collect.crawl.platforms.registry import BUILT_IN
from tidings.collect.crawl.platforms.shared_turns import SharedTurns
from tidings.collect.run.jobs import CollectJobs
from tidings.collect.run.runner import CollectRunner
from tidings.collect.watching import KeywordChecks
from tidings.core.db.database import open_read_only_database
from tidings.core.net.client import GuardedClient
from tidings.storage import find_database_url
from tidings.wiring.addresses import list_own_hosts
from tidings.wiring.collect import list_collect_intervals, make_cookie_rules
from tidings.wiring.installation import USER_AGENT, Installation


@asynccontextmanager
async def open_crawler(installation: Installation) -> AsyncIterator[Crawler]:
    """Open the crawler, on a read-only database and with HTTP clients of its own."""
    settings, crawl = installation.settings, installation.settings.crawl
    user_agent = crawl.user_agent or USER_AGENT
    # Each item of a batch may have a connection; the pace limits the requests.
    client, own_client = (
        GuardedClient(
            user_agent=user_agent,
            allow_networks=settings.allow_networks,
            allow_hosts=hosts,
            connections_per_host=MOST_ITEMS,
        )
        for hosts in ((), list_own_hosts(settings))
    )
    database = open_read_only_database(find_database_url(settings))
    try:
        async with client, own_client, _open_turns(installation) as turns:
            crawler = make_crawler(
                database,
                keys=installation.keys,
                clock=installation.clock,
                redactor=installation.redactor,
                client=client,
                own_client=own_client,
                user_agent=user_agent,
                base_urls=crawl.base_urls,
                feeds=crawl.feeds,
                platform_interval=crawl.platform_interval,
                cookie_interval=crawl.cookie_interval,
                request_timeout=crawl.request_timeout,
                rules=make_cookie_rules(settings),
                limits=CrawlLimits(search=crawl.search_timeout, detail=crawl.detail_timeout, batch=crawl.batch_timeout),
                turns=turns,
            )
            try:
                yield crawler
            finally:
                await crawler.close()
    finally:
        await database.close()


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
    """What is checked when a keyword is watched."""
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
        executions=installation.executions,
        batch_size=settings.batch_size,
        backoff=settings.backoff,
        retries=settings.retries,
    )


def make_collect_monitor(installation: Installation, *, crawler: Crawler) -> CollectMonitor:
    """The monitor that raises the alerts of collect."""
    return CollectMonitor(
        installation.database,
        alerts=installation.alerts,
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
