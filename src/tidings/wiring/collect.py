"""Builds the services of collect that need no crawler: cookies, keywords, notes, the writer, the mirror.

Announcing never imports this module.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from tidings.collect.archive.archive import NoteArchive
from tidings.collect.archive.comments import CommentArchive
from tidings.collect.archive.export import Exporter
from tidings.collect.crawl.cookies.states import CookieRules
from tidings.collect.crawl.platforms.pace import LocalPace
from tidings.collect.crawl.platforms.protocol import PlatformTools, check_wishes
from tidings.collect.crawl.platforms.registry import PlatformRegistry
from tidings.collect.feishu.client import BitableClient, FeishuTarget
from tidings.collect.feishu.mirror import FeishuMirror
from tidings.collect.pseudonyms import Pseudonyms
from tidings.collect.run.feishu_requests import FeishuRequests
from tidings.collect.run.jobs import Intervals, list_intervals
from tidings.collect.status.report import CollectStatusReader
from tidings.collect.write.comments.stage import CommentStage
from tidings.collect.write.cookies import CookieRecords
from tidings.collect.write.keywords import Keywords
from tidings.collect.write.next_stage import NextStage
from tidings.collect.write.values import WriterLimits
from tidings.collect.write.writer import Writer
from tidings.core.alerts.translation import Translator
from tidings.settings.collect import CrawlSettings, PseudonymUse
from tidings.settings.settings import Settings
from tidings.wiring.alerts import list_catalogues

if TYPE_CHECKING:
    from tidings.wiring.installation import Installation


class CollectInstallation:
    """The services of collect on one installation, each built when it is first used."""

    def __init__(self, installation: "Installation") -> None:
        self._opened = installation

    @cached_property
    def cookies(self) -> CookieRecords:
        return CookieRecords(self._opened.database, keys=self._opened.keys, clock=self._opened.clock)

    @cached_property
    def keywords(self) -> Keywords:
        return Keywords(self._opened.database, clock=self._opened.clock)

    @cached_property
    def notes(self) -> NoteArchive:
        return NoteArchive(self._opened.database)

    @cached_property
    def stored_comments(self) -> CommentArchive:
        return CommentArchive(self._opened.database)

    @cached_property
    def exporter(self) -> Exporter:
        return Exporter(notes=self.notes, comments=self.stored_comments)

    @cached_property
    def writer(self) -> Writer:
        settings = self._opened.settings.collect
        return Writer(
            self._opened.database,
            executions=self._opened.executions,
            clock=self._opened.clock,
            limits=self._writer_limits,
            rules=make_cookie_rules(self._opened.settings.crawl),
            mirrored=() if settings.feishu is None else settings.feishu.tables,
            pseudonyms=self._make_pseudonyms(PseudonymUse.ON),
            reserved=("mirror", *(("discover", "collect:") if settings.runs else ())),
        )

    def _make_pseudonyms(self, *uses: PseudonymUse) -> Pseudonyms | None:
        """The pseudonyms, if the settings choose one of these uses."""
        is_wanted = self._opened.settings.collect.pseudonyms in uses
        return Pseudonyms(self._opened.keys.derive_key("pseudonyms")) if is_wanted else None

    @cached_property
    def comments(self) -> CommentStage:
        return CommentStage(self.writer, self._make_pseudonyms(PseudonymUse.COMMENTS, PseudonymUse.ON))

    @cached_property
    def status(self) -> CollectStatusReader:
        return CollectStatusReader(
            database=self._opened.database,
            clock=self._opened.clock,
            keys=self._opened.keys,
            alerts=self._opened.alerts,
            keywords=self.keywords,
            cookies=self.cookies,
            mirror=self.mirror,
        )

    @cached_property
    def next_stage(self) -> NextStage:
        return NextStage(self.writer)

    @property
    def _writer_limits(self) -> WriterLimits:
        settings, crawl = self._opened.settings.collect, self._opened.settings.crawl
        return WriterLimits(
            lock_timeout=settings.lock_timeout,
            backoff=settings.backoff,
            batch_time=crawl.batch_timeout,
            request_time=crawl.request_timeout,
            platform_interval=crawl.platform_interval,
            cookie_interval=crawl.cookie_interval,
        )

    @cached_property
    def mirror(self) -> FeishuMirror | None:
        """The Feishu mirror; None if the settings name no table of a base."""
        target = self._opened.settings.collect.feishu
        if target is None or not (target.tables or target.keyword_table):
            return None
        requests = FeishuRequests(
            writer=self.writer,
            keywords=self.keywords,
            check=self.check_keyword,
            language=self._opened.settings.language,
            translate=Translator(list_catalogues()).translate if self._opened.settings.language == "zh" else str,
        )
        return FeishuMirror(
            self._opened.database,
            client=make_feishu_client(self._opened, target),
            executions=self._opened.executions,
            alerts=self._opened.alerts,
            clock=self._opened.clock,
            read_requests=requests.read,
        )

    def check_keyword(self, platform: str, keyword: str, comments: int | None) -> None:
        """Raises CrawlError if the keyword cannot be watched. Asks no platform."""
        check_wishes(self._platforms.get(platform), keyword, comments)

    @cached_property
    def _platforms(self) -> PlatformRegistry:
        """Platforms without HTTP clients, for checks that send no request."""
        opened = self._opened
        tools = PlatformTools(
            client=opened.own_client,
            clock=opened.clock,
            pace=LocalPace(clock=opened.clock),
            user_agent="",
            feeds=opened.settings.crawl.feeds,
        )
        return PlatformRegistry(lambda _name: tools)


def make_feishu_client(installation: "Installation", target: FeishuTarget) -> BitableClient:
    """The API of the base that the mirror writes to."""
    return BitableClient(
        target, client=installation.own_client, clock=installation.clock, redactor=installation.redactor
    )


def list_collect_intervals(settings: Settings) -> Mapping[str, timedelta]:
    collect = settings.collect
    intervals = Intervals(
        discover=collect.discover_interval, collect=collect.collect_interval, recover=collect.recovery_interval
    )
    return list_intervals(intervals, drives=collect.runs)


def make_cookie_rules(settings: CrawlSettings) -> CookieRules:
    return CookieRules(
        max_consecutive_errors=settings.max_consecutive_errors,
        max_total_errors=settings.max_total_errors,
        cooling=settings.cooling,
    )
