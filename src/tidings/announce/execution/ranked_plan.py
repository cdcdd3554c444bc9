"""Planning for a channel with a daily quota: decides whether pages can be sent, and selects the best of what is due.

Pages that the quota does not cover are not put into the outbox. Its errors do not affect the rest of the execution.
"""

from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.broken_engines import BrokenEngines
from tidings.announce.channels.protocols.bing import BingApi
from tidings.announce.channels.quota.quota import QuotaState
from tidings.announce.channels.quota.ranked import RankedChannel
from tidings.announce.channels.quota.ranking import Candidate, Chooser, FileBacklog
from tidings.announce.due.hashes import HashSet
from tidings.announce.due.pages import Pages
from tidings.announce.execution.results import RankedBroken, RankedCounted, RankedOpened
from tidings.announce.page_check.checker import PageChecker
from tidings.announce.sitemap.validators import SitemapValidators
from tidings.core.clock import to_milliseconds
from tidings.core.executions import ExecutionLostError
from tidings.core.logs.logger import get_logger
from tidings.core.stop import StopRequestedError

FREE_CHANNEL = "Set another key, or free the channel with `tidings resume SITE` once the trouble is gone."
# A channel that reports its quota only with an answer may take more than we assume, so this many candidates are kept.
LEAST_CANDIDATES = 2_000

_DAY_MS = 24 * 60 * 60 * 1000

_log = get_logger(__name__)


