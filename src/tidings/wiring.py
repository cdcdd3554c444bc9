"""The composition root: builds everything from Settings, and nothing else does."""

import functools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tidings import __version__
from tidings.announce.due.rules import DueRules
from tidings.announce.execution.alerts import AnnounceAlert
from tidings.announce.execution.live import LiveExecutions
from tidings.announce.execution.pipeline import Announcer
from tidings.announce.schedule.table import Schedules
from tidings.announce.service import AnnounceService
from tidings.announce.site.site import Site, make_site
from tidings.announce.site.table import Origin, SiteRecords
from tidings.collect.alert_kinds import CollectAlert
from tidings.collect.crawl.cookies.states import CookieRules
from tidings.collect.feishu.mirror import Mirror
from tidings.collect.write import Keywords, Writer, WriterLimits
from tidings.collect.write.cookies import CookieRecords
from tidings.core.alerts import (
    Alerts,
    AppriseDestination,
    DeliveryPolicy,
    Destination,
    WebhookDestination,
    new_webhook_secret,
    split_urls,
)
from tidings.core.clock import Clock, SystemClock
from tidings.core.db.database import Database, open_database, open_read_only_database, prepare_database
from tidings.core.executions import Executions
from tidings.core.net.client import GuardedClient
from tidings.core.net.pace import Pace
from tidings.core.net.retry import RetryPolicy
from tidings.core.process_lock import ProcessLock
from tidings.core.queue.jobs import Jobs
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import load_or_create_key_file
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret
from tidings.core.secrets.tokens import Tokens
from tidings.settings import Settings

if TYPE_CHECKING:
    from tidings.collect.alerts import CollectMonitor
    from tidings.collect.crawl.crawler import Crawler
    from tidings.collect.run.jobs import CollectJobs
    from tidings.collect.run.runner import CollectRunner

USER_AGENT = f"Tidings/{__version__}"


@dataclass(frozen=True, slots=True)
class Installation:
    """Tidings on one data directory, ready for work. `made_key` is where a master key was made, if just now."""

    settings: Settings
    database: Database
    clock: Clock
    client: GuardedClient
    executions: Executions
    sites: SiteRecords
    announcer: Announcer
    redactor: Redactor
    keys: KeyRing
    schedules: Schedules
    alerts: Alerts
    destinations: Sequence[Destination]
    tokens: Tokens
    service: AnnounceService
    cookies: CookieRecords
    keywords: Keywords
    writer: Writer
    jobs: Jobs
    mirror: Mirror | None
    wakers: list[Callable[[], None]]
    made_key: Path | None = None

    def wake(self) -> None:
        """There may be something new to do: tell whoever waits for that."""
        for waker in self.wakers:
            waker()

    async def find_site(self, name: str | None) -> Site | None:
        """The site of this id; without a name, the environment's own, or the only one there is."""
        own = self._make_own_site()
        if own is not None and name in (None, own.id):
            return await self.sites.save(own, origin=Origin.ENVIRONMENT)
        if name is not None:
            found = await self.sites.find(name)
        else:
            everything = await self.sites.list_all()
            found = everything[0] if len(everything) == 1 else None
        return found if found is None else self.know(found)

    async def store_own_site(self) -> None:
        """Store the environment's site, so that it runs by its schedule."""
        own = self._make_own_site()
        if own is not None:
            await self.sites.save(own, origin=Origin.ENVIRONMENT)

    def is_from_environment(self, site_id: str) -> bool:
        """Whether this site is set up by the environment, which then decides its settings."""
        own = self._make_own_site()
        return own is not None and own.id == site_id

    def know(self, site: Site) -> Site:
        """Keep the site's keys out of every log from now on."""
        return know_site(site, redactor=self.redactor)

    def _make_own_site(self) -> Site | None:
        settings = self.settings
        if settings.site is None:
            return None
        return self.know(
            make_site(
                sitemap_urls=[settings.site.sitemap_url],
                key=settings.site.key.reveal(),
                host=settings.site.host,
                engines=settings.engines,
                schedule=settings.schedule,
                bing=settings.site.bing,
            )
        )


