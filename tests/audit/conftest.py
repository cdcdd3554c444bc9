"""What the tests of the audit stand on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.audit.installation import Planted, build_installation
from tidings.core.db.database import Database, open_database


@pytest.fixture
async def anywhere(tmp_path: Path, database: Database) -> Planted:
    """A clean installation, on each database."""
    return await build_installation(tmp_path, database)


@pytest.fixture
async def planted(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Planted]:
    """A clean installation on SQLite."""
    database = open_database(sqlite_url)
    yield await build_installation(tmp_path, database)
    await database.close()
