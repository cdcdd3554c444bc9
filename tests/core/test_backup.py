"""Backup and restore of a whole database: nothing is lost on the way, and a restore happens wholly or not at all."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import (
    BigInteger,
    Boolean,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    insert,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.core.test_migrations import EVERY_REVISION
from tests.fakes import FakeClock
from tidings.core.backup.backup import (
    InUseError,
    OccupiedError,
    Restored,
    check_restorable,
    count_rows,
    restore_backup,
    write_backup,
)
from tidings.core.backup.file import (
    BackupError,
    Header,
    NewerBackupError,
    create_backup,
    open_backup,
)
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database, metadata, open_database
from tidings.core.db.revisions import (
    NewerDatabaseError,
    downgrade_database,
    find_revision,
    newest_revision,
    prepare_database,
)
from tidings.core.executions import Executions, ExecutionStatus, executions
from tidings.core.net.pace import pace
from tidings.core.process_lock import ProcessLock

SOON = 60.0

Content = dict[str, list[tuple[Any, ...]]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tidings.backup"


class Desk:
    """Makes backups of a database and restores them into one, on the test's data directory."""

    def __init__(self, folder: Path, *, process_lock: ProcessLock, clock: FakeClock) -> None:
        self.path = folder / "tidings.backup"
        self.clock = clock
        self._folder = folder
        self._process_lock = process_lock

    async def back_up(self, database: Database, **options: Any) -> Header:
        header, _ = await write_backup(database, self.path, clock=self.clock, release="1.2.3", **options)
        return header

    async def restore(self, database: Database, **options: Any) -> Restored:
        with open_backup(self.path) as reader:
            return await restore_backup(
                database, reader, process_lock=self._process_lock, data_dir=self._folder, clock=self.clock, **options
            )

    async def check(self, database: Database) -> None:
        with open_backup(self.path) as reader:
            await check_restorable(
                database, reader, process_lock=self._process_lock, data_dir=self._folder, clock=self.clock
            )


@pytest.fixture
def desk(tmp_path: Path, process_lock: ProcessLock, clock: FakeClock) -> Desk:
    return Desk(tmp_path, process_lock=process_lock, clock=clock)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    database = open_database(url)
    try:
        yield database
    finally:
        await database.close()


TEXTS = ["", "plain", "line\nbreak\ttab", "\u2603 \u4f60\u597d \U0001f600", "\"quotes\" 'and' \\N \\. ,"]
# The largest and the smallest of each kind, and no two of the first five alike.
VALUES: dict[type[Any], Callable[[int], Any]] = {
    SmallInteger: lambda number: [-(1 << 15), (1 << 15) - 1, 0, 1, 2][number],
    BigInteger: lambda number: [-(1 << 63), (1 << 63) - 1, 0, 1 << 40, -7][number],
    Integer: lambda number: [-(1 << 31), (1 << 31) - 1, 0, 1, 2][number],
    Double: lambda number: [0.1, -1e300, 0.0, 1 / 3, 2.5][number],
    Boolean: lambda number: number % 2 == 0,
    LargeBinary: lambda number: bytes(range(number, 256)),
    Text: lambda number: f"{TEXTS[number]}{number}",
}


def make_row(table: Table, number: int) -> dict[str, Any]:
    row = {}
    for column in table.columns:
        make = next(make for kind, make in VALUES.items() if isinstance(column.type, kind))
        row[column.name] = None if column.nullable and number % 2 else make(number)
    if table.autoincrement_column is not None:
        row[table.autoincrement_column.name] = number + 1
    return row


async def fill(database: Database, *, rows: int = 5) -> None:
    """Some rows in every table, with what can be distinguished in a bad copy."""
    async with database.write() as connection:
        for table in metadata.sorted_tables:
            await connection.execute(insert(table), [make_row(table, number) for number in range(rows)])


async def read_all(database: Database) -> Content:
    async with database.read() as connection:
        return {
            table.name: sorted(map(tuple, (await connection.execute(select(table))).all()), key=repr)
            for table in metadata.sorted_tables
        }


