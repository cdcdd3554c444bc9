"""The meaning of an engine's answer, in the same terms for every channel, and the exchange of one request."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from tidings.core.clock import Clock
from tidings.core.net.addresses import escape_text
from tidings.core.net.client import Answer, FetchError, FetchTimeoutError, GuardedClient
from tidings.core.net.retry import RetryPolicy, Trouble, parse_retry_after
from tidings.core.secrets.secret import Secret
from tidings.core.stop import Stop

REQUEST_TIMEOUT = timedelta(seconds=30)
LONGEST_ANSWER = 65_536
JSON = "application/json; charset=utf-8"

_LONGEST_DETAIL = 300


class Verdict(StrEnum):
    """What an answer means for the URLs in the request."""

    ACCEPTED = "accepted"
    # At least one URL is bad: the batch is halved until it is found.
    BAD_URLS = "bad URLs"
    RATE_LIMITED = "rate limited"
    UNAVAILABLE = "unavailable"
    # The request was sent, and no answer came.
    UNCERTAIN = "no answer"
    UNVERIFIED = "key not verified yet"
    FORBIDDEN = "key refused"
    QUOTA_FULL = "quota exceeded"
    QUOTA_REMAINING = "less quota than sent"
    THROTTLED = "throttled"
    REFUSED = "refused"


# The verdicts after which the same request may succeed, and the rule for that.
TROUBLES = {
    Verdict.RATE_LIMITED: Trouble.RATE_LIMITED,
    Verdict.UNAVAILABLE: Trouble.UNAVAILABLE,
    Verdict.UNCERTAIN: Trouble.UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer, judged."""

    verdict: Verdict
    # For log and report: the status and the engine's own words.
    reason: str
    # What a person should check or do; empty after a success.
    advice: str = ""
    # HTTP status; None if no answer came.
    status: int | None = None
    # ErrorCode and Message of the body, where the channel has them.
    code: str | None = None
    message: str | None = None
    # URLs that the engine says it would still take today.
    remaining: int | None = None
    # URLs that the engine says it took today, from all clients.
    total: int | None = None
    # URLs of an accepted request that were not taken, each with the reason.
    rejected: Mapping[str, str] = field(default_factory=dict)
    # From the request to the end of the answer.
    elapsed: timedelta = timedelta()
    # The time limit ended before the whole answer arrived.
    timed_out: bool = False
    # How long the engine asks us to wait (Retry-After).
    retry_after: timedelta | None = None

    @property
    def accepted(self) -> bool:
        return self.verdict is Verdict.ACCEPTED


@dataclass(frozen=True, slots=True)
class ChannelRequest:
    """One request, ready to be sent. URL and body may hold a key, so they do not print."""

    method: str
    url: str = field(repr=False)
    # In UTF-8, or None.
    body: bytes | None = field(default=None, repr=False)
    # Of the body.
    content_type: str = JSON
    # An access token, for channels that take one.
    bearer: Secret | None = None
    # Awaited right before the first byte goes out.
    before_sending: Callable[[], Awaitable[None]] | None = field(default=None, repr=False, compare=False)

    @property
    def headers(self) -> Mapping[str, str]:
        headers = {"Content-Type": self.content_type} if self.body is not None else {}
        return headers if self.bearer is None else headers | {"Authorization": f"Bearer {self.bearer.reveal()}"}


async def exchange(
    request: ChannelRequest,
    *,
    client: GuardedClient,
    clock: Clock,
    url_limit: int,
    judge_failure: Callable[[FetchError], Outcome],
    longest: int = LONGEST_ANSWER,
) -> Answer | Outcome:
    """Send a request and read the start of its answer, up to `longest` bytes. Without an answer, returns the outcome
    by `judge_failure`.
    """
    started = clock.monotonic()
    try:
        async with client.stream(
            request.method,
            request.url,
            headers=request.headers,
            body=request.body,
            timeout=REQUEST_TIMEOUT,
            url_limit=url_limit,
            before_sending=request.before_sending,
        ) as stream:
            # The status decides; the start of a long body is enough.
            body = await stream.read_start(longest)
            elapsed = timedelta(seconds=clock.monotonic() - started)
            return Answer(status=stream.status, url=stream.url, elapsed=elapsed, headers=stream.headers, body=body)
    except FetchError as error:
        elapsed = timedelta(seconds=clock.monotonic() - started)
        return replace(judge_failure(error), elapsed=elapsed, timed_out=isinstance(error, FetchTimeoutError))


def make_outcome(
    answer: Answer, verdict: Verdict, *parts: str | None, advice: str, now: datetime, **details: Any
) -> Outcome:
    """The outcome of an answer with this verdict; `parts` are the words of its reason."""
    found = ": ".join(part for part in parts if part)
    return Outcome(
        verdict,
        f"HTTP {answer.status}" + (f": {found}" if found else ""),
        advice,
        status=answer.status,
        elapsed=answer.elapsed,
        retry_after=parse_retry_after(answer.headers.get("Retry-After"), now=now),
        **details,
    )


def find_delay(outcome: Outcome, *, retry: int, policy: RetryPolicy, stop: Stop) -> timedelta | None:
    """The wait before retry number `retry` (from 1); None: there is none, or no time for it."""
    trouble = TROUBLES.get(outcome.verdict)
    if trouble is None:
        return None
    delay = policy.next_delay(trouble, retry=retry, asked_for=outcome.retry_after)
    return delay if delay is not None and stop.has_time_for(delay) else None


def clean_detail(text: str) -> str:
    """An engine's words for a reason: the start of them, on one line, without control characters."""
    return escape_text(" ".join(text.split()))[:_LONGEST_DETAIL]
