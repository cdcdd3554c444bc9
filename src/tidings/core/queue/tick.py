"""The tick: every few seconds, and after each change, end what dead workers left and submit what is due.

Every process ticks, also one that takes no jobs itself. A tick that fails is repeated soon.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
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

AFTER_ERROR: Final = timedelta(seconds=5)
# A site may become due a moment after the tick that looked for it.
SHORTEST_SLEEP: Final = timedelta(milliseconds=100)
# What the short look does not see, as after a change of the clock, waits no longer than this.
FULL_LOOK_EVERY: Final = timedelta(minutes=1)
_MOST_REQUESTED: Final = 1_000

# Finds at most so many due jobs of a queue.
FindDue = Callable[[AsyncConnection, int], Awaitable[Sequence[Job]]]
Chore = Callable[[], Awaitable[None]]

_log = get_logger(__name__)


class Ticker:
    """The ticks of one process.

    `prepare`: done once, before the first tick. `recover`: ends what dead holders left. `may_be_due`: a short look,
    whether there may be anything to do. `due`: what each queue has to do. `requested`: jobs that somebody waits for.
    `chores`: each is done at its interval by one of all processes. `find_next_due`: when to tick at the latest.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        clock: Clock,
        periodic: PeriodicJobs,
        prepare: Callable[[], Awaitable[object]],
        recover: Callable[[], Awaitable[object]],
        may_be_due: Callable[[], Awaitable[bool]],
        requested: FindDue,
        due: Mapping[str, FindDue],
        chores: Mapping[str, tuple[timedelta, Chore]],
        find_next_due: Callable[[], Awaitable[datetime | None]],
    ) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._periodic = periodic
        self._prepare: Callable[[], Awaitable[object]] | None = prepare
        self._recover = recover
        self._may_be_due = may_be_due
        # Monotonic seconds.
        self._full_look_at = clock.monotonic()
        self._requested = requested
        self._due = due
        self._chores = chores
        self._find_next_due = find_next_due
        self._loop = Loop(clock=clock)
        self._due_chores: Sequence[str] = ()
        # When the last tick succeeded. A healthy process makes one every few seconds.
        self.alive_at: datetime | None = None

    def wake(self) -> None:
        """Tick now: something was added, resumed or ended."""
        self._loop.wake()

    async def run(self, stop: Stop) -> None:
        """Tick until the stop signal."""
        await self._loop.run(self._go_round, stop)

    async def tick(self) -> int:
        """End what is dead, and submit what is due. Returns how many jobs were submitted."""
        if self._prepare is not None:
            await self._prepare()
            self._prepare = None
        await self._recover()
        await self._dispatcher.tidy()
        self._due_chores = ()
        if self._clock.monotonic() < self._full_look_at and not await self._may_be_due():
            return 0
        async with self._dispatcher.open_tick() as connection:
            submitted = await self._submit(connection, self._requested, limit=_MOST_REQUESTED)
            for queue, find_due in self._due.items():
                if room := await self._dispatcher.find_room(connection, queue):
                    submitted += await self._submit(connection, find_due, limit=room)
            self._due_chores = await self._periodic.list_due(
                connection, {name: every for name, (every, _) in self._chores.items()}
            )
        self._full_look_at = self._clock.monotonic() + FULL_LOOK_EVERY.total_seconds()
        return submitted

    async def _submit(self, connection: AsyncConnection, find_due: FindDue, *, limit: int) -> int:
        jobs = await find_due(connection, limit)
        return await self._dispatcher.submit(connection, jobs) if jobs else 0

    async def do_chores(self) -> None:
        """Do the chores that the last tick found due. One that fails is logged, and keeps no other from its turn."""
        for name in self._due_chores:
            every, chore = self._chores[name]
            if await self._periodic.begin(name, every=every):
                try:
                    await chore()
                except SQLAlchemyError as error:
                    _log.warning("chore.failed", chore=name, reason=type(error).__name__)
                except Exception:  # noqa: BLE001 - it is logged, and must not keep sites from their executions
                    _log.exception("chore.failed", chore=name)

    async def _go_round(self) -> timedelta:
        """One round of the loop. Returns how long to sleep."""
        try:
            await self.tick()
            await self.do_chores()
            next_due = await self._find_next_due()
        except SQLAlchemyError as error:
            _log.warning("tick.failed", reason=type(error).__name__)
            return AFTER_ERROR
        except Exception:  # noqa: BLE001 - it is logged, and must not end the schedule of every site
            _log.exception("tick.failed")
            return AFTER_ERROR
        self.alive_at = self._clock.now()
        pause = self._dispatcher.tick_every
        return pause if next_due is None else max(SHORTEST_SLEEP, min(pause, next_due - self._clock.now()))