async def read_status(database: Database) -> list[tuple[Any, ...]]:
    async with database.read() as connection:
        columns = (executions.c.status, executions.c.completed_at, executions.c.result)
        return [tuple(row) for row in await connection.execute(select(*columns).order_by(executions.c.id))]


async def add_execution(
    database: Database, process_lock: ProcessLock, clock: FakeClock, name: str = "announce:1"
) -> int:
    return (await Executions(database, clock=clock, process_lock=process_lock).acquire(name, kind="announce")).id


@pytest.fixture
async def both(sqlite_url: str, postgres_url: str) -> AsyncIterator[dict[str, Database]]:
    async with opened(sqlite_url) as sqlite, opened(postgres_url) as postgresql:
        yield {"sqlite": sqlite, "postgresql": postgresql}


@pytest.mark.thorough
@pytest.mark.parametrize(("source", "target"), [("sqlite", "postgresql"), ("postgresql", "sqlite")])
async def test_everything_moves_from_one_kind_of_database_to_the_other(
    both: dict[str, Database], desk: Desk, source: str, target: str
) -> None:
    """A41, decision 2: every table and every value, the widest too."""
    await fill(both[source])
    header = await desk.back_up(both[source])
    restored = await desk.restore(both[target])
    assert await read_all(both[target]) == await read_all(both[source])
    assert set(restored.rows) == set(metadata.tables) == set(header.tables)
    assert set(restored.rows.values()) == {5}


def test_every_column_is_of_a_kind_that_a_backup_can_hold() -> None:
    """A41: a column of a new kind needs a look at how it is written, and a value in this file."""
    kinds = tuple(VALUES)
    assert [str(c) for table in metadata.sorted_tables for c in table.columns if not isinstance(c.type, kinds)] == []


@pytest.mark.thorough
async def test_a_restore_puts_everything_back_as_it_was(database: Database, desk: Desk) -> None:
    """A41: rows that were added, changed and deleted since then, and nothing else."""
    await fill(database, rows=4)
    before = await read_all(database)
    await desk.back_up(database)
    async with database.write() as connection:
        for table in metadata.sorted_tables:
            await connection.execute(insert(table), make_row(table, 4))
        await connection.execute(text("DELETE FROM ledger WHERE channel > 0"))
        await connection.execute(text("UPDATE sites SET host = 'changed'"))
    assert await read_all(database) != before
    await desk.restore(database)
    assert await read_all(database) == before
    assert await find_revision(database) == newest_revision()


@pytest.mark.thorough
async def test_a_backup_is_one_point_in_time_although_others_write_meanwhile(
    database: Database, database_url: str, desk: Desk
) -> None:
    """A41: what is written after its first row is not in it, be it in a table that it has yet to come to."""
    await fill(database)
    before = await read_all(database)
    shown: list[tuple[int, int]] = []

    def write_meanwhile(done: int, total: int) -> None:
        shown.append((done, total))
        run_elsewhere(database_url, f"INSERT INTO pace (host, next_at) VALUES ('host {done}', 1)")
        run_elsewhere(database_url, "DELETE FROM tokens")

    await desk.back_up(database, on_progress=write_meanwhile)
    rows = 5 * len(metadata.tables)
    assert shown == [(done, rows) for done in range(5, rows + 1, 5)]
    assert (await read_all(database))["tokens"] == []
    await desk.restore(database)
    assert await read_all(database) == before


