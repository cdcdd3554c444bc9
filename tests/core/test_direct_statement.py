"""Statements that the driver runs directly: in the caller's transaction, with SQLAlchemy's errors."""

import asyncio
import os
import signal
import traceback
from collections.abc import Coroutine
from typing import Any

import pytest
from sqlalchemy import bindparam, func, insert, literal, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from tests.waiting import wait_until
from tidings.collect.tables import candidates, note_terms
from tidings.core.db.database import Database
from tidings.core.db.direct_statement import DirectStatement, among, bind_texts

_INSERT = DirectStatement(insert(note_terms).returning(note_terms.c.source_id.label("number")))
_CHANGE = DirectStatement(
    update(note_terms)
    .where(among(note_terms.c.terms, bindparam("some")))
    .values(terms=bindparam("new"))
    .returning(note_terms.c.source_id)
)

# They still run when the task that asked is cancelled.
_SLOW = {
    "sqlite": DirectStatement(
        text("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000) SELECT max(i) FROM n")
    ),
    "postgresql": DirectStatement(text("SELECT CAST(pg_sleep(600) AS text)")),
}
SOON = 60.0


def _describe(*numbers: int) -> list[dict[str, Any]]:
    return [{"source_id": number, "terms": f"茶 '{number}' %s :x"} for number in numbers]


async def _count(database: Database) -> int:
    async with database.read() as connection:
        return (await connection.execute(select(func.count()).select_from(note_terms))).scalar_one()


async def _is_slow_at_work(database: Database) -> bool:
    """Whether the server has begun. A cancellation that comes before a statement ends the connection instead."""
    if database.dialect == "sqlite":
        return True
    sleeping = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
    async with database.read() as connection:
        return bool((await connection.execute(sleeping)).scalar_one())


async def test_one_row_and_several_return_the_same_columns(database: Database) -> None:
    async with database.write() as connection:
        rows = [*await _INSERT.run_each(connection, _describe(1)), *await _INSERT.run_each(connection, _describe(2, 3))]
        assert await _INSERT.run_each(connection, []) == []
    assert sorted(row.number for row in rows) == [1, 2, 3]


async def test_any_number_of_texts_finds_its_rows_and_no_others(database: Database) -> None:
    rows = _describe(1, 2, 3)
    async with database.write() as connection:
        await _INSERT.run_each(connection, rows)
        for some, found in (([], []), ([rows[0]["terms"]], [1]), ([rows[1]["terms"], rows[2]["terms"], "no"], [2, 3])):
            changed = await _CHANGE.run(connection, {"some": bind_texts(some), "new": "new"})
            assert sorted(row.source_id for row in changed) == found


@pytest.mark.one_database
async def test_texts_are_found_by_the_index_of_their_column(database: Database) -> None:
    """C4: each settled batch looks for its records among all that there are."""
    wanted = among(candidates.c.note_id, literal(bind_texts(["a", "b"])))
    statement = (
        select(candidates.c.title).where(candidates.c.platform == "weibo", wanted).order_by(candidates.c.note_id)
    )
    async with database.read() as connection:
        sql = statement.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        plan = (await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}")).all()
    assert "(platform=? AND note_id=?)" in plan[0][-1]


async def test_a_row_that_exists_stays_as_it_is(database: Database) -> None:
    """C2: the same row written twice is one row."""
    async with database.write() as connection:
        new = database.insert_new(note_terms, note_terms.c.source_id)
        assert [row.source_id for row in await new.run_each(connection, _describe(1))] == [1]
        assert await new.run_each(connection, _describe(1)) == []


async def test_it_is_part_of_the_transaction_and_its_error_does_not_show_its_values(database: Database) -> None:
    async def write_twice() -> None:
        async with database.write() as connection:
            await _INSERT.run(connection, {"source_id": 1, "terms": "kept"})
            await _INSERT.run(connection, {"source_id": 1, "terms": "secret"})

    with pytest.raises(IntegrityError) as found:
        await write_twice()
    assert "secret" not in str(found.value)
    assert await _count(database) == 0


@pytest.mark.parametrize("is_direct", [True, False])
async def test_no_line_of_an_error_shows_the_row(database: Database, is_direct: bool) -> None:
    """A23: the log shows the whole traceback, and PostgreSQL repeats the row below its message."""
    row = {"source_id": 987_654_321, "terms": None}
    with pytest.raises(IntegrityError) as found:
        async with database.write() as connection:
            await (_INSERT.run(connection, row) if is_direct else connection.execute(insert(note_terms), row))
    assert "987654321" not in "".join(traceback.format_exception(found.value))


async def test_a_value_that_no_column_takes_is_an_error_that_leaves_the_connection_usable(database: Database) -> None:
    async def write() -> None:
        async with database.write() as connection:
            await _INSERT.run(connection, {"source_id": 1, "terms": "\ud800"})

    with pytest.raises((SQLAlchemyError, ValueError)):
        await write()
    async with database.write() as connection:
        await _INSERT.run(connection, _describe(1)[0])
    assert await _count(database) == 1


async def test_a_value_that_is_missing_is_an_error_and_not_a_null(database: Database) -> None:
    """C2: a parameter that a caller forgot changes no row."""
    async with database.write() as connection:
        await _INSERT.run_each(connection, _describe(1))

    async def change() -> None:
        async with database.write() as connection:
            await _CHANGE.run(connection, {"some": bind_texts([_describe(1)[0]["terms"]])})

    with pytest.raises(SQLAlchemyError):
        await change()


