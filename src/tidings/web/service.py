"""The service: the application with all routes and, without `--no-work`, the worker. Both start and end together."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from fastapi import APIRouter, FastAPI

from tidings import __version__
from tidings.announce.channels.enabled_channels import ChannelDisabledError
from tidings.announce.service import BusyError
from tidings.announce.site.errors import SiteError
from tidings.collect.alerts.monitor import WorkflowAlerts
from tidings.collect.crawl.crawler import Crawler
from tidings.collect.write.values import WorkflowNameError
from tidings.core.alerts.translation import Translator
from tidings.core.executions import AlreadyRunningError, ExecutionLostError
from tidings.core.stop import Stop
from tidings.web.announce_metrics import AnnounceMetrics
from tidings.web.app import WebServices, create_app
from tidings.web.collect_metrics import CollectionMetrics
from tidings.web.errors import FieldError, Problem, ProblemRow, refuse_input
from tidings.web.metrics import CollectMetrics, QueueMetrics
from tidings.web.pages.view.rendering import PageRenderer
from tidings.web.pages.view.routing import Dashboard
from tidings.web.pages.view.texts import RULES, PageLanguage
from tidings.web.routes.announce.executions import make_executions_router
from tidings.web.routes.announce.hooks import make_hooks_router
from tidings.web.routes.announce.ledger import make_ledger_router
from tidings.web.routes.announce.overview import make_site_overview_router
from tidings.web.routes.announce.pauses import make_pause_router
from tidings.web.routes.announce.site_lookup import SiteLookup
from tidings.web.routes.announce.sites import SiteServices, make_sites_router
from tidings.web.routes.announce.status import make_status_router
from tidings.web.routes.announce.trigger import make_trigger_router
from tidings.web.routes.collect.collect import make_collect_router
from tidings.web.routes.collect.crawler import make_crawler_router
from tidings.web.routes.collect.notes import make_notes_router
from tidings.web.routes.collect.workflow import WriterServices, make_workflow_router
from tidings.web.routes.health import check_database
from tidings.web.routes.workers import make_workers_router
from tidings.web.server import serve
from tidings.wiring.alerts import list_catalogues
from tidings.wiring.crawl import make_keyword_checks
from tidings.wiring.installation import Installation
from tidings.worker import QUEUES, Worker

SILENT_TICKER = timedelta(minutes=3)

PROBLEMS: tuple[ProblemRow, ...] = (
    (SiteError, lambda error: Problem(400, "invalid_site", str(error), [FieldError(error.field, error.rule)])),
    (ChannelDisabledError, lambda error: Problem(400, f"{error.channel}_disabled", str(error))),
    (BusyError, lambda error: Problem(503, "busy", str(error), headers={"Retry-After": "60"})),
    (WorkflowNameError, lambda error: refuse_input([FieldError("workflow_name", str(error))])),
    (ExecutionLostError, lambda error: Problem(409, "execution_lost", str(error))),
    (
        AlreadyRunningError,
        lambda error: Problem(409, "already_running", str(error), execution_id=error.execution_id),
    ),
)


class Service:
    """One process of the service. `queues`: the queues that it takes jobs from."""

    def __init__(
        self, installation: Installation, *, crawler: Crawler, stop: Stop, queues: Collection[str] = QUEUES
    ) -> None:
        self._installation = installation
        self._crawler = crawler
        self._stop = stop
        self._worker = Worker(installation, crawler=crawler, queues=queues)

    def make_app(self) -> FastAPI:
        installation = self._installation
        return create_app(
            WebServices(
                tokens=installation.tokens,
                clock=installation.clock,
                stop=self._stop,
                version=__version__,
                checks={"database": check_database(installation.database), "scheduler": self._check_ticker},
                # FastAPI tries them in this order, so the most frequent routes come first.
                routers=(
                    *make_monitoring_routers(installation),
                    make_crawler_router(self._crawler),
                    make_workflow_router(_list_writer_services(installation)),
                    *make_collect_routers(installation, crawler=self._crawler),
                    *make_site_routers(installation),
                ),
                fixed_tokens=installation.settings.tokens,
                trusted_proxies=installation.settings.trusted_proxies,
                problems=PROBLEMS,
                collectors=_make_collectors(installation),
                dashboard=Dashboard(
                    installation,
                    installation.sessions,
                    PageRenderer(
                        clock=installation.clock,
                        default_language=PageLanguage(installation.settings.language.value),
                        translator=Translator([*list_catalogues(), RULES]),
                    ),
                    self._crawler,
                ),
            )
        )

    async def run(self, *, host: str, port: int, on_listening: Callable[[str, int], None]) -> None:
        """Serve until the stop signal. Raises OSError if the port is taken, before any work has started."""
        app = self.make_app()
        started = asyncio.Event()

        def listen(at_host: str, at_port: int) -> None:
            started.set()
            on_listening(at_host, at_port)

        tasks = [
            asyncio.create_task(self._work(started)),
            asyncio.create_task(serve(app, host=host, port=port, stop=self._stop, on_listening=listen)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            self._stop.request("the service ends")
            started.set()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, started: asyncio.Event) -> None:
        """Work from the first accepted request until everything has ended."""
        await started.wait()
        if not self._stop.requested:
            await self._worker.run(self._stop)

    async def _check_ticker(self) -> bool:
        alive_at = self._installation.ticker.alive_at
        return alive_at is not None and self._installation.clock.now() - alive_at < SILENT_TICKER


def make_monitoring_routers(installation: Installation) -> list[APIRouter]:
    """The routes of announce for monitors and deploy hooks."""
    lookup, service = _make_lookup(installation), installation.service
    return [
        make_status_router(
            lookup,
            database=installation.database,
            sites=installation.sites,
            live=service.live,
            alerts=installation.alerts,
            clock=installation.clock,
        ),
        make_trigger_router(lookup, service=service),
        make_hooks_router(
            sites=installation.sites, schedules=installation.schedules, service=service, seen=installation.seen_hooks
        ),
        make_site_overview_router(sites=installation.sites, database=installation.database, clock=installation.clock),
    ]


def make_site_routers(installation: Installation) -> list[APIRouter]:
    """All other routes of announce."""
    lookup, service = _make_lookup(installation), installation.service
    services = SiteServices(
        sites=installation.sites,
        service=service,
        tokens=installation.tokens,
        redactor=installation.redactor,
        engines=installation.settings.engines,
        schedule=installation.settings.schedule,
        know=installation.know,
        wake=installation.wake,
        is_from_environment=installation.is_from_environment,
    )
    return [
        make_sites_router(lookup, services),
        make_ledger_router(
            lookup,
            database=installation.database,
            executions=installation.executions,
            rules=installation.announcer.rules,
            clock=installation.clock,
        ),
        make_pause_router(lookup, schedules=installation.schedules, service=service, wake=installation.wake),
        make_executions_router(lookup, executions=installation.executions, service=service, clock=installation.clock),
        make_workers_router(installation.dispatcher),
    ]


def make_collect_routers(installation: Installation, *, crawler: Crawler) -> list[APIRouter]:
    """The routes of collect for people and their programs."""
    collect, checks = installation.collect, make_keyword_checks(installation, crawler=crawler)
    return [
        make_notes_router(collect.exporter, writer=collect.writer, clock=installation.clock),
        make_collect_router(collect, database=installation.database, checks=checks, wake=installation.wake),
    ]


def _make_collectors(installation: Installation) -> Sequence[CollectMetrics]:
    announce = AnnounceMetrics(
        installation.database,
        clock=installation.clock,
        sites=installation.sites,
        schedules=installation.schedules,
        executions=installation.executions,
        alerts=installation.alerts,
    )
    collect = CollectionMetrics(
        installation.database,
        clock=installation.clock,
        cookies=installation.collect.cookies,
        mirror=installation.collect.mirror,
    )
    return announce, QueueMetrics(installation.dispatcher), collect


def _make_lookup(installation: Installation) -> SiteLookup:
    return SiteLookup(installation.sites, schedules=installation.schedules, know=installation.know)


def _list_writer_services(installation: Installation) -> WriterServices:
    settings = installation.settings.collect
    return WriterServices(
        collect=installation.collect,
        failures=WorkflowAlerts(installation.database, installation.alerts),
        clock=installation.clock,
        redact=installation.redactor.redact,
        batch_size=settings.batch_size,
        backoff=settings.backoff,
        retries=settings.retries,
    )
