"""The port of the queue: jobs, calls, workers, and what a dispatcher promises.

A job names work; it describes nothing and holds no secret. The next tick submits a lost job again, and a duplicate
finds nothing to do. Locks and history belong to `executions`. Only the dispatcher can interpret a holder's name.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.logs.logger import get_logger
from tidings.core.logs.request_id import request_id_scope
from tidings.core.process_lock import ProcessLock
from tidings.core.stop import Stop

# How long a cancelled call may take to record that.
_LAST_WORDS: Final = timedelta(milliseconds=500)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """A request to look for some work and do it."""

    # "announce.run"; the part before the dot is the queue.
    task: str
    # One job per key waits at a time.
    key: str
    # JSON values that identify the work.
    arguments: Mapping[str, Any] = field(default_factory=dict)
    # A user waits for it: it goes first, even if the queue is full.
    urgent: bool = False

    @property
    def queue(self) -> str:
        return find_queue(self.task)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a task."""

    arguments: Mapping[str, Any]
    # The holder of the executions that this call acquires or adopts.
    holder: str
    # Asks this call to end in good order.
    stop: Stop
    # Requested when the whole worker ends.
    ending: Stop


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One process that takes jobs."""

    # What the holder of each of its executions begins with.
    process: str
    # Unique among the workers that live.
    name: str
    # The host name of its machine.
    machine: str
    # The release of Tidings that it runs.
    release: str
    # The queues that it takes jobs from.
    queues: Sequence[str]
    # The most jobs that it does at once.
    places: int
    started_at: datetime
    # Its last sign of life.
    seen_at: datetime
    # How many jobs it does now.
    jobs: int
    # It has given no sign of life for too long.
    dead: bool = False


@dataclass(frozen=True, slots=True)
class QueueState:
    """The waiting jobs of one queue."""

    queue: str
    # Jobs that no worker has taken yet.
    waiting: int
    # How long the oldest of them has been waiting.
    oldest: timedelta


Task = Callable[[Call], Awaitable[None]]


class Dispatcher(Protocol):
    """Hands jobs to workers. There is one per process."""

    @property
    def is_shared(self) -> bool:
        """Whether workers of other processes take jobs. Then a submission wakes them, and needs no tick after it."""

    @property
    def tick_every(self) -> timedelta:
        """The longest time between two ticks."""

    def open_tick(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction in which a tick finds and submits due work. Over all processes, one tick at a time is in it."""

    async def find_room(self, connection: AsyncConnection, queue: str) -> int:
        """How many more jobs of this queue would be accepted."""

    async def submit(self, connection: AsyncConnection, jobs: Sequence[Job]) -> int:
        """Submit jobs in the caller's transaction. Returns how many are new: a job whose key waits already is not.

        The caller has asked `find_room` for jobs that are not urgent.
        """

    async def stop(self, holder: str) -> bool:
        """Ask this holder to end in good order. False if it cannot be reached from here."""

    async def find_dead(self, holders: Collection[str]) -> frozenset[str]:
        """Those of these holders that are certainly dead."""

    async def list_workers(self) -> Sequence[WorkerState]:
        """The workers of this installation, the oldest first."""

    async def list_queues(self) -> Sequence[QueueState]:
        """The waiting jobs of each queue. Empty if the dispatcher stores no jobs."""

    async def tidy(self) -> None:
        """Called by each tick: pass on stop requests of other processes, and remove rows of dead workers."""

    async def work(self, tasks: Mapping[str, Task], stop: Stop, *, drain: timedelta) -> None:
        """Do jobs until the stop signal, which all calls get. They have `drain` to end; after that they are
        cancelled."""


def find_queue(task: str) -> str:
    """The queue of a task: the part of its name before the dot."""
    return task.partition(".")[0]


async def run_call(task: Task, call: Call, *, name: str, process_lock: ProcessLock) -> None:
    """Run one call, with a request id of its own. An error is logged, and does not affect other jobs."""
    with process_lock.hold(call.holder), request_id_scope():
        try:
            await task(call)
        except Exception:  # noqa: BLE001 - a task may raise anything
            _log.exception("job.broken", task=name, **call.arguments)


async def cancel_calls(calls: Collection[asyncio.Task[None]]) -> None:
    """Cancel calls, and wait until they have ended.

    A thousand of them, or a busy disk, may take too long to record that. They are cancelled again, and the next start
    records the rest, as after a crash.
    """
    for patience in (_LAST_WORDS.total_seconds(), None):
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls, timeout=patience)
