"""Turns that all processes on one PostgreSQL share: an advisory lock that its holder keeps for the interval.

It needs no right to write. A process that dies loses its connection, and with it the lock.
"""

import asyncio
import hashlib
from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import func, select

from tidings.core.clock import Clock
from tidings.core.db.database import ReadableDatabase

# The way from the turn to the wire differs by about so much.
_TOLERANCE = timedelta(milliseconds=5)


class SharedTurns:
    """The turns of one process for these targets. Its database needs two connections for each of them."""

    def __init__(self, database: ReadableDatabase, *, clock: Clock, targets: Collection[str]) -> None:
        self._database = database
        self._clock = clock
        self._targets = frozenset(targets)
        self._holding: set[asyncio.Task[None]] = set()

    async def take(self, target: str, interval: timedelta) -> None:
        """Wait until no process has taken a turn of this target within its interval. Another target has no turns."""
        if target not in self._targets or not interval:
            return
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._hold(target, interval, taken))
        self._holding.add(task)
        task.add_done_callback(self._holding.discard)
        try:
            await taken
        except BaseException:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise

    async def _hold(self, target: str, interval: timedelta, taken: "asyncio.Future[None]") -> None:
        try:
            async with self._database.read() as connection:
                await connection.execute(select(func.pg_advisory_xact_lock(_number_lock(target))))
                if not taken.done():
                    taken.set_result(None)
                await self._clock.sleep(interval + _TOLERANCE)
        except Exception as error:  # noqa: BLE001 - the waiting task gets it
            if not taken.done():
                taken.set_exception(error)

    async def close(self) -> None:
        """Give every turn back at once."""
        for task in list(self._holding):
            task.cancel()
        await asyncio.gather(*self._holding, return_exceptions=True)


def _number_lock(name: str) -> int:
    """The 64-bit number of a turn's advisory lock, the same in every process."""
    return int.from_bytes(hashlib.sha256(f"tidings.turn:{name}".encode()).digest()[:8], "big", signed=True)
