"""What the tests of the runner play on: Weibo and a blog of the sandbox, a sink for alerts, and between them the real
crawler, writer and runner, on a clock that the test chooses."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import select

from tests.collect.crawl_stage import session_of
from tests.collect.platform_stage import USER_AGENT
from tests.collect.writer_stage import begin, read_candidates, read_sources
from tests.stage import LOOPBACK, make_installation
from tests.waiting import Held
from tidings.collect.alerts.monitor import CollectMonitor
from tidings.collect.crawl.cookies.table import Cookie
from tidings.collect.crawl.crawler import Crawler
from tidings.collect.run.runner import CollectRunner
from tidings.collect.tables import CandidateStatus
from tidings.collect.write.cookies import CookieRecords, make_cookie
from tidings.collect.write.keywords import Keyword, Keywords
from tidings.collect.write.values import NewCandidate
from tidings.collect.write.writer import Writer
from tidings.core.alerts.service import Alerts
from tidings.core.alerts.webhook import new_webhook_secret
from tidings.core.clock import Clock
from tidings.core.db.database import Database, open_database
from tidings.core.executions import Executions, executions
from tidings.core.net.client import GuardedClient
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.secret import Secret
from tidings.core.stop import Stop
from tidings.sandbox.media.openweb import SandboxOpenWeb
from tidings.sandbox.media.weibo import SHOW_PATH, SandboxWeibo, name_post
from tidings.sandbox.webhook_sink import SandboxSink
from tidings.sandbox.wire.request_log import Recorded
from tidings.settings.collect import CollectSettings, CrawlSettings
from tidings.wiring.crawl import make_collect_monitor, make_collect_runner, open_crawler
from tidings.wiring.installation import Installation

SOON = 60.0
ACCOUNTS = ("one", "two", "three", "four")
# There are twelve posts about it, and six articles of the blog.
TOPIC = "bread"
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerStage:
    """All that collects, and all that it talks to."""

    installation: Installation
    crawler: Crawler
    monitor: CollectMonitor
    runner: CollectRunner
    weibo: SandboxWeibo
    blog: SandboxOpenWeb
    sink: SandboxSink

    @property
    def database(self) -> Database:
        return self.installation.database

    @property
    def clock(self) -> Clock:
        return self.installation.clock

    @property
    def keys(self) -> KeyRing:
        return self.installation.keys

    @property
    def writer(self) -> Writer:
        return self.installation.collect.writer

    @property
    def keywords(self) -> Keywords:
        return self.installation.collect.keywords

    @property
    def cookies(self) -> CookieRecords:
        return self.installation.collect.cookies

    @property
    def executions(self) -> Executions:
        return self.installation.executions

    @property
    def alerts(self) -> Alerts:
        return self.installation.alerts

    def make_stop(self) -> Stop:
        return Stop(clock=self.clock)

    async def add_cookies(self, *names: str, platform: str = "weibo", **options: Any) -> None:
        for name in names:
            secret = Secret(f"SUB={session_of(name)}; _T_WM=device")
            await self.cookies.add(make_cookie(name, platform=platform, secret=secret, **options))

    async def find_cookie(self, name: str) -> Cookie:
        return next(cookie for cookie in await self.cookies.list_all() if cookie.name == name)

    async def watch_keyword(self, platform: str = "weibo", keyword: str = TOPIC, *, pages: int = 1) -> None:
        await self.keywords.add(platform, keyword, pages=pages)

    async def find_keyword(self, keyword: str = TOPIC) -> Keyword:
        return next(each for each in await self.keywords.list_all() if each.keyword == keyword)

    async def discover(self, *platforms: str) -> None:
        """Candidates about the topic on these platforms."""
        for platform in platforms or ("weibo",):
            await self.watch_keyword(platform)
        await self.runner.discover(self.make_stop())

    async def add_candidate(self, number: int = 1) -> None:
        """One candidate: a post of Weibo."""
        note_id = name_post(number)
        new = NewCandidate(
            platform="weibo",
            note_id=note_id,
            note_url=f"https://m.weibo.cn/detail/{note_id}",
            title="",
            source_keyword=TOPIC,
        )
        execution = await begin(self.writer, "discover")
        await self.writer.add_candidates(execution, [new])
        await self.writer.finish(execution)

    async def list_statuses(self) -> list[tuple[str, str]]:
        """Workflow and status of every execution, the oldest first."""
        statement = select(executions.c.workflow_name, executions.c.status).order_by(executions.c.id)
        async with self.database.read() as connection:
            return [(row.workflow_name, row.status) for row in await connection.execute(statement)]

    async def count_statuses(self) -> dict[str, int]:
        """How many candidates are at each status."""
        rows = (await read_candidates(self.database)).values()
        counts = {status.value: sum(row.status == status for row in rows) for status in CandidateStatus}
        return {status: count for status, count in counts.items() if count}

    async def read_candidates(self) -> dict[str, Any]:
        return await read_candidates(self.database)

    async def read_sources(self) -> list[Any]:
        return await read_sources(self.database)

    async def list_notified(self) -> list[tuple[str, str, str]]:
        """What people were notified of so far, of what kind, about what, in order."""
        while await self.alerts.deliver():
            pass
        documents: list[Any] = [recorded.fields["document"] for recorded in self.sink.taken]
        return [(each["type"], each["data"]["kind"], each["data"]["subject"]) for each in documents]

    def list_asked(self, path: str = SHOW_PATH) -> list[Recorded]:
        """The requests to Weibo, for notes or for searches."""
        return [request for request in self.weibo.requests if request.path == path]

    def hold_back(self) -> Held:
        """From now on Weibo waits with its answers until the test lets it go on."""
        held = Held()
        self.weibo.on_request = held.wait
        return held


def read_meta(row: Any) -> dict[str, str]:
    """Who wrote a record."""
    meta: dict[str, str] = json.loads(row.exec_meta)
    return meta


@asynccontextmanager
async def open_runner(
    database_url: str,
    *,
    clock: Clock,
    keys: KeyRing,
    process_lock: ProcessLock,
    request_timeout: float = 10,
    crawl: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[RunnerStage]:
    """Set a stage up; `options` are fields of CollectSettings, `crawl` of CrawlSettings. The blog is what the platform
    `web` searches."""
    async with AsyncExitStack() as stack:
        weibo = await stack.enter_async_context(SandboxWeibo(sessions=[session_of(name) for name in ACCOUNTS]))
        blog = await stack.enter_async_context(SandboxOpenWeb())
        sink = await stack.enter_async_context(SandboxSink())
        database = open_database(database_url)
        stack.push_async_callback(database.close)
        client = await stack.enter_async_context(GuardedClient(user_agent=USER_AGENT, allow_networks=LOOPBACK))
        installation = make_installation(
            database,
            clock=clock,
            client=client,
            process_lock=process_lock,
            keys=keys,
            database_url=Secret(database_url),
            retry_scale=1,
            webhook_url=Secret(sink.address),
            webhook_secret=new_webhook_secret(),
            crawl=CrawlSettings(
                **{
                    "base_urls": {"weibo": weibo.origin},
                    "feeds": (blog.rss_url,),
                    "platform_interval": timedelta(0),
                    "cookie_interval": timedelta(0),
                    "request_timeout": timedelta(seconds=request_timeout),
                    **(crawl or {}),
                }
            ),
            collect=CollectSettings(**options),
        )
        crawler = await stack.enter_async_context(open_crawler(installation))
        yield RunnerStage(
            installation=installation,
            crawler=crawler,
            monitor=make_collect_monitor(installation, crawler=crawler),
            runner=make_collect_runner(installation, crawler=crawler),
            weibo=weibo,
            blog=blog,
            sink=sink,
        )
