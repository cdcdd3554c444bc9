"""From chosen pages to Bing and into the record: reserve, send, settle, batch by batch.

Quota is reserved in one guarded transaction before a batch is sent; what Bing took is entered in the ledger in another
one after it. A crash in between leaves the quota charged and the pages due: the count may be too high, never too low,
and nothing is lost.
"""

from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.bing import BING, MOST_URLS, BingApi, BingOutcome, Verdict
from tidings.announce.channels.lanes import Means
from tidings.announce.channels.quota import Quota
from tidings.announce.due.pages import Pages
from tidings.announce.execution.report import BingReport
from tidings.announce.ledger.ledger import Ledger
from tidings.announce.ledger.statistics import DailyCount
from tidings.announce.ledger.undelivered import Undelivered
from tidings.announce.site.site import Site
from tidings.announce.sitemap.memory import BrokenEngines, KeyRests
from tidings.core.clock import to_milliseconds, to_text
from tidings.core.logs.logger import get_logger
from tidings.core.net.retry import Trouble
from tidings.core.stop import StopRequestedError

KEY_REST = timedelta(hours=1)
# Bing does not say which URL it dislikes: a batch is halved until it is found, but not without end.
MOST_SPLIT_REQUESTS = 60
REFUSALS_UNTIL_CLOSED = 2

_log = get_logger(__name__)

_TROUBLES = {
    Verdict.RATE_LIMITED: Trouble.RATE_LIMITED,
    Verdict.UNAVAILABLE: Trouble.UNAVAILABLE,
    Verdict.UNCERTAIN: Trouble.UNAVAILABLE,
}
# The pages are not to blame and have not failed: they are due again when the time has come.
_NOT_THE_PAGES = frozenset({Verdict.QUOTA_FULL, Verdict.THROTTLED})
_ENDING = frozenset({*_TROUBLES, *_NOT_THE_PAGES, Verdict.BAD_KEY})

Transaction = Callable[[], AbstractAsyncContextManager[AsyncConnection]]


@dataclass(frozen=True, slots=True)
class BingRecord:
    """Where it is kept what became of a page. `transaction` begins a write that only the running execution can make."""

    transaction: Transaction
    ledger: Ledger
    quota: Quota
    undelivered: Undelivered
    broken: BrokenEngines
    rests: KeyRests
    daily: DailyCount


