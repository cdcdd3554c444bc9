"""Tables: a new database equals a migrated one, and the way back and forth is open, to several processes at once."""

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable, Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

import tidings
import tidings.wiring.opening
from tests.postgres import Server
from tests.processes import open_pool, wait_at_line
from tidings.core.clock import SystemClock
from tidings.core.db.compatibility import OLDEST_REVISION, compatibility, read_oldest_revision
from tidings.core.db.database import Database, metadata, open_database
from tidings.core.db.revisions import (
    NewerDatabaseError,
    TooOldDatabaseError,
    downgrade_database,
    find_revision,
    newest_revision,
    prepare_database,
    upgrade_database,
    wait_for_revision,
)

# Also in the processes that these tests start: a new database gets the tables that were loaded.
tidings.wiring.opening.load_tables()

SOON = 30.0
EVERY_REVISION = sorted(
    path.name.partition("_")[0]
    for path in (Path(tidings.__file__).parent / "core/db/migrations/versions").glob("[0-9]*.py")
)

Description = dict[str, Any]

# What a process of the pool keeps: the line they start from.


@pytest.fixture(params=["sqlite", "postgresql"])
def make_empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Makes empty databases, and answers their addresses."""
    if request.param == "sqlite":
        yield lambda: f"sqlite:///{tmp_path}/{uuid.uuid4().hex}.db"
        return
    server: Server = request.getfixturevalue("postgres_server")
    urls: list[str] = []

    def make() -> str:
        urls.append(server.make_database(empty=True))
        return urls[-1]

    yield make
    for url in urls:
        server.drop_database(url)


async def describe_after(url: str, *steps: Callable[[Database], Awaitable[None]]) -> Description:
    """Take these steps on the database, and say what is in it then."""
    database = open_database(url)
    try:
        for step in steps:
            await step(database)
        return await describe(database)
    finally:
        await database.close()


async def describe(database: Database) -> Description:
    async with database.write() as connection:
        return await connection.run_sync(describe_schema)


def describe_schema(connection: Connection) -> Description:
    """All tables as SQLAlchemy sees them, and what only the database's own catalogue tells."""
    inspector = inspect(connection)
    seen: Description = {name: describe_table(inspector, name) for name in inspector.get_table_names()}
    catalogue = _SQLITE_CATALOGUE if connection.dialect.name == "sqlite" else _POSTGRESQL_CATALOGUE
    rows = [tuple(row) for row in connection.execute(text(catalogue))]
    seen["the catalogue"] = sorted(tuple(flatten(str(value)) for value in row) for row in rows)
    return seen


def flatten(statement: str) -> str:
    """A statement without the blanks that mean nothing: SQLite sets its own where a column was added."""
    return re.sub(r" ?([,()]) ?", r"\1", re.sub(r"\s+", " ", statement))


def describe_table(inspector: Any, name: str) -> Description:
    columns = {
        column["name"]: (str(column["type"]), column["nullable"], column["default"])
        for column in inspector.get_columns(name)
    }
    indexes = {
        index["name"]: (index["column_names"], bool(index["unique"]), describe_options(index))
        for index in inspector.get_indexes(name)
    }
    unique = sorted(tuple(constraint["column_names"]) for constraint in inspector.get_unique_constraints(name))
    key = inspector.get_pk_constraint(name)["constrained_columns"]
    return {"columns": columns, "key": key, "indexes": indexes, "unique": unique}


def describe_options(index: Any) -> dict[str, str]:
    return {name: str(value) for name, value in index.get("dialect_options", {}).items()}


