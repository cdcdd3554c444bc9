"""Status of collect, read from the tables: for the commands and for the monitor. Writes nothing. The queries that the
monitor runs every minute use an index, so they stay fast on large tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import case, func, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.candidate_counts import nest_counts
from tidings.collect.errors import ErrorCode
from tidings.collect.tables import (
    COLLECT,
    CandidateStatus,
    StageStatus,
    candidates,
    collect_minutes,
    collect_tries,
    comment_threads,
    platform_pauses,
    sources,
    write_oldest_pending,
    write_pending_platforms,
)
from tidings.core.clock import CLOCK_TOLERANCE, from_milliseconds, read_timestamp, to_milliseconds
from tidings.core.executions import ExecutionRecord, executions, read_record

# A probe without a result blocks the next one for this long.
PROBE_TIME: Final = timedelta(minutes=5)

_is_pending = text("tbl_candidate.status = 'pending'")
_has_failed = text("tbl_candidate.status = 'failed'")

_FIND_WAITING: Final = text(
    f"""
    WITH RECURSIVE {write_pending_platforms(candidates.name)}
    SELECT platform FROM pending WHERE platform IS NOT NULL
    UNION SELECT platform FROM tbl_candidate WHERE status = 'processing'
    """
)
_FIND_OLDEST: Final = text(
    f"WITH RECURSIVE {write_oldest_pending(candidates.name)} SELECT platform, due_at FROM oldest"
)


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """Tries within a window."""

    succeeded: int
    failed: int
    # Whether there was any try within the last day.
    is_known: bool

    @property
    def tries(self) -> int:
        return self.succeeded + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCandidate:
    """A candidate as lists show it."""

    platform: str
    note_id: str
    note_url: str
    title: str
    status: CandidateStatus
    # The keyword that found it first.
    source_keyword: str
    # Failed attempts so far.
    retry_count: int
    # The last error.
    code: str | None
    message: str | None
    created_at: datetime
    # The last change: of a failed candidate, when it failed for good.
    updated_at: datetime


class PauseCause(StrEnum):
    """Why a platform is paused. Of several causes the first of this list counts."""

    # The platform blocks this machine for now.
    BLOCKED = "blocked"
    # It asks every cookie for a captcha.
    CAPTCHA = "captcha"
    # It cannot be reached, or does not answer in time.
    NETWORK = "network"
    # It answers with errors only.
    PLATFORM = "platform"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformPause:
    """A platform that is left alone for now."""

    platform: str
    cause: PauseCause
    # The error that caused the pause, for a person.
    message: str
    # The number of pauses in a row; a failed probe begins the next one.
    failures: int
    # When the first of them began.
    since: datetime
    # From this time on one candidate may probe the platform.
    until: datetime
    # When a probe that has not reported yet was leased.
    probed_at: datetime | None

    def is_closed(self, *, at: datetime) -> bool:
        """Whether no request may be sent to the platform now, not even by a probe."""
        return self.until > at or (self.probed_at is not None and self.probed_at + PROBE_TIME > at)


async def list_pauses(connection: AsyncConnection) -> list[PlatformPause]:
    """Every paused platform, by name, also one that waits for its probe."""
    rows = await connection.execute(select(platform_pauses).order_by(platform_pauses.c.platform))
    return [read_pause(row) for row in rows]


def read_pause(row: Any) -> PlatformPause:
    return PlatformPause(
        platform=row.platform,
        cause=PauseCause(row.cause),
        message=row.message,
        failures=row.failures,
        since=from_milliseconds(row.paused_at),
        until=from_milliseconds(row.paused_until),
        probed_at=read_timestamp(row.probed_at),
    )


async def list_waiting_platforms(connection: AsyncConnection) -> set[str]:
    """The platforms with pending or processing candidates."""
    return set((await connection.execute(_FIND_WAITING)).scalars())


async def read_rate(connection: AsyncConnection, *, at: datetime, window: timedelta) -> SuccessRate:
    """The tries of the last `window`; without those that a clock ahead of ours wrote."""
    is_recent = collect_minutes.c.minute.between(count_minutes(at - window) + 1, count_minutes(at + CLOCK_TOLERANCE))
    recent = [
        func.coalesce(func.sum(case((is_recent, column), else_=0)), 0)
        for column in (collect_minutes.c.succeeded, collect_minutes.c.failed)
    ]
    row = (await connection.execute(select(*recent, func.count()))).one()
    return SuccessRate(int(row[0]), int(row[1]), is_known=row[2] > 0)


def count_minutes(timestamp: datetime) -> int:
    """The number of the minute since 1970, the key of `collect_minutes`."""
    return to_milliseconds(timestamp) // 60_000


async def count_pending(connection: AsyncConnection, *, most: int) -> int:
    """The number of pending candidates, counted up to `most`."""
    some = select(candidates.c.note_id).where(_is_pending).limit(most).subquery()
    return int((await connection.execute(select(func.count()).select_from(some))).scalar_one())


async def count_failed_by(
    connection: AsyncConnection, codes: Sequence[ErrorCode], *, at: datetime, window: timedelta
) -> dict[str, dict[str, int]]:
    """The number of candidates that failed with one of these codes within the last `window`, by platform and code."""
    statement = (
        select(candidates.c.platform, candidates.c.last_error_code, func.count())
        .where(
            _has_failed,
            candidates.c.updated_at > to_milliseconds(at - window),
            candidates.c.updated_at <= to_milliseconds(at + CLOCK_TOLERANCE),
            candidates.c.last_error_code.in_([code.value for code in codes]),
        )
        .group_by(candidates.c.platform, candidates.c.last_error_code)
        .order_by(candidates.c.platform, candidates.c.last_error_code)
    )
    return nest_counts(await connection.execute(statement))


async def count_threads(connection: AsyncConnection) -> dict[str, dict[StageStatus, int]]:
    """The number of threads of comments that are not done, by platform and status."""
    columns = (comment_threads.c.platform, comment_threads.c.status)
    statement = select(*columns, func.count()).where(text("comment_threads.status <> 'done'")).group_by(*columns)
    rows = await connection.execute(statement.order_by(*columns))
    return nest_counts((platform, StageStatus(status), number) for platform, status, number in rows)


async def find_longest_wait(connection: AsyncConnection) -> dict[str, datetime]:
    """For each platform with pending candidates, since when the first of them may be leased."""
    found = await connection.execute(_FIND_OLDEST)
    return {row.platform: from_milliseconds(row.due_at) for row in found}


async def read_tries(connection: AsyncConnection) -> list[tuple[str, str, int]]:
    """Platform, error code (`OK`: success) and number of tries since the beginning."""
    statement = select(collect_tries).order_by(collect_tries.c.platform, collect_tries.c.code)
    return [(row.platform, row.code, row.tries) for row in await connection.execute(statement)]


async def count_notes(connection: AsyncConnection, *, most: int) -> dict[str, int]:
    """The number of notes of the `most` keywords with most notes; the others are counted under an empty name."""
    count = func.count().label("number")
    statement = select(sources.c.source_keyword, count).group_by(sources.c.source_keyword)
    rows = (await connection.execute(statement.order_by(count.desc(), sources.c.source_keyword))).all()
    named = {row.source_keyword: row.number for row in rows[:most] if row.source_keyword}
    rest = sum(row.number for row in rows) - sum(named.values())
    return named | ({"": rest} if rest else {})


async def list_candidates(
    connection: AsyncConnection,
    *,
    status: CandidateStatus | None = None,
    platform: str | None = None,
    limit: int,
    after: tuple[str, str] | None = None,
) -> list[ListedCandidate]:
    """Candidates by platform and note id, from the key `after` on."""
    key = (candidates.c.platform, candidates.c.note_id)
    statement = select(candidates).order_by(*key).limit(limit)
    if status is not None:
        # A literal: with a bound value the databases would not use the partial index of this status.
        statement = statement.where(text(f"tbl_candidate.status = '{status.value}'"))
    if platform is not None:
        statement = statement.where(candidates.c.platform == platform)
    if after is not None:
        statement = statement.where(tuple_(*key) > tuple_(*after))
    return [_read_candidate(row) for row in await connection.execute(statement)]


async def list_failed(connection: AsyncConnection, *, platform: str | None = None, limit: int) -> list[ListedCandidate]:
    """Failed candidates, the latest first."""
    statement = select(candidates).where(_has_failed).order_by(candidates.c.updated_at.desc()).limit(limit)
    if platform is not None:
        statement = statement.where(candidates.c.platform == platform)
    return [_read_candidate(row) for row in await connection.execute(statement)]


def _read_candidate(row: Any) -> ListedCandidate:
    return ListedCandidate(
        platform=row.platform,
        note_id=row.note_id,
        note_url=row.note_url,
        title=row.title,
        status=CandidateStatus(row.status),
        source_keyword=row.source_keyword,
        retry_count=row.retry_count,
        code=row.last_error_code,
        message=row.last_error,
        created_at=from_milliseconds(row.created_at),
        updated_at=from_milliseconds(row.updated_at),
    )


async def list_executions(connection: AsyncConnection, *, limit: int) -> list[ExecutionRecord]:
    """The last executions of collect's writer, the newest first."""
    statement = select(executions).where(executions.c.kind == COLLECT).order_by(executions.c.id.desc()).limit(limit)
    return [read_record(row) for row in await connection.execute(statement)]
