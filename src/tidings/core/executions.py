"""Exclusive executions: the lock and the history in one table.

A partial unique index guarantees that one execution of a workflow runs at a time. The row's increasing id is the
fencing token: every guarded write checks, in its own transaction, that the execution is still `running`. A holder that
was declared dead and wakes up again can therefore change nothing. `execution_table` has the table and its values,
`heartbeats` the sign of life.
"""

import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.clock import Clock, from_milliseconds, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.execution_table import (
    ADD_ITEMS,
    CHECK_RUNNING,
    QUEUED,
    AlreadyRunningError,
    Execution,
    ExecutionError,
    ExecutionLostError,
    ExecutionRecord,
    ExecutionStatus,
    LostExecution,
    executions,
    is_running,
    read_execution,
    read_record,
    select_latest,
    store_outcomes,
)
from tidings.core.heartbeats import keep_alive
from tidings.core.logs.logger import get_logger
from tidings.core.process_lock import ProcessLock

__all__ = [
    "REMOTE",
    "SILENT_FOR",
    "AlreadyRunningError",
    "Execution",
    "ExecutionError",
    "ExecutionLostError",
    "ExecutionRecord",
    "ExecutionStatus",
    "Executions",
    "LostExecution",
    "executions",
    "read_record",
]

SILENT_FOR = timedelta(minutes=30)
# The holder of an execution that an external client drives. Its heartbeat alone tells whether it lives. The idempotency
# key follows after a slash.
REMOTE = "remote"

_log = get_logger(__name__)

_held = select(*executions.c["id", "holder", "heartbeat_at"]).where(is_running, executions.c.holder != QUEUED)
# A holder ends its own execution with one of these; only `recover` sets the others.
_FINISHED = frozenset({ExecutionStatus.SUCCEEDED, ExecutionStatus.PARTIAL, ExecutionStatus.FAILED})

FindDead = Callable[[Collection[str]], Awaitable[frozenset[str]]]
OnLost = Callable[[AsyncConnection, LostExecution], Awaitable[None]]


