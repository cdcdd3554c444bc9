"""Candidates and their leases: insert, lease, renew, release, requeue, and take back from dead executions. Each
function is one step of a transaction that the caller has begun and guarded.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Table, and_, bindparam, case, exists, func, or_, select, text, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.errors import LONGEST_RETRY_AFTER, ErrorCode
from tidings.collect.tables import PENDING_PLATFORMS, CandidateStatus, candidates, sources
from tidings.collect.write.values import LeasedCandidate, NewCandidate, WriterLimits, make_storable, write_meta
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database
from tidings.core.executions import Execution, ExecutionStatus, executions

Key = tuple[str, str]

# Clocks of machines may differ by this much.
CLOCK_TOLERANCE: Final = timedelta(minutes=5)

_LOST_WORKER: Final = "the execution that leased it sent no heartbeat, so the lease was taken back"

_key = (candidates.c.platform, candidates.c.note_id)
_leased = tuple(candidates.c[name] for name in LeasedCandidate.__slots__)
_is_held = and_(text("tbl_candidate.status = 'processing'"), candidates.c.processing_lock == bindparam("lock"))

_chosen = (
    select(candidates.c.note_id)
    .where(
        candidates.c.platform == bindparam("of_platform"),
        text("tbl_candidate.status = 'pending'"),
        candidates.c.due_at <= bindparam("now"),
    )
    .order_by(candidates.c.due_at)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
    .cte("chosen")
)
# Built once: every batch runs these statements.
_lease = (
    update(candidates)
    .where(candidates.c.platform == bindparam("of_platform"), candidates.c.note_id.in_(select(_chosen.c.note_id)))
    .values(
        status=CandidateStatus.PROCESSING.value,
        processing_lock=bindparam("lock"),
        locked_at=bindparam("now"),
        exec_meta=bindparam("meta"),
        updated_at=bindparam("now"),
    )
    .returning(candidates.c.due_at, *_leased)
)
_find_held = (
    select(candidates.c.note_id, candidates.c.retry_count, candidates.c.source_keyword)
    .where(
        _is_held,
        candidates.c.platform == bindparam("of_platform"),
        candidates.c.note_id.in_(bindparam("note_ids", expanding=True)),
    )
    .order_by(candidates.c.note_id)
    .with_for_update()
)

_FIND_PENDING_PLATFORMS: Final = text(
    f"WITH RECURSIVE {PENDING_PLATFORMS} SELECT platform FROM pending WHERE platform IS NOT NULL"
)
_FIND_DUE_PLATFORMS: Final = text(
    f"""
    WITH RECURSIVE {PENDING_PLATFORMS}, oldest AS (
        SELECT platform, (
            SELECT min(due_at) FROM tbl_candidate AS one WHERE status = 'pending' AND one.platform = pending.platform
        ) AS due_at
        FROM pending WHERE platform IS NOT NULL
    )
    SELECT platform FROM oldest WHERE due_at <= :now ORDER BY due_at, platform
    """
)


async def find_due_platforms(connection: AsyncConnection, *, at: datetime) -> list[str]:
    """The platforms with due candidates, the longest waiting first."""
    return list((await connection.execute(_FIND_DUE_PLATFORMS, {"now": to_milliseconds(at)})).scalars())


async def insert_candidates(
    connection: AsyncConnection,
    database: Database,
    new: Sequence[NewCandidate],
    *,
    execution: Execution,
    at: datetime,
) -> list[Key]:
    """Insert new candidates and return their keys. Existing ones stay unchanged."""
    now, meta = to_milliseconds(at), write_meta(execution)
    rows = {
        (each.platform, each.note_id): {
            **{name: make_storable(getattr(each, name)) for name in NewCandidate.__slots__},
            "status": CandidateStatus.PENDING.value,
            "retry_count": 0,
            "exec_meta": meta,
            "due_at": now,
            "created_at": now,
            "updated_at": now,
        }
        for each in new
    }
    if not rows:
        return []
    # One order for all: two executions that insert the same notes cannot deadlock.
    ordered = [rows[key] for key in sorted(rows)]
    statement = database.insert(candidates).on_conflict_do_nothing().returning(*_key)
    return [(row.platform, row.note_id) for row in await connection.execute(statement, ordered)]


async def lease_candidates(
    connection: AsyncConnection, execution: Execution, *, platform: str, limit: int, at: datetime
) -> list[LeasedCandidate]:
    """Lease at most `limit` due candidates, the longest waiting first. Rows of a lease in progress are skipped."""
    values = {
        "of_platform": platform,
        "most": limit,
        "lock": execution.public_id,
        "now": to_milliseconds(at),
        "meta": write_meta(execution),
    }
    rows = sorted(await connection.execute(_lease, values), key=lambda row: (row.due_at, row.note_id))
    return [LeasedCandidate(**{name: getattr(row, name) for name in LeasedCandidate.__slots__}) for row in rows]


async def renew_leases(connection: AsyncConnection, execution: Execution, *, at: datetime) -> int:
    """Renew `locked_at` of everything the execution holds. Returns how many records that is."""
    statement = update(candidates).where(_is_held).values(locked_at=to_milliseconds(at))
    return (await connection.execute(statement, {"lock": execution.public_id})).rowcount


async def release_leases(connection: AsyncConnection, execution: Execution, *, at: datetime) -> list[Key]:
    """Give back everything the execution still holds, uncounted."""
    statement = (
        update(candidates)
        .where(_is_held)
        .values(status=CandidateStatus.PENDING.value, **_describe_release(at))
        .returning(*_key)
    )
    rows = await connection.execute(statement, {"lock": execution.public_id})
    return [(row.platform, row.note_id) for row in rows]


async def requeue_failed(
    connection: AsyncConnection,
    *,
    at: datetime,
    limit: int,
    platform: str | None = None,
    note_ids: Collection[str] | None = None,
) -> list[Key]:
    """Make at most `limit` failed candidates due again with a retry count of 0: all, or those that are named."""
    conditions: list[Any] = [text("tbl_candidate.status = 'failed'")]
    if platform is not None:
        conditions.append(candidates.c.platform == platform)
    if note_ids is not None:
        conditions.append(candidates.c.note_id.in_(note_ids))
    chosen = (
        select(*_key)
        .where(*conditions)
        .order_by(candidates.c.updated_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("chosen")
    )
    statement = (
        update(candidates)
        .where(tuple_(*_key).in_(select(chosen.c.platform, chosen.c.note_id)))
        .values(status=CandidateStatus.PENDING.value, retry_count=0, **_describe_release(at))
        .returning(*_key)
    )
    return [(row.platform, row.note_id) for row in await connection.execute(statement)]


async def take_back_candidates(
    connection: AsyncConnection, *, at: datetime, limits: WriterLimits
) -> list[tuple[Key, CandidateStatus]]:
    """Free the candidates of dead executions. Each counts as a failed attempt, because it may have killed its worker.

    An execution is dead if it has ended, or if its lock is older than the timeout. A row that somebody is writing is
    skipped: its holder lives. Of several callers at once, each record is in one answer.
    """
    # Not "is not among the running ones": PostgreSQL re-reads a changed row but not the other table, so an execution
    # that began after this statement would count as ended.
    has_ended = exists().where(
        executions.c.public_id == candidates.c.processing_lock,
        executions.c.status != ExecutionStatus.RUNNING.value,
    )
    dead = (
        select(*_key)
        .where(
            text("tbl_candidate.status = 'processing'"), or_(_is_silent(candidates, at=at, limits=limits), has_ended)
        )
        .order_by(*_key)
        .with_for_update(skip_locked=True, of=candidates)
        .cte("dead")
    )
    failures = candidates.c.retry_count + 1
    statement = (
        update(candidates)
        .where(tuple_(*_key).in_(select(dead.c.platform, dead.c.note_id)))
        .values(
            status=case(
                (failures <= limits.most_retries, CandidateStatus.PENDING.value), else_=CandidateStatus.FAILED.value
            ),
            retry_count=failures,
            last_error_code=ErrorCode.TIMEOUT_ERROR.value,
            last_error=_LOST_WORKER,
            **_describe_release(at),
        )
        .returning(*_key, candidates.c.status)
    )
    rows = await connection.execute(statement)
    return [((row.platform, row.note_id), CandidateStatus(row.status)) for row in rows]


async def take_back_sources(connection: AsyncConnection, *, at: datetime, limits: WriterLimits) -> list[Key]:
    """Free sources whose lock is older than the timeout. Their holder need not be an execution.

    Returns their platforms and idempotency keys.
    """
    statement = (
        update(sources)
        .where(text("tbl_source.processing_lock IS NOT NULL"), _is_silent(sources, at=at, limits=limits))
        .values(processing_lock=None, locked_at=None, retry_count=sources.c.retry_count + 1)
        .returning(sources.c.platform, sources.c.idempotency_key)
    )
    return [(row.platform, row.idempotency_key) for row in await connection.execute(statement)]


async def clamp_future_times(connection: AsyncConnection, *, at: datetime, limits: WriterLimits) -> int:
    """Set due times, locks and heartbeats that a clock ahead of ours wrote to now. Returns how many.

    Otherwise nothing would be due, and no lock would time out, until that time comes.
    """
    now, latest = to_milliseconds(at), to_milliseconds(at + CLOCK_TOLERANCE)
    latest_due = to_milliseconds(at + CLOCK_TOLERANCE + max((LONGEST_RETRY_AFTER, *limits.backoff)))
    is_pending = text("tbl_candidate.status = 'pending'")
    due = update(candidates).where(is_pending, candidates.c.due_at > latest_due).values(due_at=now)
    # One range of the index for each platform: the table may have a million pending rows.
    platforms = (await connection.execute(_FIND_PENDING_PLATFORMS)).scalars()
    statements = [due.where(candidates.c.platform == platform) for platform in platforms]
    for table, condition in (
        (candidates, text("tbl_candidate.status = 'processing'")),
        (sources, text("tbl_source.processing_lock IS NOT NULL")),
    ):
        statements.append(update(table).where(condition, table.c.locked_at > latest).values(locked_at=now))
    is_running = executions.c.status == ExecutionStatus.RUNNING.value
    is_ahead = executions.c.heartbeat_at > latest
    statements.append(update(executions).where(is_running, is_ahead).values(heartbeat_at=now))
    return sum([(await connection.execute(statement)).rowcount for statement in statements])


async def find_held(
    connection: AsyncConnection, execution: Execution, *, platform: str, note_ids: Collection[str]
) -> dict[str, Any]:
    """The candidates among these that the execution still holds, by note id, locked until the transaction ends."""
    values = {"lock": execution.public_id, "of_platform": platform, "note_ids": sorted(note_ids)}
    return {row.note_id: row for row in await connection.execute(_find_held, values)}


def _is_silent(table: Table, *, at: datetime, limits: WriterLimits) -> ColumnElement[bool]:
    return func.coalesce(table.c.locked_at, 0) < to_milliseconds(at - limits.lock_timeout)


def _describe_release(at: datetime) -> dict[str, Any]:
    now = to_milliseconds(at)
    return {"processing_lock": None, "locked_at": None, "due_at": now, "updated_at": now}
