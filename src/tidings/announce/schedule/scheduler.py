"""The loop that executes sites when they are due. It claims as many sites as it can start, starts them, and sleeps
until the next is due. `table` knows what is due; the caller's `run` executes a claimed site.
"""

import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta

from sqlalchemy.exc import SQLAlchemyError

from tidings.announce.schedule.table import ClaimLostError, ScheduleClaim, Schedules
from tidings.core.clock import Clock
from tidings.core.logs.logger import get_logger
from tidings.core.loop import Loop
from tidings.core.queue.dispatch import Runner
from tidings.core.stop import Stop

BEAT_EVERY = timedelta(minutes=1)
# Another process may hold the lock on a due row for a moment. Asking without a pause would gain nothing.
SHORTEST_SLEEP = timedelta(milliseconds=100)
SLEEP_AFTER_ERROR = timedelta(seconds=5)

_log = get_logger(__name__)


class Scheduler:
    """The scheduler of one process. `run` executes a claimed site, and calls `Schedules.begin` when it starts.

    `beat` is called once a minute. The key of a job is the number of its site.
    """

    def __init__(
        self,
        schedules: Schedules,
        runner: Runner,
        *,
        clock: Clock,
        run: Callable[[ScheduleClaim], Awaitable[None]],
        beat: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._schedules = schedules
        self._runner = runner
        self._clock = clock
        self._run = run
        self._beat = beat
        self._beat_at = clock.monotonic() + BEAT_EVERY.total_seconds()
        self._claims: dict[int, ScheduleClaim] = {}
        self._loop = Loop(clock=clock)
        self._is_synced = False
        self._stop: Stop | None = None
        self._alive_at: datetime | None = None

    @property
    def alive_at(self) -> datetime | None:
        """When the last round succeeded. A healthy scheduler makes at least one each minute."""
        return self._alive_at

    def wake(self) -> None:
        """Look for due sites now: a site was added or resumed, or a job has ended."""
        self._loop.wake()

    async def run(self, stop: Stop) -> None:
        """Execute sites until the stop signal. Started executions go on; other claims are released."""
        self._stop = stop
        await self._loop.run(self._go_round, stop)
        for claim in list(self._claims.values()):
            if not self._runner.runs(claim.site):
                await self._give_back(claim)

    async def tick(self) -> int:
        """Claim as many due sites as there is room for, and start them. Returns how many were started."""
        room = self._runner.free
        claims = await self._schedules.claim_due(limit=room) if room else []
        started = 0
        for claim in claims:
            if self._start(claim):
                started += 1
            elif not self._runner.runs(claim.site):
                await self._give_back(claim)
            elif not self._has_claimed(claim):
                await self._skip(claim)
        return started

    def _start(self, claim: ScheduleClaim) -> bool:
        if self._is_stopping or not self._runner.start(claim.site, functools.partial(self._work, claim)):
            return False
        self._claims[claim.site] = claim
        return True

    async def _work(self, claim: ScheduleClaim) -> None:
        try:
            await self._run(claim)
        except ClaimLostError as error:
            _log.info("execution.claim_lost", reason=str(error))
        finally:
            del self._claims[claim.site]
            self.wake()
            if self._is_stopping:
                await self._give_back(claim)

    def _has_claimed(self, claim: ScheduleClaim) -> bool:
        """Whether a job of this process holds an earlier claim on the same execution, and has not started it yet."""
        mine = self._claims.get(claim.site)
        return mine is not None and mine.due_at == claim.due_at

    async def _give_back(self, claim: ScheduleClaim) -> None:
        """Release a claim: its execution is due at once. If the database fails, it is due when the claim ends."""
        try:
            await self._schedules.release(claim)
        except SQLAlchemyError as error:
            _log.warning("scheduler.release_failed", site=claim.site, reason=type(error).__name__)

    @property
    def _is_stopping(self) -> bool:
        return self._stop is not None and self._stop.requested

    async def _skip(self, claim: ScheduleClaim) -> None:
        _log.info(
            "execution.skipped",
            site=claim.site,
            due_at=claim.due_at.isoformat(),
            reason="the site is still being executed",
        )
        with suppress(ClaimLostError):
            await self._schedules.skip(claim)

    async def _go_round(self) -> timedelta:
        """One round of the loop. Returns how long to sleep."""
        try:
            if not self._is_synced:
                await self._schedules.sync()
                self._is_synced = True
            await self._beat_if_due()
            await self.tick()
            pause = await self._find_pause()
        except SQLAlchemyError as error:
            _log.warning("scheduler.round_failed", reason=type(error).__name__)
            return SLEEP_AFTER_ERROR
        except Exception:  # noqa: BLE001 - it is logged, and must not end the schedule of every site
            _log.exception("scheduler.round_failed")
            return SLEEP_AFTER_ERROR
        self._alive_at = self._clock.now()
        return pause

    async def _find_pause(self) -> timedelta:
        until_beat = timedelta(seconds=self._beat_at - self._clock.monotonic())
        next_due = await self._schedules.find_next_due() if self._runner.free else None
        pause = until_beat if next_due is None else min(until_beat, next_due - self._clock.now())
        return max(SHORTEST_SLEEP, pause)

    async def _beat_if_due(self) -> None:
        if self._clock.monotonic() < self._beat_at:
            return
        self._beat_at = self._clock.monotonic() + BEAT_EVERY.total_seconds()
        try:
            if self._beat is not None:
                await self._beat()
        except Exception:  # noqa: BLE001 - it is logged, and must not keep sites from their executions
            _log.exception("scheduler.beat_failed")
