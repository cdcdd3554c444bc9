"""One sender for every channel: takes an engine's next pages from the outbox, sends them, and records the result.

A channel supplies the protocol (build a request, classify an answer, batch size) and its quota (reserve before, settle
after). Retries, halving a batch with bad URLs, closing an engine and recording are here, once. A sender shares only a
wake-up with planning: starting, resuming and serving a slow engine are the same loop.
"""

import asyncio
from collections import Counter, deque
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.answer import Outcome, Verdict, find_delay
from tidings.announce.channels.batch_log import BatchLog
from tidings.announce.channels.batch_parts import BatchPart, SentBatch, SentPart
from tidings.announce.channels.broken_engines import BrokenEngines
from tidings.announce.channels.channel import (
    BatchClaimed,
    EngineClosed,
    ExecutionContext,
    PagesFailed,
    PagesTaken,
    RequestAnswered,
    Reservation,
    SendingChannel,
)
from tidings.announce.ledger.recorder import TakenCount
from tidings.core.clock import to_milliseconds
from tidings.core.stop import Stop, StopRequestedError

# An engine may ask for a day, but other sites and manual retries should find that out sooner.
LONGEST_REST = timedelta(hours=1)

# The pages are not to blame: they stay open and have not failed.
_BLAMELESS = frozenset({Verdict.QUOTA_FULL, Verdict.THROTTLED})


