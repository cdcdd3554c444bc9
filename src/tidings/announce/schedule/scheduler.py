"""The loop that runs sites when they are due. It claims no more than there is room for, starts it, and sleeps until
there is something to do; what is due is known to `schedule`, how a site is run to whoever builds the scheduler.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta

from sqlalchemy.exc import SQLAlchemyError

from tidings.announce.schedule.table import Claim, ClaimLostError, Schedules
from tidings.core.clock import Clock
from tidings.core.logs.logger import get_logger
from tidings.core.queue.dispatch import Runner
from tidings.core.stop import Stop, StopRequestedError

BEAT_EVERY = timedelta(minutes=1)
# What is due may be locked by another process for a moment; asking without a pause would not make it faster.
SHORTEST_SLEEP = timedelta(milliseconds=100)
SLEEP_AFTER_ERROR = timedelta(seconds=5)

_log = get_logger(__name__)


class Scheduler:
    """One process's scheduler. `run` does the work of a claim, and calls `Schedules.begin` once it may go on.

    `beat` is called once a minute. A job's key is its site's number.
    """

    def __init__(
        self,
        schedules: Schedules,
        runner: Runner,
        *,
        clock: Clock,
        run: Callable[[Claim], Awaitable[None]],
        beat: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._schedules = schedules
        self._runner = runner
        self._clock = clock
        self._run = run
        self._beat = beat
        self._beat_at = clock.monotonic() + BEAT_EVERY.total_seconds()
        self._claims: dict[int, Claim] = {}
        self._awake = asyncio.Event()
        self._is_synced = False
        self._stop: Stop | None = None
        self._alive_at: datetime | None = None

    @property
    def alive_at(self) -> datetime | None:
        """When the last round went well; a healthy scheduler makes one at least each minute."""
        return self._alive_at

    def wake(self) -> None:
        """There may be something to do: a site was added or resumed, a job has ended."""
        self._awake.set()

    async def run(self, stop: Stop) -> None:
        """Run sites until it is time to stop. What runs then goes on; claims on what does not are given back."""
        self._stop = stop
        while not stop.requested:
            self._awake.clear()
            pause = await self._go_round()
            with suppress(StopRequestedError):
                await stop.wait_for(self._sleep(pause))
        for claim in list(self._claims.values()):
            if not self._runner.runs(claim.site):
                await self._give_back(claim)

    async def tick(self) -> int:
        """One round: claim what is due, as far as there is room, and start it. Returns how many were started."""
        room = self._runner.free
        claims = await self._schedules.claim_due(limit=room) if room else []
        started = 0
        for claim in claims:
            if self._start(claim):
                started += 1
            elif not self._runner.runs(claim.site):
                await self._give_back(claim)
            elif not self._is_under_way(claim):
                await self._skip(claim)
        return started

    def _start(self, claim: Claim) -> bool:
        if self._is_stopping or not self._runner.start(claim.site, functools.partial(self._work, claim)):
            return False
        self._claims[claim.site] = claim
        return True

    async def _work(self, claim: Claim) -> None:
        try:
            await self._run(claim)
        except ClaimLostError as error:
            _log.info("run.claim_lost", reason=str(error))
        finally:
            del self._claims[claim.site]
            self.wake()
            if self._is_stopping:
                await self._give_back(claim)

    def _is_under_way(self, claim: Claim) -> bool:
        """Whether a job of ours has this very run, and was too slow to begin it: then it is still the one to do so."""
        mine = self._claims.get(claim.site)
        return mine is not None and mine.due_at == claim.due_at

    async def _give_back(self, claim: Claim) -> None:
        """Make an unbegun run due again at once; where the database is away, it is when the claim ends."""
        try:
            await self._schedules.release(claim)
        except SQLAlchemyError as error:
            _log.warning("scheduler.release_failed", site=claim.site, reason=type(error).__name__)

    @property
    def _is_stopping(self) -> bool:
        return self._stop is not None and self._stop.requested

    async def _skip(self, claim: Claim) -> None:
        _log.info("run.skipped", site=claim.site, due_at=claim.due_at.isoformat(), reason="the site is still running")
        with suppress(ClaimLostError):
            await self._schedules.skip(claim)

    async def _go_round(self) -> timedelta:
        """Do what is to be done now; returns how long there is nothing to do."""
        try:
            if not self._is_synced:
                await self._schedules.sync()
                self._is_synced = True
            await self._beat_in_time()
            await self.tick()
            pause = await self._find_pause()
        except SQLAlchemyError as error:
            _log.warning("scheduler.round_failed", reason=type(error).__name__)
            return SLEEP_AFTER_ERROR
        except Exception:  # noqa: BLE001 - it is told with all that is known, and must not end every site's schedule
            _log.exception("scheduler.round_failed")
            return SLEEP_AFTER_ERROR
        self._alive_at = self._clock.now()
        return pause

    async def _find_pause(self) -> timedelta:
        until_beat = timedelta(seconds=self._beat_at - self._clock.monotonic())
        next_due = await self._schedules.next_due() if self._runner.free else None
        pause = until_beat if next_due is None else min(until_beat, next_due - self._clock.now())
        return max(SHORTEST_SLEEP, pause)

    async def _beat_in_time(self) -> None:
        if self._clock.monotonic() < self._beat_at:
            return
        self._beat_at = self._clock.monotonic() + BEAT_EVERY.total_seconds()
        try:
            if self._beat is not None:
                await self._beat()
        except Exception:  # noqa: BLE001 - whatever is broken there, the sites must run
            _log.exception("scheduler.beat_failed")

    async def _sleep(self, duration: timedelta) -> None:
        """Wait so long, but not beyond `wake`."""
        ends = {asyncio.create_task(self._awake.wait()), asyncio.create_task(self._clock.sleep(duration))}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
