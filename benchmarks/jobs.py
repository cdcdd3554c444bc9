"""Procrastinate with a job that does nothing: what it costs to take a job from PostgreSQL and to mark it as done."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import psycopg

from benchmarks.postgresql import tidy_tables

_AT_ONCE = 1_000


class JobApp:
    """An app with one task. It says how many jobs it has done."""

    def __init__(self, app: Any, *, concurrency: int) -> None:
        self._app = app
        self._concurrency = concurrency
        self._done = 0
        self._task = app.task(name="do_nothing")(self._do_nothing)

    async def _do_nothing(self) -> None:
        self._done += 1

    async def make_tables(self) -> None:
        await self._app.schema_manager.apply_schema_async()

    async def defer(self, count: int, *, queue: str) -> None:
        """So many jobs that wait to be done."""
        deferrer = self._task.configure(queue=queue)
        for begin in range(0, count, _AT_ONCE):
            await deferrer.batch_defer_async(*({} for _ in range(min(_AT_ONCE, count - begin))))

    async def work(self, *, queue: str) -> int:
        """Do jobs until none is left; how many."""
        before = self._done
        await self._app.run_worker_async(
            queues=[queue],
            concurrency=self._concurrency,
            wait=False,
            listen_notify=False,
            install_signal_handlers=False,
        )
        return self._done - before


@asynccontextmanager
async def open_app(url: str, *, concurrency: int) -> AsyncIterator[JobApp]:
    # By name, because the type checker runs where it is not installed.
    procrastinate = import_module("procrastinate")
    # A connection for each job at once, and one to fetch the next.
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=concurrency + 1, max_size=concurrency + 1)
    app = procrastinate.App(connector=connector)
    async with app.open_async():
        yield JobApp(app, concurrency=concurrency)


async def make_jobs(url: str, *, count: int, queue: str) -> None:
    """Procrastinate's tables on a new database, with so many jobs."""
    async with open_app(url, concurrency=1) as app:
        await app.make_tables()
        await app.defer(count, queue=queue)
    tidy_tables(url)


def count_done(url: str, *, queue: str) -> int:
    """The jobs that stand in its table as done."""
    statement = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded' AND queue_name = %s"
    with psycopg.connect(url) as connection:
        row = connection.execute(statement, (queue,)).fetchone()
    return 0 if row is None else int(row[0])
