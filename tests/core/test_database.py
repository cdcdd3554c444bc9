"""Engines and transactions: what may write, what is rolled back, who may read the file, and two processes at once."""

import asyncio
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.processes import FORKED
from tidings.core.db.database import Database, DatabaseUrlError, open_database
from tidings.core.db.sqlite_file import is_damaged
from tidings.settings.settings import Settings
from tidings.storage import find_database_url, prepare_data_dir

PASSWORD = "canary-hunter2"
SOON = 20.0
ROUNDS = 40
ODD_NAME = "50%41 #1? ü.db"


async def insert_host(database: Database, host: str) -> None:
    async with database.write() as connection:
        await connection.execute(text("INSERT INTO pace (host, next_at) VALUES (:host, 0)"), {"host": host})


async def list_hosts(database: Database) -> list[str]:
    async with database.read() as connection:
        return [row.host for row in await connection.execute(text("SELECT host FROM pace ORDER BY host"))]


async def test_what_is_written_can_be_read(database: Database) -> None:
    """Decision 2: both doors lead to one database, whichever is used first."""
    assert await list_hosts(database) == []
    await insert_host(database, "one")
    assert await list_hosts(database) == ["one"]


async def test_a_single_statement_is_a_transaction_by_itself(database: Database) -> None:
    """Decision 2: it is written when it is done, and on PostgreSQL no BEGIN and no COMMIT are sent around it."""
    async with database.write_once() as connection:
        await connection.execute(text("INSERT INTO pace (host, next_at) VALUES ('one', 0)"))
        if database.dialect == "postgresql":
            assert await list_hosts(database) == ["one"]
    async with database.read_once() as connection:
        assert (await connection.execute(text("SELECT host FROM pace"))).scalars().all() == ["one"]
        if database.dialect == "postgresql":
            pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            async with database.write() as other:
                state = text("SELECT state FROM pg_stat_activity WHERE pid = :pid")
                assert (await other.execute(state, {"pid": pid})).scalar_one() == "idle"
    async with database.read_once() as connection:
        with pytest.raises(DBAPIError):
            await connection.execute(text("UPDATE pace SET next_at = 1"))
    # The connection comes back to a pool that both kinds share.
    async with database.write() as connection:
        await connection.execute(text("DELETE FROM pace"))
        await connection.rollback()
    assert await list_hosts(database) == ["one"]


async def test_a_connection_that_the_server_ended_is_replaced_before_it_is_used(postgres_url: str) -> None:
    """A39: after a restart of PostgreSQL, nobody meets a connection of the time before."""
    database = open_database(postgres_url)
    kept = [await stack_connections(database) for _ in range(2)]
    with psycopg.connect(postgres_url, autocommit=True) as other:
        for pid in kept[-1]:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    found = [await stack_connections(database) for _ in range(2)]
    await database.close()
    assert kept[0] == kept[1]
    assert found[0] == found[1]
    assert not found[0] & kept[0]


async def stack_connections(database: Database) -> set[int]:
    """The server's processes of four connections that are open at once: two writers, two readers."""
    async with AsyncExitStack() as stack:
        doors = (database.write, database.write_once, database.read, database.read_once)
        connections = [await stack.enter_async_context(door()) for door in doors]
        statement = text("SELECT pg_backend_pid()")
        return {(await connection.execute(statement)).scalar_one() for connection in connections}


@pytest.mark.parametrize(("added", "limit"), [("", "30000"), ("&tcp_user_timeout=5000", "5000")])
async def test_a_server_that_vanishes_is_noticed_within_half_a_minute(
    postgres_url: str, added: str, limit: str
) -> None:
    """A39: a machine without power ends no connection. The URL may set limits of its own."""
    database = open_database(f"{postgres_url}{added}")
    async with database.read() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        parameters = driver.info.get_parameters()
    await database.close()
    assert (parameters["tcp_user_timeout"], parameters["keepalives_idle"]) == (limit, "15")


async def test_an_error_of_the_database_shows_no_value(database: Database) -> None:
    """A4, C23: values of a statement may be secrets, and errors reach logs."""
    await insert_host(database, "a-secret-host")
    with pytest.raises(DBAPIError) as raised:
        async with database.write() as connection:
            await connection.execute(
                text("INSERT INTO pace (host, next_at) SELECT host, :value FROM pace"), {"value": 73_217}
            )
    assert "73217" not in str(raised.value)
    async with database.read() as connection:
        with pytest.raises(DBAPIError) as failed:
            await connection.execute(text("SELECT host FROM no_such_table WHERE host = :host"), {"host": "kanarie"})
    assert "kanarie" not in str(failed.value)


WRITING = (
    "INSERT INTO pace (host, next_at) VALUES ('two', 0)",
    "UPDATE pace SET next_at = 1",
    "DELETE FROM pace",
    "CREATE TABLE intruder (id INTEGER)",
    "DROP TABLE pace",
)


