"""The state of one request of the crawler while it runs: its cookie, its turns, and whether it still waits."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tidings.collect.crawl.envelope import ErrorInfo, make_error
from tidings.collect.crawl.platforms.pace import TurnTrace
from tidings.collect.errors import ErrorCode


@dataclass(slots=True)
class RequestTrace:
    """One request of the crawler."""

    platform: str = "?"
    waits_for_cookie: bool = False
    # The cookie that was sent, or is about to be.
    cookie_used: str | None = None
    turns: TurnTrace = field(default_factory=TurnTrace)
    # The time limit, while the request runs.
    limit: asyncio.Timeout | None = None
    # Why the request was ended before its turn.
    ended_by: ErrorInfo | None = None
    # All requests of its batch, this one too.
    batch: "Sequence[RequestTrace]" = ()

    @property
    def is_waiting(self) -> bool:
        """Whether it still waits for a cookie or a turn, so that nothing has been sent."""
        return self.waits_for_cookie or self.turns.is_waiting

    def end_batch(self, reason: ErrorInfo) -> None:
        """End the requests of the batch that still wait, because the platform blocks this machine."""
        for each in self.batch:
            each.end_wait(reason)

    def end_wait(self, reason: ErrorInfo) -> None:
        """End the request if it still waits."""
        if self.limit is not None and self.is_waiting and self.ended_by is None:
            self.ended_by, self.turns.is_ended = reason, True
            self.limit.reschedule(asyncio.get_running_loop().time())


def explain_timeout(trace: RequestTrace) -> ErrorInfo:
    """The error of a request whose time is up."""
    if trace.ended_by is not None:
        # The platform blocks: requests that still wait are not sent.
        return replace(trace.ended_by, asked=False)
    reason = "the time was up before there was an answer"
    if trace.waits_for_cookie:
        reason = "no cookie came free in time; nothing was asked of the platform"
    elif trace.turns.is_waiting:
        reason = "its turn did not come in time; nothing was asked of the platform"
    return make_error(ErrorCode.TIMEOUT_ERROR, f"{trace.platform}: {reason}", asked=not trace.is_waiting)
