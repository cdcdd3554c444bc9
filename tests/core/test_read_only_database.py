"""A database that is opened without its writing half: what is read there, and that nothing can be written."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tidings.core.db.database import (
    Database,
    DatabaseUrlError,
    ReadableDatabase,
    open_database,
    open_read_only_database,
)

WRITING = (
    "INSERT INTO pace (host, next_at) VALUES ('two', 0)",
    "UPDATE pace SET next_at = 1",
    "DELETE FROM pace",
    "CREATE TABLE intruder (id INTEGER)",
    "DROP TABLE pace",
)
# What SQL itself can do to get round it.
TRICKS = {
    "sqlite": ("PRAGMA query_only=OFF", "PRAGMA writable_schema=ON"),
    "postgresql": ("SELECT 1", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE"),
}


@pytest.fixture
async def read_only(database_url: str) -> AsyncIterator[ReadableDatabase]:
    opened = open_read_only_database(database_url)
    yield opened
    await opened.close()


async def list_hosts(database: ReadableDatabase) -> list[str]:
    async with database.read() as connection:
        return [row.host for row in await connection.execute(text("SELECT host FROM pace ORDER BY host"))]


async def insert_host(database: Database, host: str) -> None:
    async with database.write() as connection:
        await connection.execute(text("INSERT INTO pace (host, next_at) VALUES (:host, 0)"), {"host": host})


async def test_what_others_write_is_read(read_only: ReadableDatabase, database: Database) -> None:
    """C1, decision 7: one writes, the other sees it."""
    assert await list_hosts(read_only) == []
    await insert_host(database, "one")
    assert await list_hosts(read_only) == ["one"]


async def test_it_cannot_write_and_cannot_be_talked_into_it(read_only: ReadableDatabase, database: Database) -> None:
    """C1: there is no door for it, the database refuses every statement, and nothing has changed."""
    await insert_host(database, "one")
    assert not hasattr(read_only, "write")
    for statement in WRITING:
        # Committed, so that it would hold for anybody who gets this connection next.
        async with read_only.read() as connection:
            for trick in TRICKS[read_only.dialect]:
                await connection.execute(text(trick))
        async with read_only.read() as connection:
            with pytest.raises(DBAPIError, match=r"(?i)read-?only"):
                await connection.execute(text(statement))
    assert await list_hosts(database) == ["one"]


async def test_the_transaction_itself_is_read_only_on_postgresql(postgres_url: str) -> None:
    """C1: by the server's own word, and whatever the URL asks for; its other options hold."""
    asked = quote("-c default_transaction_read_only=off -c application_name=asked")
    joint = "&" if "?" in postgres_url else "?"
    read_only = open_read_only_database(f"{postgres_url}{joint}options={asked}")
    async with read_only.read() as connection:
        settings = [
            (await connection.exec_driver_sql(f"SHOW {name}")).scalar_one()
            for name in ("transaction_read_only", "application_name", "transaction_isolation")
        ]
        await connection.execute(text("SELECT host FROM pace"))
        with pytest.raises(DBAPIError, match="read-write mode"):
            await connection.exec_driver_sql("SET TRANSACTION READ WRITE")
    await read_only.close()
    assert settings == ["on", "asked", "repeatable read"]


def test_nothing_is_created_where_no_database_is(tmp_path: Path) -> None:
    """C1: a process that may only read makes no file, and learns that there is none."""
    with pytest.raises(DatabaseUrlError, match="no SQLite file"):
        open_read_only_database(f"sqlite:///{tmp_path}/none.db")
    assert [*tmp_path.iterdir()] == []


async def test_a_sqlite_file_without_its_log_can_be_read(sqlite_url: str) -> None:
    """C1: the writer has ended in good order and taken its WAL along."""
    writer = open_database(sqlite_url)
    await insert_host(writer, "one")
    await writer.close()
    read_only = open_read_only_database(sqlite_url)
    assert await list_hosts(read_only) == ["one"]
    await read_only.close()


async def test_as_many_readers_as_it_says_are_open_at_once(read_only: ReadableDatabase) -> None:
    """C18: anybody who holds connections for long counts on it."""
    blocks = [read_only.read() for _ in range(read_only.most_readers)]
    for block in blocks:
        connection = await block.__aenter__()
        assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
    for block in blocks:
        await block.__aexit__(None, None, None)


def test_a_bad_url_is_refused() -> None:
    """A1: by the same rules."""
    with pytest.raises(DatabaseUrlError, match="mysql is not supported"):
        open_read_only_database("mysql://user:canary@host/name")
