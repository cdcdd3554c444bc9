"""Background loops: repeat a step until the stop signal, and sleep or be woken between two steps."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from tidings.core.clock import Clock
from tidings.core.logs.logger import get_logger
from tidings.core.stop import Stop, StopRequestedError

AFTER_ERROR: Final = timedelta(seconds=5)

_log = get_logger(__name__)


class Loop:
    """One background loop. `wake` may be called at any time, even before `run` and from within a step.

    An error does not end it: it is logged as `NAME.failed`, and the next step follows after `after_error`.
    """

    def __init__(self, name: str, *, clock: Clock, after_error: timedelta = AFTER_ERROR) -> None:
        self._name = name
        self._clock = clock
        self._after_error = after_error
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Run the next step at once. A call during a step is not lost: the step runs again."""
        self._woken.set()

    async def run(self, step: Callable[[], Awaitable[timedelta]], stop: Stop) -> None:
        """Repeat `step`, which returns how long to sleep, until the stop signal.

        A step is never cancelled: give it `stop` if it can take long. StopRequestedError from a step ends the loop.
        """
        with suppress(StopRequestedError):
            while not stop.requested:
                self._woken.clear()
                await self._sleep(await self._try(step), stop)

    async def _try(self, step: Callable[[], Awaitable[timedelta]]) -> timedelta:
        try:
            return await step()
        except StopRequestedError:
            raise
        except SQLAlchemyError as error:
            # The database is busy or away, and nothing is lost: everything is in it.
            _log.warning(f"{self._name}.failed", reason=type(error).__name__)
        except Exception:  # noqa: BLE001 - it is logged, and must not end the service
            _log.exception(f"{self._name}.failed")
        return self._after_error

    async def _sleep(self, duration: timedelta, stop: Stop) -> None:
        waits: tuple[Awaitable[object], ...] = (self._clock.sleep(duration), self._woken.wait(), stop.wait())
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
