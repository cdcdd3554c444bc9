"""What Feishu's answers mean: its error codes as a table, with the verdict and what a person can do, and the one
exception that carries them. Feishu's own messages are not repeated: they may quote what was sent.

    Exception
    └── FeishuError    a verdict, the code if there was one, and how long Feishu asks to wait
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

RATE_LIMITED: Final = 99991400
RESET_HEADER: Final = "x-ogw-ratelimit-reset"

_LONGEST_WISH: Final = timedelta(hours=1)
_SERVER_ERROR: Final = 500


class Verdict(StrEnum):
    RETRY = "retry"  # it passes by itself
    REFRESH = "refresh"  # a new access token is needed
    RENEW = "renew"  # this client_token is spent: look what stands there, then take another
    PREPARE = "prepare"  # a field is missing: look at the fields again
    MISSING = "missing"  # the record is no longer there
    REFUSED = "refused"  # this record is not taken as it is
    BLOCKED = "blocked"  # nothing of this table is taken until a person has acted


@dataclass(frozen=True, slots=True)
class Rule:
    verdict: Verdict
    meaning: str
    action: str = ""


_WAIT: Final = "Nothing: it is tried again by itself. If it lasts, look at Feishu's status page"
_FIELDS: Final = "Rename the field back, or let the app create fields (permission base:field:create)"
_VALUE: Final = "Set the field back to the type that docs/feishu.md names, then run: tidings collect mirror --rebuild"
_SETUP: Final = "Check the ids of the base and its tables in the settings"
_PERMISSION: Final = "Give the app edit rights on the base (… > More > Add document app)"
_SECRET: Final = "Check the app's id and secret in the settings"  # noqa: S105 - advice
_REPORT: Final = "Look the code up in Feishu's documentation; the rows are kept and delivered later"


def _refuse_value(kind: str) -> Rule:
    return Rule(Verdict.REFUSED, f"a value does not fit a field of type {kind}", _VALUE)


RULES: Final[Mapping[int, Rule]] = MappingProxyType(
    {
        RATE_LIMITED: Rule(Verdict.RETRY, "too many requests", _WAIT),
        1254036: Rule(Verdict.RETRY, "the base is being copied", _WAIT),
        1254290: Rule(Verdict.RETRY, "too many requests", _WAIT),
        1254291: Rule(Verdict.RETRY, "someone else writes to the table at the same time", _WAIT),
        1254607: Rule(Verdict.RETRY, "an earlier change is still being processed", _WAIT),
        1255001: Rule(Verdict.RETRY, "an error within Feishu", _WAIT),
        1255002: Rule(Verdict.RETRY, "an error within Feishu", _WAIT),
        1255040: Rule(Verdict.RETRY, "Feishu timed out", _WAIT),
        99991661: Rule(Verdict.REFRESH, "the access token is missing", _SECRET),
        99991663: Rule(Verdict.REFRESH, "the access token has expired", _SECRET),
        1255006: Rule(Verdict.RENEW, "the client_token was used for something else", _REPORT),
        1254045: Rule(Verdict.PREPARE, "a field is missing in the table", _FIELDS),
        1254043: Rule(Verdict.MISSING, "the record is no longer there"),
        1254015: _refuse_value("another kind"),
        1254060: _refuse_value("text"),
        1254061: _refuse_value("number"),
        1254062: _refuse_value("single select"),
        1254063: _refuse_value("multiple select"),
        1254064: _refuse_value("date"),
        1254065: _refuse_value("checkbox"),
        1254066: _refuse_value("person"),
        1254067: _refuse_value("link"),
        1254068: _refuse_value("URL"),
        1254069: _refuse_value("attachment"),
        1254130: Rule(Verdict.REFUSED, "a value is too large for its cell", _REPORT),
        99991403: Rule(Verdict.BLOCKED, "this month's quota of API calls is used up", "Raise the plan, or wait"),
        1254040: Rule(Verdict.BLOCKED, "there is no such base", _SETUP),
        1254041: Rule(Verdict.BLOCKED, "there is no such table", _SETUP),
        1254103: Rule(Verdict.BLOCKED, "the table is full", "Move old records to another table, or raise the plan"),
        1254104: Rule(Verdict.BLOCKED, "the batch is larger than Feishu takes", _REPORT),
        1254302: Rule(Verdict.BLOCKED, "the app may not write to the table", _PERMISSION),
        1254304: Rule(Verdict.BLOCKED, "the app may not write to the table", _PERMISSION),
        1254608: Rule(Verdict.BLOCKED, "Feishu takes this for a request that it has had", _REPORT),
        10003: Rule(Verdict.BLOCKED, "there is no such app", _SECRET),
        10014: Rule(Verdict.BLOCKED, "the app's secret is wrong", _SECRET),
    }
)
_UNKNOWN: Final = Rule(Verdict.BLOCKED, "an error that is not known here", _REPORT)
_BROKEN: Final = Rule(Verdict.RETRY, "an error within Feishu", _WAIT)
_UNSETTLED: Final = Rule(Verdict.RETRY, "a record is found, and then not there", _WAIT)
_UNREACHABLE: Final = Rule(Verdict.RETRY, "Feishu could not be reached", _WAIT)


class FeishuError(Exception):
    """Something was not done. Without a code nothing is known of it: it may have been done all the same."""

    def __init__(
        self, rule: Rule, *, code: int | None = None, detail: str = "", retry_after: timedelta | None = None
    ) -> None:
        named = " ".join(part for part in (detail, "" if code is None else f"code {code}") if part)
        super().__init__(f"{rule.meaning} ({named})" if named else rule.meaning)
        self.verdict = rule.verdict
        self.action = rule.action
        self.code = code
        self.retry_after = retry_after


def judge_answer(code: int, *, status: int, headers: Mapping[str, str]) -> FeishuError:
    """What an answer other than 0 means. What is not known is told to a person and tried again, not lost."""
    rule = RULES.get(code, _BROKEN if status >= _SERVER_ERROR else _UNKNOWN)
    return FeishuError(rule, code=code, retry_after=_read_wish(headers.get(RESET_HEADER)))


def judge_failure(error: Exception) -> FeishuError:
    """No answer, or none that can be read. Of the error only its name is told: its text may hold the request."""
    return FeishuError(_UNREACHABLE, detail=type(error).__name__)


def judge_unsettled(error: FeishuError) -> FeishuError:
    """A record is found by a search and then not there: Feishu has not come to rest."""
    return FeishuError(_UNSETTLED, code=error.code)


def judge_field(name: str, *, wanted: str) -> FeishuError:
    """A field that is there with another type than the mirror writes."""
    action = f"Change the type of the field to {wanted}, or rename it: the mirror then makes its own"
    return FeishuError(Rule(Verdict.BLOCKED, f"the field {name} is not of the type {wanted}", action))


def _read_wish(value: str | None) -> timedelta | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    # A NaN compares as false.
    return min(timedelta(seconds=seconds), _LONGEST_WISH) if 0 <= seconds < 1e9 else None
