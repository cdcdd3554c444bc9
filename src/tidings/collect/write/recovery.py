"""Recovery of leases: takes records back from dead executions, and corrects times of a clock that was ahead. Each
function is one step of the caller's transaction.
"""

from datetime import datetime
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Table,
    TextClause,
    Update,
    and_,
    case,
    exists,
    func,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.errors import LONGEST_RETRY_AFTER, ErrorCode
from tidings.collect.tables import CandidateStatus, candidates, watched_keywords
from tidings.collect.write.leases import LEASED_TABLES, Key, LeasedTable
from tidings.collect.write.values import WriterLimits
from tidings.core.clock import CLOCK_TOLERANCE, to_milliseconds
from tidings.core.executions import ExecutionStatus, executions

_LOST_WORKER: Final = "the execution that leased it sent no heartbeat, so the lease was taken back"


async def take_back_records(
    connection: AsyncConnection, of: LeasedTable, *, at: datetime, limits: WriterLimits
) -> list[tuple[Key, CandidateStatus]]:
    """Free the records of dead executions. Each counts as a failed attempt, because it may have killed its worker.

    An execution is dead if it has ended, or if its lock is older than the timeout. Rows that another transaction is
    writing are skipped, because their holder is alive. If several callers recover at once, only one of them returns a
    record.
    """
    table = of.table
    # Not "is not among the running ones": PostgreSQL re-reads a changed row but not the other table, so an execution
    # that began after this statement would count as ended.
    has_ended = exists().where(
        executions.c.public_id == table.c.processing_lock,
        executions.c.status != ExecutionStatus.RUNNING.value,
    )
    dead = (
        select(*of.key)
        .where(of.is_processing, or_(_is_silent(table, at=at, limits=limits), has_ended))
        .with_for_update(skip_locked=True, of=table)
        .cte("dead")
    )
    failures = table.c.retry_count + 1
    statement = (
        update(table)
        .where(tuple_(*of.key).in_(select(*dead.c)))
        .values(
            status=case(
                (failures <= limits.most_retries, CandidateStatus.PENDING.value), else_=CandidateStatus.FAILED.value
            ),
            retry_count=failures,
            last_error_code=ErrorCode.TIMEOUT_ERROR.value,
            last_error=_LOST_WORKER,
            **of.describe_release(at),
        )
        .returning(*of.key, table.c.status)
    )
    return [((row[0], row[1]), CandidateStatus(row.status)) for row in await connection.execute(statement)]


async def clamp_future_times(connection: AsyncConnection, *, at: datetime, limits: WriterLimits) -> int:
    """Set due times, locks and heartbeats that a clock ahead of ours wrote to now. Returns how many.

    Otherwise nothing would be due or read again, and no lock would time out, until that time comes. Rows that another
    transaction is writing are corrected the next time.
    """
    now, latest = to_milliseconds(at), to_milliseconds(at + CLOCK_TOLERANCE)
    latest_due = to_milliseconds(at + CLOCK_TOLERANCE + max((LONGEST_RETRY_AFTER, *limits.backoff)))
    statements = []
    for of in LEASED_TABLES:
        is_ahead = and_(of.is_pending, of.table.c.due_at > latest_due)
        # One range of the index for each platform: the table may have a million pending rows.
        platforms = (await connection.execute(of.find_pending_platforms)).scalars()
        due = (update_free(of.table, is_ahead, of.table.c.platform == platform) for platform in platforms)
        statements += [each.values(due_at=now) for each in due]
        statements.append(update_free(of.table, of.is_processing, of.table.c.locked_at > latest).values(locked_at=now))
    # Further ahead than any keyword asks for.
    longest = select(func.coalesce(func.max(watched_keywords.c.refresh_every), 0)).scalar_subquery()
    is_collected = text("tbl_candidate.status = 'collected'")
    again = update_free(candidates, is_collected, candidates.c.refresh_at > latest + longest)
    statements.append(again.values(refresh_at=now))
    is_running = executions.c.status == ExecutionStatus.RUNNING.value
    ahead = update_free(executions, is_running, executions.c.heartbeat_at > latest)
    statements.append(ahead.values(heartbeat_at=now))
    return sum([(await connection.execute(statement)).rowcount for statement in statements])


def update_free(table: Table, *conditions: ColumnElement[bool] | TextClause) -> Update:
    """An update of these rows, without those that another transaction is writing. Waiting for them could deadlock: the
    other one may wait for a row that this transaction has changed."""
    key = tuple(table.primary_key)
    free = select(*key).where(*conditions).with_for_update(skip_locked=True)
    return update(table).where(tuple_(*key).in_(free))


def _is_silent(table: Table, *, at: datetime, limits: WriterLimits) -> ColumnElement[bool]:
    return func.coalesce(table.c.locked_at, 0) < to_milliseconds(at - limits.lock_timeout)
