"""The tables of a release: which revision a database has, how it is brought up to date, and who may not work on it.
`migrations/` has the history of the tables; `compatibility` says which releases may share them.
"""

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, Select, column, inspect, select, table
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.clock import Clock
from tidings.core.db.compatibility import OLDEST_REVISION, read_oldest_revision
from tidings.core.db.database import Database, metadata

MIGRATIONS = Path(__file__).parent / "migrations"
_revision: Select[Any] = select(column("version_num")).select_from(table("alembic_version"))
# How long a worker waits for the tables of its release.
PATIENCE = timedelta(seconds=60)
_LOOK_EVERY = timedelta(seconds=1)


class NewerDatabaseError(Exception):
    """A newer release made the tables."""

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"the tables are at revision {revision}, this release knows {newest_revision()} and cannot work on them; "
            "nothing was changed. Use the newer release, or restore a backup"
        )


class OlderDatabaseError(Exception):
    """The tables are older than this release, and this process does not migrate them."""

    def __init__(self, revision: str | None) -> None:
        found = "there are no tables" if revision is None else f"the tables are at revision {revision}"
        super().__init__(
            f"{found}, this release needs {newest_revision()}; nothing was changed. Start `tidings serve` of this "
            "release, or run `tidings database upgrade`, then start this again"
        )


class TooOldDatabaseError(Exception):
    """The tables are older than this release can migrate."""

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"the tables are at revision {revision}, this release can only upgrade tables from revision "
            f"{oldest_revision()} on; nothing was changed. Upgrade them with an earlier release first, or start with "
            "an empty database"
        )


async def prepare_database(database: Database) -> None:
    """Create the tables of a new database, or migrate those of an older release.

    If several processes start at once, one does it and the others wait. Every module that defines tables must have been
    imported: a new database gets the tables of `metadata`, which a test holds equal to the migrations. Only older
    databases load Alembic, which costs 11 MB.
    """
    revision = await find_revision(database)
    if revision is None:
        revision = await _create_tables(database)
    await check_compatibility(database)
    if revision < oldest_revision():
        raise TooOldDatabaseError(revision)
    if revision < newest_revision():
        await upgrade_database(database)


async def wait_for_revision(database: Database, *, clock: Clock) -> None:
    """Wait until another process has brought the tables to this release. Raises OlderDatabaseError."""
    give_up_at = clock.monotonic() + PATIENCE.total_seconds()
    while (revision := await find_revision(database)) is None or revision < newest_revision():
        if clock.monotonic() >= give_up_at:
            raise OlderDatabaseError(revision)
        await clock.sleep(_LOOK_EVERY)
    await check_compatibility(database)


async def check_compatibility(database: Database) -> None:
    """Raises NewerDatabaseError if a newer release made the tables, and this one cannot work on them."""
    [row] = await database.look_up(_revision, {}) or [None]
    newest = newest_revision()
    if row is not None and row.version_num > newest:
        async with database.read() as connection:
            oldest = await read_oldest_revision(connection)
        if oldest is None or oldest > newest:
            raise NewerDatabaseError(row.version_num)


async def upgrade_database(database: Database, *, revision: str = "head") -> None:
    """Run the migrations up to `revision`."""
    async with lock_migrations(database) as connection:
        await connection.run_sync(run_migrations, "upgrade", revision)


async def downgrade_database(database: Database, *, revision: str) -> None:
    """Take the tables back to an earlier `revision` ("base" removes them all)."""
    async with lock_migrations(database) as connection:
        await connection.run_sync(run_migrations, "downgrade", revision)


def newest_revision() -> str:
    """The newest migration's id."""
    return list_revisions()[-1]


def oldest_revision() -> str:
    """The id of the oldest tables that this release can migrate."""
    return list_revisions()[0]


@functools.cache
def list_revisions() -> list[str]:
    """The ids of the migrations, oldest first: the numbers their file names begin with."""
    return sorted(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))


async def find_revision(database: Database) -> str | None:
    """The revision that the tables are at, or None for an empty database."""
    async with database.write() as connection:
        return await read_revision(connection)


async def read_revision(connection: AsyncConnection) -> str | None:
    if not await connection.run_sync(lambda sync: inspect(sync).has_table("alembic_version")):
        return None
    return (await connection.exec_driver_sql("SELECT version_num FROM alembic_version")).scalar_one_or_none()


async def _create_tables(database: Database) -> str:
    """Create all tables at the newest revision, unless another process has done so. Returns the revision."""
    async with lock_migrations(database) as connection:
        if revision := await read_revision(connection):
            return revision
        await connection.run_sync(metadata.create_all)
        # A downgrade to the base leaves an empty table of versions.
        await connection.exec_driver_sql("DROP TABLE IF EXISTS alembic_version")
        await connection.exec_driver_sql(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY, oldest_revision VARCHAR(32))"
        )
        await connection.exec_driver_sql(
            f"INSERT INTO alembic_version VALUES ('{newest_revision()}', '{OLDEST_REVISION}')"
        )
        return newest_revision()


def run_migrations(connection: Connection, command: Literal["upgrade", "downgrade"], revision: str) -> None:
    """In the caller's transaction, which must exclude the migrations of other processes."""
    import alembic.command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    getattr(alembic.command, command)(config, revision)


@asynccontextmanager
async def lock_migrations(database: Database) -> AsyncIterator[AsyncConnection]:
    """A transaction that excludes the migrations of other processes. On SQLite every writing transaction does."""
    async with database.write() as connection:
        if database.dialect == "postgresql":
            await connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('tidings.migrations'))")
        yield connection