async def test_reading_cannot_write(database: Database) -> None:
    """C1, decision 2: the database itself refuses, with a word about reading only; and nothing has changed."""
    await insert_host(database, "one")
    for statement in WRITING:
        async with database.read() as connection:
            with pytest.raises(DBAPIError, match=r"(?i)read-?only"):
                await connection.execute(text(statement))
    assert await list_hosts(database) == ["one"]


async def test_sqlite_reading_cannot_be_talked_into_writing(sqlite_url: str) -> None:
    """C1: the file is opened read only, so switching the pragma off does not help."""
    database = open_database(sqlite_url)
    async with database.read() as connection:
        await connection.execute(text("PRAGMA query_only=OFF"))
        with pytest.raises(DBAPIError, match="readonly"):
            await connection.execute(text("INSERT INTO pace (host, next_at) VALUES ('one', 0)"))
    await database.close()


async def test_one_reading_transaction_sees_one_state(database: Database) -> None:
    """Decision 2: what is committed meanwhile is not seen, so two statements cannot contradict each other."""
    await insert_host(database, "one")
    count = text("SELECT count(*) FROM pace")
    async with database.read() as connection:
        before = (await connection.execute(count)).scalar_one()
        await insert_host(database, "two")
        after = (await connection.execute(count)).scalar_one()
    assert (before, after) == (1, 1)
    assert await list_hosts(database) == ["one", "two"]


async def test_an_error_rolls_everything_back(database: Database) -> None:
    """Decision 1: all of a transaction or nothing, also when the error is not the database's own."""

    async def fail() -> None:
        async with database.write() as connection:
            await connection.execute(text("INSERT INTO pace (host, next_at) VALUES ('one', 0)"))
            await connection.execute(text("INSERT INTO pace (host, next_at) VALUES ('two', 0)"))
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert await list_hosts(database) == []


async def test_a_cancelled_write_is_rolled_back_and_blocks_nobody(database: Database) -> None:
    """Decision 2: SQLite has one writing connection a process; a cancelled task gives it back."""
    written = asyncio.Event()

    async def write() -> None:
        async with database.write() as connection:
            await connection.execute(text("INSERT INTO pace (host, next_at) VALUES ('one', 0)"))
            written.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(write())
    async with asyncio.timeout(SOON):
        await written.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await insert_host(database, "two")
    assert await list_hosts(database) == ["two"]


SLOW = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) SELECT i, 0 FROM n",
    "postgresql": "SELECT 'slow', 0 FROM pg_sleep(2)",
}


@pytest.mark.thorough
async def test_a_write_cancelled_within_a_statement_blocks_nobody(database: Database, database_url: str) -> None:
    """Decision 2: neither this process nor another one waits for the lock of a task that is gone."""
    other = open_database(database_url)

    async def write() -> None:
        async with database.write() as connection:
            await connection.execute(text(f"INSERT INTO pace (host, next_at) {SLOW[database.dialect]} RETURNING host"))

    task = asyncio.create_task(write())
    done, _ = await asyncio.wait({task}, timeout=0.1)
    task.cancel()
    async with asyncio.timeout(SOON):
        answers = await asyncio.gather(task, return_exceptions=True)
        await insert_host(other, "other")
        await insert_host(database, "own")
    await other.close()
    assert (done, type(answers[0])) == (set(), asyncio.CancelledError)
    assert await list_hosts(database) == ["other", "own"]


async def test_many_integers_are_bound_as_one_value(database: Database) -> None:
    """Decision 2: alike on both databases, with the whole range of 64 bits and none at all."""
    numbers = [-(2**63), -1, 0, 2**63 - 1]
    statement = text(f"SELECT number FROM {database.numbers_sql('numbers', column='number')} AS given ORDER BY number")
    async with database.read() as connection:
        some = await connection.execute(statement, {"numbers": database.bind_numbers(numbers)})
        none = await connection.execute(statement, {"numbers": database.bind_numbers([])})
        assert ([row.number for row in some], none.all()) == (numbers, [])