class RankedPlan:
    """One channel's part of planning in one execution."""

    def __init__(self, channel: RankedChannel) -> None:
        self.channel = channel
        # Whether pages can be sent now.
        self.can_send = False
        # Follows the crawl; None if the channel cannot be used at all.
        self.chooser: Chooser | None = None
        self._context = channel.context
        self._recorder = channel.context.open_recorder(channel.channel)
        self._open = HashSet()
        self._size = 0
        # The best candidates that are not in the outbox, the best first.
        self._chosen: list[tuple[int, Candidate]] = []
        # By file: how many of its due pages are in the outbox.
        self._planned = Counter[FileBacklog]()

    @contextmanager
    def isolate(self) -> Iterator[None]:
        """Keep errors of this block from the rest of the execution. Only the loss of the execution is raised."""
        try:
            yield
        except ExecutionLostError:
            raise
        except Exception as error:  # noqa: BLE001 - the other channels must go on, and be saved
            self.record_broken(error)
            _log.exception(f"{self.channel.channel}.broken", site=self.channel.site.id)

    def record_broken(self, error: Exception) -> None:
        """An unexpected error ended the channel's part."""
        self.can_send = False
        self._context.emit(RankedBroken(self.channel.channel, type(error).__name__))

    async def open(self) -> None:
        """Find out whether pages can be sent now, and make the chooser for the crawl."""
        with self.isolate():
            await self._open_channel()

    async def plan(self, checker: PageChecker | None = None) -> None:
        """After the crawl: put the best of what is due into the outbox, as far as the quota goes."""
        with self.isolate():
            if self.chooser is not None:
                due = self.chooser.count_due() + len(self._open)
                self._context.emit(RankedCounted(self.channel.channel, due=due, too_soon=self.chooser.count_too_soon()))
                self._chosen = self.chooser.choose(self._size)
                if checker is not None:
                    await self._check_chosen(checker)
                await self._write((await self.channel.quota.read()).remaining - len(self._open))

    async def _check_chosen(self, checker: PageChecker) -> None:
        """Leave out pages that should not be announced. After a stop none is left, because nothing is sent any more."""
        chosen, self._chosen = self._chosen, []
        with suppress(StopRequestedError):
            admitted, checked = await checker.check(gather_pages(chosen))
            kept = set(admitted.hashes)
            self._chosen = [each for each in chosen if each[0] in kept]
            self._context.emit(checked)

    async def plan_more(self) -> bool:
        """After sending: plan more, if an answer named more quota than was known. Returns whether it did."""
        if not self.can_send or not self._chosen:
            return False
        return await self._write((await self.channel.quota.read()).remaining)

    async def count(self) -> None:
        """After sending: read the quota again."""
        with self.isolate():
            self._context.emit(RankedCounted(self.channel.channel, quota=await self.channel.quota.read()))

    async def purge(self, *, before: int) -> None:
        """Delete what no longer counts: entries from before `before` (milliseconds) and old days of the quota."""
        with self.isolate():
            async with self._context.transaction() as connection:
                await self.channel.quota.purge(connection)
                await self._recorder.ledger.purge(connection, before=before)

    async def _open_channel(self) -> None:
        channel = self.channel
        if await self._is_kept_away():
            return
        async with self._context.transaction() as connection:
            await channel.quota.begin(connection)
        await self._ask_limit()
        quota = await channel.quota.read()
        self.can_send = quota.remaining > 0
        skipped = None
        if not self.can_send:
            skipped = f"the quota of {quota.day} is used up"
            channel.quota.log_exhausted(channel.site.id)
        self._context.emit(RankedOpened(channel.channel, quota=quota, skipped=skipped))
        engine = channel.engine.endpoint
        self._open = (await self._recorder.outbox.list_open([engine]))[False].get(engine, HashSet())
        self._size = max(0, self._count_candidates(quota) - len(self._open))
        chooser = Chooser(
            self._size,
            priority=channel.settings.priority,
            ledger=self._recorder.ledger,
            rules=self._context.rules,
            skip=self._open,
        )
        await chooser.load(now=to_milliseconds(self._context.clock.now()))
        self.chooser = chooser

    async def _ask_limit(self) -> None:
        """Once a day, ask the channel for its quota, if the site wants that. Without an answer the last one counts."""
        channel, state = self.channel, await self.channel.quota.read()
        if not channel.settings.auto or state.learned or not isinstance(channel.api, BingApi):
            return
        allowed = await channel.api.ask_limit(channel.site)
        if allowed is None:
            _log.warning(f"{channel.channel}.quota_not_answered", site=channel.site.id)
            return
        if state.used:
            # The answer may be the day's total or the rest: this much is safe in both cases.
            allowed = state.used + min(allowed, state.remaining)
        async with self._context.transaction() as connection:
            await channel.quota.learn(connection, allowed)

    def _count_candidates(self, quota: QuotaState) -> int:
        """How many pages may go out in this execution, at most."""
        if self.can_send and self.channel.kind.learns and not quota.learned:
            return max(quota.remaining, LEAST_CANDIDATES)
        return quota.remaining

    async def _is_kept_away(self) -> bool:
        """Whether the channel refuses the key for good, or wants it to rest."""
        channel = self.channel
        broken_engines = BrokenEngines(self._context.database, site=channel.site, channel=channel.channel)
        for broken in await broken_engines.list_broken():
            skipped = f"switched off since {broken.since:%Y-%m-%d %H:%M} UTC: {broken.reason}"
            self._context.emit(
                RankedOpened(channel.channel, skipped=skipped, refusal=broken.reason, advice=FREE_CHANNEL)
            )
            return True
        rest = await channel.find_rest()
        if rest is None:
            return False
        skipped = f"the key rests until {rest.until:%Y-%m-%d %H:%M} UTC: {rest.reason}"
        self._context.emit(RankedOpened(channel.channel, skipped=skipped, trouble=True))
        _log.warning(
            f"{channel.channel}.key_resting", site=channel.site.id, until=f"{rest.until:%H:%M}", reason=rest.reason
        )
        return True

    async def _write(self, count: int) -> bool:
        """Put the best `count` candidates into the outbox. Returns whether there were any.

        A file's last page brings the file's record with it.
        """
        chosen, self._chosen = self._chosen[: max(0, count)], self._chosen[max(0, count) :]
        now = self._context.clock.now()
        midnight = to_milliseconds(now) // _DAY_MS * _DAY_MS
        entries = await self._recorder.ledger.find_entries(sorted(url_hash for url_hash, _ in chosen))
        counted = {url_hash for url_hash, entry in entries.items() if entry.submitted_at >= midnight}
        engines = [self.channel.engine.endpoint]
        size = self.channel.limits.batch_size
        for start in range(0, len(chosen), size):
            part = chosen[start : start + size]
            self._planned.update(candidate.backlog for _, candidate in part)
            done = [backlog for backlog, pages in self._planned.items() if pages == backlog.due]
            async with self._context.transaction() as connection:
                await self._recorder.outbox.add(
                    connection, gather_pages(part), engines=engines, at=now, counted=counted
                )
                for backlog in done:
                    await self._store_file(connection, backlog)
            for backlog in done:
                del self._planned[backlog]
        return bool(chosen)

    async def _store_file(self, connection: AsyncConnection, backlog: FileBacklog) -> None:
        """Record that the ledger or the outbox has every page of this file, so that it need not be read again for this
        channel."""
        file = backlog.file
        if not backlog.clean or file.fault is not None or not file.validators:
            return
        now = to_milliseconds(self._context.clock.now())
        oldest = now if backlog.oldest is None else min(now, backlog.oldest)
        validators = SitemapValidators(self._context.database, site=self.channel.site.number)
        await validators.add_channel(
            connection, file.url, validators=file.validators, oldest=oldest, channel=self.channel.channel
        )


def gather_pages(chosen: list[tuple[int, Candidate]]) -> Pages:
    candidates = [candidate for _, candidate in chosen]
    return Pages(
        [each.url for each in candidates],
        array("q", [url_hash for url_hash, _ in chosen]),
        array("q", [each.lastmod for each in candidates]),
    )
