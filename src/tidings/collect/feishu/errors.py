"""Feishu's error codes: what each one means, how the mirror reacts, and what a person can do. Also the retry rule.

Feishu's own messages are never repeated, because they may quote what was sent.

    Exception
    └── FeishuError
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from tidings.core.backoff import Backoff

RATE_LIMITED: Final = 99991400
RESET_HEADER: Final = "x-ogw-ratelimit-reset"

_LONGEST_RESET: Final = timedelta(hours=1)
# A longer wait ends the execution, so that another process can deliver meanwhile.
_LONGEST_DELAY: Final = timedelta(minutes=1)
_RETRIES: Final = Backoff((timedelta(seconds=0.5), timedelta(seconds=1)), most_retries=3)
_CLIENT_ERROR: Final = 400
_TOO_LARGE: Final = 413
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500


class FeishuErrorKind(StrEnum):
    """How the mirror reacts to an error."""

    RETRY = "retry"  # it passes by itself: send the request again
    EXPIRED_TOKEN = "expired_token"  # noqa: S105 - fetch a new access token
    SPENT_CLIENT_TOKEN = "spent_client_token"  # noqa: S105 - look the rows up, then use another client_token
    MISSING_FIELD = "missing_field"  # the table lacks a field: check its fields again
    MISSING_RECORD = "missing_record"  # the record was deleted
    UNSETTLED = "unsettled"  # two answers contradict each other: look again later
    REFUSED_ROW = "refused_row"  # Feishu does not take the values of this row
    UNCLEAR = "unclear"  # one row of the batch, some, or all may be at fault: find out
    FULL = "full"  # the table takes no more records
    BLOCKED = "blocked"  # the table takes nothing until a person has acted


# These pass without a person's help.
PASSING: Final = (FeishuErrorKind.RETRY, FeishuErrorKind.EXPIRED_TOKEN, FeishuErrorKind.UNSETTLED)


@dataclass(frozen=True, slots=True)
class CodeRule:
    """What one error code means."""

    kind: FeishuErrorKind
    # A message without a full stop.
    meaning: str
    # What a person can do about it.
    action: str = ""


_WAIT: Final = "Nothing: Tidings tries again. If it lasts, look at Feishu's status page"
_FIELDS: Final = "Rename the field back, or let the app create fields (permission base:field:create)"
_VALUE: Final = "Set the field back to the type that docs/feishu.md names, then run: tidings collect mirror --rebuild"
_SETUP: Final = "Check the ids of the base and its tables in the settings, or run: tidings collect feishu setup"
_PERMISSION: Final = "Give the app edit rights on the base (… > More > Add document app)"
_CREDENTIALS: Final = "Check FEISHU_APP_ID and FEISHU_APP_SECRET"
_REPORT: Final = "Look the code up in Feishu's documentation. The rows are kept and delivered later"
_CONVERSIONS: Final = {
    1254015: "another kind",
    1254060: "text",
    1254061: "number",
    1254062: "single select",
    1254063: "multiple select",
    1254064: "date",
    1254065: "checkbox",
    1254066: "person",
    1254067: "link",
    1254068: "URL",
    1254069: "attachment",
}

_Kind = FeishuErrorKind
_CROWDED: Final = CodeRule(_Kind.RETRY, "too many requests", _WAIT)
_BROKEN: Final = CodeRule(_Kind.RETRY, "an error within Feishu", _WAIT)
_UNREACHABLE: Final = CodeRule(_Kind.RETRY, "Feishu could not be reached", _WAIT)
_UNREADABLE: Final = CodeRule(_Kind.RETRY, "Feishu's answer could not be read", _WAIT)
_UNSETTLED: Final = CodeRule(_Kind.UNSETTLED, "Feishu does not show the last change yet", _WAIT)
_UNKNOWN: Final = CodeRule(_Kind.UNCLEAR, "an error code that Tidings does not know", _REPORT)
_LARGE: Final = CodeRule(_Kind.UNCLEAR, "the request is larger than Feishu takes", _REPORT)
_FORBIDDEN: Final = CodeRule(_Kind.BLOCKED, "the app may not write to the table", _PERMISSION)
# The key field was renamed or removed although the table has records.
MISSING_KEY: Final = CodeRule(
    _Kind.BLOCKED,
    "the field key is missing, so records cannot be matched with rows",
    "Rename the field back to key; or empty the table, then run: tidings collect mirror --rebuild",
)
# The settings name a table that the base does not have.
NO_TABLE: Final = CodeRule(_Kind.BLOCKED, "the table does not exist", _SETUP)
# Two processes with different settings would overwrite each other's records.
OTHER_TARGET: Final = CodeRule(
    _Kind.BLOCKED,
    "another process mirrors this table to another base or table",
    "Give every process the same FEISHU_ settings. This process takes over ten minutes after the other's last "
    "delivery, or at once with: tidings collect mirror --rebuild",
)

CODE_RULES: Final[Mapping[int, CodeRule]] = MappingProxyType(
    {code: CodeRule(_Kind.REFUSED_ROW, f"a value does not fit a field of type {name}", _VALUE)
     for code, name in _CONVERSIONS.items()}
    | {
        RATE_LIMITED: _CROWDED,
        1254036: CodeRule(_Kind.RETRY, "the base is being copied", _WAIT),
        1254290: _CROWDED,
        1254291: CodeRule(_Kind.RETRY, "someone else writes to the table at the same time", _WAIT),
        1254607: CodeRule(_Kind.RETRY, "Feishu still processes an earlier change", _WAIT),
        1255001: _BROKEN,
        1255002: _BROKEN,
        1255040: CodeRule(_Kind.RETRY, "Feishu timed out", _WAIT),
        99991661: CodeRule(_Kind.EXPIRED_TOKEN, "the access token is missing", _CREDENTIALS),
        99991663: CodeRule(_Kind.EXPIRED_TOKEN, "the access token has expired", _CREDENTIALS),
        1255006: CodeRule(_Kind.SPENT_CLIENT_TOKEN, "the client_token was used for another request", _REPORT),
        1254013: CodeRule(_Kind.BLOCKED, "the base has another table of this name", _SETUP),
        1254014: CodeRule(_Kind.MISSING_FIELD, "someone else creates the field", _WAIT),
        1254045: CodeRule(_Kind.MISSING_FIELD, "a field is missing in the table", _FIELDS),
        1254043: CodeRule(_Kind.MISSING_RECORD, "the record was deleted"),
        1254130: CodeRule(_Kind.REFUSED_ROW, "a value is too large for its cell", _REPORT),
        1254103: CodeRule(_Kind.FULL, "the table is full", "Move old records to another table, or raise the plan"),
        1254104: _LARGE,
        99991403: CodeRule(_Kind.BLOCKED, "this month's quota of API calls is used up", "Raise the plan, or wait"),
        1254040: CodeRule(_Kind.BLOCKED, "the base does not exist", _SETUP),
        1254041: NO_TABLE,
        1254302: _FORBIDDEN,
        1254304: _FORBIDDEN,
        1254608: CodeRule(_Kind.BLOCKED, "Feishu takes the request for a repetition", _REPORT),
        10003: CodeRule(_Kind.BLOCKED, "the app does not exist", _CREDENTIALS),
        10014: CodeRule(_Kind.BLOCKED, "the app's secret is wrong", _CREDENTIALS),
    }
)  # fmt: skip


class FeishuError(Exception):
    """A request failed, or a table cannot be delivered. The text holds no secret and nothing that Feishu wrote."""

    def __init__(
        self, rule: CodeRule, *, code: int | None = None, detail: str = "", retry_after: timedelta | None = None
    ) -> None:
        named = detail or (f"code {code}" if code else "")
        super().__init__(f"{rule.meaning} ({named})" if named else rule.meaning)
        self.rule = rule
        # Feishu's code, or the HTTP status of a proxy's refusal. None: no answer, so the outcome is unknown.
        self.code = code
        self.detail = detail
        # How long the gateway asks to wait.
        self.retry_after = retry_after

    @property
    def kind(self) -> FeishuErrorKind:
        return self.rule.kind

    @property
    def action(self) -> str:
        return self.rule.action

    def block(self) -> "FeishuError":
        """The same error, but one that stops its table."""
        return FeishuError(replace(self.rule, kind=FeishuErrorKind.BLOCKED), code=self.code, detail=self.detail)

    def unsettle(self) -> "FeishuError":
        """The same error, but for an answer that contradicts an earlier one."""
        return FeishuError(_UNSETTLED, code=self.code)


def next_delay(error: FeishuError, *, retry: int) -> timedelta | None:
    """The retry rule: the wait before retry number `retry` (from 1), or None to end the execution.

    A request without an answer is not repeated: the next execution looks up its outcome first.
    """
    if error.code is None:
        return None
    delay = _RETRIES.next_delay(retry, at_least=error.retry_after)
    return None if delay is None or delay > _LONGEST_DELAY else delay


def classify_answer(code: int | None, *, status: int, headers: Mapping[str, str]) -> FeishuError:
    """The error of an unsuccessful answer. `code` is None for an answer of a proxy."""
    retry_after = _read_reset(headers.get(RESET_HEADER))
    if status == _TOO_LARGE:
        return FeishuError(_LARGE, code=status, detail=f"HTTP {status}")
    if code:
        rule = CODE_RULES.get(code, _BROKEN if status >= _SERVER_ERROR else _UNKNOWN)
        return FeishuError(rule, code=code, retry_after=retry_after)
    if _CLIENT_ERROR <= status < _SERVER_ERROR:
        rule = _CROWDED if status == _TOO_MANY else _UNKNOWN
        return FeishuError(rule, code=status, detail=f"HTTP {status}", retry_after=retry_after)
    return FeishuError(_BROKEN if status >= _SERVER_ERROR else _UNREADABLE, detail=f"HTTP {status}")


def make_unreachable(reason: str) -> FeishuError:
    """No answer arrived. `reason` is in our own words."""
    return FeishuError(_UNREACHABLE, detail=reason)


def make_unreadable(error: Exception) -> FeishuError:
    """The answer has another shape than documented. Only the exception's name is shown: its text may quote data."""
    return FeishuError(_UNREADABLE, detail=type(error).__name__)


def make_forbidden_address(reason: str) -> FeishuError:
    """Our own client refused to connect."""
    action = "Check FEISHU_BASE_URL; a private address must be in TIDINGS_ALLOW_NETWORKS"
    return FeishuError(CodeRule(FeishuErrorKind.BLOCKED, f"FEISHU_BASE_URL is refused: {reason}", action))


def make_internal_error(error: Exception) -> FeishuError:
    """A bug of our own. Only the exception's name is shown: its text may quote data."""
    rule = CodeRule(_Kind.BLOCKED, "an error within Tidings", "Look for mirror.broken in the log, and report it")
    return FeishuError(rule, detail=type(error).__name__)


def make_wrong_type(name: str, *, wanted: str) -> FeishuError:
    """A field exists with another type than the mirror writes."""
    action = f"Change the type of the field to {wanted}, or rename it: Tidings then creates its own"
    return FeishuError(CodeRule(_Kind.BLOCKED, f"the field {name} is not of the type {wanted}", action))


def _read_reset(value: str | None) -> timedelta | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    # A NaN compares as false.
    return min(timedelta(seconds=seconds), _LONGEST_RESET) if 0 <= seconds < 1e9 else None
