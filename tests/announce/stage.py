"""What the end-to-end tests play on: a site and engines of the sandbox, and a real announcer between them. Here are
also the few documents that the sandbox does not write by itself, and a clock that can be put forward."""

import asyncio
import json
import time
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from tests.conftest import Bench
from tidings.announce.due.pages import hash_urls
from tidings.announce.execution.report import Report
from tidings.announce.ledger.failed_pages import FailedPage, FailedPages
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.site.site import Site
from tidings.core.executions import ExecutionRecord
from tidings.core.stop import Stop
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite

Events = list[MutableMapping[str, Any]]

_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_SPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def read_json(report: Report) -> dict[str, Any]:
    """The report as a client of the API reads it."""
    document: dict[str, Any] = json.loads(json.dumps(report.to_json()))
    return document


class AdjustableClock:
    """The machine's clock, put forward by as much as a test says."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead.total_seconds()

    def advance(self, duration: timedelta) -> None:
        self._ahead += duration

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())


@dataclass(frozen=True, slots=True)
class Stage:
    """A stored site, where it is served, the engines it is announced to, and what announces it."""

    bench: Bench
    web: SandboxSite
    engines: Sequence[SandboxEngine]
    site: Site

    async def announce(self, *, stop: Stop | None = None) -> Report:
        return await self.bench.announcer.announce(self.site, stop=stop or self.bench.make_stop())

    async def find_entered(self, urls: Iterable[str]) -> set[str]:
        """Those of `urls` that stand in the ledger."""
        asked = dict(zip(hash_urls(url.encode() for url in urls), urls, strict=True))
        ledger = Ledger(self.bench.database, site=self.site.number, channel=Channel.INDEXNOW)
        return {asked[url_hash] for url_hash in await ledger.find_entries(sorted(asked))}

    async def list_failed(self) -> list[FailedPage]:
        return await FailedPages(self.bench.database, site=self.site.number, channel=Channel.INDEXNOW).list(
            limit=100_000
        )

    async def list_executions(self) -> list[ExecutionRecord]:
        """The newest first."""
        return await self.bench.executions.list_recent(self.site.workflow_name)

    async def rotate_key(self, key: str) -> "Stage":
        """The same site with another key, whose file it serves."""
        self.web.key = key
        changed = replace(self.site, key=type(self.site.key)(key), key_location=self.web.key_location)
        return replace(self, site=await self.bench.store(changed))


class StageMaker(Protocol):
    """Sets a stage up; it is taken down when the test ends."""

    async def __call__(
        self,
        web: SandboxSite | None = None,
        *,
        engines: int | Sequence[SandboxEngine] = 1,
        bench: Bench | None = None,
        sitemaps: Sequence[str] | None = None,
        backups: Sequence[str] = (),
        key_path: str | None = None,
        **settings: Any,
    ) -> Stage:
        """`engines` are so many new ones, or some that are on already. Sitemaps, backups and the key file are named by
        their paths on the site; all other `settings` go into the site as they are."""


def list_sent(engine: SandboxEngine, *, since: int = 0) -> list[str]:
    """Every URL that an engine was sent, in order, from request number `since` on."""
    return [url for request in engine.requests[since:] for url in request.urls]


def pick_events(events: Events, name: str, **fields: object) -> Events:
    """The events of this name that have these fields."""
    return [event for event in events if event["event"] == name and fields.items() <= event.items()]


def write_urlset(urls: Iterable[str]) -> str:
    entries = "".join(f"<url><loc>{url}</loc></url>\n" for url in urls)
    return f"{_HEAD}<urlset {_SPACE}>\n{entries}</urlset>\n"


def write_index(urls: Iterable[str]) -> str:
    entries = "".join(f"<sitemap><loc>{url}</loc></sitemap>\n" for url in urls)
    return f"{_HEAD}<sitemapindex {_SPACE}>\n{entries}</sitemapindex>\n"
