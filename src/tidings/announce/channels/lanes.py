"""A lane is everything between the batches and one engine: its own queue, retries and splitting, so that an engine that
is slow or broken holds up no other. It first sends what the engine failed to take in earlier executions, then what the
crawl finds, and last what was set aside because the engine was slow. What becomes of a page is recorded by `delivery`.
"""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from tidings.announce.channels.indexnow import (
    MOST_URLS,
    IndexNowRequest,
    Outcome,
    Verdict,
    build_get,
    build_post,
    choose_method,
    submit,
)
from tidings.announce.due.pages import Pages
from tidings.announce.execution.report import EngineReport
from tidings.announce.execution.shipments import Shipment
from tidings.announce.site.site import Engine, Site, SubmitMethod
from tidings.core.clock import Clock
from tidings.core.logs.logger import get_logger
from tidings.core.net.client import GuardedClient
from tidings.core.net.pace import Pace
from tidings.core.net.retry import RetryPolicy, Trouble
from tidings.core.stop import Stop, StopRequestedError

GET_BATCH = 100
# A batch in which most URLs are bad is not taken apart to the last one.
MOST_SPLIT_REQUESTS = 200
# So many units failed one after the other, each after all its retries: the engine is down, and the rest waits.
FAILURES_UNTIL_CLOSED = 10
# An engine may ask for a day; other sites, and people who try again, need not wait that long to be told so.
LONGEST_REST = timedelta(hours=1)

_log = get_logger(__name__)

_TROUBLES = {Verdict.RATE_LIMITED: Trouble.RATE_LIMITED, Verdict.UNAVAILABLE: Trouble.UNAVAILABLE}
# The same answer would come for every other request with this key or to this address.
_CLOSING = frozenset({Verdict.UNVERIFIED, Verdict.FORBIDDEN, Verdict.REFUSED})


@dataclass(frozen=True, slots=True)
class Means:
    """What lanes send with."""

    client: GuardedClient
    clock: Clock
    pace: Pace
    policy: RetryPolicy
    stop: Stop
    concurrency: int


class Record(Protocol):
    """Where a lane gets its old debts from and tells what became of its pages."""

    async def list_debts(
        self, lane: "Lane", *, removed: bool, earlier_only: bool, after: int | None
    ) -> Shipment | None:
        """The next pages this engine has yet to take, in the order of the hash, or None."""

    async def accept(self, lane: "Lane", shipment: Shipment, pages: Pages) -> None:
        """The engine took them."""

    async def fail(self, lane: "Lane", shipment: Shipment, pages: Pages, outcome: Outcome, *, attempts: int) -> None:
        """The engine did not take them in so many attempts, and is not asked again in this execution."""

    async def break_engine(self, lane: "Lane", outcome: Outcome) -> None:
        """The engine refuses the key for good."""

    async def finish_shipment(self, lane: "Lane", shipment: Shipment) -> None:
        """The lane is done with this shipment, whatever came of it."""


@dataclass(slots=True)
class _Batch:
    """One shipment in one lane. `remaining` counts its pages that are not dealt with."""

    shipment: Shipment
    remaining: int
    began: float
    accepted: int = 0
    statuses: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Unit:
    """What goes out in one request."""

    batch: _Batch
    pages: Pages


