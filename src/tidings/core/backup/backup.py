"""Everything in the database into a file, and back: into the same database, or into one of the other kind.

A backup is one consistent view, made while others work. A restore is one transaction, so an error changes nothing. It
empties the tables, takes them to the revision of the backup and fills them. It reads every row back, compares it with
the file, and brings the tables up to date. New row ids continue after the highest id ever used, in the backup or in the
replaced database. An execution's id is a fencing token, so it must not be used twice. `file` has the format of the
file. Master keys are not in the database, and so not in a backup.

    BackupError (file)
    ├── InUseError      Tidings runs on this database
    └── OccupiedError   the database holds something that may not be replaced
"""

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, MetaData, Table, func, insert, inspect, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.backup.file import (
    BackupError,
    BackupReader,
    DamagedBackupError,
    Header,
    NewerBackupError,
    RowSum,
    Totals,
    create_backup,
    decode_row,
)
from tidings.core.clock import Clock, from_milliseconds, to_milliseconds
from tidings.core.db.database import Database, metadata
from tidings.core.db.revisions import (
    NewerDatabaseError,
    lock_migrations,
    newest_revision,
    oldest_revision,
    read_revision,
    run_migrations,
)
from tidings.core.execution_table import QUEUED, store_outcomes
from tidings.core.executions import SILENT_FOR, ExecutionStatus, executions
from tidings.core.process_lock import ProcessLock

_BATCH: Final = 2_000
_LOCK_PATIENCE: Final = "30s"

_READ_COUNTER: Final = {
    "sqlite": "SELECT seq FROM sqlite_sequence WHERE name = :name",
    "postgresql": "SELECT pg_sequence_last_value(pg_get_serial_sequence(:name, :column)::regclass)",
}
_SET_COUNTER: Final = {
    "sqlite": (
        "DELETE FROM sqlite_sequence WHERE name = :name",
        "INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :given)",
    ),
    "postgresql": ("SELECT setval(pg_get_serial_sequence(:name, :column)::regclass, :given)",),
}

Progress = Callable[[int, int], None]


class InUseError(BackupError):
    """Tidings runs on this database; the message says what to do."""