@asynccontextmanager
async def open_installation(
    settings: Settings, *, redactor: Redactor | None = None, clock: Clock | None = None
) -> AsyncIterator[Installation]:
    """Open the database, bring its tables up to date, and build the HTTP client and all services.

    `redactor` learns every secret; give your own if logging is configured with one. `clock` is the time of every
    service; the default is the system's.
    """
    prepare_data_dir(settings.data_dir)
    clock = clock or SystemClock()
    redactor = redactor or Redactor()
    for each in settings.secrets:
        redactor.add(each)
    async with AsyncExitStack() as stack:
        process_lock = ProcessLock(settings.data_dir)
        stack.callback(process_lock.close)
        keys, made_key = open_key_ring(settings, redactor=redactor)
        database = open_database(find_database_url(settings))
        stack.push_async_callback(database.close)
        await prepare_database(database)
        client = await stack.enter_async_context(
            GuardedClient(
                user_agent=USER_AGENT,
                allow_networks=settings.allow_networks,
                # A request that waits for a connection would be sent later than its turn.
                connections_per_host=max(6, settings.max_concurrent_requests),
            )
        )
        executions = Executions(
            database, clock=clock, process_lock=process_lock, silent_for=settings.collect.lock_timeout
        )
        schedules = Schedules(database, clock=clock, spread=settings.schedule_spread)
        sites = SiteRecords(database, keys=keys, clock=clock, planner=schedules)
        destinations = open_destinations(settings, client=client, clock=clock, redactor=redactor)
        alerts = Alerts(
            database,
            clock=clock,
            destinations=destinations,
            kinds=[*AnnounceAlert, *CollectAlert],
            language=settings.language,
            policy=DeliveryPolicy(scale=settings.retry_scale),
            redactor=redactor,
        )
        announcer = Announcer(
            database=database,
            executions=executions,
            client=client,
            clock=clock,
            pace=Pace(
                database,
                clock=clock,
                interval=settings.request_interval,
                concurrency=settings.max_concurrent_requests,
            ),
            alerts=alerts,
            policy=RetryPolicy(retries=settings.max_retries, scale=settings.retry_scale),
            rules=DueRules(time_to_live=settings.cache_ttl, resubmit_gap=settings.resubmit_gap),
            concurrency=settings.max_concurrent_requests,
            bing_base=settings.bing_base,
        )
        service = AnnounceService(
            database=database,
            sites=sites,
            schedules=schedules,
            announcer=announcer,
            executions=executions,
            alerts=alerts,
            clock=clock,
            budget=settings.run_budget,
            limit=settings.max_executions,
            live=LiveExecutions(clock=clock),
            know=functools.partial(know_site, redactor=redactor),
        )
        await service.recover()
        target = settings.collect.feishu
        yield Installation(
            settings=settings,
            database=database,
            clock=clock,
            client=client,
            executions=executions,
            sites=sites,
            announcer=announcer,
            redactor=redactor,
            keys=keys,
            schedules=schedules,
            alerts=alerts,
            destinations=destinations,
            tokens=Tokens(database, clock=clock),
            service=service,
            cookies=CookieRecords(database, keys=keys, clock=clock),
            keywords=Keywords(database, clock=clock),
            writer=Writer(
                database,
                executions=executions,
                clock=clock,
                limits=WriterLimits(lock_timeout=settings.collect.lock_timeout, backoff=settings.collect.backoff),
                rules=make_cookie_rules(settings),
                mirrored=() if target is None else target.tables,
            ),
            jobs=Jobs(database, clock=clock),
            mirror=None
            if target is None
            else Mirror(database, target=target, executions=executions, alerts=alerts, clock=clock, redactor=redactor),
            wakers=[],
            made_key=made_key,
        )


@asynccontextmanager
async def open_crawler(installation: Installation) -> "AsyncIterator[Crawler]":
    """What crawls, on a database that it can only read and with an HTTP client of its own."""
    # Loaded here, not above: only the service needs it.
    from tidings.collect.crawl.crawler import MOST_ITEMS, CrawlLimits, make_crawler

    settings, crawl = installation.settings, installation.settings.crawl
    user_agent = crawl.user_agent or USER_AGENT
    # Every item of a batch may have a connection; that they are not too many at once is the pace's business.
    client = GuardedClient(
        user_agent=user_agent, allow_networks=settings.allow_networks, connections_per_host=MOST_ITEMS
    )
    database = open_read_only_database(find_database_url(settings))
    try:
        async with client:
            crawler = make_crawler(
                database,
                keys=installation.keys,
                clock=installation.clock,
                redactor=installation.redactor,
                client=client,
                user_agent=user_agent,
                base_urls=crawl.base_urls,
                feeds=crawl.feeds,
                platform_interval=crawl.platform_interval,
                cookie_interval=crawl.cookie_interval,
                request_timeout=crawl.request_timeout,
                rules=make_cookie_rules(settings),
                limits=CrawlLimits(search=crawl.search_timeout, detail=crawl.detail_timeout, batch=crawl.batch_timeout),
            )
            try:
                yield crawler
            finally:
                await crawler.close()
    finally:
        await database.close()