class Sender:
    """Sends one engine's deliveries."""

    def __init__(
        self,
        channel: SendingChannel,
        *,
        context: ExecutionContext,
        stop: Stop,
        concurrency: int,
        all_planned: bool = False,
    ) -> None:
        """`all_planned`: the outbox gets no further pages; otherwise call `end` once it does not."""
        self._channel = channel
        self._context = context
        self._recorder = context.open_recorder(channel.channel)
        self._stop = stop
        self._ended = all_planned
        # The outbox may have new pages, or gets no more.
        self._woken = asyncio.Event()
        self._log = BatchLog(channel, clock=context.clock, retries=context.policy.retries)
        self._concurrency = concurrency
        self._parts: asyncio.Queue[BatchPart] = asyncio.Queue()
        # Pages are claimed only for a worker that is free: a batch takes megabytes.
        self._free = asyncio.Semaphore(concurrency)
        self._busy: set[int] = set()
        self._batches = 0
        self._failures_in_row = 0
        # No further request to this engine makes sense in this execution.
        self.closed = False

    def wake(self) -> None:
        """The outbox may have new pages."""
        self._woken.set()

    def end(self) -> None:
        """No more pages will come."""
        self._ended = True
        self._woken.set()

    async def run(self) -> None:
        """Send until the outbox has nothing more for this engine, a stop is requested, or the engine is closed."""
        workers = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]
        feeding = asyncio.create_task(self._feed())
        try:
            # A worker ends early only by an error, and then the others must not wait for ever.
            done, _ = await asyncio.wait({feeding, *workers}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (feeding, *workers):
                task.cancel()
            await asyncio.gather(feeding, *workers, return_exceptions=True)

    @property
    def _is_over(self) -> bool:
        return self.closed or self._stop.requested

    async def _feed(self) -> None:
        """Claim pages and hand them to the workers: first what failed in earlier executions, then everything else."""
        for failed in (True, False):
            while not self._is_over:
                # Before reading the outbox: a later wake-up then ends the wait.
                self._woken.clear()
                ended = self._ended
                if await self._claim(failed=failed):
                    continue
                # A delivery larger than a batch is claimed again once its first pages have a result.
                if not self._busy and (failed or ended):
                    break
                await self._woken.wait()
        await self._parts.join()

    async def _claim(self, *, failed: bool) -> bool:
        await self._free.acquire()
        claimed = await self._recorder.outbox.claim(
            self._channel.engine.endpoint, failed=failed, limit=self._channel.limits.batch_size, busy=self._busy
        )
        if claimed is None:
            self._free.release()
            return False
        self._busy.update(segment.delivery for segment in claimed.segments)
        self._batches += 1
        self._context.emit(BatchClaimed(self._channel.engine, claimed.repeated))
        size = len(claimed)
        batch = SentBatch(self._batches, claimed, remaining=size, began=self._context.clock.monotonic())
        step = self._channel.limits.urls_per_request
        for start in range(0, size, step):
            if start:
                await self._free.acquire()
            self._parts.put_nowait(BatchPart(batch, claimed.cut(start, start + step)))
        return True

    async def _work(self) -> None:
        while True:
            part = await self._parts.get()
            try:
                await self._deliver(part)
                part.batch.remaining -= len(part)
                if not part.batch.remaining:
                    await self._finish_batch(part.batch)
            finally:
                self._parts.task_done()
                self._free.release()

    async def _finish_batch(self, batch: SentBatch) -> None:
        self._busy.difference_update(segment.delivery for segment in batch.claimed.segments)
        if batch.statuses:
            self._log.log_batch(batch)
            await self._context.save_progress()
        self.wake()

    async def _deliver(self, whole: BatchPart) -> None:
        """Send a part until it is taken or given up; with bad URLs it is halved until they are found."""
        parts = deque([whole])
        requests_left = self._channel.limits.most_split_requests
        while parts and not self._is_over:
            part = parts.popleft()
            requests_left -= 1
            parts += await self._send_with_retries(part, may_split=requests_left >= len(parts) + 2)

    async def _send_with_retries(self, part: BatchPart, *, may_split: bool) -> list[BatchPart]:
        """Send until there is a lasting answer, and record it. Returns the parts to send instead."""
        attempts = 0
        sent: SentPart | None = None
        try:
            while not self._is_over:
                # The first attempt may send as much as the quota allows; a retry needs quota for the whole part.
                reservation = await self._channel.reserve(len(part), least=1 if sent is None else len(part))
                if not reservation.granted:
                    await self._close_without_quota(reservation, sent)
                    break
                part = part.cut(0, reservation.granted)
                outcome = await self._send(part)
                await self._respect_limit(outcome)
                if outcome.verdict is Verdict.QUOTA_REMAINING:
                    # The quota was corrected, and nothing was taken: reserve again, for as many as remain.
                    await self._settle(part, outcome)
                    sent = None
                    continue
                attempts += 1
                sent = SentPart(part, outcome, attempts)
                delay = find_delay(outcome, retry=attempts, policy=self._context.policy, stop=self._stop)
                if delay is None:
                    return await self._conclude(sent, may_split=may_split)
                await self._settle(part, outcome)
                self._log.log_retry(sent, delay)
                await self._stop.sleep(delay)
        except StopRequestedError:
            # The part stays in the outbox.
            pass
        return []

    async def _send(self, part: BatchPart) -> Outcome:
        """One request in its turn. Raises StopRequestedError before it is sent."""
        channel, context = self._channel, self._context
        request = channel.build_request(part.urls)
        try:
            async with context.pace.turn(channel.host, stop=self._stop, least=channel.limits.least_interval) as turn:
                outcome = await channel.submit(replace(request, before_sending=turn.confirm), count=len(part))
        except StopRequestedError:
            await channel.release(len(part))
            raise
        part.batch.statuses[str(outcome.status or "no answer")] += 1
        context.emit(RequestAnswered(channel.engine, outcome, context.clock.now()))
        if outcome.accepted and not channel.channel.has_quota:
            await context.pace.record_accepted(channel.host)
        return outcome

    async def _settle(self, part: BatchPart, outcome: Outcome) -> None:
        """An answer after which the part is sent again."""
        self._log.log_answer(part, outcome)
        if self._channel.channel.has_quota:
            async with self._context.transaction() as connection:
                await self._channel.settle(connection, outcome, count=len(part))

    async def _respect_limit(self, outcome: Outcome) -> None:
        """The rate limit applies to the engine: no process sends to it before the wait is over, and then less often."""
        if outcome.verdict is not Verdict.RATE_LIMITED or self._channel.channel.has_quota:
            return
        await self._context.pace.slow_down(self._channel.host)
        rest = self._context.policy.find_rest(asked_for=outcome.retry_after)
        await self._context.pace.rest(self._channel.host, min(rest, LONGEST_REST))

    async def _conclude(self, sent: SentPart, *, may_split: bool) -> list[BatchPart]:
        """Record a lasting answer. Returns the halves of a part with bad URLs."""
        if sent.outcome.accepted:
            await self._record_taken(sent)
        elif sent.outcome.verdict is Verdict.BAD_URLS and may_split and len(sent.part) > 1:
            await self._settle(sent.part, sent.outcome)
            return sent.part.halve()
        else:
            self._log.log_answer(sent.part, sent.outcome, lasting=True)
            await self._give_up(sent, settles=True)
        return []

    async def _record_taken(self, sent: SentPart) -> None:
        """Record an accepted part. Pages that the engine names as not taken have failed, each for its reason."""
        part, now = sent.part, self._context.clock.now()
        taken, fresh = 0, TakenCount()
        failed: Counter[str] = Counter()
        untaken: Counter[str] = Counter()
        async with self._context.transaction() as connection:
            await self._channel.settle(connection, sent.outcome, count=len(part))
            for run, reason in part.split_by(sent.outcome.rejected):
                if reason is None:
                    taken += len(run)
                    fresh += await self._recorder.record_taken(connection, run.pages, at=now)
                    continue
                failed[reason] += len(run)
                untaken[reason] += await self._record_failed(
                    connection, replace(sent, part=run), reason, verdict=Verdict.BAD_URLS, at=now
                )
        self._failures_in_row = 0
        part.batch.accepted += taken
        self._context.emit(PagesTaken(self._channel.engine, taken, fresh.pages, fresh.resent))
        for reason, pages in failed.items():
            self._log.log_rejected(part, pages, reason, sent.outcome.advice)
            advice = sent.outcome.advice
            self._context.emit(
                PagesFailed(self._channel.engine, pages, untaken[reason], reason, advice, Verdict.BAD_URLS)
            )

    async def _record_failed(
        self, connection: AsyncConnection, sent: SentPart, reason: str, *, verdict: Verdict, at: datetime
    ) -> int:
        """Returns how many of the pages no engine has taken yet."""
        return await self._recorder.record_failed(
            connection,
            sent.part.pages,
            reason=reason,
            verdict=verdict.name.lower(),
            attempts=sent.attempts,
            at=at,
        )

    async def _give_up(self, sent: SentPart, *, settles: bool = False) -> None:
        """Record that the engine did not take these pages; close it if the next ones would fail, too."""
        part, outcome, now = sent.part, sent.outcome, self._context.clock.now()
        blameless = outcome.verdict in _BLAMELESS
        closes, untaken = self._count_failure(outcome), 0
        async with self._context.transaction() as connection:
            if settles:
                await self._channel.settle(connection, outcome, count=len(part))
            if not blameless:
                untaken = await self._record_failed(connection, sent, outcome.reason, verdict=outcome.verdict, at=now)
            if outcome.verdict is Verdict.FORBIDDEN:
                broken = BrokenEngines(self._context.database, site=self._channel.site, channel=self._channel.channel)
                engine = self._channel.engine.endpoint
                await broken.mark(connection, engine, reason=outcome.reason, at=to_milliseconds(now))
        if not blameless:
            self._log.log_failed(sent)
            failed = (len(part), untaken, outcome.reason, outcome.advice, outcome.verdict)
            result = PagesFailed(self._channel.engine, *failed)
            self._context.emit(result)
        if closes:
            self._close(outcome.reason, outcome.advice, broken=outcome.verdict is Verdict.FORBIDDEN)

    def _count_failure(self, outcome: Outcome) -> bool:
        """Whether further requests to this engine make no sense in this execution."""
        # Bad URLs do not count as a failure of the engine.
        self._failures_in_row += outcome.verdict is not Verdict.BAD_URLS
        most = self._channel.limits.failures_until_closed.get(outcome.verdict)
        retry_after = outcome.retry_after if outcome.verdict is Verdict.RATE_LIMITED else None
        return (most is not None and self._failures_in_row >= most) or (
            retry_after is not None and not self._stop.has_time_for(retry_after * self._context.policy.scale)
        )

    async def _close_without_quota(self, reservation: Reservation, sent: SentPart | None) -> None:
        """Nothing more can be sent today; a part that failed before it could be sent again has failed."""
        if sent is not None:
            await self._give_up(sent)
        self._close(reservation.reason, broken=False)

    def _close(self, reason: str | None, advice: str = "", *, broken: bool) -> None:
        if self.closed:
            return
        self.closed = True
        self.wake()
        engine = self._channel.engine
        if reason is not None:
            self._log.log_closed(reason)
        self._context.emit(EngineClosed(engine, reason, advice, broken))
