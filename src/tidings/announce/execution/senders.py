"""Runs the senders of an execution: one task for each engine, from the first page planned to the last answer."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from tidings.announce.channels.channel import ExecutionContext
from tidings.announce.channels.sender import Sender
from tidings.announce.execution.results import CutShort
from tidings.core.stop import Stop

# After a stop, requests in flight may end within this time; the next execution sends pages without an answer.
GRACE = timedelta(seconds=5)


class Senders:
    """Senders at work. A context manager, so that none outlives it."""

    def __init__(
        self,
        senders: Sequence[Sender],
        *,
        context: ExecutionContext,
        stop: Stop,
    ) -> None:
        self._senders = senders
        self._context = context
        self._stop = stop
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(sender.run()) for sender in self._senders]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self) -> None:
        """The outbox has new pages."""
        for sender in self._senders:
            sender.wake()

    async def finish(self) -> None:
        """No more pages will come: wait until all are sent; after a stop, only for requests in flight. Raises the first
        error of a sender.
        """
        for sender in self._senders:
            sender.end()
        watchdog = asyncio.create_task(self._cancel_after_stop())
        try:
            results = await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            watchdog.cancel()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _cancel_after_stop(self) -> None:
        await self._stop.wait()
        await self._context.clock.sleep(GRACE)
        self._context.emit(CutShort())
        self._cancel()

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
