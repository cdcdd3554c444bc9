"""The table of workers: the processes that take jobs, with machine and release. A dispatcher knows which are alive."""

import json
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from sqlalchemy import BigInteger, Column, ColumnElement, ScalarSelect, Table, Text, delete, func, select
from sqlalchemy.exc import SQLAlchemyError

from tidings.core.clock import Clock, from_milliseconds, to_milliseconds
from tidings.core.db.columns import required
from tidings.core.db.database import Database, metadata
from tidings.core.execution_table import executions, is_running
from tidings.core.queue.dispatcher import WorkerState

workers = Table(
    "workers",
    metadata,
    # What the holder of each of its executions begins with.
    Column("process", Text, primary_key=True),
    *required(Text, "name", "machine", "release"),
    # A JSON list of names.
    Column("queues", Text, nullable=False),
    Column("places", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)


class WorkerRecords:
    """Reads and writes the table."""

    def __init__(self, database: Database, *, clock: Clock, release: str) -> None:
        self._database = database
        self._clock = clock
        self._release = release

    @asynccontextmanager
    async def registered(
        self, process: str, *, queues: Sequence[str], places: int, is_dead: Callable[[str], bool]
    ) -> AsyncIterator[None]:
        """This worker is in the table while the block runs. Rows of workers that are dead are removed first."""
        known = await self._database.fetch(select(workers.c.process))
        await self._remove([row.process for row in known if is_dead(row.process)])
        machine = socket.gethostname()
        row = {
            "process": process,
            "name": f"{machine}-{os.getpid()}",
            "machine": machine,
            "release": self._release,
            "queues": json.dumps(queues),
            "places": places,
            "started_at": to_milliseconds(self._clock.now()),
        }
        await self._database.change(self._database.insert(workers).values(row).on_conflict_do_nothing())
        try:
            yield
        finally:
            # If the database is away, another process removes it.
            with suppress(SQLAlchemyError):
                await self._remove([process])

    async def _remove(self, processes: Sequence[str]) -> None:
        if processes:
            await self._database.change(delete(workers).where(workers.c.process.in_(processes)))

    async def list_all(self) -> list[WorkerState]:
        """Every row, the oldest first. Only the dispatcher knows whether each is alive, and when it was last seen."""
        statement = select(workers).order_by(workers.c.started_at, workers.c.process)
        async with self._database.read() as connection:
            rows = (await connection.execute(statement)).all()
            holders = (await connection.execute(select(executions.c.holder).where(is_running))).scalars()
            jobs = Counter(holder.partition("#")[0] for holder in holders)
        return [_read(row, jobs=jobs[row.process]) for row in rows]


def select_worker_name(holder: ColumnElement[str]) -> ScalarSelect[str]:
    """The name of the worker that holds an execution. NULL if it waits, or if a command runs it."""
    begins = func.substr(holder, 1, func.length(workers.c.process) + 1) == workers.c.process + "#"
    return select(workers.c.name).where(begins).limit(1).scalar_subquery()


def _read(row: Any, *, jobs: int) -> WorkerState:
    started_at = from_milliseconds(row.started_at)
    return WorkerState(
        process=row.process,
        name=row.name,
        machine=row.machine,
        release=row.release,
        queues=json.loads(row.queues),
        places=row.places,
        started_at=started_at,
        seen_at=started_at,
        jobs=jobs,
    )
