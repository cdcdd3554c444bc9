"""What goes into the writer and what comes out of it: candidates, what became of them, and the rules for those that
failed. Pure; the tables are written in the other files.
"""

import json
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tidings.collect.errors import BACKOFF, RULES, Action, ErrorCode
from tidings.collect.notes import Note
from tidings.collect.tables import CandidateStatus
from tidings.core.executions import Execution, ExecutionStatus
from tidings.core.logs.request_id import NO_REQUEST, current_request_id

BATCH_SIZE: Final = 10

# What a database can be asked to keep as a key.
_LONGEST_NOTE_ID: Final = 256
_PLATFORM: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
# A cookie's name as people give it, and never its value.
_COOKIE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterLimits:
    """How long a lock holds without a sign of life, and how often a candidate is tried.

    `backoff` is how long a candidate rests after its first failure, its second, …; the last repeats.
    """

    lock_timeout: timedelta = timedelta(minutes=30)
    most_failures: int = 3
    backoff: tuple[timedelta, ...] = BACKOFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """The answer to `acquire`. Where it was refused, `execution_id` is the holder's."""

    locked: bool
    execution_id: str
    reason: str | None = None
    execution: Execution | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCandidate:
    """A note that a search found."""

    platform: str
    note_id: str
    note_url: str
    title: str
    source_keyword: str

    @property
    def is_nameable(self) -> bool:
        """Whether it can be stored under this name at all."""
        is_id = 0 < len(self.note_id) <= _LONGEST_NOTE_ID and self.note_id == make_storable(self.note_id)
        return is_id and _PLATFORM.fullmatch(self.platform) is not None


@dataclass(frozen=True, slots=True)
class Added:
    """How many candidates are new, and how many stood there already."""

    created: int
    known: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedCandidate:
    """A candidate that is leased to an execution."""

    platform: str
    note_id: str
    note_url: str
    title: str
    retry_count: int
    source_keyword: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """A candidate's note was read."""

    note_id: str
    note: Note
    cookie_used: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A candidate's note was not read; the workflow has tried as often as the code's rule allows."""

    note_id: str
    code: ErrorCode
    message: str = ""
    cookie_used: str | None = None
    captcha: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """A candidate's note was not read, and is asked for again at once: so far it only counts for the cookie."""

    note_id: str
    code: ErrorCode
    cookie_used: str | None = None
    captcha: bool = False


Result = Collected | Failed | Repeated


class SettledAction(StrEnum):
    """What became of a candidate.

    `skipped`: the note stood in the table already. `retry`: it is tried again later. `released`: it was given back
    uncounted, since the fault is not its own. `lost`: this execution no longer holds it, and nothing was written.
    """

    CREATED = "created"
    SKIPPED = "skipped"
    RETRY = "retry"
    FAILED = "failed"
    RELEASED = "released"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of one candidate. `existing_id` is the number of its source, `retry_at` when it is due again."""

    note_id: str
    action: SettledAction
    existing_id: int | None = None
    retry_count: int | None = None
    retry_at: datetime | None = None

    @property
    def status(self) -> CandidateStatus | None:
        """How the candidate stands by now; None where that is another execution's business."""
        return _STATUSES.get(self.action)


_STATUSES: Final = {
    SettledAction.CREATED: CandidateStatus.COLLECTED,
    SettledAction.SKIPPED: CandidateStatus.COLLECTED,
    SettledAction.RETRY: CandidateStatus.PENDING,
    SettledAction.RELEASED: CandidateStatus.PENDING,
    SettledAction.FAILED: CandidateStatus.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CookieUse:
    """A request that was made with a cookie, and what came of it; without a code it went well."""

    cookie_name: str
    code: ErrorCode | None = None
    captcha: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """How an execution ended. `released` candidates were given back untried."""

    workflow_name: str
    status: ExecutionStatus
    items_processed: int
    items_failed: int
    released: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """What dead holders had left: their executions, the records that were freed, and those of them that were given up
    because they had failed too often."""

    executions: list[str]
    records: int
    failed: int


def judge_failure(failure: Failed, *, retry_count: int, at: datetime, limits: WriterLimits) -> Settled:
    """What becomes of a candidate that has failed `retry_count` times before."""
    if RULES[failure.code].action is Action.PAUSE:
        return Settled(note_id=failure.note_id, action=SettledAction.RELEASED, retry_count=retry_count, retry_at=at)
    failures = retry_count + 1
    if RULES[failure.code].gives_up or failures >= limits.most_failures:
        return Settled(note_id=failure.note_id, action=SettledAction.FAILED, retry_count=failures)
    rest = limits.backoff[min(failures, len(limits.backoff)) - 1] if limits.backoff else timedelta(0)
    return Settled(note_id=failure.note_id, action=SettledAction.RETRY, retry_count=failures, retry_at=at + rest)


def write_meta(execution: Execution, *, cookie_used: str | None = None) -> str:
    """Who wrote a record, as its `exec_meta` says it."""
    meta = {"request_id": current_request_id() or NO_REQUEST, "execution_id": execution.public_id}
    is_name = cookie_used is not None and _COOKIE_NAME.fullmatch(cookie_used)
    return json.dumps(meta | {"cookie_used": cookie_used} if is_name else meta)


def make_storable(text: str) -> str:
    """The text without what PostgreSQL cannot keep: the character 0, and halves of characters."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()