def make_collect_runner(installation: Installation, *, crawler: "Crawler") -> "CollectRunner":
    """What does the workflows of collect in this process."""
    from tidings.collect.run.runner import CollectRunner

    settings = installation.settings.collect
    return CollectRunner(
        crawler=crawler,
        writer=installation.writer,
        keywords=installation.keywords,
        executions=installation.executions,
        batch_size=settings.batch_size,
        backoff=settings.backoff,
        retries=settings.retries,
    )


def make_collect_monitor(installation: Installation, *, crawler: "Crawler") -> "CollectMonitor":
    """What tells people how collecting stands."""
    from tidings.collect.alerts import CollectMonitor

    return CollectMonitor(
        installation.database,
        alerts=installation.alerts,
        keys=installation.keys,
        clock=installation.clock,
        needs_cookie=crawler.needs_cookie,
    )


def make_collect_jobs(installation: Installation, *, crawler: "Crawler") -> "CollectJobs":
    """The jobs of collect, as a service does them."""
    from tidings.collect.run.jobs import CollectJobs, Intervals

    settings = installation.settings.collect
    return CollectJobs(
        installation.jobs,
        runner=make_collect_runner(installation, crawler=crawler),
        watch=make_collect_monitor(installation, crawler=crawler),
        clock=installation.clock,
        intervals=Intervals(
            discover=settings.discover_interval, collect=settings.collect_interval, recover=settings.recovery_interval
        ),
        drives=settings.runs,
        mirror=installation.mirror,
    )


def make_cookie_rules(settings: Settings) -> CookieRules:
    crawl = settings.crawl
    return CookieRules(
        max_consecutive_errors=crawl.max_consecutive_errors,
        max_total_errors=crawl.max_total_errors,
        cooling=crawl.cooling,
    )


def know_site(site: Site, *, redactor: Redactor) -> Site:
    """Keep the site's keys out of every log from now on."""
    for secret in site.secrets:
        redactor.add(secret)
    return site


def open_destinations(
    settings: Settings, *, client: GuardedClient, clock: Clock, redactor: Redactor
) -> list[Destination]:
    """Where alerts go. Raises DestinationError where the webhook cannot be used."""
    destinations: list[Destination] = []
    if settings.webhook_url is not None:
        url, secret = settings.webhook_url.reveal(), open_webhook_secret(settings, redactor=redactor)
        destinations.append(WebhookDestination(url, secret=secret, client=client, clock=clock))
    urls = [] if settings.alert_urls is None else split_urls(settings.alert_urls)
    for number, each in enumerate(urls, start=1):
        redactor.add(each)
        destinations.append(AppriseDestination(each, number=number))
    return destinations


def open_webhook_secret(settings: Settings, *, redactor: Redactor) -> Secret:
    """What webhooks are signed with: from the settings, or from the data directory, where one is made at first need."""
    if settings.webhook_secret is not None:
        return settings.webhook_secret
    text, _ = load_or_create_key_file(
        settings.data_dir / "webhook.secret",
        make=lambda: new_webhook_secret().reveal(),
        setting="TIDINGS_WEBHOOK_SECRET",
    )
    secret = Secret(text)
    redactor.add(secret)
    return secret


def prepare_data_dir(data_dir: Path) -> None:
    """Make the data directory, for its owner alone. One that is there already keeps its mode."""
    if not data_dir.is_dir():
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        data_dir.mkdir(mode=0o700, exist_ok=True)


def find_database_url(settings: Settings) -> str:
    if settings.database_url is not None:
        return settings.database_url.reveal()
    return f"sqlite:///{quote(str(settings.data_dir.absolute() / 'tidings.db'))}"


def open_key_ring(settings: Settings, *, redactor: Redactor) -> tuple[KeyRing, Path | None]:
    """The master keys: from the settings, or from the data directory, where one is made at first start."""
    made_key = None
    if settings.master_key is not None:
        text = settings.master_key.reveal()
    else:
        path = settings.data_dir / "master.key"
        text, made = load_or_create_key_file(path)
        made_key = path if made else None
    keys = KeyRing.parse(text)
    for secret in keys.secrets:
        redactor.add(secret)
    return keys, made_key