async def test_sqlite_is_set_up_to_survive_a_power_cut(sqlite_url: str) -> None:
    """Decision 2: WAL, synchronous=FULL (2), foreign keys on."""
    database = open_database(sqlite_url)
    async with database.write() as connection:
        found = [
            (await connection.execute(text(f"PRAGMA {name}"))).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    await database.close()
    assert found == ["wal", 2, 1]


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A process whose new files would be open to everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def list_modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_a_file_whose_index_lacks_a_row_counts_as_damaged(tmp_path: Path) -> None:
    """C35: SQLite says which part of a file is damaged, with codes of their own."""
    file, entry = tmp_path / "small.db", "sqlite_master WHERE name = 'by_host'"

    def execute(*statements: str) -> list[Any]:
        # Each connection reads the list of tables and indexes anew.
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            return [connection.execute(statement).fetchall() for statement in statements][-1]

    execute("CREATE TABLE pace (host)", "CREATE INDEX by_host ON pace (host)", "INSERT INTO pace VALUES ('a')")
    [index] = execute(f"SELECT * FROM {entry}")
    execute("PRAGMA writable_schema = ON", f"DELETE FROM {entry}")
    execute("UPDATE pace SET host = 'b'")
    execute("PRAGMA writable_schema = ON", f"INSERT INTO sqlite_master VALUES {index!r}")
    with pytest.raises(sqlite3.DatabaseError) as raised:
        execute("DELETE FROM pace WHERE rowid = 1")
    assert raised.value.sqlite_errorname == "SQLITE_CORRUPT_INDEX"
    assert is_damaged(raised.value)


@pytest.mark.usefixtures("open_umask")
async def test_the_sqlite_file_and_its_log_are_for_the_owner_alone(tmp_path: Path) -> None:
    """A4: keys lie in it; whatever the umask, nobody else can read the file, its WAL or its index."""
    database = open_database(f"sqlite:///{tmp_path}/new.db")
    async with database.write() as connection:
        await connection.execute(text("CREATE TABLE pace (host TEXT, next_at INTEGER)"))
    await insert_host(database, "one")
    modes = list_modes(tmp_path)
    await database.close()
    assert modes == {"new.db": 0o600, "new.db-wal": 0o600, "new.db-shm": 0o600}


async def test_a_sqlite_path_may_hold_signs_that_mean_something_in_a_url(tmp_path: Path) -> None:
    """Decision 2: encoded in the URL, they are part of the name."""
    database = open_database(f"sqlite:///{quote(f'{tmp_path}/{ODD_NAME}')}")
    async with database.write() as connection:
        await connection.execute(text("CREATE TABLE pace (host TEXT, next_at INTEGER)"))
    assert await list_hosts(database) == []
    await database.close()
    assert list(list_modes(tmp_path)) == [ODD_NAME]


async def test_the_default_database_lies_in_the_data_directory_whatever_that_is_called(tmp_path: Path) -> None:
    """A1: a directory's name is a path and not part of a URL."""
    folder = tmp_path / ODD_NAME
    prepare_data_dir(folder)
    await open_database(find_database_url(Settings(data_dir=folder))).close()
    assert list(list_modes(folder)) == ["tidings.db"]


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("", id="empty"),
        pytest.param("tidings.db", id="a path"),
        pytest.param(f"user:{PASSWORD}@host/name", id="no scheme"),
        pytest.param(f"mysql://user:{PASSWORD}@host/name", id="another database"),
        pytest.param("sqlite://", id="SQLite without a file"),
        pytest.param("sqlite:///:memory:", id="SQLite in memory"),
        pytest.param(f"postgresql://user:{PASSWORD}@host:port/name", id="a port that is no number"),
        pytest.param(f"postgresql://user:p@ss:{PASSWORD}@host/name", id="a password that is not encoded"),
        pytest.param(f"postgresql://user:{PASSWORD}@[::1/name", id="a broken address"),
    ],
)
def test_a_bad_url_is_refused_in_one_line_without_its_password(url: str) -> None:
    """A1, A4: the line says what is wanted; the password is in no part of the error."""
    with pytest.raises(DatabaseUrlError) as caught:
        open_database(url)
    assert "sqlite:///path" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert PASSWORD not in f"{caught.value!r} {caught.value.__cause__!r}"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def count_up(url: str, barrier: Any) -> None:
    """In another process: read a number, add one, write it, many times."""

    async def run() -> None:
        database = open_database(url)
        barrier.wait(SOON)
        for _ in range(ROUNDS):
            async with database.write() as connection:
                number = (await connection.execute(text("SELECT next_at FROM pace"))).scalar_one()
                await connection.execute(text("UPDATE pace SET next_at = :next"), {"next": number + 1})
        await database.close()

    asyncio.run(run())


@pytest.mark.thorough
def test_two_processes_write_sqlite_at_once_and_nothing_is_lost(sqlite_url: str) -> None:
    """Decision 2: BEGIN IMMEDIATE keeps a check and its write together; the second one waits its turn."""
    database = open_database(sqlite_url)
    asyncio.run(insert_host(database, "one"))
    asyncio.run(database.close())
    barrier = FORKED.Barrier(2)
    processes = [FORKED.Process(target=count_up, args=(sqlite_url, barrier)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SOON)
    assert [process.exitcode for process in processes] == [0, 0]
    assert asyncio.run(read_number(sqlite_url)) == 2 * ROUNDS


async def read_number(url: str) -> int:
    database = open_database(url)
    async with database.read() as connection:
        number: int = (await connection.execute(text("SELECT next_at FROM pace"))).scalar_one()
    await database.close()
    return number
