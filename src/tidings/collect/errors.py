"""The error codes of collect, the rule for each code, and CrawlError, the one exception that carries a code.

The code that detects a failure raises it with its code; no caller parses a message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tidings.core.backoff import Backoff


class ErrorCode(StrEnum):
    """The code that a caller branches on. The last four come from the API, not from platforms; no workflow retries
    them."""

    COOKIE_EXHAUSTED = "COOKIE_EXHAUSTED"
    COOKIE_INVALID = "COOKIE_INVALID"
    PLATFORM_ERROR = "PLATFORM_ERROR"
    TIMEOUT_ERROR = "TIMEOUT_ERROR"
    NETWORK_ERROR = "NETWORK_ERROR"
    PARTIAL_FAIL = "PARTIAL_FAIL"
    INVALID_INPUT = "INVALID_INPUT"
    UNAUTHORIZED = "UNAUTHORIZED"
    NOT_FOUND = "NOT_FOUND"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    LOCK_LOST = "LOCK_LOST"


class Action(StrEnum):
    """How a workflow treats an error."""

    PAUSE = "pause"
    SWITCH_COOKIE = "switch_cookie"
    RETRY = "retry"
    RETRY_FAILED_ITEMS = "retry_failed_items"
    SKIP = "skip"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRule:
    """The rule for one code."""

    action: Action
    # Further attempts after the first one.
    most_retries: int = 0
    # Whether a retry waits first.
    backs_off: bool = False
    # Whether a person is notified.
    alerts: bool = False
    # Whether a candidate fails for good at once, because no later attempt can succeed.
    gives_up: bool = False

    @property
    def retryable(self) -> bool:
        return self.most_retries > 0


_NO_CHANGES: Final[Mapping[ErrorCode, int]] = MappingProxyType({})
# A longer Retry-After is cut to this.
LONGEST_RETRY_AFTER: Final = timedelta(hours=1)
# If all requests of a batch fail with these codes, the network or the platform is down, and no note is at fault.
OUTAGES: Final = frozenset({ErrorCode.NETWORK_ERROR, ErrorCode.TIMEOUT_ERROR, ErrorCode.PLATFORM_ERROR})
BACKOFF: Final = (timedelta(seconds=5), timedelta(seconds=15), timedelta(seconds=45))

RULES: Final[Mapping[ErrorCode, ErrorRule]] = MappingProxyType(
    {
        ErrorCode.COOKIE_EXHAUSTED: ErrorRule(action=Action.PAUSE, alerts=True),
        ErrorCode.COOKIE_INVALID: ErrorRule(action=Action.SWITCH_COOKIE, most_retries=3),
        ErrorCode.PLATFORM_ERROR: ErrorRule(action=Action.RETRY, most_retries=2),
        ErrorCode.TIMEOUT_ERROR: ErrorRule(action=Action.RETRY, most_retries=2),
        ErrorCode.NETWORK_ERROR: ErrorRule(action=Action.RETRY, most_retries=3, backs_off=True),
        ErrorCode.PARTIAL_FAIL: ErrorRule(action=Action.RETRY_FAILED_ITEMS, most_retries=2),
        ErrorCode.INVALID_INPUT: ErrorRule(action=Action.SKIP, alerts=True, gives_up=True),
        ErrorCode.UNAUTHORIZED: ErrorRule(action=Action.PAUSE, alerts=True),
        ErrorCode.NOT_FOUND: ErrorRule(action=Action.SKIP, alerts=True, gives_up=True),
        ErrorCode.INTERNAL_ERROR: ErrorRule(action=Action.SKIP, alerts=True),
        ErrorCode.LOCK_LOST: ErrorRule(action=Action.STOP),
    }
)


class CrawlError(Exception):
    """A search or a detail without a result. The message is for a person and holds nothing of a platform's answer.

    `captcha`: the platform asks for a captcha, so the cookie must cool at once. `blocked`: the platform blocks all
    requests of this machine for now. `retry_after`: how long the platform or site asks us to wait.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        captcha: bool = False,
        blocked: bool = False,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.captcha = captcha
        self.blocked = blocked
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def blames_cookie(self) -> bool:
        """Whether the platform refused the account, which counts against the cookie."""
        return self.captcha or self.code is ErrorCode.COOKIE_INVALID

    @property
    def retryable(self) -> bool:
        return RULES[self.code].retryable


def next_delay(
    code: ErrorCode,
    *,
    retry: int,
    backoff: Sequence[timedelta] = BACKOFF,
    retries: Mapping[ErrorCode, int] = _NO_CHANGES,
) -> timedelta | None:
    """The wait before retry number `retry` (from 1), or None to give up.

    `retries` overrides the table's number of retries for the codes that it names.
    """
    rule = RULES[code]
    waits = backoff if rule.backs_off else ()
    return Backoff(waits, most_retries=retries.get(code, rule.most_retries)).next_delay(retry)