class BingDelivery:
    """One execution's way to Bing."""

    def __init__(
        self,
        site: Site,
        *,
        api: BingApi,
        record: BingRecord,
        means: Means,
        report: BingReport,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.accepted: set[int] = set()
        self._site = site
        self._api = api
        self._record = record
        self._means = means
        self._report = report
        self._on_progress = on_progress
        self._over = False
        self._refusals = 0
        self._batches = 0

    async def send(self, pages: Pages) -> None:
        """Send these, the first first, in batches, as far as the quota goes and Bing is willing."""
        start = 0
        while start < len(pages) and not self._is_over:
            batch = pages.cut(start, start + MOST_URLS)
            start += len(batch)
            await self._deliver(batch)

    @property
    def _is_over(self) -> bool:
        return self._over or self._means.stop.requested

    async def _deliver(self, batch: Pages) -> None:
        """Send a batch until Bing took it or it is given up; one with bad URLs is split until they are found."""
        self._batches += 1
        began = self._means.clock.monotonic()
        statuses: Counter[str] = Counter()
        parts = deque([batch])
        requests_left = MOST_SPLIT_REQUESTS
        while parts:
            sent = await self._send_with_retries(parts.popleft(), statuses)
            requests_left -= 1
            if sent is None:
                continue
            pages, outcome, attempts = sent
            if outcome.verdict is Verdict.INVALID_URL and len(pages) > 1 and requests_left >= len(parts) + 2:
                middle = len(pages) // 2
                parts += [pages.cut(0, middle), pages.cut(middle, len(pages))]
            elif not outcome.accepted:
                await self._give_up(pages, outcome, attempts=attempts)
        _log.info(
            "bing.batch_sent",
            site=self._site.id,
            batch=self._batches,
            urls=len(batch),
            accepted=sum(url_hash in self.accepted for url_hash in batch.hashes),
            status=dict(statuses),
            ms=round((self._means.clock.monotonic() - began) * 1000),
        )

    async def _send_with_retries(self, pages: Pages, statuses: Counter[str]) -> tuple[Pages, BingOutcome, int] | None:
        """What was sent of `pages`, the last outcome and how many attempts it took; None where nothing was sent.

        Every attempt is reserved, sent and settled by itself, so that one without an answer stays charged.
        """
        attempts = 0
        sent: tuple[Pages, BingOutcome, int] | None = None
        while not self._is_over:
            # A retry is worth its quota only with all of the batch; at first, some is better than nothing.
            granted = await self._reserve(len(pages), least=1 if sent is None else len(pages))
            if not granted:
                break
            pages = pages.cut(0, granted)
            outcome = await self._send(pages, statuses)
            if outcome is None:
                break
            if outcome.verdict is Verdict.QUOTA_REMAINING:
                # Corrected, and none of it taken: what remains is asked for again.
                sent = None
                continue
            attempts += 1
            sent = pages, outcome, attempts
            delay = self._find_delay(outcome, attempts)
            if delay is None or not await self._wait(delay, outcome, attempts):
                break
        return sent

    async def _reserve(self, count: int, *, least: int) -> int:
        quota = self._record.quota
        if await self._is_resting():
            return 0
        async with self._record.transaction() as connection:
            granted = await quota.reserve(connection, count)
            if 0 < granted < least:
                await quota.release(connection, granted)
                granted = 0
        if not granted:
            self._over = True
            log_exhausted(self._site, quota)
        return granted

    async def _is_resting(self) -> bool:
        """Whether Bing has asked meanwhile, of another site with this key, to let it rest."""
        rest = await self._record.rests.find(self._site.bing.require_key(), now=self._means.clock.now())
        if rest is None:
            return False
        self._over = self._report.trouble = True
        self._report.engine.reason = f"the key rests until {to_text(rest.until)}: {rest.reason}"
        return True

    async def _send(self, pages: Pages, statuses: Counter[str]) -> BingOutcome | None:
        """Send what was reserved, and settle it; None where it was time to stop before it was sent."""
        urls = [url.decode() for url in pages.urls]
        try:
            async with self._means.pace.turn(self._api.host, stop=self._means.stop):
                outcome = await self._api.submit(self._site, urls)
        except StopRequestedError:
            async with self._record.transaction() as connection:
                await self._record.quota.release(connection, len(pages))
            return None
        if outcome.verdict is Verdict.QUOTA_REMAINING and (outcome.remaining or 0) >= len(pages):
            # It has room for all of them and refuses them all the same: asking again would never end.
            outcome = replace(outcome, verdict=Verdict.REFUSED)
        statuses[str(outcome.status or "no answer")] += 1
        self._report.note(outcome, at=self._means.clock.now())
        if not outcome.accepted:
            self._log_answer(pages, outcome)
        await self._settle(pages, outcome)
        return outcome

    async def _settle(self, pages: Pages, outcome: BingOutcome) -> None:
        record, quota, count = self._record, self._record.quota, len(pages)
        async with record.transaction() as connection:
            match outcome.verdict:
                case Verdict.ACCEPTED:
                    await quota.confirm(connection)
                    await record.daily.note_taken(connection, pages.hashes, look=True)
                    await record.ledger.enter(connection, pages, at=to_milliseconds(self._means.clock.now()))
                    await record.undelivered.settle(connection, pages.hashes, engine=BING.endpoint)
                case Verdict.UNCERTAIN:
                    # Bing may have counted it.
                    pass
                case Verdict.QUOTA_REMAINING:
                    await quota.correct(connection, remaining=outcome.remaining or 0, reserved=count)
                case Verdict.QUOTA_FULL:
                    await quota.close(connection, reserved=count)
                case _:
                    await quota.release(connection, count)
        if outcome.accepted:
            self.accepted.update(pages.hashes)
            self._report.engine.succeeded += count
            self._refusals = 0
            self._on_progress()

    def _find_delay(self, outcome: BingOutcome, attempts: int) -> timedelta | None:
        """How long to wait before the next attempt; None where there is to be none."""
        trouble = _TROUBLES.get(outcome.verdict)
        if trouble is None:
            return None
        return self._means.policy.next_delay(trouble, retry=attempts, asked_for=outcome.retry_after)

    async def _wait(self, delay: timedelta, outcome: BingOutcome, attempts: int) -> bool:
        """Wait for the next attempt; False where the time does not suffice."""
        left = self._means.stop.remaining()
        if left is not None and delay > left:
            return False
        _log.warning(
            "bing.retry",
            site=self._site.id,
            batch=self._batches,
            retry=f"retry {attempts}/{self._means.policy.retries}",
            wait_s=delay.total_seconds(),
            reason=outcome.reason,
        )
        try:
            await self._means.stop.sleep(delay)
        except StopRequestedError:
            return False
        return True

    async def _give_up(self, pages: Pages, outcome: BingOutcome, *, attempts: int) -> None:
        self._report.trouble = True
        self._report.engine.reason, self._report.engine.advice = outcome.reason, outcome.advice
        if outcome.verdict not in _NOT_THE_PAGES:
            await self._fail(pages, outcome, attempts=attempts)
        if outcome.verdict is Verdict.THROTTLED:
            await self._rest_key(outcome)
        if outcome.verdict is Verdict.BAD_KEY:
            await self._switch_off(outcome)
        self._refusals += outcome.verdict is Verdict.REFUSED
        self._over = self._over or outcome.verdict in _ENDING or self._refusals >= REFUSALS_UNTIL_CLOSED

    async def _fail(self, pages: Pages, outcome: BingOutcome, *, attempts: int) -> None:
        async with self._record.transaction() as connection:
            await self._record.daily.note_failed(connection, pages.hashes, look=True)
            await self._record.undelivered.fail(
                connection,
                pages,
                engine=BING.endpoint,
                reason=outcome.reason,
                attempts=attempts,
                at=to_milliseconds(self._means.clock.now()),
            )
        self._report.engine.failed += len(pages)
        self._on_progress()

    async def _rest_key(self, outcome: BingOutcome) -> None:
        until = self._means.clock.now() + KEY_REST
        key = self._site.bing.require_key()
        async with self._record.transaction() as connection:
            await self._record.rests.begin(connection, key, until=until, reason=outcome.reason)
        _log.warning("bing.key_rests", site=self._site.id, key=key.hint, until=to_text(until), reason=outcome.reason)

    async def _switch_off(self, outcome: BingOutcome) -> None:
        now = to_milliseconds(self._means.clock.now())
        async with self._record.transaction() as connection:
            await self._record.broken.mark(connection, BING.endpoint, reason=outcome.reason, at=now)
        self._report.engine.broken = True

    def _log_answer(self, pages: Pages, outcome: BingOutcome) -> None:
        recovered = outcome.verdict not in (Verdict.BAD_KEY, Verdict.INVALID_URL, Verdict.REFUSED)
        (_log.warning if recovered else _log.error)(
            "bing.answer",
            site=self._site.id,
            batch=self._batches,
            urls=len(pages),
            first_url=pages.urls[0].decode(),
            status=outcome.status,
            error_code=outcome.code,
            error_message=outcome.message,
            verdict=outcome.verdict.value,
            reason=outcome.reason,
            check=outcome.advice,
        )


def log_exhausted(site: Site, quota: Quota) -> None:
    _log.info("Bing quota exhausted, skipping", site=site.id, day=str(quota.day), quota=quota.limit)
