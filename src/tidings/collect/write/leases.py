"""Candidates, sources, threads of comments and their leases: insert, lease, renew, release, requeue. Each function is
one step of a transaction that the caller has begun and guarded. `recovery` frees what dead executions hold.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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

from tidings.collect.crawl.envelope import ErrorInfo
from tidings.collect.tables import (
    CandidateStatus,
    candidates,
    comment_threads,
    platform_pauses,
    sources,
    watched_keywords,
    write_oldest_pending,
    write_pending_platforms,
)
from tidings.collect.write.values import LONGEST_ERROR, LeasedCandidate, NewCandidate, make_storable, write_meta
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database
from tidings.core.db.direct_statement import DirectStatement, among, bind_texts
from tidings.core.executions import Execution

Key = tuple[str, str]

# The columns that the result of every record sets, beside those that a table adds.
_SETTLED: Final = ("status", "retry_count", "due_at", "last_error_code", "last_error", "exec_meta")
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
        settled: Sequence[str] = (),
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
        self.settle = (
            update(table)
            .where(self.is_processing, table.c.platform == bindparam("of_platform"), id_column == bindparam("of_id"))
            .values(processing_lock=None, locked_at=None, **{n: bindparam(f"new_{n}") for n in (*_SETTLED, *settled)})
        )
        self.find_pending_platforms = text(
            f"WITH RECURSIVE {write_pending_platforms(table.name)} "
            "SELECT platform FROM pending WHERE platform IS NOT NULL"
        )
        self.find_due_platforms = text(
            f"WITH RECURSIVE {write_oldest_pending(table.name)} "
            "SELECT platform FROM oldest WHERE due_at <= :now ORDER BY due_at, platform"
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
    settled=("refresh_at", "updated_at"),
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
    settled=("found", "cursor", "updated_at"),
    held=tuple(comment_threads.c[name] for name in ("wanted", "found", "cursor", "retry_count")),
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
    """Lease at most `limit` due records, the longest waiting first. Rows of a lease in progress are skipped.

    Without `also_paused`, none of a platform that is paused.
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """What the steps of one transaction share that writes the results of leased records."""

    connection: AsyncConnection
    database: Database
    execution: Execution
    platform: str
    at: datetime
    of: LeasedTable
    # The records that the execution still holds, by id. They stay locked until the transaction ends.
    held: Mapping[str, Any]

    @property
    def now(self) -> int:
        """In milliseconds."""
        return to_milliseconds(self.at)

    def describe(
        self, record_id: str, *, error: ErrorInfo | None, cookie_used: str | None = None, **values: Any
    ) -> dict[str, Any]:
        """The result of a record, for `write`. `values`: further columns."""
        columns = {
            **values,
            **self.of.touch(self.now),
            "last_error_code": None if error is None else error.code.value,
            "last_error": None if error is None else make_storable(error.message)[:LONGEST_ERROR],
            "exec_meta": write_meta(self.execution, cookie_used=cookie_used),
        }
        named = {"of_platform": self.platform, "of_id": record_id}
        return named | {f"new_{name}": value for name, value in columns.items()}

    async def write(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Write what `describe` returned, and release these records."""
        if results:
            await self.connection.execute(self.of.settle, results)


async def begin_settling(
    connection: AsyncConnection,
    database: Database,
    execution: Execution,
    *,
    platform: str,
    ids: Collection[str],
    at: datetime,
    of: LeasedTable = CANDIDATES,
) -> Settling:
    """Lock those of these records that the execution still holds."""
    values = {"lock": execution.public_id, "of_platform": platform, "ids": bind_texts(ids)}
    held = {row.id: row for row in await of.find_held.run(connection, values)}
    return Settling(
        connection=connection, database=database, execution=execution, platform=platform, at=at, of=of, held=held
    )