class OccupiedError(BackupError):
    """The database holds something that may not be replaced: `rows` by table."""

    def __init__(self, rows: Mapping[str, int]) -> None:
        held = ", ".join(f"{count:,} {name}" for name, count in rows.items())
        super().__init__(f"the database already holds something ({held}); nothing was changed")
        self.rows = rows


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has done. `interrupted` counts the executions that ran when the backup was made."""

    rows: Mapping[str, int]
    revision: str
    interrupted: int


def _ignore(_done: int, _total: int) -> None:
    pass


async def write_backup(
    database: Database,
    path: Path,
    *,
    clock: Clock,
    release: str,
    without: Collection[str] = (),
    on_progress: Progress = _ignore,
) -> tuple[Header, Totals]:
    """Write all tables, as of one point in time, to a file. `on_progress` gets the rows done and the total.

    `without` names tables that are left out; after a restore they are empty. A database of an older revision is not
    brought up to date. Raises BackupError, NewerDatabaseError and OSError.
    """
    async with database.read() as connection:
        revision = await read_revision(connection)
        if revision is None:
            raise BackupError("there is nothing to back up: the database has no tables yet")
        if revision > newest_revision():
            raise NewerDatabaseError(revision)
        found_tables = await connection.run_sync(_reflect_tables)
        tables = {name: table for name, table in found_tables.items() if name not in without}
        total = sum(count for name, count in (await _count_rows(connection)).items() if name in tables)
        columns = {name: list(table.columns.keys()) for name, table in tables.items()}
        header = Header(release, revision, clock.now(), columns)
        done = 0
        with create_backup(path) as writer:
            writer.begin(header)
            for name, table in tables.items():
                # In the order of the key: a database that is restored from it fills its pages one after the other.
                found = await connection.stream(select(table).order_by(*table.primary_key))
                async for rows in found.partitions(_BATCH):
                    writer.write_rows(name, rows)
                    done += len(rows)
                    on_progress(done, total)
            return header, writer.finish(await connection.run_sync(_read_counters))


async def count_rows(database: Database) -> dict[str, int]:
    """How many rows each table has; tables without any are left out."""
    async with database.read() as connection:
        return {name: count for name, count in (await _count_rows(connection)).items() if count}


async def check_restorable(
    database: Database, backup: BackupReader, *, process_lock: ProcessLock, data_dir: Path, clock: Clock
) -> None:
    """The checks before the user confirms. Raises BackupError for a backup of a newer release or of a too
    old one, and InUseError where another process works on this data directory or an execution runs on another one."""
    if backup.header.revision > newest_revision():
        raise NewerBackupError(f"revision {backup.header.revision}")
    if backup.header.revision < oldest_revision():
        raise BackupError(
            f"the backup is of revision {backup.header.revision}, this release can only restore backups from revision "
            f"{oldest_revision()} on; restore it with an earlier release"
        )
    async with database.read() as connection:
        await _check_unused(connection, process_lock=process_lock, data_dir=data_dir, clock=clock)


async def restore_backup(
    database: Database,
    backup: BackupReader,
    *,
    process_lock: ProcessLock,
    data_dir: Path,
    clock: Clock,
    protect: Collection[str] = (),
    also: Callable[[AsyncConnection], Awaitable[None]] | None = None,
    on_progress: Progress = _ignore,
) -> Restored:
    """Put a backup in the place of all that the database holds, unless one of the tables `protect` has rows.

    All or nothing; `also` writes in the same transaction. `on_progress` gets the rows done and the total. Raises
    BackupError, and what the database or the disk raises.
    """
    header, totals = backup.header, backup.check()
    await check_restorable(database, backup, process_lock=process_lock, data_dir=data_dir, clock=clock)
    async with lock_migrations(database) as connection:
        await _lock_tables(connection)
        # Checked again under the lock: another process must wait from here on.
        await _check_unused(connection, process_lock=process_lock, data_dir=data_dir, clock=clock)
        await _check_unoccupied(connection, protect=protect)
        counters = await connection.run_sync(_read_counters)
        await _empty_tables(connection)
        await _migrate(connection, header.revision)
        await _fill_tables(connection, backup, on_progress=on_progress)
        await _migrate(connection, newest_revision())
        await _set_counters(connection, counters, totals.counters)
        interrupted = await _end_running(database, connection, at=header.made_at)
        if also is not None:
            await also(connection)
    return Restored(totals.rows, newest_revision(), interrupted)


async def _lock_tables(connection: AsyncConnection) -> None:
    """Lock all tables against other writers until the end. On SQLite a writing transaction excludes others anyway."""
    if connection.dialect.name == "postgresql" and (names := await _list_tables(connection)):
        await connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_PATIENCE}'")
        await connection.exec_driver_sql(f"LOCK TABLE {', '.join(names)} IN EXCLUSIVE MODE")


async def _check_unused(
    connection: AsyncConnection, *, process_lock: ProcessLock, data_dir: Path, clock: Clock
) -> None:
    place, _, own = process_lock.id.partition("/")
    for path in (data_dir / "processes").iterdir():
        if not path.suffix and path.name != own and not process_lock.is_dead(f"{place}/{path.name}"):
            raise InUseError(f"another Tidings process works on {data_dir}; stop it, then restore")
    if executions.name not in await _list_tables(connection):
        return
    since = to_milliseconds(clock.now() - SILENT_FOR)
    running = select(executions.c.public_id, executions.c.holder, executions.c.heartbeat_at).where(
        executions.c.status == ExecutionStatus.RUNNING.value,
        executions.c.heartbeat_at >= since,
        # An execution that waits for a worker does not count as running.
        executions.c.holder != QUEUED,
    )
    for row in (await connection.execute(running)).all():
        if not process_lock.is_dead(row.holder):
            until = from_milliseconds(row.heartbeat_at) + SILENT_FOR
            raise InUseError(
                f"{row.public_id} runs on another machine; stop Tidings there, then restore. If that machine is gone, "
                f"restore after {until:%Y-%m-%d %H:%M} UTC"
            )


async def _check_unoccupied(connection: AsyncConnection, *, protect: Collection[str]) -> None:
    counts = await _count_rows(connection) if protect else {}
    if held := {name: counts[name] for name in protect if counts.get(name)}:
        raise OccupiedError(held)


async def _empty_tables(connection: AsyncConnection) -> None:
    """Delete all rows. Tables of a newer release are dropped instead, because this release does not know its
    migrations."""
    revision = await read_revision(connection)
    if revision is not None and revision > newest_revision():
        await _drop_everything(connection, revision=revision)
    for name in await _list_tables(connection):
        await connection.exec_driver_sql(f"DELETE FROM {name}")


async def _drop_everything(connection: AsyncConnection, *, revision: str) -> None:
    if connection.dialect.name == "postgresql":
        # The database may hold other programs' tables, and only the newer release knows which are Tidings' own.
        raise BackupError(
            f"the tables are at revision {revision} of a newer release; take them back with that release "
            f"(tidings database downgrade {newest_revision()}), or restore into an empty database"
        )
    for view in await connection.run_sync(lambda sync: inspect(sync).get_view_names()):
        await connection.exec_driver_sql(f'DROP VIEW "{view}"')
    for table in await connection.run_sync(lambda sync: inspect(sync).get_table_names()):
        # The parts of a virtual table are gone with it.
        await connection.exec_driver_sql(f'DROP TABLE IF EXISTS "{table}"')


async def _migrate(connection: AsyncConnection, revision: str) -> None:
    """Take the tables up or down to `revision`, in the caller's transaction."""
    present = await read_revision(connection) or ""
    await connection.run_sync(run_migrations, "downgrade" if present > revision else "upgrade", revision)