class Lane:
    """One engine's lane."""

    def __init__(
        self, site: Site, engine: Engine, *, means: Means, record: Record, report: EngineReport, moved: asyncio.Event
    ) -> None:
        self.engine = engine
        self.report = report
        self.closed_by: Outcome | None = None
        self._site = site
        self._means = means
        self._record = record
        self._inbox: asyncio.Queue[Shipment | None] = asyncio.Queue()
        self._units: asyncio.Queue[_Unit] = asyncio.Queue(maxsize=1)
        self._failures_in_row = 0
        self._pays_debts = True
        self._taken = 0
        self._moved = moved

    @property
    def idle(self) -> bool:
        """It could send, and has nothing to."""
        return self.closed_by is None and not self._taken and not self._pays_debts

    def take(self, shipment: Shipment) -> bool:
        """Take a shipment; False where enough are waiting: one more than can be sent at once."""
        if self._taken > self._means.concurrency:
            return False
        self._taken += 1
        self._inbox.put_nowait(shipment)
        return True

    def end(self) -> None:
        """Nothing more comes; `run` returns once all is dealt with."""
        self._inbox.put_nowait(None)

    async def run(self) -> None:
        """Send until nothing is left, it is time to stop, or the engine is of no use in this execution."""
        workers = [asyncio.create_task(self._work()) for _ in range(self._means.concurrency)]
        feeding = asyncio.create_task(self._feed())
        try:
            # A worker ends only by an error, which must not leave the others waiting.
            done, _ = await asyncio.wait({feeding, *workers}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (feeding, *workers):
                task.cancel()
            await asyncio.gather(feeding, *workers, return_exceptions=True)

    async def _feed(self) -> None:
        await self._send_debts(earlier_only=True)
        self._pays_debts = False
        self._moved.set()
        while (shipment := await self._inbox.get()) is not None:
            await self._load(shipment)
        await self._units.join()
        await self._send_debts(earlier_only=False)
        await self._units.join()

    async def _send_debts(self, *, earlier_only: bool) -> None:
        for removed in (False, True):
            after = None
            while not self._is_over:
                debts = await self._record.list_debts(self, removed=removed, earlier_only=earlier_only, after=after)
                if debts is None:
                    break
                after = debts.pages.hashes[-1]
                await self._load(debts)

    async def _load(self, shipment: Shipment) -> None:
        batch = _Batch(shipment, remaining=len(shipment.pages), began=self._means.clock.monotonic())
        if choose_method(self._site.submit_method, count=len(shipment.pages)) is SubmitMethod.GET:
            for at in range(len(shipment.pages)):
                await self._units.put(_Unit(batch, shipment.pages.cut(at, at + 1)))
        else:
            await self._units.put(_Unit(batch, shipment.pages))

    @property
    def batch_size(self) -> int:
        """How many pages make a batch: 100 requests by GET, one by POST."""
        return GET_BATCH if self._site.submit_method is SubmitMethod.GET else MOST_URLS

    @property
    def _is_over(self) -> bool:
        return self.closed_by is not None or self._means.stop.requested

    async def _work(self) -> None:
        while True:
            unit = await self._units.get()
            try:
                await self._deal_with(unit)
            finally:
                self._units.task_done()

    async def _deal_with(self, unit: _Unit) -> None:
        await self._deliver(unit)
        unit.batch.remaining -= len(unit.pages)
        if unit.batch.remaining == 0:
            self._log_batch(unit.batch)
            await self._record.finish_shipment(self, unit.batch.shipment)
            if not unit.batch.shipment.from_earlier:
                self._taken -= 1
                self._moved.set()

    async def _deliver(self, unit: _Unit) -> None:
        """Send a unit until it is accepted or given up; a batch with bad URLs is split until they are found."""
        parts = deque([unit.pages])
        requests_left = MOST_SPLIT_REQUESTS
        while parts:
            pages = parts.popleft()
            try:
                outcome, attempts = await self._send_with_retries(unit, pages)
            except StopRequestedError:
                self._leave(unit, pages)
                continue
            requests_left -= 1
            if outcome.accepted:
                unit.batch.accepted += len(pages)
                self._failures_in_row = 0
                await self._record.accept(self, unit.batch.shipment, pages)
            elif outcome.verdict is Verdict.BAD_URLS and len(pages) > 1 and requests_left >= len(parts) + 2:
                middle = len(pages) // 2
                parts += [pages.cut(0, middle), pages.cut(middle, len(pages))]
            else:
                await self._give_up(unit, pages, outcome, attempts=attempts)

    def _leave(self, unit: _Unit, pages: Pages) -> None:
        unit.batch.shipment.accepted_everywhere = False
        self.report.left += len(pages)

    async def _send_with_retries(self, unit: _Unit, pages: Pages) -> tuple[Outcome, int]:
        """The last outcome, and how many attempts it took. Raises StopRequestedError, also once the lane is closed."""
        attempts = 0
        while True:
            if self.closed_by is not None:
                raise StopRequestedError(self.closed_by.reason)
            outcome = await self._send(unit, pages)
            attempts += 1
            trouble = _TROUBLES.get(outcome.verdict)
            if trouble is None:
                return outcome, attempts
            delay = self._means.policy.next_delay(trouble, retry=attempts, asked_for=outcome.retry_after)
            if trouble is Trouble.RATE_LIMITED:
                await self._respect_limit(delay)
            if delay is None or self._is_too_long(delay):
                return outcome, attempts
            _log.warning(
                "batch.retry",
                site=self._site.id,
                engine=self.engine.host,
                batch=unit.batch.shipment.number,
                retry=f"retry {attempts}/{self._means.policy.retries}",
                wait_s=delay.total_seconds(),
                reason=outcome.reason,
            )
            await self._means.stop.sleep(delay)

    async def _respect_limit(self, delay: timedelta | None) -> None:
        """The limit is the engine's, not this batch's: nobody asks it before the wait is over, and then less often."""
        await self._means.pace.slow_down(self.engine.host)
        if delay is not None:
            await self._means.pace.rest(self.engine.host, min(delay, LONGEST_REST))

    def _is_too_long(self, delay: timedelta) -> bool:
        left = self._means.stop.remaining()
        return left is not None and delay > left

    async def _send(self, unit: _Unit, pages: Pages) -> Outcome:
        request = self._build_request(pages)
        async with self._means.pace.turn(self.engine.host, stop=self._means.stop):
            outcome = await submit(request, client=self._means.client, clock=self._means.clock)
        self.report.requests += 1
        self.report.time_taken += outcome.elapsed
        unit.batch.statuses[str(outcome.status or "no answer")] += 1
        if outcome.accepted:
            await self._means.pace.record_accepted(self.engine.host)
        return outcome

    def _build_request(self, pages: Pages) -> IndexNowRequest:
        urls = [url.decode() for url in pages.urls]
        if choose_method(self._site.submit_method, count=len(urls)) is SubmitMethod.GET:
            return build_get(self._site, self.engine, urls[0])
        return build_post(self._site, self.engine, urls)

    async def _give_up(self, unit: _Unit, pages: Pages, outcome: Outcome, *, attempts: int) -> None:
        # Bad URLs are no sign of a bad engine.
        self._failures_in_row += outcome.verdict is not Verdict.BAD_URLS
        self.report.reason, self.report.advice = outcome.reason, outcome.advice
        level = _log.warning if outcome.verdict in (*_TROUBLES, Verdict.UNVERIFIED) else _log.error
        level(
            "batch.failed",
            site=self._site.id,
            engine=self.engine.host,
            batch=unit.batch.shipment.number,
            urls=len(pages),
            first_url=pages.urls[0].decode(),
            status=outcome.status,
            reason=outcome.reason,
            check=outcome.advice,
        )
        await self._record.fail(self, unit.batch.shipment, pages, outcome, attempts=attempts)
        if self._is_useless(outcome):
            await self._close(outcome)

    def _is_useless(self, outcome: Outcome) -> bool:
        """Whether asking this engine again in this execution makes no sense."""
        wish = outcome.retry_after if outcome.verdict is Verdict.RATE_LIMITED else None
        return (
            outcome.verdict in _CLOSING
            or self._failures_in_row >= FAILURES_UNTIL_CLOSED
            or (wish is not None and self._is_too_long(wish * self._means.policy.scale))
        )

    async def _close(self, outcome: Outcome) -> None:
        if self.closed_by is not None:
            return
        self.closed_by = outcome
        _log.warning("engine.closed", site=self._site.id, engine=self.engine.host, reason=outcome.reason)
        if outcome.verdict is Verdict.FORBIDDEN:
            self.report.broken = True
            await self._record.break_engine(self, outcome)

    def _log_batch(self, batch: _Batch) -> None:
        _log.info(
            "batch.sent",
            site=self._site.id,
            engine=self.engine.host,
            batch=batch.shipment.number,
            urls=len(batch.shipment.pages),
            accepted=batch.accepted,
            status=dict(batch.statuses),
            ms=round((self._means.clock.monotonic() - batch.began) * 1000),
        )
