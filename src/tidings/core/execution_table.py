"""The table of executions and its values: the right to run, a record of the history and how long it is kept, and the
errors.

ExecutionError
├── AlreadyRunningError   another execution of this workflow is running
└── ExecutionLostError    this execution was ended by another process; its holder must stop
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    PrimaryKeyConstraint,
    Select,
    Table,
    Text,
    TextClause,
    bindparam,
    delete,
    func,
    select,
    text,
    union_all,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.clock import Clock, from_milliseconds, read_timestamp, to_milliseconds
from tidings.core.db.columns import optional, required
from tidings.core.db.database import Database, RowId, metadata
from tidings.core.db.direct_statement import DirectStatement
from tidings.core.db.postgresql_options import partial_index
from tidings.core.logs.logger import get_logger

is_running = text("status = 'running'")
# It ended without success.
had_trouble = text("status NOT IN ('running', 'succeeded')")

# The holder of an execution that waits for a worker.
QUEUED = "queue"
# The reason of a requested stop.
STOPPED_BY_PERSON = "somebody stopped it"
# This many executions of a workflow stay, however old they are.
KEPT = 30

_PURGE_BLOCK = 1_000

_log = get_logger(__name__)

executions = Table(
    "executions",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("public_id", Text, nullable=False, unique=True),
    *required(Text, "workflow_name", "status", "holder"),
    *required(BigInteger, "started_at", "heartbeat_at"),
    Column("completed_at", BigInteger),
    Column("items_processed", BigInteger, nullable=False, server_default="0"),
    Column("items_failed", BigInteger, nullable=False, server_default="0"),
    *optional(Text, "progress", "result"),
    # What the execution does; each pipeline defines its kinds. The default is for rows from before this column.
    Column("kind", Text, nullable=False, server_default=text("''")),
    # The request, as JSON of the pipeline. NULL if the schedule or a command began the execution.
    Column("request", Text),
    # When a stop was requested.
    Column("stop_requested_at", BigInteger),
    partial_index("executions_one_running", "workflow_name", unique=True, where=is_running),
    Index("executions_history", "workflow_name", "id"),
    # For the latest executions of one pipeline, among many of the other.
    Index("executions_by_kind", "kind", "id"),
    # For the few executions with trouble.
    partial_index("executions_with_trouble", "id", where=had_trouble),
    sqlite_autoincrement=True,
)

# The last execution of each workflow and kind that ended: a list of many workflows need not search the history.
last_executions = Table(
    "last_executions",
    metadata,
    *required(Text, "workflow_name", "kind"),
    Column("execution", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    PrimaryKeyConstraint("workflow_name", "kind"),
    sqlite_with_rowid=False,
)

# Part of every guarded write: adds to the counts, if the execution still runs.
CHECK_RUNNING = DirectStatement(
    select(executions.c.progress).where(executions.c.id == bindparam("token"), is_running).with_for_update()
)
ADD_ITEMS = DirectStatement(
    update(executions)
    .where(executions.c.id == bindparam("token"))
    .values(
        heartbeat_at=bindparam("now"),
        items_processed=executions.c.items_processed + bindparam("processed"),
        items_failed=executions.c.items_failed + bindparam("failed"),
        progress=func.coalesce(bindparam("new_progress"), executions.c.progress),
    )
)


class ExecutionStatus(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    TIMEOUT = "timeout"


class ExecutionError(Exception):
    """The execution was not granted, or was lost."""


class AlreadyRunningError(ExecutionError):
    """Another execution of this workflow is running."""

    def __init__(self, workflow_name: str, *, execution_id: str, since: datetime) -> None:
        super().__init__(f"{workflow_name} is already running as {execution_id}, since {since:%Y-%m-%d %H:%M:%S} UTC")
        self.execution_id = execution_id
        self.since = since


class ExecutionLostError(ExecutionError):
    """This execution was ended by another process; its holder must stop."""

    def __init__(self, public_id: str, workflow_name: str) -> None:
        super().__init__(
            f"{public_id} no longer holds {workflow_name}; what it had saved is kept, the rest is left to the next "
            "execution"
        )


@dataclass(frozen=True, slots=True)
class Execution:
    """The right to run, as long as its row is `running`."""

    # The fencing token.
    id: int
    # exec-{milliseconds}-{random}, as users see it.
    public_id: str
    workflow_name: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class AdoptedExecution:
    """A requested execution that a worker has taken over."""

    execution: Execution
    # The request, as JSON of the pipeline.
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LostExecution:
    """An execution whose holder died."""

    # exec-{milliseconds}-{random}, as users see it.
    public_id: str
    workflow_name: str
    # What it did; each pipeline defines its kinds.
    kind: str
    # The request; None if there was none.
    request: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    """One row of the history."""

    # exec-{milliseconds}-{random}, as users see it.
    public_id: str
    workflow_name: str
    # What it does; each pipeline defines its kinds.
    kind: str
    status: ExecutionStatus
    started_at: datetime
    # The holder's last heartbeat.
    heartbeat_at: datetime
    # None while it runs.
    completed_at: datetime | None
    items_processed: int
    items_failed: int
    # The last saved progress, and the result once it ended. The pipeline defines the form of both.
    progress: Mapping[str, Any]
    result: Mapping[str, Any]
    # It waits for a worker.
    is_queued: bool = False
    # A stop was requested.
    is_stopping: bool = False


def select_latest(
    *, kinds: Sequence[str] = (), with_trouble: bool = False, limit: int, before: str | None = None
) -> Select[Any]:
    """The newest executions of these kinds (of all, if empty) that are older than the public id `before`, if given."""
    id_ = executions.c.id
    fits: list[ColumnElement[bool] | TextClause] = [had_trouble] if with_trouble else []
    if before is not None:
        fits.append(id_ < select(id_).where(executions.c.public_id == before).scalar_subquery())
    newest = select(executions).order_by(id_.desc()).limit(limit)
    if not kinds:
        return newest.where(*fits)
    # One indexed query per kind: a query for several kinds would read all rows of the other pipeline in between.
    of_kinds = (
        select(id_).where(executions.c.kind == kind, *fits).order_by(id_.desc()).limit(limit).subquery()
        for kind in kinds
    )
    return newest.where(id_.in_(union_all(*(select(each.c.id) for each in of_kinds))))


async def store_outcomes(database: Database, connection: AsyncConnection, *ended: ColumnElement[bool]) -> None:
    """In the transaction that ended these executions: each is the last one of its workflow and kind."""
    found = select(executions.c.workflow_name, executions.c.kind, executions.c.id, executions.c.status).where(*ended)
    names = [column.name for column in last_executions.c]
    insert = database.insert(last_executions)
    statement = insert.from_select(names, found).on_conflict_do_update(
        index_elements=["workflow_name", "kind"],
        set_={"execution": insert.excluded.execution, "status": insert.excluded.status},
    )
    await connection.execute(statement)


def read_execution(row: Any) -> Execution:
    """An execution from a row of the table."""
    return Execution(row.id, row.public_id, row.workflow_name, from_milliseconds(row.started_at))


def read_record(row: Any) -> ExecutionRecord:
    """A record from a row that has the columns of the table, by their names."""
    return ExecutionRecord(
        public_id=row.public_id,
        workflow_name=row.workflow_name,
        kind=row.kind,
        status=ExecutionStatus(row.status),
        started_at=from_milliseconds(row.started_at),
        heartbeat_at=from_milliseconds(row.heartbeat_at),
        completed_at=read_timestamp(row.completed_at),
        items_processed=row.items_processed,
        items_failed=row.items_failed,
        progress=json.loads(row.progress or "{}"),
        result=json.loads(row.result or "{}"),
        is_queued=row.holder == QUEUED,
        is_stopping=row.stop_requested_at is not None,
    )


async def purge_executions(database: Database, *, clock: Clock, older_than: timedelta) -> int:
    """Delete ended executions that are older, except the newest 30 of each workflow. Returns how many."""
    before, newer = to_milliseconds(clock.now() - older_than), executions.alias("newer")
    kept_from = (
        select(newer.c.id)
        .where(newer.c.workflow_name == executions.c.workflow_name)
        .order_by(newer.c.id.desc())
        .offset(KEPT - 1)
        .limit(1)
        .scalar_subquery()
    )
    old = select(executions.c.id).where(
        executions.c.status != ExecutionStatus.RUNNING.value,
        executions.c.completed_at < before,
        executions.c.id < kept_from,
    )
    deleted, count = 0, _PURGE_BLOCK
    while count == _PURGE_BLOCK:
        async with database.write() as connection:
            purge = delete(executions).where(executions.c.id.in_(old.limit(_PURGE_BLOCK)))
            count = (await connection.execute(purge)).rowcount
        deleted += count
    if deleted:
        _log.info("executions.purged", executions=deleted)
    return deleted