async def _fill_tables(connection: AsyncConnection, backup: BackupReader, *, on_progress: Progress) -> None:
    """Write every row of the backup, then read every row back and compare. Raises BackupError."""
    tables = await connection.run_sync(_reflect_tables)
    for name, columns in backup.header.tables.items():
        if name not in tables or set(columns) - set(tables[name].columns.keys()):
            raise DamagedBackupError(f"table {name} is not as it was at revision {backup.header.revision}")
    # Each row is written and read back.
    done, total = 0, 2 * backup.check().all_rows
    given = {name: RowSum() for name in backup.header.tables}
    # The file is checked once more on the way: it may have been changed since.
    for name, lines in backup.batches():
        columns = backup.header.tables[name]
        rows = [decode_row(line, width=len(columns)) for line in lines]
        await _insert(connection, tables[name], columns=columns, rows=rows)
        given[name].add(rows)
        done += len(lines)
        on_progress(done, total)
    for name, columns in backup.header.tables.items():
        stored = RowSum()
        found = await connection.stream(select(*(tables[name].c[column] for column in columns)))
        async for part in found.partitions(_BATCH):
            stored.add(part)
            done += len(part)
            on_progress(done, total)
        if stored != given[name]:
            raise BackupError(
                f"table {name} holds other rows than the backup ({stored.rows:,} of {given[name].rows:,} came back, or "
                "their values differ); nothing was changed"
            )


async def _insert(
    connection: AsyncConnection, table: Table, *, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    if connection.dialect.name == "postgresql":
        # Some of the names are words of SQL.
        names = ", ".join(f'"{column}"' for column in columns)
        await _copy(connection, f"COPY {table.name} ({names}) FROM STDIN", rows)
    else:
        await connection.execute(insert(table), [dict(zip(columns, row, strict=True)) for row in rows])


async def _copy(connection: AsyncConnection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows with COPY, fifteen times as fast as one by one."""
    import psycopg

    raw = await connection.get_raw_connection()
    driver = raw.driver_connection
    assert isinstance(driver, psycopg.AsyncConnection)  # noqa: S101 - it is connected, and by no other driver
    try:
        async with driver.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                await copy.write_row(row)
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise BackupError(f"PostgreSQL did not take the rows ({reason}); nothing was changed") from error


async def _set_counters(connection: AsyncConnection, *given_before: Mapping[str, int]) -> None:
    """Continue the row ids after the highest one ever used. PostgreSQL's counter ignores rows that were inserted with
    an id."""
    for name, column in _list_numbered().items():
        highest = (await connection.execute(select(func.max(metadata.tables[name].c[column])))).scalar() or 0
        given = max(highest, *(counters.get(name, 0) for counters in given_before))
        for statement in _SET_COUNTER[connection.dialect.name] if given else ():
            await connection.execute(text(statement), {"name": name, "column": column, "given": given})


async def _end_running(database: Database, connection: AsyncConnection, *, at: datetime) -> int:
    """End the executions that ran when the backup was made, because their outcome is unknown. Returns how many."""
    running = select(executions.c.id, executions.c.progress).where(executions.c.status == ExecutionStatus.RUNNING.value)
    rows = (await connection.execute(running)).all()
    for row in rows:
        status = ExecutionStatus.INTERRUPTED.value
        reason = "it ran when the backup was made from which the database was restored"
        result = {**json.loads(row.progress or "{}"), "status": status, "errors": [reason]}
        values = {"status": status, "completed_at": to_milliseconds(at), "result": json.dumps(result)}
        await connection.execute(update(executions).where(executions.c.id == row.id).values(values))
        await store_outcomes(database, connection, executions.c.id == row.id)
    return len(rows)


async def _list_tables(connection: AsyncConnection) -> list[str]:
    """Tidings' existing tables, by name."""
    there = set(await connection.run_sync(lambda sync: inspect(sync).get_table_names()))
    return sorted(there & set(metadata.tables))


async def _count_rows(connection: AsyncConnection) -> dict[str, int]:
    names = await _list_tables(connection)
    return {name: (await connection.exec_driver_sql(f"SELECT count(*) FROM {name}")).scalar_one() for name in names}


def _reflect_tables(connection: Connection) -> dict[str, Table]:
    """Tidings' tables as they are in the database: those of an older revision differ from the code."""
    found = MetaData()
    found.reflect(connection, only=lambda name, _: name in metadata.tables)
    return dict(sorted(found.tables.items()))


def _read_counters(connection: Connection) -> dict[str, int]:
    """The highest row id that each table has used, including deleted rows."""
    there = inspect(connection).get_table_names()
    counters = {}
    for name, column in _list_numbered().items():
        if name in there:
            read = text(_READ_COUNTER[connection.dialect.name])
            counters[name] = connection.execute(read, {"name": name, "column": column}).scalar() or 0
    return counters


def _list_numbered() -> dict[str, str]:
    """The tables with generated row ids, and the column of the id."""
    columns = {name: table.autoincrement_column for name, table in metadata.tables.items()}
    return {name: column.name for name, column in columns.items() if column is not None}
