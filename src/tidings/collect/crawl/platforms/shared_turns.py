"""Turns that all processes on one PostgreSQL share: advisory locks that their holder keeps for the interval. They need
no right to write. A process that dies loses its connection, and with it the locks. A platform gets many requests, so
each waits for the lock on a connection of its own, first come, first served. Hosts of the open web and cookies are many
and seldom contended. One connection has the locks of all of them, and a process that does not get one tries again soon.
"""

import asyncio
import hashlib
import random
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.clock import Clock
from tidings.core.db.database import ReadableDatabase

# About the variation of the time between turn and wire.
_TOLERANCE: Final = timedelta(milliseconds=5)
# A turn that is held until its owner sets its end.
_UNTIL_SENT: Final = timedelta(hours=1)
_ASK_AGAIN: Final = (0.02, 0.06)


class SharedTurns:
    """The turns of one process. Its database needs two connections for each of `platforms`, and one more."""

    def __init__(self, database: ReadableDatabase, *, clock: Clock, platforms: Collection[str]) -> None:
        self._database = database
        self._clock = clock
        self._platforms = frozenset(platforms)
        self._holding: set[asyncio.Task[None]] = set()
        self._others = _SessionLocks(database, clock=clock)

    async def take(self, target: str, interval: timedelta) -> None:
        """Wait until no process has taken a turn of this platform or host within its interval."""
        if not interval:
            return
        if target not in self._platforms:
            await self._others.take(f"host:{target}")
            self._others.end_after(f"host:{target}", interval)
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

    async def take_cookie(self, cookie: str) -> None:
        """Wait until no process has sent this cookie within its interval. It is taken until `end_cookie`."""
        await self._others.take(f"cookie:{cookie}")

    def end_cookie(self, cookie: str, interval: timedelta) -> None:
        """The cookie was just sent; others may use it after the interval. With an interval of 0, it was not sent."""
        self._others.end_after(f"cookie:{cookie}", interval)

    async def _hold(self, target: str, interval: timedelta, taken: "asyncio.Future[None]") -> None:
        try:
            async with self._database.read() as connection:
                await connection.execute(select(func.pg_advisory_xact_lock(number_lock(target))))
                if not taken.done():
                    taken.set_result(None)
                await self._clock.sleep(interval + _TOLERANCE)
        except Exception as error:  # noqa: BLE001 - the waiting caller gets it
            if not taken.done():
                taken.set_exception(error)

    async def close(self) -> None:
        """Give every turn back at once."""
        for task in list(self._holding):
            task.cancel()
        await asyncio.gather(*self._holding, return_exceptions=True)
        await self._others.close()


class _SessionLocks:
    """Advisory locks on one connection, which is opened with the first of them."""

    def __init__(self, database: ReadableDatabase, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._session: AsyncConnection | None = None
        self._asking = asyncio.Lock()
        # The locks of this process, by name, each with the task that releases it. PostgreSQL would grant one session a
        # lock twice.
        self._held: dict[str, asyncio.Task[None]] = {}

    async def take(self, name: str) -> None:
        """Wait for the lock, and keep it until `end_after`."""
        while not await self._try(name):
            # A random wait, so that no process is always the first.
            await self._clock.sleep(timedelta(seconds=random.uniform(*_ASK_AGAIN)))  # noqa: S311

    def end_after(self, name: str, interval: timedelta) -> None:
        """Keep the lock for the interval from now on, then give it back."""
        if earlier := self._held.get(name):
            earlier.cancel()
        self._held[name] = asyncio.create_task(self._give_back(name, interval))

    async def _try(self, name: str) -> bool:
        async with self._asking:
            # Taken meanwhile by another request of this process.
            if name in self._held:
                return False
            if self._session is None or self._session.closed:
                self._session = await self._database.open_session()
            try:
                locked = select(func.pg_try_advisory_lock(number_lock(name)))
                is_mine = bool((await self._session.execute(locked)).scalar_one())
            except SQLAlchemyError:
                await self._drop_session()
                raise
            if is_mine:
                self.end_after(name, _UNTIL_SENT)
            return is_mine

    async def _give_back(self, name: str, interval: timedelta) -> None:
        if interval:
            await self._clock.sleep(interval + _TOLERANCE)
        async with self._asking:
            self._held.pop(name, None)
            if self._session is not None:
                # If the connection is broken, the lock is gone with it.
                with suppress(SQLAlchemyError):
                    await self._session.execute(select(func.pg_advisory_unlock(number_lock(name))))

    async def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.invalidate()
            await session.close()

    async def close(self) -> None:
        for task in self._held.values():
            task.cancel()
        await asyncio.gather(*self._held.values(), return_exceptions=True)
        self._held.clear()
        await self._drop_session()


def number_lock(name: str) -> int:
    """The 64-bit number of an advisory lock, the same in every process."""
    return int.from_bytes(hashlib.sha256(f"tidings:{name}".encode()).digest()[:8], "big", signed=True)
