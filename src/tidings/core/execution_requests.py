"""Executions on request: stored at once, adopted by any worker, and stopped from any process. A reserved execution is a
running row whose holder is `queue`. It holds the workflow's lock, waits for a worker without a time limit, and survives
every process.
"""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import and_, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.clock import Clock, from_milliseconds, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.execution_table import (
    QUEUED,
    STOPPED_BY_PERSON,
    AdoptedExecution,
    AlreadyRunningError,
    Execution,
    ExecutionStatus,
    executions,
    is_running,
    read_execution,
    store_outcomes,
)
from tidings.core.executions import Executions

_waits = and_(is_running, executions.c.holder == QUEUED)
# Whether any execution waits for a worker.
is_requested = exists().where(_waits)


class ExecutionRequests:
    """Reserves, adopts and stops executions."""

    def __init__(self, database: Database, *, clock: Clock, executions: Executions) -> None:
        self._database = database
        self._clock = clock
        self._executions = executions

    async def reserve(
        self, connection: AsyncConnection, workflow_name: str, *, kind: str, request: Mapping[str, Any]
    ) -> Execution:
        """In the caller's transaction: store an execution that waits for a worker. Raises AlreadyRunningError."""
        execution = await self._executions.insert(connection, workflow_name, kind=kind, holder=QUEUED, request=request)
        if execution is not None:
            return execution
        found = select(executions).where(executions.c.workflow_name == workflow_name, is_running)
        running = (await connection.execute(found)).first()
        if running is None:
            # It ended between the two statements.
            return await self.reserve(connection, workflow_name, kind=kind, request=request)
        since = from_milliseconds(running.started_at)
        raise AlreadyRunningError(workflow_name, execution_id=running.public_id, since=since)

    async def adopt(self, public_id: str, *, holder: str) -> AdoptedExecution | None:
        """Take over an execution that waits. None if it does not wait any more. It begins now."""
        now = to_milliseconds(self._clock.now())
        adopt = (
            update(executions)
            .where(executions.c.public_id == public_id, _waits)
            .values(holder=holder, started_at=now, heartbeat_at=now)
            .returning(*executions.c)
        )
        async with self._database.write_once() as connection:
            row = (await connection.execute(adopt)).first()
        return None if row is None else AdoptedExecution(read_execution(row), json.loads(row.request or "{}"))

    async def list_queued(self, connection: AsyncConnection, *, kind: str, limit: int) -> list[str]:
        """The public ids of executions of this kind that wait for a worker, the oldest first."""
        waiting = (
            select(executions.c.public_id)
            .where(_waits, executions.c.kind == kind)
            .order_by(executions.c.id)
            .limit(limit)
        )
        return list((await connection.execute(waiting)).scalars())

    async def request_stop(self, public_id: str) -> str | None:
        """Store a stop request for this execution. Returns its holder; None if it does not run. An execution that waits
        for a worker ends at once, as `interrupted`; its holder is then empty.
        """
        now = to_milliseconds(self._clock.now())
        mine = (executions.c.public_id == public_id, is_running)
        stop = update(executions).where(*mine).values(stop_requested_at=now).returning(executions.c.holder)
        waits = (*mine, executions.c.holder == QUEUED)
        end = (
            update(executions)
            .where(*waits)
            .values(
                status=ExecutionStatus.INTERRUPTED.value,
                completed_at=now,
                stop_requested_at=now,
                result=json.dumps({"status": ExecutionStatus.INTERRUPTED.value, "errors": [STOPPED_BY_PERSON]}),
            )
        )
        async with self._database.write() as connection:
            if (await connection.execute(end)).rowcount:
                await store_outcomes(self._database, connection, executions.c.public_id == public_id)
                return ""
            row = (await connection.execute(stop)).first()
            return None if row is None else str(row.holder)

    async def count_queued(self, connection: AsyncConnection) -> int:
        """How many executions wait for a worker."""
        waiting = select(func.count()).select_from(executions).where(_waits)
        return int((await connection.execute(waiting)).scalar_one())
