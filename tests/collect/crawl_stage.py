"""What tests of the crawl API stand on: a crawler on a read-only database, with cookies of a sandbox Weibo."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import timedelta
from typing import Any

from tests.collect.platform_stage import USER_AGENT
from tests.stage import LOOPBACK
from tidings.collect.crawl.cookies.pool import CookiePool
from tidings.collect.crawl.crawler import MOST_ITEMS, Crawler, WantedNote
from tidings.collect.crawl.platforms.protocol import NoteReference, Platform, SearchPage
from tidings.collect.notes import Note
from tidings.collect.write.cookies import CookieRecords, make_cookie
from tidings.core.clock import SystemClock
from tidings.core.db.database import Database, ReadableDatabase, open_database, open_read_only_database
from tidings.core.net.client import GuardedClient
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media.weibo import SandboxWeibo, name_post
from tidings.settings.collect import CrawlSettings
from tidings.wiring.crawl import make_crawler

POST = WantedNote(note_id=name_post(30))


def session_of(name: str) -> str:
    return f"_2A-a-long-session-of-{name}"


def posts(count: int) -> list[WantedNote]:
    return [WantedNote(note_id=name_post(number)) for number in range(1, count + 1)]


@dataclass(frozen=True, slots=True)
class CrawlStage:
    """Both halves of one database, and what the crawler is made of."""

    writer: Database
    reader: ReadableDatabase
    keys: KeyRing
    client: GuardedClient
    base_urls: Mapping[str, str]
    redactor: Redactor = field(default_factory=Redactor)
    # The stage closes them in the end.
    crawlers: list[Crawler] = field(default_factory=list)

    async def add(self, *names: str, platform: str = "weibo", **options: Any) -> None:
        """Cookies whose accounts are called as they are."""
        for name in names:
            await self.add_cookie(name, f"SUB={session_of(name)}; _T_WM=device", platform=platform, **options)

    async def add_cookie(self, name: str, value: str, *, platform: str = "weibo", **options: Any) -> None:
        records = CookieRecords(self.writer, keys=self.keys, clock=SystemClock())
        await records.add(make_cookie(name, platform=platform, secret=Secret(value), **options))

    def make(self, **options: Any) -> Crawler:
        """A crawler that is in no hurry to be polite. `options` are those of CrawlSettings."""
        chosen = {"platform_interval": timedelta(0), "cookie_interval": timedelta(0), **options}
        crawler = make_crawler(
            CrawlSettings(user_agent=USER_AGENT, base_urls=self.base_urls, **chosen),
            database=self.reader,
            keys=self.keys,
            clock=SystemClock(),
            redactor=self.redactor,
            client=self.client,
            own_client=self.client,
        )
        self.crawlers.append(crawler)
        return crawler

    def make_with(self, platform: Platform) -> Crawler:
        """A crawler for one platform of the test's own."""
        pool = CookiePool(self.reader, keys=self.keys, clock=SystemClock(), redactor=self.redactor)
        find: Callable[[str], Platform] = {platform.name: platform}.__getitem__
        return Crawler(find, pool=pool, clock=SystemClock(), redactor=self.redactor)


@asynccontextmanager
async def open_crawl(database_url: str, *, keys: KeyRing, **base_urls: str) -> AsyncIterator[CrawlStage]:
    """A stage on a database that has its tables."""
    writer, reader = open_database(database_url), open_read_only_database(database_url)
    try:
        async with GuardedClient(
            user_agent=USER_AGENT, allow_networks=LOOPBACK, connections_per_host=MOST_ITEMS
        ) as client:
            stage = CrawlStage(writer, reader, keys, client, base_urls)
            try:
                yield stage
            finally:
                for crawler in stage.crawlers:
                    await crawler.close()
    finally:
        await reader.close()
        await writer.close()


@asynccontextmanager
async def open_weibo(*names: str) -> AsyncIterator[SandboxWeibo]:
    """Weibo with the accounts of these cookies."""
    async with SandboxWeibo(sessions=[session_of(name) for name in names]) as running:
        yield running


class OwnPlatform:
    """A platform that does what a test says: `answer` is called with the cookie, for both questions."""

    name = "weibo"
    needs_cookie = True

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self._answer = answer

    async def search(self, keyword: str, *, page: int, cookie: Secret | None) -> SearchPage:
        found: SearchPage = self._answer(cookie.reveal() if cookie else "")
        return found

    async def detail(self, reference: NoteReference, *, cookie: Secret | None) -> Note:
        found: Note = self._answer(cookie.reveal() if cookie else "")
        return found


def describe(value: Any) -> Any:
    """An envelope as the API answers it."""
    if isinstance(value, Note):
        return value.describe()
    if isinstance(value, list | tuple):
        return [describe(each) for each in value]
    return {each.name: describe(getattr(value, each.name)) for each in fields(value)} if is_dataclass(value) else value
