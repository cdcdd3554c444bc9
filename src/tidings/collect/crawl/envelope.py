"""The envelope: the form of every answer of the crawl API and of the writer's routes. The fields are those of the JSON
answer; the web serialises these classes and adds the HTTP status. A note is the exception: `Note.describe` writes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Generic, Never, TypeVar

from tidings.collect.errors import RULES, ErrorCode

DATABASE_AWAY: Final = "the database is busy or away; nothing was changed, try again in a moment"

Data = TypeVar("Data", covariant=True)
Given = TypeVar("Given")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """Why there is no data."""

    # For programs.
    code: ErrorCode
    # For people; it holds nothing of a platform's answer.
    message: str
    # Whether the same request can succeed later, by the table in `errors`.
    retryable: bool
    # Whether the platform asks the account of `cookie_used` for a captcha; the cookie must then rest at once.
    captcha: bool
    # Whether the platform blocks this machine for now, so that the caller must stop its requests for a while.
    blocked: bool = False
    # False if the request still waited for a cookie, a turn or the database: then it counts against nothing.
    asked: bool = True
    # Seconds that the platform or site asks us to wait; None if it does not say.
    retry_after: float | None = None

    @property
    def wait(self) -> timedelta | None:
        """How long the platform or site asks us to wait."""
        return None if self.retry_after is None else timedelta(seconds=self.retry_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """How the request was served."""

    request_id: str
    # Milliseconds spent on the request; 0 if it was refused before any work.
    latency_ms: int
    # The name of the cookie that was leased for the request, also if it failed; None for a batch.
    cookie_used: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope(Generic[Data]):
    """The answer to one request: data, or an error."""

    # True if there is no error.
    success: bool
    data: Data | None
    error: ErrorInfo | None
    meta: Meta


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem(Generic[Data]):
    """The answer to one item of a batch."""

    # The `note_id`, or else the `url`, that the request named.
    id: str
    # True if there is no error.
    success: bool
    data: Data | None
    error: ErrorInfo | None
    # The name of the cookie that was leased for this item, also if it failed.
    cookie_used: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSummary:
    """Numbers of items."""

    total: int
    succeeded: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnvelope(Generic[Data]):
    """The answers to a batch, in the order of the request."""

    # True if every item succeeded.
    success: bool
    items: Sequence[BatchItem[Data]]
    summary: BatchSummary
    # PARTIAL_FAIL if at least one item failed, also if all did; each item has its own error.
    error: ErrorInfo | None
    meta: Meta


def make_error(
    code: ErrorCode,
    message: str,
    *,
    captcha: bool = False,
    blocked: bool = False,
    asked: bool = True,
    retry_after: timedelta | None = None,
) -> ErrorInfo:
    return ErrorInfo(
        code=code,
        message=message,
        retryable=RULES[code].retryable,
        captcha=captcha,
        blocked=blocked,
        asked=asked,
        retry_after=None if retry_after is None else retry_after.total_seconds(),
    )


def make_database_error() -> ErrorInfo:
    """The error of a request that the database could not serve: the same request can succeed later."""
    return replace(make_error(ErrorCode.INTERNAL_ERROR, DATABASE_AWAY, asked=False), retryable=True)


def wrap_data(data: Given, *, meta: Meta) -> Envelope[Given]:
    return Envelope(success=True, data=data, error=None, meta=meta)


def wrap_error(error: ErrorInfo, *, meta: Meta) -> Envelope[Never]:
    return Envelope(success=False, data=None, error=error, meta=meta)


def wrap_items(items: Sequence[BatchItem[Data]], *, meta: Meta) -> BatchEnvelope[Data]:
    total, failed = len(items), sum(not item.success for item in items)
    return BatchEnvelope(
        success=failed == 0,
        items=items,
        summary=BatchSummary(total=total, succeeded=total - failed, failed=failed),
        error=make_error(ErrorCode.PARTIAL_FAIL, f"{failed} of {total} failed; each item says why") if failed else None,
        meta=meta,
    )
