"""Schedules are made to match the sites once for each revision of the tables."""

from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.announce.test_schedule import store_sites
from tests.fakes import FakeClock
from tests.stage import open_stage
from tidings.announce.schedule.table import schedules
from tidings.wiring.installation import Installation

pytestmark = pytest.mark.one_database


async def test_the_first_tick_of_a_revision_syncs_and_later_starts_do_not(database_url: str, tmp_path: Path) -> None:
    """A38: with 100,000 sites a sync takes seconds and locks every row; after an upgrade it is done once."""
    clock = FakeClock()
    async with open_stage(database_url, tmp_path, clock=clock) as first:
        await store_sites(first.database, 3)
        await first.ticker.tick()
        assert await _count(first) == 3
        await store_sites(first.database, 2, origin="environment")
    async with open_stage(database_url, tmp_path, clock=clock) as second:
        await second.ticker.tick()
        assert await _count(second) == 3


async def _count(installation: Installation) -> int:
    async with installation.database.read() as connection:
        return int((await connection.execute(select(func.count()).select_from(schedules))).scalar_one())
