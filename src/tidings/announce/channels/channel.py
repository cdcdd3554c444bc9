"""What the parts of an execution share, what a channel supplies to the sender, and the results that a sender emits."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.answer import ChannelRequest, Outcome, Verdict
from tidings.announce.due.rules import DueRules
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.recorder import Recorder, TakenPages
from tidings.announce.site.site import Engine, Site
from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.core.execution_table import Execution
from tidings.core.net.pace import Pace
from tidings.core.net.retry import RetryPolicy

if TYPE_CHECKING:
    from tidings.announce.execution.results import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionContext:
    """What all parts of one execution share."""

    site: Site
    execution: Execution
    database: Database
    clock: Clock
    pace: Pace
    policy: RetryPolicy
    rules: DueRules
    # Which pages were taken, on any channel.
    taken: TakenPages
    # Begins a transaction that only the running execution can write in.
    transaction: Callable[[], AbstractAsyncContextManager[AsyncConnection]]
    # Takes every result.
    emit: Callable[["Result"], None]
    # Saves the execution's progress.
    save_progress: Callable[[], Awaitable[None]]

    def open_recorder(self, channel: Channel) -> Recorder:
        """Records the results of one channel."""
        return Recorder(
            self.database, site=self.site.number, channel=channel, execution=self.execution.id, taken=self.taken
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingLimits:
    """How much an engine gets at once, and when the sender stops."""

    # Pages in a batch: progress is saved and logged after each.
    batch_size: int
    # URLs in a request, at most.
    urls_per_request: int
    # Requests for one batch with bad URLs, at most; the rest of it fails as a whole.
    most_split_requests: int
    # By verdict: after this many failures in a row, the last one with this verdict, the engine is closed for this
    # execution.
    failures_until_closed: Mapping[Verdict, int]
    # Minimum time between two requests, in addition to the pace of all hosts.
    least_interval: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class Reservation:
    """Quota for the next request."""

    # Pages that may be sent; 0 closes the engine for this execution.
    granted: int
    # Why nothing was granted, if the reason is not an exhausted quota.
    reason: str | None = None


class SendingChannel(Protocol):
    """What a channel supplies for one engine. `submit` judges a lost connection too and never raises FetchError."""

    @property
    def site(self) -> Site: ...

    @property
    def channel(self) -> Channel: ...

    @property
    def engine(self) -> Engine: ...

    @property
    def host(self) -> str:
        """The host that requests are paced by."""

    @property
    def limits(self) -> SendingLimits: ...

    def build_request(self, urls: Sequence[str]) -> ChannelRequest: ...

    async def submit(self, request: ChannelRequest, *, count: int) -> Outcome: ...

    async def reserve(self, count: int, *, least: int) -> Reservation: ...

    async def release(self, count: int) -> None: ...

    async def settle(self, connection: AsyncConnection, outcome: Outcome, *, count: int) -> None: ...


@dataclass(frozen=True, slots=True)
class BatchClaimed:
    """A sender took pages from the outbox."""

    engine: Engine
    # Those that an earlier execution had planned.
    repeated: int


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """An engine answered a request, or did not."""

    engine: Engine
    outcome: Outcome
    at: datetime


@dataclass(frozen=True, slots=True)
class PagesTaken:
    """An engine took pages; the ledger is updated."""

    engine: Engine
    pages: int
    # Those that no engine or channel had taken before in this execution.
    fresh: int
    # Those of the fresh ones that an earlier execution had planned for IndexNow.
    resent: int = 0


@dataclass(frozen=True, slots=True)
class PagesFailed:
    """An engine did not take pages; the failure is stored, and the next execution sends them again."""

    engine: Engine
    pages: int
    # Those that no engine has taken yet.
    untaken: int
    reason: str
    # What a person should check or do.
    advice: str
    verdict: Verdict = Verdict.REFUSED


@dataclass(frozen=True, slots=True)
class EngineClosed:
    """An engine gets no further request in this execution; its pages stay in the outbox."""

    engine: Engine
    # None if its quota is exhausted, which is normal.
    reason: str | None
    advice: str = ""
    # The engine refuses the key until a person sets another.
    broken: bool = False


SendResult = BatchClaimed | RequestAnswered | PagesTaken | PagesFailed | EngineClosed
