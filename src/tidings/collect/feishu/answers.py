"""What Feishu's answers mean: its error codes as a table, with the verdict and what a person can do, and the one
exception that carries them. Feishu's own messages are not repeated: they may quote what was sent.

    Exception
    └── FeishuError    a verdict, the code if there was one, and how long Feishu asks to wait
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

RATE_LIMITED: Final = 99991400
RESET_HEADER: Final = "x-ogw-ratelimit-reset"

_LONGEST_WISH: Final = timedelta(hours=1)
_CLIENT_ERROR: Final = 400
_TOO_LARGE: Final = 413
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500


class Verdict(StrEnum):
    RETRY = "retry"  # it passes by itself
    REFRESH = "refresh"  # a new access token is needed
    RENEW = "renew"  # this client_token is spent: look what stands there, then take another
    PREPARE = "prepare"  # a field is missing: look at the fields again
    MISSING = "missing"  # the record is no longer there
    REFUSED = "refused"  # this record is not taken as it is
    SUSPECT = "suspect"  # the batch is not taken, or one record of it, or none at all: to be found out
    FULL = "full"  # no more records are taken
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
        1254103: Rule(Verdict.FULL, "the table is full", "Move old records to another table, or raise the plan"),
        1254104: Rule(Verdict.SUSPECT, "this is more than Feishu takes at once", _REPORT),
        1254302: Rule(Verdict.BLOCKED, "the app may not write to the table", _PERMISSION),
        1254304: Rule(Verdict.BLOCKED, "the app may not write to the table", _PERMISSION),
        1254608: Rule(Verdict.BLOCKED, "Feishu takes this for a request that it has had", _REPORT),
        10003: Rule(Verdict.BLOCKED, "there is no such app", _SECRET),
        10014: Rule(Verdict.BLOCKED, "the app's secret is wrong", _SECRET),
    }
)
_UNKNOWN: Final = Rule(Verdict.SUSPECT, "an error that is not known here", _REPORT)
_LARGE: Final = Rule(Verdict.SUSPECT, "this is more than Feishu takes at once", _REPORT)
_CROWDED: Final = Rule(Verdict.RETRY, "too many requests", _WAIT)
_BROKEN: Final = Rule(Verdict.RETRY, "an error within Feishu", _WAIT)
_UNSETTLED: Final = Rule(Verdict.RETRY, "what was written is not shown yet", _WAIT)
_UNREACHABLE: Final = Rule(Verdict.RETRY, "Feishu could not be reached", _WAIT)


_NO_KEY: Final = Rule(
    Verdict.BLOCKED,
    "the field key is gone, and with it which record is which row",
    "Rename the field back to key; or empty the table, then run: tidings collect mirror --rebuild",
)
_ELSEWHERE: Final = Rule(
    Verdict.BLOCKED,
    "another process mirrors this table to another base or table",
    "Give every process the same FEISHU_ settings. Ten minutes after the other's last delivery this one takes over, or "
    "at once with: tidings collect mirror --rebuild",
)


class FeishuError(Exception):
    """Something was not done. Without a code nothing is known of it: it may have been done all the same."""

    def __init__(
        self, rule: Rule, *, code: int | None = None, detail: str = "", retry_after: timedelta | None = None
    ) -> None:
        named = detail or (f"code {code}" if code else "")
        super().__init__(f"{rule.meaning} ({named})" if named else rule.meaning)
        self.rule = rule
        self.code = code
        self.detail = detail
        self.retry_after = retry_after

    @property
    def verdict(self) -> Verdict:
        return self.rule.verdict

    @property
    def action(self) -> str:
        return self.rule.action

    def block(self) -> "FeishuError":
        """The same, as what stops a table."""
        return FeishuError(replace(self.rule, verdict=Verdict.BLOCKED), code=self.code, detail=self.detail)


def judge_answer(code: int | None, *, status: int, headers: Mapping[str, str]) -> FeishuError:
    """What an answer means that is no plain yes; without a code it is not Feishu's own, but a proxy's.

    What is not known is told to a person and tried again, not lost.
    """
    wish = _read_wish(headers.get(RESET_HEADER))
    if status == _TOO_LARGE:
        return FeishuError(_LARGE, code=status, detail=f"HTTP {status}")
    if code:
        return FeishuError(
            RULES.get(code, _BROKEN if status >= _SERVER_ERROR else _UNKNOWN), code=code, retry_after=wish
        )
    if _CLIENT_ERROR <= status < _SERVER_ERROR:
        rule = _CROWDED if status == _TOO_MANY else _UNKNOWN
        return FeishuError(rule, code=status, detail=f"HTTP {status}", retry_after=wish)
    return FeishuError(_BROKEN if status >= _SERVER_ERROR else _UNREACHABLE, detail=f"HTTP {status}")


def judge_failure(error: Exception) -> FeishuError:
    """No answer, or none that can be read. Of the error only its name is told: its text may hold the request."""
    return FeishuError(_UNREACHABLE, detail=type(error).__name__)


def judge_fault(error: Exception) -> FeishuError:
    """An error of our own, which nobody has thought of. Of it, too, only its name is told."""
    rule = Rule(Verdict.BLOCKED, "an error within Tidings", "Look for mirror.broken in the log, and report it")
    return FeishuError(rule, detail=type(error).__name__)


def judge_unsettled(error: FeishuError) -> FeishuError:
    """What a search shows and what was answered before do not agree: Feishu has not come to rest."""
    return FeishuError(_UNSETTLED, code=error.code)


def judge_field(name: str, *, wanted: str) -> FeishuError:
    """A field that is there with another type than the mirror writes."""
    action = f"Change the type of the field to {wanted}, or rename it: the mirror then makes its own"
    return FeishuError(Rule(Verdict.BLOCKED, f"the field {name} is not of the type {wanted}", action))


def judge_no_key() -> FeishuError:
    """The field by which records are told apart was renamed or removed, although there are records."""
    return FeishuError(_NO_KEY)


def judge_elsewhere() -> FeishuError:
    """Two processes would take turns in filling two places."""
    return FeishuError(_ELSEWHERE)


def _read_wish(value: str | None) -> timedelta | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    # A NaN compares as false.
    return min(timedelta(seconds=seconds), _LONGEST_WISH) if 0 <= seconds < 1e9 else None
