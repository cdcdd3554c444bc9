"""The table of workers: who takes jobs, on which machine, with which release. A dispatcher says which of them live."""

import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from sqlalchemy import BigInteger, Column, ColumnElement, ScalarSelect, Table, Text, delete, func, select
from sqlalchemy.exc import SQLAlchemyError

from tidings.core.clock import Clock, from_milliseconds, to_milliseconds
from tidings.core.db.database import Database, metadata
from tidings.core.execution_table import executions, is_running
from tidings.core.queue.dispatcher import WorkerState

workers = Table(
    "workers",
    metadata,
    # What the holder of each of its executions begins with.
    Column("process", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("release", Text, nullable=False),
    # A JSON list of names.
    Column("queues", Text, nullable=False),
    Column("places", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """One row of the table."""

    process: str
    name: str
    machine: str
    queues: Sequence[str]
    places: int
    release: str = ""
    started_at: datetime | None = None

    @classmethod
    def make(cls, process: str, *, queues: Sequence[str], places: int) -> Self:
        """The record of this process."""
        machine = socket.gethostname()
        return cls(process, f"{machine}-{os.getpid()}", machine, queues, places)

    def describe(self, *, seen_at: datetime, jobs: int, dead: bool = False) -> WorkerState:
        return WorkerState(
            name=self.name,
            machine=self.machine,
            release=self.release,
            queues=self.queues,
            places=self.places,
            started_at=self.started_at or seen_at,
            seen_at=seen_at,
            jobs=jobs,
            dead=dead,
        )


class WorkerRecords:
    """Reads and writes the table."""

    def __init__(self, database: Database, *, clock: Clock, release: str) -> None:
        self._database = database
        self._clock = clock
        self._release = release

    @asynccontextmanager
    async def registered(
        self, records: Sequence[WorkerRecord], *, is_dead: Callable[[str], bool]
    ) -> AsyncIterator[None]:
        """These workers are in the table while the block runs. Rows of workers that are dead are removed first."""
        await self.remove([row.process for row in await self.list_all() if is_dead(row.process)])
        await self.add(records)
        try:
            yield
        finally:
            # If the database is away, another process removes them.
            with suppress(SQLAlchemyError):
                await self.remove([record.process for record in records])

    async def add(self, records: Sequence[WorkerRecord]) -> None:
        now = to_milliseconds(self._clock.now())
        rows = [
            {
                "process": record.process,
                "name": record.name,
                "machine": record.machine,
                "release": self._release,
                "queues": json.dumps(list(record.queues)),
                "places": record.places,
                "started_at": now,
            }
            for record in records
        ]
        async with self._database.write() as connection:
            await connection.execute(self._database.insert(workers).on_conflict_do_nothing(), rows)

    async def remove(self, processes: Sequence[str]) -> None:
        if processes:
            async with self._database.write() as connection:
                await connection.execute(delete(workers).where(workers.c.process.in_(processes)))

    async def list_all(self) -> list[WorkerRecord]:
        """Every row, the oldest first."""
        statement = select(workers).order_by(workers.c.started_at, workers.c.process)
        async with self._database.read() as connection:
            return [_read(row) for row in await connection.execute(statement)]

    async def count_jobs(self) -> dict[str, int]:
        """How many executions each process holds now."""
        async with self._database.read() as connection:
            holders = (await connection.execute(select(executions.c.holder).where(is_running))).scalars().all()
        counts: dict[str, int] = {}
        for holder in holders:
            process = holder.partition("#")[0]
            counts[process] = counts.get(process, 0) + 1
        return counts


def select_worker_name(holder: ColumnElement[str]) -> ScalarSelect[str]:
    """The name of the worker that holds an execution. NULL where none does: it waits, or a command runs it."""
    begins = func.substr(holder, 1, func.length(workers.c.process) + 1) == workers.c.process + "#"
    return select(workers.c.name).where(begins).limit(1).scalar_subquery()


def _read(row: Any) -> WorkerRecord:
    return WorkerRecord(
        process=row.process,
        name=row.name,
        machine=row.machine,
        queues=json.loads(row.queues),
        places=row.places,
        release=row.release,
        started_at=from_milliseconds(row.started_at),
    )
