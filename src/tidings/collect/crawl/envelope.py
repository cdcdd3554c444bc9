"""The one shape of every answer of the crawl API, and of the workflow's: plain values with `to_json`. Whether an answer
is retryable is said by the table in `errors`; which HTTP status it has is the business of the web.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tidings.collect.crawl.platforms.protocol import Hit, SearchPage
from tidings.collect.errors import RULES, ErrorCode
from tidings.collect.notes import Note

Data = TypeVar("Data", bound=SearchPage | Note | Mapping[str, object], covariant=True)


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """Why there is no data: the code for programs, the message for a person. `captcha` is True where the account is
    asked for one: whoever counts what became of the cookie has to know, for it must rest at once."""

    code: ErrorCode
    message: str
    captcha: bool = False

    @property
    def retryable(self) -> bool:
        return RULES[self.code].retryable

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code.value,
            "message": self.message,
            "retryable": self.retryable,
            "captcha": self.captcha,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """`latency_ms` is the time that was spent on the question; 0 where it was refused before it was one. `cookie_used`
    is the name of the cookie that was lent for it, whatever came of that."""

    request_id: str
    latency_ms: int = 0
    cookie_used: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"request_id": self.request_id, "latency_ms": self.latency_ms, "cookie_used": self.cookie_used}


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope(Generic[Data]):
    """The answer to one question: data, or an error."""

    meta: Meta
    data: Data | None = None
    error: ErrorInfo | None = None

    @property
    def success(self) -> bool:
        return self.error is None

    def to_json(self) -> dict[str, Any]:
        return {
            "success": self.success,
            "data": _describe(self.data),
            "error": None if self.error is None else self.error.to_json(),
            "meta": self.meta.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem(Generic[Data]):
    """The answer to one question of a batch. `id` is what the caller named the note by."""

    id: str
    cookie_used: str | None = None
    data: Data | None = None
    error: ErrorInfo | None = None

    @property
    def success(self) -> bool:
        return self.error is None

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "success": self.success,
            "data": _describe(self.data),
            "error": None if self.error is None else self.error.to_json(),
            "cookie_used": self.cookie_used,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnvelope(Generic[Data]):
    """The answers to a batch, in the order of the questions. It is a success if all of them are."""

    meta: Meta
    items: Sequence[BatchItem[Data]]

    @property
    def failed(self) -> int:
        return sum(not item.success for item in self.items)

    @property
    def success(self) -> bool:
        return self.failed == 0

    @property
    def error(self) -> ErrorInfo | None:
        """PARTIAL_FAIL however many failed, also where all did: the items tell why."""
        if self.success:
            return None
        return ErrorInfo(ErrorCode.PARTIAL_FAIL, f"{self.failed} of {len(self.items)} failed; each item says why")

    def to_json(self) -> dict[str, Any]:
        total, failed = len(self.items), self.failed
        return {
            "success": self.success,
            "items": [item.to_json() for item in self.items],
            "summary": {"total": total, "succeeded": total - failed, "failed": failed},
            "error": None if self.error is None else self.error.to_json(),
            "meta": self.meta.to_json(),
        }


def _describe(data: SearchPage | Note | Mapping[str, object] | None) -> dict[str, object] | None:
    match data:
        case None:
            return None
        case Note():
            return data.describe()
        case SearchPage():
            return _describe_page(data)
    return dict(data)


def _describe_page(page: SearchPage) -> dict[str, object]:
    hits = [{name: getattr(hit, name) for name in Hit.__slots__} for hit in page.hits]
    return {"hits": hits, "page": page.page, "has_more": page.has_more, "total": page.total}
