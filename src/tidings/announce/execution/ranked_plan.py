"""Planning for a channel with a daily quota: decides whether pages can be sent, and selects the best of what is due.

The pages that the quota does not cover are not put into the outbox. No error in here harms the rest of the execution.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.bing import BING, BingChannel
from tidings.announce.channels.broken_engines import BrokenEngines
from tidings.announce.channels.quota import log_exhausted
from tidings.announce.channels.ranking import Candidate, Chooser, FileBacklog
from tidings.announce.due.hashes import HashSet
from tidings.announce.due.pages import NO_LASTMOD, Page, Pages
from tidings.announce.due.rules import DueRules
from tidings.announce.execution.plan import Transaction
from tidings.announce.execution.results import BingBroken, BingCounted, BingOpened, Result
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.recorder import Recorder
from tidings.announce.sitemap.validators import SitemapValidators
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.executions import ExecutionLostError
from tidings.core.logs.logger import get_logger

FREE_CHANNEL = "Set another key, or free the channel with `tidings resume SITE` once the trouble is gone."

_DAY_MS = 24 * 60 * 60 * 1000

_log = get_logger(__name__)


class RankedPlan:
    """Bing's part of planning in one execution."""

    def __init__(
        self,
        channel: BingChannel,
        recorder: Recorder,
        *,
        broken: BrokenEngines,
        validators: SitemapValidators,
        rules: DueRules,
        transaction: Transaction,
        clock: Clock,
        emit: Callable[[Result], None],
    ) -> None:
        # Whether pages can be sent now.
        self.can_send = False
        # Goes along with the crawl; None if Bing cannot be asked at all.
        self.chooser: Chooser | None = None
        self._channel = channel
        self._recorder = recorder
        self._broken = broken
        self._validators = validators
        self._rules = rules
        self._transaction = transaction
        self._clock = clock
        self._emit = emit
        self._open = HashSet()
        self._size = 0

    @contextmanager
    def isolate(self) -> Iterator[None]:
        """No error in this block harms the rest of the execution; only the loss of it as a whole is passed on."""
        try:
            yield
        except ExecutionLostError:
            raise
        except Exception as error:  # noqa: BLE001 - IndexNow's part must go on, and be saved
            self.record_broken(error)
            _log.exception("bing.broken", site=self._channel.site.id)

    def record_broken(self, error: Exception) -> None:
        """An unexpected error ended Bing's part."""
        self.can_send = False
        self._emit(BingBroken(type(error).__name__))

    async def open(self) -> None:
        """Find out whether pages can be sent now, and make the chooser for the crawl."""
        with self.isolate():
            await self._open_channel()

    async def plan(self) -> None:
        """After the crawl: put the best of what is due into the outbox."""
        with self.isolate():
            if self.chooser is not None:
                self._emit(BingCounted(due=self.chooser.count_due() + len(self._open)))
                await self._write(self.chooser.choose(self._size))

    async def count(self) -> None:
        """After sending: read the quota again."""
        with self.isolate():
            self._emit(BingCounted(quota=await self._channel.quota.read()))

    async def purge(self, *, before: int) -> None:
        """Delete what no longer counts: entries from before `before` (milliseconds) and old days of the quota."""
        with self.isolate():
            async with self._transaction() as connection:
                await self._channel.quota.purge(connection)
                await self._recorder.ledger.purge(connection, before=before)

    async def _open_channel(self) -> None:
        if await self._is_kept_away():
            return
        quota = await self._channel.quota.read()
        self.can_send = quota.remaining > 0
        skipped = None
        if not self.can_send:
            skipped = f"the quota of {quota.day} is used up"
            log_exhausted(self._channel.site, self._channel.quota)
        self._emit(BingOpened(quota=quota, skipped=skipped))
        self._open = await self._recorder.outbox.list_open(BING.endpoint, removed=False)
        self._size = max(0, quota.remaining - len(self._open))
        chooser = Chooser(
            self._size,
            priority=self._channel.site.bing.priority,
            ledger=self._recorder.ledger,
            rules=self._rules,
            skip=self._open,
        )
        await chooser.load(now=to_milliseconds(self._clock.now()))
        self.chooser = chooser

    async def _is_kept_away(self) -> bool:
        """Whether Bing refuses the key for good, or wants it to rest."""
        for broken in await self._broken.list_broken():
            skipped = f"switched off since {broken.since:%Y-%m-%d %H:%M} UTC: {broken.reason}"
            self._emit(BingOpened(skipped=skipped, refusal=broken.reason, advice=FREE_CHANNEL))
            return True
        rest = await self._channel.rests.find(self._channel.site.bing.require_key(), now=self._clock.now())
        if rest is None:
            return False
        skipped = f"the key rests until {rest.until:%Y-%m-%d %H:%M} UTC: {rest.reason}"
        self._emit(BingOpened(skipped=skipped, trouble=True))
        _log.warning("bing.key_resting", site=self._channel.site.id, until=f"{rest.until:%H:%M}", reason=rest.reason)
        return True

    async def _write(self, chosen: list[tuple[int, Candidate]]) -> None:
        """Put chosen pages into the outbox, the best first. A file's last one brings the file's record with it."""
        now = self._clock.now()
        midnight = to_milliseconds(now) // _DAY_MS * _DAY_MS
        entries = await self._recorder.ledger.find_entries(sorted(url_hash for url_hash, _ in chosen))
        counted = {url_hash for url_hash, entry in entries.items() if entry.submitted_at >= midnight}
        planned: Counter[FileBacklog] = Counter()
        for start in range(0, len(chosen), self._channel.batch_size):
            part = chosen[start : start + self._channel.batch_size]
            planned.update(candidate.backlog for _, candidate in part)
            done = [backlog for backlog, pages in planned.items() if pages == backlog.due]
            async with self._transaction() as connection:
                await self._recorder.outbox.add(
                    connection, gather_pages(part), engines=[BING.endpoint], at=now, counted=counted
                )
                for backlog in done:
                    await self._store_file(connection, backlog)
            for backlog in done:
                del planned[backlog]

    async def _store_file(self, connection: AsyncConnection, backlog: FileBacklog) -> None:
        """Every page of this file is on record on Bing: it need not be read again for it."""
        file = backlog.file
        if not backlog.clean or file.fault is not None or not file.validators:
            return
        now = to_milliseconds(self._clock.now())
        oldest = now if backlog.oldest is None else min(now, backlog.oldest)
        await self._validators.add_channel(
            connection, file.url, validators=file.validators, oldest=oldest, channel=Channel.BING
        )


def gather_pages(chosen: list[tuple[int, Candidate]]) -> Pages:
    return Pages.gather(
        Page(url_hash, candidate.url.decode(), None if candidate.lastmod == NO_LASTMOD else candidate.lastmod)
        for url_hash, candidate in chosen
    )
