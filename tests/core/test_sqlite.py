"""SQLite through SQLAlchemy and aiosqlite: long answers, changed rows, refused statements, cancelled tasks."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Select, column, select, table, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.db.database import Database, open_database

MANY = 2_500
COUNT_UP = (
    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :most) SELECT n FROM numbers"
)
SOON = 30.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some data.db"


@pytest.fixture
async def plain(path: Path) -> Database:
    opened = open_database(f"sqlite:///{path}")
    async with opened.write() as connection:
        await connection.execute(text("CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT UNIQUE)"))
    return opened


async def insert(connection: AsyncConnection, *names: str) -> None:
    await connection.execute(text("INSERT INTO things (name) VALUES (:name)"), [{"name": name} for name in names])


async def test_a_long_answer_is_whole_and_a_streamed_one_comes_in_order(plain: Database) -> None:
    """Decision 2: read at once and row by row."""
    async with plain.read() as connection:
        whole = (await connection.execute(text(COUNT_UP), {"most": MANY})).scalars().all()
        stream = await connection.stream(text(COUNT_UP), {"most": MANY})
        streamed = [row.n async for row in stream]
    await plain.close()
    assert whole == streamed == list(range(1, MANY + 1))


async def test_what_was_changed_is_counted(plain: Database) -> None:
    """Decision 2: of one statement, of many, and of one that returns rows."""
    async with plain.write() as connection:
        await insert(connection, *(f"n{number}" for number in range(1_200)))
        changed = await connection.execute(text("UPDATE things SET name = name || 'x' WHERE id <= 1100 RETURNING id"))
        assert len(changed.all()) == 1_100
        gone = await connection.execute(text("DELETE FROM things WHERE id > 1190"))
        assert gone.rowcount == 10
    await plain.close()


async def test_a_refused_statement_is_an_error_and_the_connection_goes_on(plain: Database) -> None:
    """Decision 2: a transaction that raised is rolled back, and the next one works."""
    with pytest.raises(IntegrityError):
        async with plain.write() as connection:
            await insert(connection, "one", "one")
    with pytest.raises(OperationalError, match="readonly"):
        async with plain.read() as connection:
            await insert(connection, "two")
    async with plain.write() as connection:
        await insert(connection, "three")
        assert (await connection.execute(text("SELECT name FROM things"))).scalars().all() == ["three"]
    await plain.close()


async def test_a_task_that_is_cancelled_in_a_statement_leaves_no_lock(plain: Database, path: Path) -> None:
    """Decision 2, C5: another connection can write at once."""
    begun = asyncio.Event()

    async def work() -> None:
        async with plain.write() as connection:
            await insert(connection, "one")
            begun.set()
            await connection.execute(text(COUNT_UP), {"most": 3_000_000})

    task = asyncio.create_task(work())
    await asyncio.wait_for(begun.wait(), SOON)
    # One turn of the loop, so that the long statement is under way.
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    other = open_database(f"sqlite:///{path}")
    async with asyncio.timeout(SOON), other.write() as connection:
        await insert(connection, "two")
        names = (await connection.execute(text("SELECT name FROM things"))).scalars().all()
    await other.close()
    await plain.close()
    assert names == ["two"]


@pytest.mark.parametrize("put_in_its_place", [False, True])
async def test_a_file_that_was_taken_away_is_an_error_until_it_is_back(
    plain: Database, path: Path, *, put_in_its_place: bool
) -> None:
    """A13, decision 2: nothing is written to a file without a name, or to another one, as if it were saved."""
    count: Select[Any] = select(column("name")).select_from(table("things"))
    away = path.with_suffix(".away")
    async with plain.read() as connection:
        await connection.execute(count)
    await plain.look_up(count, {})
    shutil.move(path, away)
    if put_in_its_place:
        shutil.copy(away, path)
    for _ in range(2):
        with pytest.raises(OperationalError, match="moved, removed or replaced"):
            async with plain.write() as connection:
                await insert(connection, "lost")
        with pytest.raises(OperationalError):
            async with plain.read() as connection:
                await connection.execute(count)
        with pytest.raises(OperationalError):
            await plain.look_up(count, {})
    shutil.move(away, path)
    async with plain.write() as connection:
        await insert(connection, "kept")
    assert [row.name for row in await plain.look_up(count, {})] == ["kept"]
    await plain.close()
