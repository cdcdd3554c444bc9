"""Sends one request to the crawler as often as the table of errors allows."""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from tidings.collect.crawl.crawler import Crawler
from tidings.collect.crawl.envelope import Envelope, ErrorInfo
from tidings.collect.errors import ErrorCode, next_delay
from tidings.collect.write.values import list_uses
from tidings.collect.write.writer import Writer
from tidings.core.executions import Execution
from tidings.core.stop import Stop

Data = TypeVar("Data")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """What the requests of one execution share."""

    crawler: Crawler
    writer: Writer
    execution: Execution
    stop: Stop
    # The waits before retries, and retries of codes that differ from the table.
    backoff: Sequence[timedelta]
    retries: Mapping[ErrorCode, int]

    def find_delay(self, code: ErrorCode, retry: int) -> timedelta | None:
        """The wait before retry number `retry` after an error of this code; None to give up."""
        return next_delay(code, retry=retry, backoff=self.backoff, retries=self.retries)

    async def ask(self, ask: Callable[[Collection[str]], Coroutine[Any, Any, Envelope[Data]]]) -> Envelope[Data]:
        """The answer to the last try. The cookie uses of the tries before it are counted here.

        `ask` gets the names of the cookies that were refused, which must not be used again. When none is left, the
        refusal is the answer.
        """
        retry = 0
        refusals: dict[str, ErrorInfo] = {}
        while True:
            answer = await self.stop.wait_for(ask(tuple(refusals)))
            error, cookie_used = answer.error, answer.meta.cookie_used
            if error is not None and error.code is ErrorCode.COOKIE_EXHAUSTED and refusals:
                return replace(answer, error=list(refusals.values())[-1])
            retry += 1
            delay = None if error is None or error.blocked else self.find_delay(error.code, retry)
            if error is None or delay is None:
                return answer
            if error.code is ErrorCode.COOKIE_INVALID and cookie_used is not None:
                refusals[cookie_used] = error
            await self.writer.count_cookie_uses(self.execution, list_uses(cookie_used, error))
            await self.stop.sleep(delay)
