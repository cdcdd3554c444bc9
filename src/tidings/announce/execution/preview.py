"""A dry run: what an execution would send, without sending or saving anything."""

from collections.abc import Callable, Sequence
from contextlib import aclosing, closing
from dataclasses import replace

from tidings.announce.due.pages import Listing, Page, Pages
from tidings.announce.execution.intake import Intake
from tidings.announce.execution.pipeline import Announcer
from tidings.announce.execution.report import Report
from tidings.announce.execution.shipments import FileProgress
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.site.site import Site
from tidings.core.executions import ExecutionStatus
from tidings.core.stop import Stop, StopRequestedError


async def preview(site: Site, *, announcer: Announcer, stop: Stop, on_page: Callable[[Page], None]) -> Report:
    """Crawl the site and call `on_page` for every due page; what an engine failed to take before is not among them."""
    report = Report(site=site.id)
    crawl = announcer.make_crawl(site, stop=stop)
    destination = _Listing(Ledger(announcer.database, site=site.number, channel=Channel.INDEXNOW), on_page)
    # What has left the sitemap is known only once a crawl has been saved.
    reading = replace(site, announce_removed=False)
    intake = Intake(reading, destination=destination, rules=announcer.rules, clock=announcer.clock, report=report)
    with closing(intake):
        try:
            async with aclosing(crawl.events()) as events:
                async for event in events:
                    await intake.take(event)
        except StopRequestedError:
            report.warnings.append(f"stopped early: {stop.reason}; the list is not complete")
        report.total = intake.count_total()
    report.add_crawl(crawl.result)
    complete = not (report.errors or stop.requested)
    report.status = ExecutionStatus.SUCCEEDED if complete else ExecutionStatus.PARTIAL
    return report


class _Listing:
    """Takes due pages and only lists them."""

    def __init__(self, ledger: Ledger, on_page: Callable[[Page], None]) -> None:
        self.ledger = ledger
        self.on_their_way: set[int] = set()
        self._on_page = on_page

    async def send(self, pages: Pages, *, file: FileProgress | None = None) -> None:
        for page in pages:
            self._on_page(page)

    async def settle_file(self, progress: FileProgress) -> None:
        """Nothing is saved."""

    async def note_seen(self, listing: Listing, *, sitemap: str) -> None:
        """Nothing is saved."""

    async def list_gone(self, *, unchanged: Sequence[str], after: int | None, limit: int) -> Pages:
        return Pages()
