"""Jobs in this process: at most so many at once, and one for each key. What a job does, and when it is its time, is not
known here; nor is anything kept, because a job that is lost is found again in the database.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta

from tidings.core.logs.logger import get_logger

_log = get_logger(__name__)


class Runner:
    """The jobs of this process. One that breaks is logged, and nothing else comes of it."""

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
        """How many jobs run, those that wait for a place aside."""
        return len(self._running)

    def runs(self, key: Hashable) -> bool:
        """Whether the job of this key runs; one that waits does not yet."""
        return key in self._running

    def start(self, key: Hashable, work: Callable[[], Awaitable[None]]) -> bool:
        """Run this job as soon as there is a place. False where the key's job waits or runs, or after `drain`."""
        if not self._is_open or key in self._jobs:
            return False
        self._jobs[key] = asyncio.create_task(self._do(key, work))
        return True

    async def drain(self, timeout: timedelta) -> None:
        """Take no more jobs, give up those that wait, let those that run end; cancel what is left after the timeout."""
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
