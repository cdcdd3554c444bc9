"""The tick: every few seconds, and after each change, end what dead workers left and submit what is due.

Every process ticks, also one that takes no jobs itself. A tick that fails is repeated soon.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.clock import Clock
from tidings.core.logs.logger import get_logger
from tidings.core.loop import Loop
from tidings.core.queue.dispatcher import Dispatcher, Job
from tidings.core.queue.periodic import PeriodicJobs
from tidings.core.stop import Stop

# A site may become due a moment after the tick that looked for it.
SHORTEST_SLEEP: Final = timedelta(milliseconds=100)
# The full check at the latest: the short check misses some changes, such as that of a clock.
FULL_LOOK_EVERY: Final = timedelta(minutes=1)
_MOST_REQUESTED: Final = 1_000

# Finds at most this many due jobs of a queue.
FindDue = Callable[[AsyncConnection, int], Awaitable[Sequence[Job]]]
Chore = Callable[[], Awaitable[None]]

_log = get_logger(__name__)


@dataclass(slots=True, eq=False)
class Ticker:
    """The ticks of one process."""

    dispatcher: Dispatcher
    _: KW_ONLY
    clock: Clock
    periodic: PeriodicJobs
    # Called once, before the first tick.
    prepare: Callable[[], Awaitable[object]] | None
    # Ends executions of dead holders.
    recover: Callable[[], Awaitable[object]]
    # A short check whether there may be anything to do.
    may_be_due: Callable[[], Awaitable[bool]]
    # Finds jobs that a user waits for.
    requested: FindDue
    # Finds the due jobs of each queue.
    due: Mapping[str, FindDue]
    # Each is done at its interval by one of all processes.
    chores: Mapping[str, tuple[timedelta, Chore]]
    # The latest time of the next tick.
    find_next_due: Callable[[], Awaitable[datetime | None]]
    # Monotonic seconds.
    _full_look_at: float = field(default=float("-inf"), init=False)
    _due_chores: Sequence[str] = field(default=(), init=False)
    # When the last tick succeeded. A healthy process makes one every few seconds.
    alive_at: datetime | None = field(default=None, init=False)
    _loop: Loop = field(init=False)

    def __post_init__(self) -> None:
        self._loop = Loop("tick", clock=self.clock)

    def wake(self) -> None:
        """Tick now: something was added, resumed or ended."""
        self._loop.wake()

    async def run(self, stop: Stop) -> None:
        """Tick until the stop signal."""
        await self._loop.run(self._go_round, stop)

    async def tick(self) -> int:
        """Recover executions of dead holders, and submit due jobs. Returns how many jobs were submitted."""
        if self.prepare is not None:
            await self.prepare()
            self.prepare = None
        await self.recover()
        await self.dispatcher.tidy()
        self._due_chores = ()
        if self.clock.monotonic() < self._full_look_at and not await self.may_be_due():
            return 0
        async with self.dispatcher.open_tick() as connection:
            submitted = await self._submit(connection, self.requested, limit=_MOST_REQUESTED)
            for queue, find_due in self.due.items():
                if room := await self.dispatcher.find_room(connection, queue):
                    submitted += await self._submit(connection, find_due, limit=room)
            self._due_chores = await self.periodic.list_due(
                connection, {name: every for name, (every, _) in self.chores.items()}
            )
        self._full_look_at = self.clock.monotonic() + FULL_LOOK_EVERY.total_seconds()
        return submitted

    async def _submit(self, connection: AsyncConnection, find_due: FindDue, *, limit: int) -> int:
        jobs = await find_due(connection, limit)
        return await self.dispatcher.submit(connection, jobs) if jobs else 0

    async def do_chores(self) -> None:
        """Do the chores that the last tick found due. A failure is logged, and does not affect the others."""
        for name in self._due_chores:
            every, chore = self.chores[name]
            if await self.periodic.begin(name, every=every):
                try:
                    await chore()
                except SQLAlchemyError as error:
                    _log.warning("chore.failed", chore=name, reason=type(error).__name__)
                except Exception:  # noqa: BLE001 - it is logged, and must not keep sites from their executions
                    _log.exception("chore.failed", chore=name)

    async def _go_round(self) -> timedelta:
        """One round of the loop. Returns how long to sleep."""
        await self.tick()
        await self.do_chores()
        next_due = await self.find_next_due()
        self.alive_at = self.clock.now()
        pause = self.dispatcher.tick_every
        return pause if next_due is None else max(SHORTEST_SLEEP, min(pause, next_due - self.clock.now()))