def run_elsewhere(url: str, statement: str) -> None:
    """In another connection, committed at once; it does not wait long for a lock."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0.2, isolation_level=None)) as connection:
            connection.execute(statement)
    else:
        with psycopg.connect(url, autocommit=True, options="-c lock_timeout=200") as other:
            other.execute(statement.encode())


async def test_numbers_never_come_twice_whatever_is_restored(
    database: Database, desk: Desk, process_lock: ProcessLock, clock: FakeClock
) -> None:
    """A41, decision 4: the id of an execution is a fencing token; those given after the backup count, too."""
    first = await add_execution(database, process_lock, clock)
    await end_all(database)
    await desk.back_up(database)
    later = [await add_execution(database, process_lock, clock, name=f"announce:{number}") for number in range(5)]
    await end_all(database)
    await desk.restore(database)
    assert await count_rows(database) == {"executions": 1}
    assert await add_execution(database, process_lock, clock) > max(later) > first


@pytest.mark.parametrize(("source", "target"), [("sqlite", "postgresql"), ("postgresql", "sqlite")])
async def test_numbers_that_were_taken_back_before_the_backup_count_in_a_new_database(
    both: dict[str, Database], desk: Desk, process_lock: ProcessLock, clock: FakeClock, source: str, target: str
) -> None:
    """A41, decision 4: from either kind of database to the other, although no row has the number any more."""
    works = Executions(both[source], clock=clock, process_lock=process_lock)
    given = [await works.acquire(f"announce:{number}", kind="announce") for number in range(7)]
    for execution in given:
        await works.abandon(execution)
    await desk.back_up(both[source])
    assert (await desk.restore(both[target])).rows["executions"] == 0
    assert await add_execution(both[target], process_lock, clock) > given[-1].id


async def end_all(database: Database) -> None:
    async with database.write() as connection:
        await connection.execute(text("UPDATE executions SET status = 'succeeded'"))


@pytest.mark.thorough
async def test_what_ran_when_the_backup_was_made_is_interrupted(
    database: Database, desk: Desk, process_lock: ProcessLock, clock: FakeClock
) -> None:
    """A37, A41: with what is known of its result; the workflow is free at once, and what had ended stays as it was."""
    works = Executions(database, clock=clock, process_lock=process_lock)
    ended = await works.acquire("announce:2", kind="announce")
    await works.finish(ended, ExecutionStatus.PARTIAL, result={"status": "partial"})
    execution = await works.acquire("announce:1", kind="announce")
    async with works.guard(execution) as connection:
        await works.save_progress(connection, execution, processed=3, failed=1, progress={"submitted": 3})
    clock.advance(timedelta(minutes=1))
    header = await desk.back_up(database)
    await end_all(database)
    clock.advance(timedelta(days=3))
    assert (await desk.restore(database)).interrupted == 1
    [first, (status, completed_at, result)] = await read_status(database)
    assert (first[0], first[2]) == ("partial", '{"status": "partial"}')
    assert (status, completed_at) == ("interrupted", to_milliseconds(header.made_at))
    known = json.loads(result)
    assert (known["submitted"], known["status"], len(known["errors"])) == (3, "interrupted", 1)
    assert (await works.acquire("announce:1", kind="announce")).id > execution.id
    assert [(row[0], row[2:]) for row in (await read_all(database))["last_executions"]] == [
        ("announce:1", (execution.id, "interrupted")),
        ("announce:2", (ended.id, "partial")),
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("revision", [EVERY_REVISION[0], EVERY_REVISION[-2]])
async def test_a_backup_of_any_older_revision_is_brought_up_to_date(
    database: Database, desk: Desk, revision: str
) -> None:
    """A41: made before an upgrade, restored after it; what the older release had is there, the rest is empty."""
    await downgrade_database(database, revision=revision)
    async with database.write() as connection:
        old = await connection.run_sync(lambda sync: Table("executions", MetaData(), autoload_with=sync))
        await connection.execute(insert(old), make_row(old, 4))
        await connection.execute(text("INSERT INTO ledger VALUES (1, 1, -5, 7, NULL)"))
    header = await desk.back_up(database)
    assert (header.revision, await find_revision(database)) == (revision, revision)
    await prepare_database(database)
    await fill(database, rows=3)
    restored = await desk.restore(database)
    assert (restored.revision, await find_revision(database)) == (newest_revision(), newest_revision())
    content = await read_all(database)
    # The upgrade finds the last outcomes in older executions; a release that knows them stores them itself.
    found_by_upgrade = {"last_executions": 1} if revision < "0025" else {}
    assert {name: len(rows) for name, rows in content.items() if rows} == {
        "executions": 1,
        "ledger": 1,
        **found_by_upgrade,
    }
    assert content["ledger"] == [(1, 1, -5, 7, None)]
    [found] = [dict(zip(executions.c.keys(), row, strict=True)) for row in content["executions"]]
    assert found == {**found, **make_row(old, 4)}


async def test_a_backup_of_a_newer_revision_is_refused(database: Database, desk: Desk) -> None:
    """A41: in one line, and nothing is changed."""
    await fill(database)
    before = await read_all(database)
    write_by_hand(desk.path, revision="9999", rows={})
    for attempt in (desk.check, desk.restore):
        with pytest.raises(NewerBackupError, match="revision 9999"):
            await attempt(database)
    assert await read_all(database) == before


async def test_a_backup_that_is_too_old_is_refused(database: Database, desk: Desk) -> None:
    """A41: in one line, and nothing is changed."""
    await fill(database)
    before = await read_all(database)
    write_by_hand(desk.path, revision="0007", rows={})
    for attempt in (desk.check, desk.restore):
        with pytest.raises(BackupError, match=r"revision 0007.*restore it with an earlier release"):
            await attempt(database)
    assert await read_all(database) == before


def write_by_hand(path: Path, *, rows: Mapping[str, list[list[Any]]], revision: str = newest_revision()) -> None:
    """A backup that is whole, no matter what its rows are."""
    columns = {name: list(metadata.tables[name].columns.keys()) for name in rows}
    with create_backup(path) as writer:
        writer.begin(Header("1.2.3", revision, FakeClock().now(), columns))
        for name, some in rows.items():
            writer.write_rows(name, some)
        writer.finish({})


@pytest.mark.thorough
async def test_a_newer_release_s_database_gives_way_on_sqlite(
    sqlite_url: str, desk: Desk, process_lock: ProcessLock, clock: FakeClock
) -> None:
    """A41: back to the previous release with its backup; what the newer one has made is gone, but for its numbers."""
    async with opened(sqlite_url) as database:
        await fill(database)
        before = await read_all(database)
        await desk.back_up(database)
        later = await add_execution(database, process_lock, clock)
        await end_all(database)
        await make_newer(database)
        await desk.restore(database)
        assert await read_all(database) == before
        assert await add_execution(database, process_lock, clock) > later
        async with database.read() as connection:
            left = await connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE name LIKE 'newer%'")
            assert left.all() == []


async def test_a_newer_release_s_database_is_left_alone_on_postgresql(postgres_url: str, desk: Desk) -> None:
    """A41: whose tables are whose is not known there; the one line says the two ways."""
    async with opened(postgres_url) as database:
        await fill(database)
        before = await read_all(database)
        await desk.back_up(database)
        await make_newer(database)
        with pytest.raises(BackupError, match=f"database downgrade {newest_revision()}.*or restore into an empty"):
            await desk.restore(database)
        with pytest.raises(NewerDatabaseError):
            await desk.back_up(database)
        assert await read_all(database) == before


async def make_newer(database: Database) -> None:
    async with database.write() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999', oldest_revision = '9999'"))
        await connection.execute(text("CREATE TABLE newer (id INTEGER)"))
        await connection.execute(text("CREATE VIEW newer_view AS SELECT host FROM sites"))


async def test_protected_tables_are_not_replaced(database: Database, desk: Desk) -> None:
    """A41: neither is anything else then; tables that are not protected do not stand in the way."""
    await desk.back_up(database)
    async with database.write() as connection:
        await connection.execute(insert(pace), make_row(pace, 1))
    await desk.restore(database, protect=("sites", "ledger"))
    await fill(database)
    before = await read_all(database)
    with pytest.raises(OccupiedError, match=r"5 sites, 5 ledger"):
        await desk.restore(database, protect=("sites", "ledger"))
    assert await read_all(database) == before


async def test_an_empty_database_has_nothing_to_back_up(tmp_path: Path, desk: Desk) -> None:
    """A41: a mistyped address must not end in a backup of nothing."""
    async with opened(f"sqlite:///{tmp_path}/new.db") as database:
        with pytest.raises(BackupError, match="nothing to back up"):
            await desk.back_up(database)
    assert not desk.path.exists()


async def refuse(_connection: AsyncConnection) -> None:
    raise LookupError


TWICE = [1, 1, 7, 7, None]
REFUSALS = (DBAPIError, BackupError)


@pytest.mark.parametrize(
    ("rows", "options", "error"),
    [
        pytest.param({"ledger": [TWICE, TWICE]}, {}, (DBAPIError, BackupError), id="the same row twice"),
        pytest.param(
            {"pace": [["a", None, 0, 0]]}, {}, (DBAPIError, BackupError), id="nothing where something must be"
        ),
        pytest.param({"ledger": [TWICE], "pace": [["a", 1]]}, {}, BackupError, id="a row that is too short"),
        pytest.param({"ledger": [TWICE]}, {"also": refuse}, LookupError, id="what is done with it fails"),
        pytest.param({"ledger": [TWICE]}, {"on_progress": None}, TypeError, id="any other trouble"),
    ],
)
async def test_a_restore_that_fails_leaves_everything_as_it_was(
    database: Database, desk: Desk, rows: dict[str, list[list[Any]]], options: dict[str, Any], error: type[Exception]
) -> None:
    """A41: all or nothing, the numbers of new rows included."""
    await fill(database)
    before = await read_all(database)
    write_by_hand(desk.path, rows=rows)
    with pytest.raises(error):
        await desk.restore(database, **options)
    assert await read_all(database) == before
    assert await find_revision(database) == newest_revision()


# A database that stores something else than it is given: another value, or nothing.
CHANGES = {
    ("sqlite", "changed"): ["CREATE TRIGGER odd AFTER INSERT ON pace BEGIN UPDATE pace SET slowed_to = 7; END"],
    ("sqlite", "lost"): ["CREATE TRIGGER odd AFTER INSERT ON pace BEGIN DELETE FROM pace; END"],
    ("postgresql", "changed"): [
        "CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.slowed_to = 7; RETURN new; END $$",
        "CREATE TRIGGER odd BEFORE INSERT ON pace FOR EACH ROW EXECUTE FUNCTION odd()",
    ],
    ("postgresql", "lost"): [
        "CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
        "CREATE TRIGGER odd BEFORE INSERT ON pace FOR EACH ROW EXECUTE FUNCTION odd()",
    ],
}


@pytest.mark.parametrize("what", ["changed", "lost"])
async def test_a_row_that_does_not_come_back_as_it_was_undoes_the_restore(
    database: Database, desk: Desk, what: str
) -> None:
    """A41: every row is read back and compared with the file."""
    await fill(database)
    await desk.back_up(database)
    before = await read_all(database)
    async with database.write() as connection:
        for statement in CHANGES[database.dialect, what]:
            await connection.exec_driver_sql(statement)
    with pytest.raises(BackupError, match="table pace holds other rows than the backup"):
        await desk.restore(database)
    assert await read_all(database) == before


# Makes or restores a backup; at its first progress it says so and waits, for good. Or does nothing but live. Or does
# both with a small and then with a large ledger, and says how much memory it has needed so far.
PROGRAM = """
import asyncio, resource, sys
from pathlib import Path
import tidings
import tidings.wiring.opening
tidings.wiring.opening.load_tables()
from tidings.announce.ledger.ledger import ledger
from tidings.core.backup.backup import restore_backup, write_backup
from tidings.core.backup.file import open_backup
from tidings.core.clock import SystemClock
from tidings.core.db.database import open_database
from tidings.core.process_lock import ProcessLock

