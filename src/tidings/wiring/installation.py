"""An installation: what is open on one data directory, and the services of core and announce.

`Installation` lists the services and what each is built from. A service is built when it is first used, and one that
`tidings announce` does not need is imported only then.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings import __version__
from tidings.announce.announcer import Announcer
from tidings.announce.due.rules import DueRules
from tidings.announce.schedule.table import Schedules
from tidings.announce.site.site import ANNOUNCE, Site, make_site
from tidings.announce.site.table import Origin, SiteRecords
from tidings.core.alerts.events import Destination
from tidings.core.alerts.kinds import AlertLevel
from tidings.core.alerts.service import Alerts
from tidings.core.alerts.translation import Translator
from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.core.execution_table import LostExecution
from tidings.core.executions import Executions
from tidings.core.net.client import GuardedClient
from tidings.core.net.pace import Pace
from tidings.core.net.ping import Ping
from tidings.core.net.retry import RetryPolicy
from tidings.core.process_lock import ProcessLock
from tidings.core.queue.periodic import PeriodicJobs
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.redaction import Redactor
from tidings.settings.settings import Settings
from tidings.wiring.alerts import list_alert_kinds, list_catalogues, open_destinations

if TYPE_CHECKING:
    from tidings.announce.schedule.seen_hooks import SeenHooks
    from tidings.announce.service import AnnounceService
    from tidings.core.execution_requests import ExecutionRequests
    from tidings.core.queue.dispatcher import Dispatcher
    from tidings.core.queue.tick import Ticker
    from tidings.core.secrets.sessions import Sessions
    from tidings.core.secrets.tokens import Tokens
    from tidings.wiring.collect import CollectInstallation

USER_AGENT = f"Tidings/{__version__}"
# A chore that a running service does every minute: its last time shows that a service runs.
WATCH = "announce.watch"
WATCH_EVERY = timedelta(minutes=1)
# Each job of collect has a place of its own, so that a long one does not delay the others.
COLLECT_PLACES = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class Installation:
    """Tidings on one data directory: its open resources, and the services that are built from them."""

    settings: Settings
    # The time of every service.
    clock: Clock
    # Has all secrets that must not be logged.
    redactor: Redactor
    # Shows other processes that this one is alive.
    process_lock: ProcessLock
    # Encrypts stored keys and cookies.
    keys: KeyRing
    # The file of a master key that was created just now.
    made_key: Path | None
    # Whether the database was created just now: there is no history in it.
    is_new: bool = False
    database: Database
    # For URLs from sites, pages and requests: public addresses, and `settings.allow_networks`.
    client: GuardedClient
    # For URLs from the settings, which may have any address.
    own_client: GuardedClient
    # Called when there may be new work.
    wakers: list[Callable[[], None]] = field(default_factory=list)

    def wake(self) -> None:
        """Wake every loop that waits for work."""
        for waker in self.wakers:
            waker()

    # Core services.

    @cached_property
    def executions(self) -> Executions:
        return Executions(
            self.database,
            clock=self.clock,
            process_lock=self.process_lock,
            silent_for=self.settings.collect.lock_timeout,
            find_dead=lambda holders: self.dispatcher.find_dead(holders),
            on_lost=self._put_back,
        )

    @cached_property
    def requests(self) -> "ExecutionRequests":
        from tidings.core.execution_requests import ExecutionRequests

        return ExecutionRequests(self.database, clock=self.clock, executions=self.executions)

    @cached_property
    def dispatcher(self) -> "Dispatcher":
        """Hands jobs to the workers: of this process on SQLite, of all machines on PostgreSQL."""
        places = {"announce": self.settings.max_executions, "collect": COLLECT_PLACES}
        if self.database.dialect == "postgresql":
            from tidings.core.queue.postgresql import PostgresDispatcher

            return PostgresDispatcher(
                self.database, clock=self.clock, process_lock=self.process_lock, places=places, release=__version__
            )
        from tidings.core.queue.embedded import EmbeddedDispatcher

        return EmbeddedDispatcher(
            self.database,
            clock=self.clock,
            process_lock=self.process_lock,
            places=places,
            release=__version__,
            on_free=self.wake,
        )

    @cached_property
    def ticker(self) -> "Ticker":
        """Submits what is due."""
        from tidings.wiring.ticker import make_ticker

        ticker = make_ticker(self)
        self.wakers.append(ticker.wake)
        return ticker

    async def _put_back(self, connection: AsyncConnection, lost: LostExecution) -> None:
        """Make the work of a dead holder due again; collect frees its records."""
        await self.service.put_back(connection, lost)
        if lost.kind != ANNOUNCE:
            await self.periodic.make_due(connection, "collect.recover")

    @cached_property
    def destinations(self) -> Mapping[Destination, AlertLevel]:
        """The destinations of alerts, with their minimum levels. Raises DestinationError for a webhook that cannot be
        used."""
        return dict(open_destinations(self.settings, client=self.own_client, clock=self.clock, redactor=self.redactor))

    @cached_property
    def alerts(self) -> Alerts:
        return Alerts(
            self.database,
            clock=self.clock,
            destinations=self.destinations,
            kinds=list_alert_kinds(),
            language=self.settings.language,
            retry_scale=self.settings.retry_scale,
            redactor=self.redactor,
            levels={destination.name: level for destination, level in self.destinations.items()},
            translator=Translator(list_catalogues()),
        )

    @cached_property
    def tokens(self) -> "Tokens":
        from tidings.core.secrets.tokens import Tokens

        return Tokens(self.database, clock=self.clock)

    @cached_property
    def sessions(self) -> "Sessions":
        from tidings.core.secrets.sessions import Sessions

        return Sessions(self.database, clock=self.clock)

    @cached_property
    def periodic(self) -> PeriodicJobs:
        return PeriodicJobs(self.database, clock=self.clock)

    # Announce.

    @cached_property
    def schedules(self) -> Schedules:
        settings = self.settings
        return Schedules(
            self.database, clock=self.clock, spread=settings.schedule_spread, interval=settings.request_interval
        )

    @cached_property
    def sites(self) -> SiteRecords:
        return SiteRecords(self.database, keys=self.keys, clock=self.clock, planner=self.schedules)

    @cached_property
    def announcer(self) -> Announcer:
        settings = self.settings
        return Announcer(
            database=self.database,
            executions=self.executions,
            client=self.client,
            engine_client=self.own_client,
            clock=self.clock,
            pace=Pace(
                self.database,
                clock=self.clock,
                interval=settings.request_interval,
                concurrency=settings.max_concurrent_requests,
            ),
            alerts=self.alerts,
            policy=RetryPolicy(retries=settings.max_retries, scale=settings.retry_scale),
            rules=DueRules(time_to_live=settings.cache_ttl, resubmit_gap=settings.resubmit_gap),
            concurrency=settings.max_concurrent_requests,
            bases=settings.bases,
            ping=Ping(settings.ping_url, client=self.own_client),
        )

    @cached_property
    def service(self) -> "AnnounceService":
        from tidings.announce.execution.running_executions import LiveExecutions
        from tidings.announce.service import AnnounceService

        return AnnounceService(
            database=self.database,
            sites=self.sites,
            schedules=self.schedules,
            announcer=self.announcer,
            executions=self.executions,
            requests=self.requests,
            dispatcher=self.dispatcher,
            alerts=self.alerts,
            clock=self.clock,
            budget=self.settings.run_budget,
            most_running=_bound_executions(self.settings),
            live=LiveExecutions(clock=self.clock),
            know=self.know,
            wake=self.wake,
        )

    @cached_property
    def seen_hooks(self) -> "SeenHooks":
        from tidings.announce.schedule.seen_hooks import SeenHooks

        return SeenHooks(self.database, clock=self.clock)

    async def is_served(self) -> bool:
        """Whether a living worker takes jobs of announce."""
        return any(not each.dead and ANNOUNCE in each.queues for each in await self.dispatcher.list_workers())

    async def find_service_seen_at(self) -> datetime | None:
        """When a service last ran, to the minute; None if never."""
        due = await self.periodic.find_next(WATCH)
        return None if due is None else due - WATCH_EVERY

    @cached_property
    def collect(self) -> "CollectInstallation":
        from tidings.wiring.collect import CollectInstallation

        return CollectInstallation(self)

    # The environment's own site.

    async def find_site(self, name: str | None) -> Site | None:
        """The site of this id. Without a name: the environment's own site, or the only one that is stored."""
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
        """Store the environment's site, so that its schedule runs."""
        own = self._make_own_site()
        if own is not None:
            await self.sites.save(own, origin=Origin.ENVIRONMENT)

    def is_from_environment(self, site_id: str) -> bool:
        """Whether the environment sets this site up; its settings are then changed there."""
        own = self._make_own_site()
        return own is not None and own.id == site_id

    def know(self, site: Site) -> Site:
        """Add the site's keys to the redactor. Returns the site."""
        for secret in site.secrets:
            self.redactor.add(secret)
        return site

    def _make_own_site(self) -> Site | None:
        settings, own = self.settings, self.settings.site
        if own is None or settings.indexnow_key is None:
            return None
        return self.know(
            make_site(
                sitemap_urls=[own.sitemap_url],
                key=settings.indexnow_key.reveal(),
                host=own.host,
                key_location=None if own.key_location is None else own.key_location.reveal(),
                backup_sitemap_urls=own.backup_sitemap_urls,
                announce_removed=own.announce_removed,
                engines=settings.engines,
                submit_method=settings.submit_method,
                schedule=settings.schedule,
                bing=settings.bing,
                baidu=settings.baidu,
                google=settings.google,
            )
        )


def _bound_executions(settings: Settings) -> int | None:
    """How many scheduled executions may run at once: the pace of one engine must allow each at least one request within
    its time budget."""
    return max(1, settings.run_budget // settings.request_interval) if settings.request_interval else None
