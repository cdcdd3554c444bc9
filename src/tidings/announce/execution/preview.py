"""A dry run: lists the pages that the next execution would send over IndexNow, without sending or saving anything."""

from collections.abc import Callable
from contextlib import aclosing, closing
from dataclasses import replace
from datetime import timedelta

from tidings.announce.announcer import Announcer
from tidings.announce.due.finder import DueFinder
from tidings.announce.due.hashes import HashSet
from tidings.announce.due.pages import Page
from tidings.announce.execution.report import Report
from tidings.announce.execution.results import CrawlEnded, Ended, Remark, fold
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.recorder import Recorder
from tidings.announce.site.site import Site
from tidings.announce.sitemap.events import PageSource
from tidings.core.executions import ExecutionStatus
from tidings.core.stop import Stop, StopRequestedError


async def preview(
    site: Site,
    *,
    announcer: Announcer,
    stop: Stop,
    on_page: Callable[[Page], None],
    pages: PageSource | None = None,
) -> Report:
    """Call `on_page` for every page that waits in the outbox, then for every due page of the site, or of `pages`."""
    report = Report(site=site.id, host=site.host, looked_up=True)
    recorder = Recorder(announcer.database, site=site.number, channel=Channel.INDEXNOW, execution=0)
    crawl = announcer.make_crawl(site, stop=stop) if pages is None else pages
    # Pages that left the sitemap are known only once a crawl has been saved.
    reading = replace(site, announce_removed=False)
    finder = DueFinder(reading, ledger=recorder.ledger, rules=announcer.rules, clock=announcer.clock)
    waiting = HashSet()
    async for batch in recorder.outbox.list_pages():
        for page in batch:
            if waiting.add(page.url_hash):
                on_page(page)
    with closing(finder):
        try:
            async with aclosing(crawl.events()) as events:
                async for event in events:
                    if (file := await finder.take(event)) is not None:
                        report = fold(report, file.counts)
                        for page in file.due:
                            if page.url_hash not in waiting:
                                on_page(page)
        except StopRequestedError:
            report = fold(report, Remark(warning=f"stopped early: {stop.reason}; the list is not complete"))
        report = fold(report, CrawlEnded(crawl.result, finder.count_total()))
    complete = not (report.errors or stop.requested or report.is_empty or report.list_unsent())
    return fold(report, Ended(ExecutionStatus.SUCCEEDED if complete else ExecutionStatus.PARTIAL, timedelta()))