@dataclass(frozen=True, slots=True, eq=False)
class Executions:
    """Acquires, guards, ends and lists executions."""

    database: Database
    _: KW_ONLY
    clock: Clock
    process_lock: ProcessLock
    silent_for: timedelta = SILENT_FOR
    # Says which holders are dead; by default those whose process lock is free.
    find_dead: FindDead | None = None
    # Called in the transaction that ends the execution of a dead holder.
    on_lost: OnLost | None = None

    async def acquire(
        self, workflow_name: str, *, kind: str, remote: bool = False, idempotency_key: str | None = None
    ) -> Execution:
        """Acquire the right to run, also from a dead holder. Raises AlreadyRunningError.

        `kind`: what the execution does; each pipeline defines its kinds. `remote`: driven by an external client;
        survives this process. `idempotency_key`: repeating it while the execution runs returns the same execution.
        """
        holder = _name_remote(idempotency_key) if remote else self.process_lock.holder
        while True:
            await self.recover(workflow_name=workflow_name)
            async with self.database.write() as connection:
                execution = await self.insert(connection, workflow_name, kind=kind, holder=holder)
            if execution is not None:
                return execution
            running = await self._find_running(workflow_name)
            # It ended between the two statements: try again.
            if running is None:
                continue
            if remote and idempotency_key is not None and running.holder == holder:
                return read_execution(running)
            since = from_milliseconds(running.started_at)
            raise AlreadyRunningError(workflow_name, execution_id=running.public_id, since=since)

    async def insert(
        self,
        connection: AsyncConnection,
        workflow_name: str,
        *,
        kind: str,
        holder: str | None = None,
        request: Mapping[str, Any] | None = None,
    ) -> Execution | None:
        """In the caller's transaction: insert a running row; None if another execution of this workflow runs.

        `holder`: by default the present work of this process. `request`: JSON of the pipeline, if the execution was
        requested.
        """
        started_at = self.clock.now()
        milliseconds = to_milliseconds(started_at)
        public_id = f"exec-{milliseconds}-{secrets.token_hex(4)}"
        values = {
            "public_id": public_id,
            "workflow_name": workflow_name,
            "kind": kind,
            "status": ExecutionStatus.RUNNING.value,
            "holder": holder or self.process_lock.holder,
            "started_at": milliseconds,
            "heartbeat_at": milliseconds,
            "request": None if request is None else json.dumps(request),
        }
        statement = self.database.insert(executions).values(values).on_conflict_do_nothing()
        token = (await connection.execute(statement.returning(executions.c.id))).scalar_one_or_none()
        if token is None:
            return None
        return Execution(id=token, public_id=public_id, workflow_name=workflow_name, started_at=started_at)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Executions acquired in this block count as dead after it, if the database was away when they ended."""
        with self.process_lock.hold(f"{self.process_lock.id}#{secrets.token_hex(4)}"):
            yield

    async def _find_running(self, workflow_name: str) -> Any:
        statement = select(executions).where(executions.c.workflow_name == workflow_name, is_running)
        return await self.database.fetch_row(statement)

    async def resume(self, public_id: str) -> Execution:
        """The running remote execution of this public id. Raises ExecutionLostError, also for a local execution."""
        row = await self._find_row(public_id)
        if row is None or row.status != ExecutionStatus.RUNNING or not _is_remote(row):
            raise ExecutionLostError(public_id, "any workflow" if row is None else row.workflow_name)
        return read_execution(row)

    async def find_finished(self, public_id: str) -> ExecutionRecord | None:
        """The remote execution of this public id, if its own holder has ended it."""
        row = await self._find_row(public_id)
        return read_record(row) if row is not None and row.status in _FINISHED and _is_remote(row) else None

    @asynccontextmanager
    async def guard(self, execution: Execution) -> AsyncIterator[AsyncConnection]:
        """A transaction that is fenced: `execution` still runs. Raises ExecutionLostError before any write."""
        async with self.guard_progress(execution) as (connection, _):
            yield connection

    @asynccontextmanager
    async def guard_progress(self, execution: Execution) -> AsyncIterator[tuple[AsyncConnection, Mapping[str, Any]]]:
        """As `guard`, with the saved progress of the execution."""
        async with self.database.write() as connection:
            rows = await CHECK_RUNNING.run(connection, {"token": execution.id})
            if not rows:
                raise ExecutionLostError(execution.public_id, execution.workflow_name)
            yield connection, json.loads(rows[0].progress or "{}")

    async def heartbeat(self, execution: Execution) -> None:
        """Record that the holder is alive. Raises ExecutionLostError."""
        async with self.guard(execution) as connection:
            await self.count_items(connection, execution, processed=0, failed=0)

    async def save_progress(
        self,
        connection: AsyncConnection,
        execution: Execution,
        *,
        processed: int,
        failed: int,
        progress: Mapping[str, Any],
    ) -> None:
        """Save the progress, in the caller's guarded transaction. It counts as a heartbeat."""
        await connection.execute(
            update(executions)
            .where(executions.c.id == execution.id)
            .values(
                heartbeat_at=to_milliseconds(self.clock.now()),
                items_processed=processed,
                items_failed=failed,
                progress=json.dumps(progress),
            )
        )

    async def count_items(
        self,
        connection: AsyncConnection,
        execution: Execution,
        *,
        processed: int,
        failed: int,
        progress: Mapping[str, Any] | None = None,
    ) -> None:
        """Add to the counted items, in the caller's guarded transaction. It counts as a heartbeat.

        `progress` replaces the saved one; None keeps it.
        """
        values = {
            "token": execution.id,
            "now": to_milliseconds(self.clock.now()),
            "processed": processed,
            "failed": failed,
            "new_progress": None if progress is None else json.dumps(progress),
        }
        await ADD_ITEMS.run(connection, values)

    async def finish(
        self,
        execution: Execution,
        status: ExecutionStatus,
        *,
        processed: int | None = 0,
        failed: int | None = 0,
        result: Mapping[str, Any] | None = None,
        also: Callable[[AsyncConnection], Awaitable[None]] | None = None,
    ) -> None:
        """End the execution with its result. `also` writes in the same transaction.

        `processed` or `failed` of None keeps the counted number. Raises ExecutionLostError.
        """
        counts = {"items_processed": processed, "items_failed": failed}
        # The result replaces the progress. The request is done, unless the execution was interrupted.
        replaced = {"progress": None} | ({"request": None} if status in _FINISHED else {})
        async with self.guard(execution) as connection:
            if also is not None:
                await also(connection)
            await connection.execute(
                update(executions)
                .where(executions.c.id == execution.id)
                .values(
                    status=status.value,
                    completed_at=to_milliseconds(self.clock.now()),
                    result=json.dumps(result or {}),
                    **replaced,
                    **{name: count for name, count in counts.items() if count is not None},
                )
            )
            await store_outcomes(self.database, connection, executions.c.id == execution.id)

    async def abandon(self, execution: Execution) -> None:
        """Delete a running execution that has done nothing yet."""
        await self.database.change(delete(executions).where(executions.c.id == execution.id, is_running))

    def keep_alive(
        self, execution: Execution, *, heartbeat: Callable[[Execution], Awaitable[object]] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Send a heartbeat every minute while the block runs. A lost execution cancels the block.

        The block then raises ExecutionLostError. `heartbeat` replaces `Executions.heartbeat`.
        """
        return keep_alive(execution, send=heartbeat or self.heartbeat, clock=self.clock)

    async def recover(self, *, workflow_name: str | None = None, kinds: Collection[str] | None = None) -> list[str]:
        """End the executions of dead holders: `interrupted` if the process is gone, else `timeout`. `workflow_name` and
        `kinds` limit it. Returns the public ids. If several processes recover at once, only one of them returns an id.
        """
        too_old = to_milliseconds(self.clock.now() - self.silent_for)
        running = await self._list_held(workflow_name, kinds)
        if not running:
            return []
        silent = f"no sign of life for {self.silent_for.total_seconds() / 60:.0f} minutes"
        dead = await (self.find_dead or self._find_dead_here)({row.holder for row in running})
        ended: list[LostExecution] = []
        for row in running:
            # Each statement repeats its condition: the execution may have ended, or sent a heartbeat, since.
            if row.heartbeat_at < too_old:
                ended += await self._end(row.id, ExecutionStatus.TIMEOUT, silent, executions.c.heartbeat_at < too_old)
            elif row.holder in dead:
                reason = "its process ended without finishing it"
                ended += await self._end(row.id, ExecutionStatus.INTERRUPTED, reason, executions.c.holder == row.holder)
        return [each.public_id for each in ended]

    async def _list_held(self, workflow_name: str | None, kinds: Collection[str] | None) -> Sequence[Any]:
        """The running executions with a holder. Every tick reads all of them."""
        if workflow_name is None and kinds is None:
            return await self.database.look_up(_held, {})
        found = _held if workflow_name is None else _held.where(executions.c.workflow_name == workflow_name)
        if kinds is not None:
            found = found.where(executions.c.kind.in_(kinds))
        return await self.database.fetch(found)

    async def _find_dead_here(self, holders: Collection[str]) -> frozenset[str]:
        return frozenset(holder for holder in holders if self.process_lock.is_dead(holder))

    async def _end(
        self, execution_id: int, status: ExecutionStatus, reason: str, condition: ColumnElement[bool]
    ) -> list[LostExecution]:
        statement = (
            update(executions)
            .where(executions.c.id == execution_id, is_running, condition)
            .values(status=status.value, completed_at=to_milliseconds(self.clock.now()))
            .returning(*executions.c)
        )
        async with self.database.write() as connection:
            row = (await connection.execute(statement)).first()
            if row is None:
                return []
            # The saved progress is the best known result.
            result = {**json.loads(row.progress or "{}"), "status": status.value, "errors": [reason]}
            await connection.execute(
                update(executions).where(executions.c.id == row.id).values(result=json.dumps(result))
            )
            await store_outcomes(self.database, connection, executions.c.id == row.id)
            request = None if row.request is None else json.loads(row.request)
            lost = LostExecution(row.public_id, row.workflow_name, row.kind, request)
            # A stopped execution must not be repeated.
            if self.on_lost is not None and row.stop_requested_at is None:
                await self.on_lost(connection, lost)
        _log.warning("execution.recovered", execution=row.public_id, workflow=row.workflow_name, reason=reason)
        return [lost]

    async def count_running(self) -> int:
        async with self.database.read() as connection:
            return await self.count_running_in(connection)

    async def count_running_in(self, connection: AsyncConnection) -> int:
        """The same in the caller's transaction."""
        statement = select(func.count()).select_from(executions).where(is_running)
        return int((await connection.execute(statement)).scalar_one())

    async def find_running(self, workflow_name: str) -> ExecutionRecord | None:
        """The execution of this workflow that runs, or waits for a worker."""
        row = await self._find_running(workflow_name)
        return None if row is None else read_record(row)

    async def find(self, public_id: str) -> ExecutionRecord | None:
        """The execution of this public id, running or ended."""
        row = await self._find_row(public_id)
        return None if row is None else read_record(row)

    async def _find_row(self, public_id: str) -> Any:
        return await self.database.fetch_row(select(executions).where(executions.c.public_id == public_id))

    async def list_recent(
        self, workflow_name: str, *, limit: int = 20, before: str | None = None
    ) -> list[ExecutionRecord]:
        """Executions of this workflow, the newest first; only those older than the public id `before`, if given."""
        latest = select_latest(limit=limit, before=before)
        return await self._list(latest.where(executions.c.workflow_name == workflow_name))

    async def list_latest(
        self, *, kinds: Sequence[str] = (), with_trouble: bool = False, limit: int = 20, before: str | None = None
    ) -> list[ExecutionRecord]:
        """Executions of every workflow, as `select_latest` says."""
        return await self._list(select_latest(kinds=kinds, with_trouble=with_trouble, limit=limit, before=before))

    async def _list(self, statement: Select[Any]) -> list[ExecutionRecord]:
        return [read_record(row) for row in await self.database.fetch(statement)]


def _name_remote(idempotency_key: str | None) -> str:
    return REMOTE if idempotency_key is None else f"{REMOTE}/{idempotency_key}"


def _is_remote(row: Any) -> bool:
    return bool(row.holder.partition("/")[0] == REMOTE)
