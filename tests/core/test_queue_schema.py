"""The tables of the queue: those of the installed package, on a new database and on a migrated one, and gone after."""

import pytest
from procrastinate.schema import SchemaManager
from sqlalchemy import text

from tests.postgres import Server
from tidings.core.db.database import Database, open_database
from tidings.core.db.revisions import downgrade_database, prepare_database, upgrade_database
from tidings.core.queue.schema import CREATE_QUEUE

_FIND = text(
    "SELECT proname FROM pg_proc WHERE proname LIKE 'procrastinate%' "
    "UNION ALL SELECT relname FROM pg_class WHERE relname LIKE '%procrastinate%' "
    "UNION ALL SELECT typname FROM pg_type WHERE typname LIKE '%procrastinate%' "
    "UNION ALL SELECT tgname FROM pg_trigger WHERE tgname LIKE 'procrastinate%' ORDER BY 1"
)


def test_the_sql_that_we_keep_is_that_of_the_installed_package() -> None:
    """Decision 1: it has no version table, so a newer package needs a migration of ours."""
    assert SchemaManager.get_schema() == CREATE_QUEUE


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["new", "migrated"])
async def test_the_queue_is_made_with_our_tables_and_goes_with_them(postgres_server: Server, way: str) -> None:
    """Migrations run both ways."""
    database = open_database(postgres_server.make_database(empty=True))
    try:
        if way == "new":
            await prepare_database(database)
        else:
            await upgrade_database(database)
        made = await _list(database)
        await downgrade_database(database, revision="0020")
        left = await _list(database)
        await upgrade_database(database)
        assert (len(made) > 40, left, await _list(database)) == (True, [], made)
    finally:
        await database.close()


async def _list(database: Database) -> list[str]:
    async with database.read() as connection:
        return list((await connection.execute(_FIND)).scalars())
