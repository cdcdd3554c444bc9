"""Bing's part of one execution: whether there is anything to do, which pages, and that no trouble of it harms the rest.

It goes along with the crawl (its chooser picks the best of what is due) and sends after IndexNow has been saved.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC

from tidings.announce.channels.bing import BING, BingApi
from tidings.announce.channels.bing_delivery import BingDelivery, BingRecord, log_exhausted
from tidings.announce.channels.lanes import Means
from tidings.announce.channels.quota import Quota
from tidings.announce.channels.ranking import Candidate, Chooser, FileStanding
from tidings.announce.due.pages import NO_LASTMOD, Page, Pages
from tidings.announce.due.rules import DueRules
from tidings.announce.execution.report import BingReport
from tidings.announce.ledger.ledger import Channel, Ledger
from tidings.announce.ledger.statistics import DailyCount
from tidings.announce.ledger.undelivered import Undelivered
from tidings.announce.site.site import Site
from tidings.announce.sitemap.memory import BrokenEngines, KeyRests, SitemapMemory
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database
from tidings.core.executions import Execution, ExecutionLostError, Executions
from tidings.core.logs.logger import get_logger

FREE_CHANNEL = "Set another key, or free the channel with `tidings resume SITE` once the trouble is gone."

_log = get_logger(__name__)


class BingChannel:
    """What one execution does about Bing. `chooser` is None where nothing can be sent now; the report says why."""

    def __init__(
        self,
        site: Site,
        execution: Execution,
        *,
        api: BingApi,
        database: Database,
        executions: Executions,
        means: Means,
        rules: DueRules,
        on_progress: Callable[[], None],
    ) -> None:
        self.report = BingReport()
        self.chooser: Chooser | None = None
        self._site = site
        self._means = means
        self._rules = rules
        self._sitemaps = SitemapMemory(database, site=site.number)
        # The day on which the execution began, also past midnight.
        day = execution.started_at.astimezone(UTC).date()
        self._quota = Quota(database, site=site.number, day=day, limit=site.bing.daily_quota, clock=means.clock)
        self._record = BingRecord(
            transaction=lambda: executions.guard(execution),
            ledger=Ledger(database, site=site.number, channel=Channel.BING),
            quota=self._quota,
            undelivered=Undelivered(database, site=site.number, channel=Channel.BING, execution=execution.id),
            broken=BrokenEngines(database, site=site, channel=Channel.BING),
            rests=KeyRests(database),
            daily=DailyCount(
                database, site=site.number, channel=Channel.BING, execution=execution.id, clock=means.clock
            ),
        )
        self._delivery = BingDelivery(
            site, api=api, record=self._record, means=means, report=self.report, on_progress=on_progress
        )
        self._debts = Pages()

    async def open(self) -> None:
        """Find out whether anything can be sent now; if so, make the chooser for the crawl."""
        with self._keep_harmless():
            await self._open()

    async def submit(self) -> None:
        """Send what failed before, then what was chosen."""
        if self.chooser is not None and not self.report.broken_off:
            with self._keep_harmless():
                await self._submit(self.chooser)

    @contextmanager
    def _keep_harmless(self) -> Iterator[None]:
        """No trouble in here harms the rest of the execution; only the loss of it as a whole is passed on."""
        try:
            yield
        except ExecutionLostError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, IndexNow's half is done and must be saved
            self.report.note_broken(error)
            _log.exception("bing.broken", site=self._site.id)

    async def _open(self) -> None:
        if await self._is_kept_away():
            return
        self.report.quota = quota = await self._quota.read()
        if not quota.remaining:
            self.report.skipped = f"the quota of {quota.day} is used up"
            log_exhausted(self._site, self._quota)
            return
        await self._sweep()
        self._debts = await self._record.undelivered.list_open(
            BING.endpoint, removed=False, earlier_only=True, after=None, limit=quota.remaining
        )
        chooser = Chooser(
            quota.remaining,
            priority=self._site.bing.priority,
            ledger=self._record.ledger,
            rules=self._rules,
            skip=self._debts.hashes,
        )
        await chooser.load(now=to_milliseconds(self._means.clock.now()))
        self.chooser = chooser

    async def _submit(self, chooser: Chooser) -> None:
        assert self.report.quota is not None  # noqa: S101 - read before the chooser was made
        chosen = chooser.choose(self.report.quota.remaining)
        self.report.due = chooser.count_due() + len(self._debts)
        try:
            await self._delivery.send(self._debts)
            await self._delivery.send(gather_pages(chosen))
            await self._settle_files(chosen)
            await self._sweep()
        finally:
            engine = self.report.engine
            engine.left = max(0, self.report.due - engine.succeeded - engine.failed)
        self.report.quota = await self._quota.read()

    async def _is_kept_away(self) -> bool:
        """Whether Bing refuses the key for good, or wants it to rest."""
        engine = self.report.engine
        for broken in await self._record.broken.list_broken():
            engine.broken, engine.reason, engine.advice = True, broken.reason, FREE_CHANNEL
            self.report.skipped = f"switched off since {broken.since:%Y-%m-%d %H:%M} UTC: {broken.reason}"
            return True
        rest = await self._record.rests.find(self._site.bing.require_key(), now=self._means.clock.now())
        if rest is not None:
            self.report.trouble = True
            self.report.skipped = f"the key rests until {rest.until:%Y-%m-%d %H:%M} UTC: {rest.reason}"
            _log.warning("bing.key_resting", site=self._site.id, until=f"{rest.until:%H:%M}", reason=rest.reason)
            return True
        return False

    async def _settle_files(self, chosen: list[tuple[int, Candidate]]) -> None:
        """Files of which Bing has now taken everything need not be read again for it."""
        taken: Counter[FileStanding] = Counter()
        for url_hash, candidate in chosen:
            taken[candidate.standing] += url_hash in self._delivery.accepted
        now = to_milliseconds(self._means.clock.now())
        for standing, count in taken.items():
            file = standing.file
            if count < standing.due or not standing.clean or file.fault is not None or not file.validators:
                continue
            async with self._record.transaction() as connection:
                await self._sitemaps.add_channel(
                    connection,
                    file.url,
                    validators=file.validators,
                    oldest=min(now, standing.oldest or now),
                    channel=Channel.BING,
                )

    async def _sweep(self) -> None:
        async with self._record.transaction() as connection:
            await self._record.undelivered.sweep(connection)

    async def purge(self, *, before: int) -> None:
        """Delete what no longer counts."""
        with self._keep_harmless():
            async with self._record.transaction() as connection:
                await self._quota.purge(connection)
                await self._record.ledger.purge(connection, before=before)


def gather_pages(chosen: list[tuple[int, Candidate]]) -> Pages:
    return Pages.gather(
        Page(url_hash, candidate.url.decode(), None if candidate.lastmod == NO_LASTMOD else candidate.lastmod)
        for url_hash, candidate in chosen
    )