# AUTOINCREMENT, WITHOUT ROWID and the condition of a partial index stand in the statement itself. Alembic's own table
# is written by two hands, so its text may differ; its columns are compared above.
_SQLITE_CATALOGUE = (
    "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE tbl_name != 'alembic_version' AND sql IS NOT NULL"
)
_POSTGRESQL_CATALOGUE = """
SELECT relname, relkind, pg_get_expr(relpartbound, oid), pg_get_partkeydef(oid),
    (SELECT string_agg(pg_get_constraintdef(pg_constraint.oid), ';' ORDER BY conname)
        FROM pg_constraint WHERE conrelid = pg_class.oid),
    CASE WHEN relkind IN ('i', 'I') THEN pg_get_indexdef(oid) END
FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE 'alembic_version%'
UNION ALL SELECT tgname, 'trigger', tgrelid::regclass::text, pg_get_triggerdef(oid), NULL, NULL
FROM pg_trigger WHERE NOT tgisinternal AND tgparentid = 0
UNION ALL SELECT proname, 'function', prosrc, NULL, NULL, NULL
FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""


@pytest.mark.thorough
async def test_a_new_database_equals_one_made_by_the_migrations(make_empty: Callable[[], str]) -> None:
    """Decision 2: tables, columns, types, nullability, defaults, keys, indexes, partitions are the same both ways."""
    prepared = await describe_after(make_empty(), prepare_database)
    migrated = await describe_after(make_empty(), upgrade_database)
    assert prepared == migrated
    assert set(prepared) >= set(metadata.tables)


async def test_the_index_that_excludes_a_second_execution_is_there(database_url: str) -> None:
    """A39, C3: unique, and only over what is running."""
    seen = await describe_after(database_url)
    columns, unique, options = seen["executions"]["indexes"]["executions_one_running"]
    assert (columns, unique) == (["workflow_name"], True)
    assert "status = 'running'" in " ".join(options.values())


async def test_the_ledger_has_sixteen_partitions_on_postgresql(postgres_url: str) -> None:
    """A10, decision 2: every remainder has its partition, so that every site has a place."""
    seen = await describe_after(postgres_url)
    bounds = {row[2] for row in seen["the catalogue"] if row[0].startswith("ledger_") and row[1] == "r"}
    assert bounds == {f"FOR VALUES WITH(modulus 16,remainder {number})" for number in range(16)}


async def test_the_migrations_leave_no_difference_to_the_code(make_empty: Callable[[], str]) -> None:
    """Decision 2: Alembic itself finds nothing that a further migration would have to do."""
    database = open_database(make_empty())
    await upgrade_database(database)
    async with database.write() as connection:
        differences = await connection.run_sync(list_differences)
    await database.close()
    assert differences == []


def list_differences(connection: Connection) -> list[Any]:
    def is_ours(_object: object, name: str | None, _kind: str, _reflected: bool, _other: object) -> bool:
        # Partitions, counters and the full-text index are not part of the metadata; the tests above compare them.
        return not re.fullmatch(
            r"candidate_counts|ledger_\d+|note_search(_\w+)?|note_terms_search|procrastinate_.+", name or ""
        )

    options = {"compare_type": True, "compare_server_default": True, "include_object": is_ours}
    differences: list[Any] = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    return differences


@pytest.mark.thorough
async def test_every_step_down_and_up_again_leaves_the_tables_of_its_revision(make_empty: Callable[[], str]) -> None:
    """A41, decision 2: a release can be taken back as far as it goes, and any older database is brought up to date."""
    database = open_database(make_empty())
    down, up = {}, {}
    await upgrade_database(database)
    for revision in [*reversed(EVERY_REVISION), "base"]:
        await downgrade_database(database, revision=revision)
        down[revision] = await describe(database)
    for revision in EVERY_REVISION:
        await upgrade_database(database, revision=revision)
        up[revision] = await describe(database)
    removed = down.pop("base")
    assert set(removed) == {"alembic_version", "the catalogue"}
    assert [row for row in removed["the catalogue"] if "sqlite_sequence" not in row] == []
    assert up == down
    await database.close()


@pytest.mark.thorough
@pytest.mark.parametrize("revision", ["base", EVERY_REVISION[-2]])
async def test_a_start_brings_an_older_database_up_to_date(make_empty: Callable[[], str], revision: str) -> None:
    """A41, decision 2: also one that was taken back to nothing and still knows of Alembic; twice does no harm."""
    database = open_database(make_empty())
    await upgrade_database(database)
    expected = await describe(database)
    await downgrade_database(database, revision=revision)
    for _ in range(2):
        await prepare_database(database)
        assert await find_revision(database) == newest_revision() == EVERY_REVISION[-1]
    assert await describe(database) == expected
    await database.close()


async def test_executions_of_older_releases_get_their_kind(make_empty: Callable[[], str]) -> None:
    """A33, C11: a correction of the ledger is distinguished from an execution of the site, and collect's from both."""
    rows = {
        "announce:shop": (None, "announce"),
        "announce:blog": ('{"status": "succeeded", "forgotten": 1}', "announce"),
        "announce:news": ('{"forgotten": 3, "since": "2026-11-15"}', "correction"),
        "collect:weibo": (None, "collect"),
        "mirror": (None, "mirror"),
    }
    database = open_database(make_empty())
    await upgrade_database(database, revision="0008")
    insert = text(
        "INSERT INTO executions (public_id, workflow_name, status, holder, started_at, heartbeat_at, result) "
        "VALUES (:name, :name, 'succeeded', 'x', 0, 0, :result)"
    )
    async with database.write() as connection:
        await connection.execute(insert, [{"name": name, "result": result} for name, (result, _) in rows.items()])
    await prepare_database(database)
    async with database.read() as connection:
        kinds = {row[0]: row[1] for row in await connection.execute(text("SELECT workflow_name, kind FROM executions"))}
        shown = list((await connection.execute(text("SELECT workflow_name FROM tbl_crawl_execution"))).scalars())
    await database.close()
    assert kinds == {name: kind for name, (_, kind) in rows.items()}
    assert shown == ["collect:weibo"]


