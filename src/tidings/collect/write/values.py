"""The arguments and results of the writer, and the rule for failed candidates. Pure; the other files of this package
write the tables.
"""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tidings.collect.crawl.envelope import ErrorInfo
from tidings.collect.crawl.platforms.protocol import PLATFORM_NAME
from tidings.collect.errors import BACKOFF, LONGEST_RETRY_AFTER, RULES, Action, ErrorCode
from tidings.collect.notes import Note
from tidings.collect.tables import MIRROR, OTHER_WORKFLOWS, CandidateStatus, StageStatus
from tidings.core.backoff import Backoff
from tidings.core.executions import Execution, ExecutionStatus
from tidings.core.logs.request_id import NO_REQUEST, current_request_id

BATCH_SIZE: Final = 10
# PostgreSQL limits the length of a key.
LONGEST_NOTE_ID: Final = 256
# Characters of a stored error message.
LONGEST_ERROR: Final = 500

_WORKFLOW_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.:-]{0,99}")
# The pattern of a cookie's name. Answers and logs show the name, so a cookie's value must not match.
COOKIE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterLimits:
    """When a lock expires, and how often a candidate is tried."""

    # A lock without a heartbeat for this long is taken back.
    lock_timeout: timedelta = timedelta(minutes=30)
    # A candidate with this retry count fails for good at its next failure: 3 retries are 4 attempts.
    most_retries: int = 3
    # How long a candidate waits after its first, second, … failure; the last wait repeats.
    backoff: tuple[timedelta, ...] = BACKOFF
    # The crawler's time limits for a whole batch and for one request, and its minimum intervals between two requests to
    # a platform and with one cookie. They limit the size of a batch.
    batch_time: timedelta = timedelta(seconds=60)
    request_time: timedelta = timedelta(seconds=10)
    platform_interval: timedelta = timedelta(seconds=1)
    cookie_interval: timedelta = timedelta(seconds=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """The answer to `acquire`."""

    # Whether the caller got the lock.
    locked: bool
    # The caller's new execution, or the one that holds the lock.
    execution_id: str
    # Why the lock was refused.
    reason: str | None = None
    # Set if the caller got the lock.
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
        """Whether platform and note id can be a key of the table."""
        is_id = 0 < len(self.note_id) <= LONGEST_NOTE_ID and self.note_id == make_storable(self.note_id)
        return is_id and PLATFORM_NAME.fullmatch(self.platform) is not None


@dataclass(frozen=True, slots=True)
class Added:
    """Numbers of candidates."""

    # New ones.
    created: int
    # Those that existed already.
    known: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedCandidate:
    """A candidate that is leased to an execution."""

    platform: str
    note_id: str
    note_url: str
    title: str
    # Failed attempts so far.
    retry_count: int
    # The keyword that found it first.
    source_keyword: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The note of a candidate was read."""

    note_id: str
    note: Note
    cookie_used: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The note of a candidate was not read, after all retries that the rule of its code allows."""

    note_id: str
    error: ErrorInfo
    # The name of the cookie of the last try, if its use has not been counted yet.
    cookie_used: str | None = None
    # It is asked for again: only the use of the cookie is recorded.
    is_repeated: bool = False

    @property
    def counts(self) -> bool:
        """Whether the note itself can be at fault."""
        is_own = self.error.asked and not self.error.blocked and self.error.retry_after is None
        return is_own and RULES[self.error.code].action is not Action.PAUSE


Result = Collected | Failed


class SettledAction(StrEnum):
    """The writer's action for one candidate."""

    # A new source was written.
    CREATED = "created"
    # The source existed already, with the same text.
    SKIPPED = "skipped"
    # The failure was counted; the candidate is due again later.
    RETRY = "retry"
    # The candidate failed for good.
    FAILED = "failed"
    # The note could not be read again; the collected one stays.
    KEPT = "kept"
    # The candidate was released uncounted, because it is not at fault.
    RELEASED = "released"
    # This execution no longer holds the candidate; nothing was written.
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The result of one candidate."""

    note_id: str
    action: SettledAction
    # The row id of its source.
    existing_id: int | None = None
    # The idempotency key of its source, if that is new or has new counts.
    source_key: str | None = None
    # Failed attempts so far.
    retry_count: int | None = None
    # When it is due again.
    retry_at: datetime | None = None

    @property
    def status(self) -> CandidateStatus | None:
        """The candidate's new status; None if this execution no longer holds it."""
        return _STATUSES.get(self.action)


_STATUSES: Final = {
    SettledAction.CREATED: CandidateStatus.COLLECTED,
    SettledAction.SKIPPED: CandidateStatus.COLLECTED,
    SettledAction.KEPT: CandidateStatus.COLLECTED,
    SettledAction.RETRY: CandidateStatus.PENDING,
    SettledAction.RELEASED: CandidateStatus.PENDING,
    SettledAction.FAILED: CandidateStatus.FAILED,
}


class StageAction(StrEnum):
    """The writer's action for one note of a stage after collecting: the next stage, or the reading of comments."""

    # Comments only: the page was stored; the next one is due.
    MORE = "more"
    DONE = "done"
    # The failure was counted; it is due again later.
    RETRY = "retry"
    # It failed for good. Comments that were stored stay.
    FAILED = "failed"
    # It was released uncounted, because it is not at fault.
    RELEASED = "released"
    # This execution no longer holds it; nothing was written.
    LOST = "lost"

    @property
    def status(self) -> StageStatus | None:
        """The new status; None if this execution no longer holds it."""
        if self is StageAction.LOST:
            return None
        return StageStatus(self.value) if self in (StageAction.DONE, StageAction.FAILED) else StageStatus.PENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class CookieUse:
    """One request with a cookie."""

    cookie_name: str
    # The error of the request; None if it succeeded.
    code: ErrorCode | None = None
    # Whether the platform asked for a captcha.
    captcha: bool = False


def list_uses(cookie_used: str | None, error: ErrorInfo | None) -> list[CookieUse]:
    """The cookie use of one try; empty if it needed no cookie or got none."""
    if cookie_used is None:
        return []
    if error is None:
        return [CookieUse(cookie_name=cookie_used)]
    return [CookieUse(cookie_name=cookie_used, code=error.code, captcha=error.captcha)]


@dataclass(frozen=True, slots=True)
class Finished:
    """How an execution ended."""

    workflow_name: str
    status: ExecutionStatus
    items_processed: int
    items_failed: int
    # Candidates and sources that it still held, released uncounted.
    released: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery freed."""

    # Public ids of the executions that it ended.
    executions: list[str]
    # Candidates and sources that it unlocked.
    records: int
    # Those among them that failed for good, because their retries were used up.
    failed: int


def judge_failure(
    failure: Failed, *, retry_count: int, at: datetime, limits: WriterLimits, is_outage: bool = False
) -> Settled:
    """The result of a failed candidate with this many failures before. `is_outage`: no request of its batch was
    answered, so it is released uncounted, like one whose failure has another cause."""
    if is_outage or not failure.counts:
        due_at = at + min(failure.error.wait or timedelta(0), LONGEST_RETRY_AFTER)
        return Settled(note_id=failure.note_id, action=SettledAction.RELEASED, retry_count=retry_count, retry_at=due_at)
    failures = retry_count + 1
    wait = Backoff(limits.backoff, most_retries=limits.most_retries).next_delay(failures)
    if RULES[failure.error.code].gives_up or wait is None:
        return Settled(note_id=failure.note_id, action=SettledAction.FAILED, retry_count=failures)
    return Settled(note_id=failure.note_id, action=SettledAction.RETRY, retry_count=failures, retry_at=at + wait)


def write_meta(execution: Execution | None, *, cookie_used: str | None = None) -> str:
    """The `exec_meta` of a record: request id, execution and the name of the cookie. None: a person wrote it."""
    meta = {"request_id": current_request_id() or NO_REQUEST}
    if execution is not None:
        meta["execution_id"] = execution.public_id
    is_name = cookie_used is not None and COOKIE_NAME.fullmatch(cookie_used)
    return json.dumps(meta | {"cookie_used": cookie_used} if is_name else meta)


def make_storable(text: str) -> str:
    """The text without characters that PostgreSQL cannot store: NUL and lone surrogates."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


class WorkflowNameError(ValueError):
    """The name is not one that this workflow may have; the message says why."""


def check_workflow_name(name: str, *, reserved: Collection[str]) -> None:
    """Raises WorkflowNameError. A reserved name with a colon at its end reserves all that begin with it."""
    if not _WORKFLOW_NAME.fullmatch(name) or name.startswith(OTHER_WORKFLOWS):
        rule = "a workflow's name has 1 to 100 of a-z 0-9 _ . : - and does not begin with a sign"
        raise WorkflowNameError(f"{rule}, nor with {OTHER_WORKFLOWS}")
    if any(name == each or (each.endswith(":") and name.startswith(each)) for each in reserved):
        # The mirror runs without the runner too.
        other = "" if name == MIRROR else ", or set TIDINGS_COLLECT_RUNNER=off"
        raise WorkflowNameError(f"{name} is a workflow of this service itself: choose another name{other}")