what, url, data_dir, path = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
database, clock, process_lock = open_database(url), SystemClock(), ProcessLock(data_dir)

def wait(done, total):
    print(done, total, flush=True)
    sys.stdin.readline()

async def back_up(**options):
    await write_backup(database, path, clock=clock, release="1", **options)

async def restore(**options):
    with open_backup(path) as reader:
        await restore_backup(database, reader, process_lock=process_lock, data_dir=data_dir, clock=clock, **options)

async def enter(numbers):
    for start in numbers:
        rows = [dict(site=1, channel=1, url_hash=start + each, submitted_at=1, lastmod=2) for each in range(1000)]
        async with database.write() as connection:
            await connection.execute(database.insert(ledger).returning(ledger.c.site), rows)

async def measure():
    for numbers in (range(0, 10_000, 1000), range(10_000, 200_000, 1000)):
        await enter(numbers)
        await back_up()
        await restore()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)

match what:
    case "backup":
        asyncio.run(back_up(on_progress=wait))
    case "restore":
        asyncio.run(restore(on_progress=wait))
    case "measure":
        asyncio.run(measure())
    case "hold":
        print("held", flush=True)
        sys.stdin.readline()
"""


@contextmanager
def start_program(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    assert process.wait(SOON) == -signal.SIGKILL


def list_files(folder: Path) -> set[Path]:
    return set(folder.iterdir())


@pytest.mark.thorough
async def test_kill_during_a_backup_leaves_the_older_one(
    database: Database, database_url: str, desk: Desk, tmp_path: Path
) -> None:
    """A41: the next backup removes what the killed one left."""
    await fill(database)
    await desk.back_up(database)
    before, files = desk.path.read_bytes(), list_files(tmp_path)
    with start_program("backup", database_url, tmp_path, desk.path) as process:
        assert read_line(process) == f"5 {5 * len(metadata.tables)}"
        kill(process)
    assert desk.path.read_bytes() == before
    assert len(list_files(tmp_path) - files) == 1
    await desk.back_up(database)
    assert list_files(tmp_path) == files
    await desk.restore(database)


@pytest.mark.thorough
async def test_kill_during_a_restore_leaves_everything_as_it_was(
    database: Database, database_url: str, desk: Desk, tmp_path: Path
) -> None:
    """A41: the tables were half filled at that moment, for it alone; others could read as before, and not write."""
    await fill(database)
    await desk.back_up(database)
    async with database.write() as connection:
        await connection.execute(text("DELETE FROM ledger"))
    before = await read_all(database)
    (tmp_path / "elsewhere").mkdir()
    with start_program("restore", database_url, tmp_path / "elsewhere", desk.path) as process:
        # Each row is written, and read back.
        assert read_line(process) == f"5 {2 * 5 * len(metadata.tables)}"
        assert await read_all(database) == before
        with pytest.raises((sqlite3.OperationalError, psycopg.errors.LockNotAvailable)):
            run_elsewhere(database_url, "INSERT INTO pace (host, next_at) VALUES ('other', 1)")
        kill(process)
    assert await read_all(database) == before
    await desk.restore(database)
    assert len((await read_all(database))["ledger"]) == 5


@pytest.mark.thorough
async def test_another_process_on_the_data_directory_keeps_a_restore_away(
    database: Database, database_url: str, desk: Desk, tmp_path: Path
) -> None:
    """A41: as long as it lives, and until the very moment when the restore begins."""
    await fill(database)
    before = await read_all(database)
    await desk.back_up(database)
    with start_program("hold", database_url, tmp_path, tmp_path / "other.backup") as process:
        assert read_line(process) == "held"
        with pytest.raises(InUseError, match=r"another Tidings process works on .*; stop it"):
            await desk.restore(database)
        with pytest.raises(InUseError):
            await desk.check(database)
        assert await read_all(database) == before
        kill(process)
        await desk.restore(database)


async def test_an_execution_on_another_machine_keeps_a_restore_away_until_it_counts_as_dead(
    database: Database, desk: Desk, clock: FakeClock, tmp_path: Path
) -> None:
    """A41, decision 4: of a process on another data directory nothing is known but its heartbeat."""
    await desk.back_up(database)
    (tmp_path / "elsewhere").mkdir()
    elsewhere = ProcessLock(tmp_path / "elsewhere")
    await add_execution(database, elsewhere, clock)
    elsewhere.close()
    clock.advance(timedelta(minutes=29, seconds=59))
    with pytest.raises(InUseError, match=r"runs on another machine.*after 2026-11-15 12:30 UTC"):
        await desk.restore(database)
    clock.advance(timedelta(seconds=2))
    await desk.restore(database)
    assert await count_rows(database) == {}


@pytest.mark.slow
async def test_memory_does_not_grow_with_the_ledger(database_url: str, tmp_path: Path) -> None:
    """A41: 200,000 rows, which would take 40 MB at once, in a process that has made and restored a small backup."""
    with start_program("measure", database_url, tmp_path, tmp_path / "measured.backup") as process:
        small, large = (int(read_line(process)) for _ in range(2))
    assert large - small < 12_000, f"{small} kB before, {large} kB after"
