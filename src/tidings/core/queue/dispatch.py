"""Runs jobs in this process: at most `limit` at once, and one for each key. Nothing is stored here."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta

from tidings.core.logs.logger import get_logger

_log = get_logger(__name__)


class Runner:
    """The jobs of this process. A job that raises is logged and ends; the others continue."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._slots = asyncio.Semaphore(limit)
        self._jobs: dict[Hashable, asyncio.Task[None]] = {}
        self._running: set[Hashable] = set()
        self._is_open = True

    @property
    def free(self) -> int:
        """How many jobs could be started and would run at once."""
        return max(0, self._limit - len(self._jobs)) if self._is_open else 0

    @property
    def running(self) -> int:
        """How many jobs run now, without those that wait for a slot."""
        return len(self._running)

    def runs(self, key: Hashable) -> bool:
        """Whether the job of this key runs now; a waiting one does not."""
        return key in self._running

    def start(self, key: Hashable, work: Callable[[], Awaitable[None]]) -> bool:
        """Run this job once a slot is free. False if a job of this key waits or runs, or after `drain`."""
        if not self._is_open or key in self._jobs:
            return False
        self._jobs[key] = asyncio.create_task(self._do(key, work))
        return True

    async def drain(self, timeout: timedelta) -> None:
        """Accept no more jobs, cancel waiting ones, let running ones end, and cancel the rest after the timeout."""
        self._is_open = False
        for key, job in self._jobs.items():
            if key not in self._running:
                job.cancel()
        jobs = list(self._jobs.values())
        if jobs:
            await asyncio.wait(jobs, timeout=timeout.total_seconds())
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        # A job that was cancelled before its first step could not tidy up after itself.
        self._jobs.clear()

    async def _do(self, key: Hashable, work: Callable[[], Awaitable[None]]) -> None:
        try:
            async with self._slots:
                self._running.add(key)
                await work()
        except Exception:  # noqa: BLE001 - a job may raise anything, and none of it is the other jobs' matter
            _log.exception("job.broken", key=key)
        finally:
            self._running.discard(key)
            del self._jobs[key]
