"""What can go wrong when content is collected: the error codes with the rule for each, and the one exception that
carries a code. Whoever knows the fact raises; nobody looks into a message later.

    Exception
    └── CrawlError    a code, what to tell a person, whether the cookie is to blame, and whether for a captcha
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class ErrorCode(StrEnum):
    """What a caller branches on. The last four belong to the API itself; no workflow retries them."""

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
    """What a workflow does about an error."""

    PAUSE = "pause"
    SWITCH_COOKIE = "switch_cookie"
    RETRY = "retry"
    RETRY_FAILED_ITEMS = "retry_failed_items"
    SKIP = "skip"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRule:
    """How one code is dealt with. A retry is a further attempt; `backs_off` says that it waits first; `gives_up` that a
    candidate is given up at once, because no later try can change it."""

    action: Action
    most_retries: int = 0
    backs_off: bool = False
    alerts: bool = False
    gives_up: bool = False

    @property
    def retryable(self) -> bool:
        return self.most_retries > 0


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


_AS_IN_THE_TABLE: Final[Mapping[ErrorCode, int]] = MappingProxyType({})


class CrawlError(Exception):
    """A search or a detail brought no result. The message is for a person and holds nothing of an answer's body.

    `blames_cookie` is True where the answer is about the account: what counts against the cookie in the pool. `captcha`
    says more: the account is softly blocked until a person solves a captcha, so the cookie must rest at once.
    """

    def __init__(self, code: ErrorCode, message: str, *, blames_cookie: bool = False, captcha: bool = False) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.blames_cookie = blames_cookie or captcha
        self.captcha = captcha

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def retryable(self) -> bool:
        return RULES[self.code].retryable


def next_delay(
    code: ErrorCode,
    *,
    retry: int,
    backoff: Sequence[timedelta] = BACKOFF,
    retries: Mapping[ErrorCode, int] = _AS_IN_THE_TABLE,
) -> timedelta | None:
    """The wait before retry number `retry` (from 1), or None to give up. The last wait repeats.

    `retries` are other numbers of most retries than the table's, for the codes that it names.
    """
    rule = RULES[code]
    if retry > retries.get(code, rule.most_retries):
        return None
    return backoff[min(retry, len(backoff)) - 1] if rule.backs_off and backoff else timedelta(0)
