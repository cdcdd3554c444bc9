"""Candidates, sources, threads of comments and their leases: insert, lease, renew, release, requeue. Each function is
one step of a transaction that the caller has begun and guarded. `recovery` frees what dead executions hold.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    CTE,
    Boolean,
    Column,
    FromClause,
    Table,
    Update,
    and_,
    bindparam,
    exists,
    not_,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.tables import (
    CandidateStatus,
    candidates,
    comment_threads,
    platform_pauses,
    sources,
    watched_keywords,
    write_pending_platforms,
)
from tidings.collect.write.values import LeasedCandidate, NewCandidate, make_storable, write_meta
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database
from tidings.core.db.direct_statement import DirectStatement, among, bind_texts
from tidings.core.executions import Execution

Key = tuple[str, str]

_is_paused: Final = exists().where(platform_pauses.c.platform == bindparam("of_platform"))


class LeasedTable:
    """A table whose records executions lease: its columns and statements. A record is named by platform and id.

    The words of `status` mean the same in every such table: pending, processing, failed. Statements that every batch
    runs are built once.
    """

    def __init__(
        self,
        table: Table,
        id_column: Column[str],
        *,
        shown: Sequence[str],
        held: Sequence[Any],
        joined: FromClause | None = None,
    ) -> None:
        self.table = table
        self.key = (table.c.platform, id_column)
        self.is_pending = text(f"{table.name}.status = 'pending'")
        self.is_processing = text(f"{table.name}.status = 'processing'")
        self.is_held = and_(self.is_processing, table.c.processing_lock == bindparam("lock"))
        chosen = (
            select(id_column.label("id"))
            .where(
                table.c.platform == bindparam("of_platform"),
                self.is_pending,
                table.c.due_at <= bindparam("now"),
                or_(bindparam("also_paused", type_=Boolean), not_(_is_paused)),
            )
            .order_by(table.c.due_at)
            .limit(bindparam("most"))
            .with_for_update(skip_locked=True)
            .cte("chosen")
        )
        self.lease = DirectStatement(
            update(table)
            .where(table.c.platform == bindparam("of_platform"), id_column.in_(select(chosen.c.id)))
            .values(
                status=CandidateStatus.PROCESSING.value,
                processing_lock=bindparam("lock"),
                locked_at=bindparam("now"),
                exec_meta=bindparam("meta"),
                **self.touch(bindparam("now")),
            )
            .returning(table.c.due_at, id_column.label("lease_id"), *(table.c[name] for name in shown))
        )
        self.find_held = DirectStatement(
            select(id_column.label("id"), *held)
            .select_from(table if joined is None else joined)
            .where(self.is_held, table.c.platform == bindparam("of_platform"), among(id_column, bindparam("ids")))
            .order_by(id_column)
            .with_for_update(of=table)
        )
        pending = write_pending_platforms(table.name)
        self.find_pending_platforms = text(
            f"WITH RECURSIVE {pending} SELECT platform FROM pending WHERE platform IS NOT NULL"
        )
        self.find_due_platforms = text(
            f"""
            WITH RECURSIVE {pending}, oldest AS (
                SELECT platform, (
                    SELECT min(due_at) FROM {table.name} AS one
                    WHERE status = 'pending' AND one.platform = pending.platform
                ) AS due_at
                FROM pending WHERE platform IS NOT NULL
            )
            SELECT platform FROM oldest WHERE due_at <= :now ORDER BY due_at, platform
            """
        )

    def touch(self, now: Any) -> dict[str, Any]:
        """The time of the last change, where the table has it."""
        return {"updated_at": now} if "updated_at" in self.table.c else {}

    def describe_release(self, at: datetime) -> dict[str, Any]:
        now = to_milliseconds(at)
        return {"processing_lock": None, "locked_at": None, "due_at": now, **self.touch(now)}


# A held candidate, with the options of its keyword and the pause of its platform.
CANDIDATES: Final = LeasedTable(
    candidates,
    candidates.c.note_id,
    shown=LeasedCandidate.__slots__,
    held=(
        *(candidates.c[name] for name in ("retry_count", "source_keyword", "last_error_code", "refresh_at")),
        *(watched_keywords.c[name] for name in ("refresh_every", "refresh_for", "comments")),
        _is_paused.label("is_paused"),
    ),
    joined=candidates.outerjoin(
        watched_keywords,
        and_(
            watched_keywords.c.platform == candidates.c.platform,
            watched_keywords.c.keyword == candidates.c.source_keyword,
        ),
    ),
)
# Sources, which the next stage leases. Each version is a record.
SOURCES: Final = LeasedTable(
    sources,
    sources.c.idempotency_key,
    shown=("platform", "note_id", "idempotency_key", "version", "retry_count", "source_keyword", "content"),
    held=(sources.c.retry_count,),
)
# Notes whose comments are read, page by page.
THREADS: Final = LeasedTable(
    comment_threads,
    comment_threads.c.note_id,
    shown=("platform", "note_id", "note_url", "cursor", "wanted", "found", "retry_count", "source_keyword"),
    held=(comment_threads.c.wanted, comment_threads.c.found, comment_threads.c.retry_count),
)
LEASED_TABLES: Final = (CANDIDATES, SOURCES, THREADS)


def update_in_order(table: Table, *conditions: Any, order: Sequence[Column[Any]]) -> Update:
    """An update that locks its rows in the order of this key. Two transactions that do so cannot deadlock."""
    locked = select(*order).where(*conditions).order_by(*order).with_for_update()
    return update(table).where(tuple_(*order).in_(locked))


async def find_due_platforms(connection: AsyncConnection, *, at: datetime, of: LeasedTable = CANDIDATES) -> list[str]:
    """The platforms with due records, the longest waiting first."""
    return list((await connection.execute(of.find_due_platforms, {"now": to_milliseconds(at)})).scalars())


async def insert_candidates(
    connection: AsyncConnection,
    database: Database,
    new: Sequence[NewCandidate],
    *,
    execution: Execution | None,
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
    # Always in the same order, so that two executions with the same notes cannot deadlock.
    ordered = [rows[key] for key in sorted(rows)]
    statement = database.insert(candidates).on_conflict_do_nothing().returning(*CANDIDATES.key)
    return [(row.platform, row.note_id) for row in await connection.execute(statement, ordered)]


async def queue_refreshes(connection: AsyncConnection, *, at: datetime, limit: int) -> list[Key]:
    """Make at most `limit` collected candidates pending whose notes are to be read again. A paused keyword waits."""
    now = to_milliseconds(at)
    asks = exists().where(
        watched_keywords.c.platform == candidates.c.platform,
        watched_keywords.c.keyword == candidates.c.source_keyword,
        watched_keywords.c.enabled,
    )
    chosen = (
        select(*CANDIDATES.key)
        .where(text("tbl_candidate.status = 'collected'"), candidates.c.refresh_at <= now, asks)
        .order_by(candidates.c.refresh_at)
        .limit(limit)
        .with_for_update(skip_locked=True, of=candidates)
        .cte("chosen")
    )
    return await _make_due(connection, chosen, at=at)


async def _make_due(connection: AsyncConnection, chosen: CTE, *, at: datetime) -> list[Key]:
    """Make the chosen candidates pending, as if they had never failed. Returns their keys."""
    statement = (
        update(candidates)
        .where(tuple_(*CANDIDATES.key).in_(select(chosen.c.platform, chosen.c.note_id)))
        .values(status=CandidateStatus.PENDING.value, retry_count=0, **CANDIDATES.describe_release(at))
        .returning(*CANDIDATES.key)
    )
    return [(row.platform, row.note_id) for row in await connection.execute(statement)]


async def lease_candidates(
    connection: AsyncConnection,
    execution: Execution,
    *,
    platform: str,
    limit: int,
    at: datetime,
    is_probe: bool = False,
) -> list[LeasedCandidate]:
    """Lease at most `limit` due candidates, the longest waiting first; of a paused platform only the probe."""
    rows = await lease_records(
        connection, CANDIDATES, execution, platform=platform, limit=limit, at=at, also_paused=is_probe
    )
    return [LeasedCandidate(**{name: getattr(row, name) for name in LeasedCandidate.__slots__}) for row in rows]


async def lease_records(
    connection: AsyncConnection,
    of: LeasedTable,
    execution: Execution,
    *,
    platform: str,
    limit: int,
    at: datetime,
    also_paused: bool = True,
) -> list[Any]:
    """Lease at most `limit` due records, the longest waiting first. Rows of a lease in progress are skipped."""
    values = {
        "of_platform": platform,
        "most": limit,
        "lock": execution.public_id,
        "now": to_milliseconds(at),
        "meta": write_meta(execution),
        "also_paused": also_paused,
    }
    return sorted(await of.lease.run(connection, values), key=lambda row: (row.due_at, row.lease_id))


async def renew_leases(connection: AsyncConnection, execution: Execution, *, at: datetime) -> int:
    """Renew `locked_at` of everything the execution holds. Returns how many records that is."""
    count = 0
    for of in LEASED_TABLES:
        statement = update_in_order(of.table, of.is_held, order=of.key).values(locked_at=to_milliseconds(at))
        count += (await connection.execute(statement, {"lock": execution.public_id})).rowcount
    return count


async def release_leases(connection: AsyncConnection, execution: Execution, *, at: datetime) -> dict[str, list[Key]]:
    """Release everything the execution still holds, uncounted. Returns the keys by table."""
    released = {}
    for of in LEASED_TABLES:
        statement = (
            update_in_order(of.table, of.is_held, order=of.key)
            .values(status=CandidateStatus.PENDING.value, **of.describe_release(at))
            .returning(*of.key)
        )
        rows = await connection.execute(statement, {"lock": execution.public_id})
        released[of.table.name] = [(row[0], row[1]) for row in rows]
    return released


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
        select(*CANDIDATES.key)
        .where(*conditions)
        .order_by(candidates.c.updated_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("chosen")
    )
    return await _make_due(connection, chosen, at=at)


async def find_held(
    connection: AsyncConnection,
    execution: Execution,
    *,
    platform: str,
    note_ids: Collection[str],
    of: LeasedTable = CANDIDATES,
) -> dict[str, Any]:
    """The records among these that the execution still holds, by id, locked until the transaction ends."""
    values = {"lock": execution.public_id, "of_platform": platform, "ids": bind_texts(note_ids)}
    return {row.id: row for row in await of.find_held.run(connection, values)}