async def test_a_database_of_a_newer_release_is_left_alone(database: Database) -> None:
    """A41: an older release says so in one line, and changes nothing."""
    async with database.write() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        await connection.execute(text(compatibility("9999")))
    with pytest.raises(NewerDatabaseError, match="9999") as caught:
        await prepare_database(database)
    assert len(str(caught.value).splitlines()) == 1
    assert await find_revision(database) == "9999"


async def test_a_database_that_is_too_old_is_left_alone(database: Database) -> None:
    """A41: one line says what to do."""
    async with database.write() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '0007'"))
    with pytest.raises(TooOldDatabaseError, match=r"0007.*nothing was changed\. Upgrade them with") as caught:
        await prepare_database(database)
    assert len(str(caught.value).splitlines()) == 1
    assert await find_revision(database) == "0007"


async def test_a_release_starts_on_newer_tables_that_it_can_work_on(database: Database) -> None:
    """A41: during a roll-out, a process of the release before may start again, and migrates nothing."""
    async with database.write() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        await connection.execute(text(compatibility(newest_revision())))
    await prepare_database(database)
    await wait_for_revision(database, clock=SystemClock())
    assert await find_revision(database) == "9999"
    async with database.write() as connection:
        await connection.execute(text(compatibility("9998")))
    with pytest.raises(NewerDatabaseError, match="cannot work on them; nothing was changed"):
        await wait_for_revision(database, clock=SystemClock())


async def test_new_and_migrated_tables_name_the_same_oldest_release(make_empty: Callable[[], str]) -> None:
    """A41: whichever way the tables were made, the same releases may work on them."""
    seen = []
    for make in (prepare_database, upgrade_database):
        database = open_database(make_empty())
        await make(database)
        async with database.read() as connection:
            seen.append(await read_oldest_revision(connection))
        await database.close()
    assert seen == [OLDEST_REVISION, OLDEST_REVISION]


async def test_days_of_all_sites_are_summed_when_the_key_changes(make_empty: Callable[[], str]) -> None:
    """A34: what was counted by site before is known of all sites together."""
    database = open_database(make_empty())
    await upgrade_database(database, revision="0029")
    insert = text("INSERT INTO daily_stats VALUES ('2030-01-01', :site, 1, :total, 1)")
    async with database.write() as connection:
        await connection.execute(insert, [{"site": 1, "total": 4}, {"site": 2, "total": 3}])
    await prepare_database(database)
    async with database.read() as connection:
        rows = [tuple(row) for row in await connection.execute(text("SELECT * FROM daily_stats ORDER BY site"))]
    await downgrade_database(database, revision="0029")
    async with database.read() as connection:
        left = (await connection.execute(text("SELECT count(*) FROM daily_stats"))).scalar_one()
    await database.close()
    assert (rows[0], left) == (("2030-01-01", 0, 1, 7, 2), 2)


async def test_preparing_again_keeps_what_was_written(database: Database) -> None:
    """Decision 1: every start prepares, and no start loses anything."""
    async with database.write() as connection:
        await connection.execute(text("INSERT INTO pace (host, next_at) VALUES ('one', 7)"))
    await prepare_database(database)
    async with database.read() as connection:
        rows = [tuple(row) for row in await connection.execute(text("SELECT host, next_at FROM pace"))]
    assert rows == [("one", 7)]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Two other processes that can start from one line."""
    with open_pool(2) as made:
        yield made


def prepare_in_process(url: str) -> str | None:
    async def run() -> str | None:
        database = open_database(url)
        try:
            wait_at_line(SOON)
            await tidings.wiring.opening.prepare_tables(database)
            return await find_revision(database)
        finally:
            await database.close()

    return asyncio.run(run())


@pytest.mark.thorough
def test_two_processes_prepare_an_empty_database_at_once(pool: Pool, make_empty: Callable[[], str]) -> None:
    """Decision 2: one does it, the other finds it done; there is one set of tables and one revision."""
    url = make_empty()
    assert pool.map(prepare_in_process, [url, url], chunksize=1) == [newest_revision()] * 2
    assert asyncio.run(describe_after(url)) == asyncio.run(describe_after(make_empty(), prepare_database))
    assert asyncio.run(count_revisions(url)) == 1


async def count_revisions(url: str) -> int:
    database = open_database(url)
    async with database.read() as connection:
        count: int = (await connection.execute(text("SELECT count(*) FROM alembic_version"))).scalar_one()
    await database.close()
    return count
