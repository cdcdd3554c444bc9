"""What the tests of the service play on: one or more sites of the sandbox with a schedule, an engine, Bing, and a sink
that gets every alert; between them the real service, on a clock that the test chooses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from tests.announce.bing_stage import KEY
from tests.conftest import Bench, BenchMaker
from tests.waiting import Held
from tidings.announce.channels.protocols.bing import BING_KIND
from tidings.announce.channels.quota.kinds import ApiBases
from tidings.announce.channels.quota.quota import QuotaState
from tidings.announce.channels.quota.ranked import open_quota
from tidings.announce.execution.report import Report
from tidings.announce.execution.running_executions import LiveExecutions
from tidings.announce.schedule.table import Schedules
from tidings.announce.service import MOST_WAITING, RUN, AnnounceService, Started
from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.site import Site, make_site
from tidings.announce.site.table import Origin, SiteRecords
from tidings.core.alerts.webhook import new_webhook_secret
from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.core.executions import ExecutionRecord
from tidings.core.queue.dispatcher import Call
from tidings.core.secrets.secret import Secret
from tidings.core.stop import Stop
from tidings.sandbox.engines.bing import SandboxBing
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.webhook_sink import SandboxSink

SOON = 20.0
DAILY = "0 12 * * *"
AT_ONCE = timedelta(0)

# Type, kind and subject of what people were notified of.
Notice = tuple[str, str, str]


class KeptReports(LiveExecutions):
    """Keeps the last report of every execution, for the test to look at."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.kept: dict[str, Report] = {}

    def record(self, report: Report) -> None:
        super().record(report)
        self.kept[report.execution_id] = report


class StageWorker:
    """The worker of the stage's process; a test can end it and start the next."""

    def __init__(self, service: AnnounceService) -> None:
        self._service = service
        self.start()

    def start(self) -> None:
        self.stop = Stop(clock=self._service.clock)
        work = self._service.dispatcher.work({RUN: self._service.run}, self.stop, drain=timedelta(seconds=SOON))
        self._task = asyncio.create_task(work)

    async def end(self, reason: str = "the test says so") -> None:
        self.stop.request(reason)
        await self._task


@dataclass(frozen=True, slots=True)
class ServiceStage:
    """A stored site, all that it is announced to, and the service that runs it."""

    service: AnnounceService
    worker: StageWorker
    reports: KeptReports
    bench: Bench
    web: SandboxSite
    engine: SandboxEngine
    bing: SandboxBing
    sink: SandboxSink
    site: Site

    @property
    def database(self) -> Database:
        return self.bench.database

    @property
    def records(self) -> SiteRecords:
        return self.bench.records

    @property
    def schedules(self) -> Schedules:
        return self.service.schedules

    async def run(self, site: Site | None = None) -> Report:
        """A triggered execution to its end."""
        return await self.finish(await self.service.trigger(site or self.site))

    async def announce(self, *urls: str) -> Report:
        """An execution for these URLs to its end."""
        return await self.finish(await self.service.announce_urls(self.site, urls))

    async def finish(self, started: Started) -> Report:
        """The last report of an execution, once it has ended."""
        async with asyncio.timeout(SOON):
            return self.reports.kept[(await started.wait()).public_id]

    async def list_due(self) -> list[int]:
        """The sites that the next tick would submit."""
        async with self.database.read() as connection:
            return [job.arguments["site"] for job in await self.service.list_due(connection, 10)]

    async def run_due(self) -> int:
        """Do every execution that is due, as a worker does; how many were due."""
        due = await self.list_due()
        for site in due:
            await self.call(site=site)
        return len(due)

    async def call(self, *, stopped: bool = False, **arguments: Any) -> None:
        """A worker's call of the task, in this process; with a stop signal from its begin on, if it is `stopped`."""
        lock = self.bench.installation.process_lock
        stop, ending = Stop(clock=self.service.clock), Stop(clock=self.service.clock)
        if stopped:
            stop.request("the test says so")
        call = Call(arguments, f"{lock.id}#test", stop, ending)
        with lock.hold(call.holder):
            await self.service.run(call)

    async def add_site(self, name: str) -> Site:
        """Another site that has the same pages."""
        return await self.records.save(replace(self.site, id=name, number=0), origin=Origin.API)

    async def change(self, **settings: Any) -> "ServiceStage":
        """The same stage with other settings of its site."""
        return replace(self, site=await self.records.save(replace(self.site, **settings), origin=Origin.API))

    async def list_executions(self, site: Site | None = None) -> list[ExecutionRecord]:
        """The newest first."""
        return await self.service.executions.list_recent((site or self.site).workflow_name)

    async def list_statuses(self, site: Site | None = None) -> list[str]:
        """The newest first."""
        return [record.status.value for record in await self.list_executions(site)]

    async def list_open(self) -> set[tuple[str, str]]:
        """Kind and subject of all that holds now."""
        return {(each.kind, each.subject) for each in await self.service.alerts.list_open()}

    async def list_notices(self) -> list[Notice]:
        """Everything that people were notified of so far, in order."""
        while await self.service.alerts.deliver():
            pass
        documents = [recorded.fields["document"] for recorded in self.sink.taken]
        return [_read_notice(document) for document in documents]

    async def read_quota(self) -> QuotaState:
        return await open_quota(self.site, BING_KIND, database=self.database, clock=self.service.clock).read()

    def list_crawled(self) -> list[str]:
        """The sitemap files that were asked for."""
        return [request.path for request in self.web.requests if request.path.startswith("/sitemap")]

    def hold_back(self) -> Held:
        """From now on the engine waits with its answers until the test lets it go on."""
        held = Held()
        self.engine.on_request = held.wait
        return held


@asynccontextmanager
async def open_service(
    make_bench: BenchMaker,
    *,
    clock: Clock,
    pages: int = 20,
    limit: int = 4,
    waiting: int = MOST_WAITING,
    quota: int | None = None,
    resubmit_gap: timedelta = AT_ONCE,
    **settings: Any,
) -> AsyncIterator[ServiceStage]:
    """Set a stage up. With a `quota`, the site has Bing; `settings` go into the site as they are."""
    served, bing = SandboxSite(pages=pages, per_sitemap=10), SandboxBing(keys={KEY: []}, now=clock.now)
    async with served, SandboxEngine("alpha") as engine, bing, SandboxSink() as sink:
        bing.add_site(served.origin, key=KEY)
        bench = make_bench(
            clock=clock,
            retry_scale=1,
            bases=ApiBases(bing=bing.address),
            resubmit_gap=resubmit_gap,
            run_budget=timedelta(days=1),
            max_executions=limit,
            webhook_url=Secret(sink.address),
            webhook_secret=new_webhook_secret(),
        )
        reports = KeptReports(clock)
        service = replace(bench.installation.service, live=reports, most_waiting=waiting)
        site = make_site(
            sitemap_urls=[served.sitemap_url],
            key=served.key,
            engines=[engine.endpoint],
            bing=BingSettings.make(enabled=quota is not None, key=KEY, daily_quota=quota or 100),
            **{"schedule": DAILY, **settings},
        )
        stored = await bench.store(site)
        worker = StageWorker(service)
        try:
            yield ServiceStage(service, worker, reports, bench, served, engine, bing, sink, stored)
        finally:
            await worker.end()


def _read_notice(document: Any) -> Notice:
    data = document["data"]
    return document["type"], data["kind"], data["subject"]