async def test_a_task_that_is_cancelled_within_a_statement_leaves_nothing_and_blocks_nobody(
    database: Database,
) -> None:
    """C4: what its transaction had written is taken back, and the next one can write at once."""
    written = asyncio.Event()

    async def write() -> None:
        async with database.write() as connection:
            await _INSERT.run_each(connection, _describe(1))
            written.set()
            await _SLOW[database.dialect].run(connection, {})

    task = asyncio.create_task(write())
    async with asyncio.timeout(SOON):
        await written.wait()
        await wait_until(lambda: _is_slow_at_work(database))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await _count(database) == 0
        async with database.write() as connection:
            assert len(await _INSERT.run_each(connection, _describe(1))) == 1
    assert await _count(database) == 1


async def test_a_session_that_the_server_ends_within_a_transaction_is_an_error_and_the_next_works(
    database: Database,
) -> None:
    """C35: the error is one of SQLAlchemy's, so that callers see a database that is away."""
    if database.dialect == "sqlite":
        # It has no server.
        return

    async def write() -> None:
        async with database.write() as connection:
            await _INSERT.run_each(connection, _describe(1))
            own = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            async with database.read() as other:
                await other.execute(select(func.pg_terminate_backend(own, 10_000)))
            await _INSERT.run_each(connection, _describe(2))

    with pytest.raises(DBAPIError) as found:
        await write()
    assert type(found.value).__name__ in ("OperationalError", "InternalError", "InterfaceError")
    async with database.write() as connection:
        assert len(await _INSERT.run_each(connection, _describe(1))) == 1
    assert await _count(database) == 1


async def test_a_task_that_is_cancelled_after_its_connection_was_lost_ends_as_cancelled(database: Database) -> None:
    """C4: nothing can be rolled back any more. The error of the rollback must not hide the cancellation."""
    if database.dialect == "sqlite":
        # It has no server.
        return
    is_lost = asyncio.Event()

    async def write() -> None:
        async with database.write() as connection:
            await _INSERT.run_each(connection, _describe(1))
            own = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            async with database.read() as other:
                await other.execute(select(func.pg_terminate_backend(own, 10_000)))
            is_lost.set()
            await asyncio.Event().wait()

    async with asyncio.timeout(SOON):
        await _cancel(write(), begun=is_lost)
        async with database.write() as connection:
            assert len(await _INSERT.run_each(connection, _describe(1))) == 1


async def test_a_task_that_is_cancelled_while_the_server_ends_its_session_ends_as_cancelled(database: Database) -> None:
    """C4: both stop at once when a machine shuts down. The error of the session must not hide the cancellation."""
    if database.dialect == "sqlite":
        # It has no server.
        return
    process_ids: list[int] = []

    async def write() -> None:
        async with database.write() as connection:
            process_ids.append((await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one())
            await _SLOW[database.dialect].run(connection, {})

    task = asyncio.create_task(write())
    async with asyncio.timeout(SOON):
        await wait_until(lambda: _is_slow_at_work(database))
        task.cancel()
        os.kill(process_ids[0], signal.SIGTERM)
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await _count(database) == 0


@pytest.mark.thorough
async def test_a_task_that_is_cancelled_before_the_server_begins_ends_as_cancelled(database: Database) -> None:
    """C4: the server ignores a cancellation before the statement, so psycopg closes the connection after 5 s."""
    if database.dialect == "sqlite":
        # It has no server.
        return
    process_ids: list[int] = []
    is_frozen = asyncio.Event()

    async def write() -> None:
        async with database.write() as connection:
            await _INSERT.run_each(connection, _describe(1))
            own = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            process_ids.append(own)
            os.kill(own, signal.SIGSTOP)
            is_frozen.set()
            await _SLOW[database.dialect].run(connection, {})

    try:
        async with asyncio.timeout(SOON):
            await _cancel(write(), begun=is_frozen)
    finally:
        for each in process_ids:
            os.kill(each, signal.SIGCONT)
    async with database.write() as connection:
        # Another row: the server holds the first one until the statement ends, for it does not see the closed client.
        assert len(await _INSERT.run_each(connection, _describe(2))) == 1


async def _cancel(work: Coroutine[Any, Any, None], *, begun: asyncio.Event) -> None:
    task = asyncio.create_task(work)
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_statement_that_the_server_has_prepared_works_after_a_migration_and_on_a_new_connection(
    database: Database,
) -> None:
    """C2: psycopg prepares a statement at its sixth run; a migration of another process and a restart come later."""

    async def write(number: int) -> list[Any]:
        async with database.write() as connection:
            await _INSERT.run(connection, _describe(number)[0])
            return await _CHANGE.run(connection, {"some": bind_texts([_describe(number)[0]["terms"]]), "new": "new"})

    for number in range(10):
        assert [row.source_id for row in await write(number)] == [number]
    for change in ("ADD COLUMN extra TEXT", "DROP COLUMN extra"):
        async with database.write() as connection:
            await connection.execute(text(f"ALTER TABLE note_terms {change}"))
        assert len(await write(100 + len(change))) == 1
    if database.dialect == "postgresql":
        async with database.read() as connection:
            others = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            await connection.execute(text(f"SELECT pg_terminate_backend(pid, 10000) FROM {others}"))
    assert [row.source_id for row in await write(200)] == [200]
