"""What a channel supplies to the sender, and the results that a sender emits."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.answer import ChannelRequest, Outcome, Verdict
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.site import Engine, Site

# Begins a transaction that only the running execution can write in.
Transaction = Callable[[], AbstractAsyncContextManager[AsyncConnection]]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Quota for the next request."""

    # Pages that may be sent; 0 closes the engine for this execution.
    granted: int
    # Why nothing was granted, if the reason is something other than a used-up quota.
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
    def batch_size(self) -> int:
        """Pages a batch: progress is saved and logged after each."""

    @property
    def has_quota(self) -> bool:
        """Whether every answer has to be settled."""

    @property
    def most_split_requests(self) -> int:
        """Requests for one batch with bad URLs, at most; the rest of it fails as a whole."""

    @property
    def slows_down(self) -> bool:
        """Whether a rate limit slows the pace of the host down, for all sites."""

    @property
    def least_interval(self) -> timedelta:
        """Least time between two requests, beyond the pace of all hosts."""

    @property
    def failures_until_closed(self) -> Mapping[Verdict, int]:
        """After so many failures in a row, the last one with this verdict, the engine is closed for this execution."""

    def count_per_request(self, pages: int) -> int:
        """How many of a batch of so many pages one request carries."""

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
    """An engine took pages, which is recorded."""

    engine: Engine
    pages: int
    # Those that no engine or channel had taken before in this execution.
    fresh: int
    # Those of the fresh ones that an earlier execution had planned for IndexNow.
    resent: int = 0


@dataclass(frozen=True, slots=True)
class PagesFailed:
    """An engine did not take pages, which is recorded; the next execution sends them again."""

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
    """An engine is not asked again in this execution; its pages stay in the outbox."""

    engine: Engine
    # None if its quota is used up, which is the normal course.
    reason: str | None
    advice: str = ""
    # The engine refuses the key until a person sets another.
    broken: bool = False


SendResult = BatchClaimed | RequestAnswered | PagesTaken | PagesFailed | EngineClosed
