"""Detects from the results of a batch that its platform is down. An execution keeps the last batch in its progress."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self

from sqlalchemy import bindparam, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.crawl.cookies.states import CookieStatus, settle_state
from tidings.collect.crawl.cookies.table import Cookie, read_cookies
from tidings.collect.crawl.envelope import ErrorInfo
from tidings.collect.errors import OUTAGES, RULES, ErrorCode
from tidings.collect.status.queries import PauseCause
from tidings.collect.write.values import Failed, WriterLimits
from tidings.core.db.direct_statement import DirectStatement
from tidings.core.executions import Execution, executions

_SET_PROGRESS: Final = DirectStatement(
    update(executions).where(executions.c.id == bindparam("token")).values(progress=bindparam("new_progress"))
)


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The last batch that an execution leased from a platform, as its progress stores it."""

    # Candidates in the batch.
    size: int
    # Whether it is the one candidate that probes a paused platform.
    is_probe: bool
    # Whether the platform answered about one of its notes.
    is_answered: bool = False

    @classmethod
    def read(cls, progress: Mapping[str, Any], platform: str, *, held: int) -> Self:
        """The platform's batch, or one of `held` candidates if none was stored."""
        stored = progress.get("batches", {}).get(platform)
        return cls(size=held, is_probe=False) if stored is None else cls(*stored)

    def store(self, progress: Mapping[str, Any], platform: str) -> dict[str, Any]:
        """The progress with this batch. A single candidate that is no probe is not stored, because `read` assumes
        it."""
        batches = {name: batch for name, batch in progress.get("batches", {}).items() if name != platform}
        if self.size > 1 or self.is_probe:
            batches[platform] = [self.size, self.is_probe, self.is_answered]
        return {**progress, "batches": batches}

    def is_outage(self, failure: Failed, *, before: Any, is_paused: bool) -> bool:
        """Whether a failure says nothing about its note. `before` is the candidate's row.

        If a note fails alone for a second time, although the platform answered another request in between, the note is
        at fault.
        """
        error = failure.error
        if error.blocked:
            return True
        can_be = error.captcha or (error.code in OUTAGES and error.retry_after is None)
        if not can_be or not error.asked or self.is_answered:
            return False
        if self.size > 1 or self.is_probe or is_paused or error.code is ErrorCode.NETWORK_ERROR:
            return True
        return before.last_error_code not in {*OUTAGES, ErrorCode.COOKIE_INVALID}


def is_answer(failure: Failed) -> bool:
    """Whether the platform answered about the note itself."""
    return failure.error.asked and RULES[failure.error.code].gives_up


def find_cause(outages: Iterable[Failed]) -> tuple[PauseCause, ErrorInfo] | None:
    """The cause for which these outages pause their platform, and the error that shows it. A captcha pauses a platform
    only when no cookie is left."""
    found = {_name_cause(each.error): each.error for each in outages if not each.error.captcha}
    return next(((cause, found[cause]) for cause in PauseCause if cause in found), None)


async def limit_batch(
    connection: AsyncConnection, platform: str, *, limit: int, limits: WriterLimits, at: datetime
) -> int:
    """The largest batch that cookies and pace allow within the time limit; at most `limit`, at least 1."""
    if limit == 1:
        return 1
    mine = [cookie for cookie in await read_cookies(connection) if cookie.platform == platform]
    uses = [left for cookie in mine if (left := _count_uses_left(cookie, at=at)) > 0]
    interval = max(limits.platform_interval, limits.cookie_interval / max(1, len(uses)) if mine else timedelta(0))
    most = limit
    if interval > timedelta(0):
        most = min(most, 1 + max(timedelta(0), limits.batch_time - limits.request_time) // interval)
    # If no use is left, one candidate fails with COOKIE_EXHAUSTED.
    return max(1, min(most, sum(uses)) if mine else most)


async def store_progress(
    connection: AsyncConnection, execution: Execution, progress: Mapping[str, Any], *, before: Mapping[str, Any]
) -> None:
    """Store the progress of an execution, if it changed."""
    if progress != before:
        await _SET_PROGRESS.run(connection, {"token": execution.id, "new_progress": json.dumps(progress)})


def _count_uses_left(cookie: Cookie, *, at: datetime) -> int:
    state = settle_state(cookie.state, at=at)
    return cookie.daily_limit - state.daily_used if state.status is CookieStatus.ACTIVE else 0


def _name_cause(error: ErrorInfo) -> PauseCause:
    if error.blocked:
        return PauseCause.BLOCKED
    is_network = error.code in (ErrorCode.NETWORK_ERROR, ErrorCode.TIMEOUT_ERROR)
    return PauseCause.NETWORK if is_network else PauseCause.PLATFORM
