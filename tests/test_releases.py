"""Two releases on one PostgreSQL, as during a roll-out. The older one is this release; the newer one is a copy of it
with one more migration, in processes of its own."""

import asyncio
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

import tidings
from tests.cli.terminal import end
from tests.test_workers import SOON, Machines, open_machines
from tidings.core.db.compatibility import compatibility
from tidings.core.db.revisions import find_revision, newest_revision

pytestmark = pytest.mark.slow

NEXT = "9000"
SITES = 12
PAGES = 20

_MIGRATION = f'''
"""What the next release adds."""
import sqlalchemy as sa
from alembic import op
revision, down_revision = "{NEXT}", "{newest_revision()}"
def upgrade():
    op.add_column("sites", sa.Column("colour", sa.Text))
def downgrade():
    op.drop_column("sites", "colour")
'''


class NextRelease:
    """The newer release: its commands run from a copy of the package."""

    def __init__(self, folder: Path, machines: Machines) -> None:
        self._folder = folder
        self._machines = machines
        shutil.copytree(Path(tidings.__file__).parent, folder / "tidings", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "tidings/core/db/migrations/versions" / f"{NEXT}_next.py").write_text(_MIGRATION)

    async def start(self, *arguments: str) -> Process:
        terminal = await self._machines.open_terminal("next")
        variables = {**terminal.variables, "PYTHONPATH": str(self._folder)}
        command = (sys.executable, "-c", "from tidings.cli import main; main()", *arguments)
        return await asyncio.create_subprocess_exec(
            *command, cwd=terminal.folder, env=variables, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )

    async def upgrade(self) -> None:
        ended = await end(await self.start("database", "upgrade"))
        assert ended.code == 0, ended.err

    @asynccontextmanager
    async def work(self) -> AsyncIterator[Process]:
        process = await self.start("worker", "--queue", "announce", "--quiet")
        assert process.stdout is not None
        async with asyncio.timeout(SOON):
            line = await process.stdout.readline()
        assert b"takes jobs" in line, line
        try:
            yield process
        finally:
            process.kill()
            await process.communicate()


@pytest.fixture
async def machines(tmp_path: Path, postgres_url: str) -> AsyncIterator[Machines]:
    async with open_machines(tmp_path, postgres_url, pages=PAGES) as opened:
        yield opened


async def test_an_old_server_beside_a_new_worker_loses_nothing_and_doubles_nothing(
    tmp_path: Path, machines: Machines
) -> None:
    """A13, A41: the tables change under the old server; it is started again meanwhile, and both do the work."""
    house = machines.house
    machines.variables["REQUEST_INTERVAL_MS"] = "20"
    next_release = NextRelease(tmp_path / "release", machines)
    old = await machines.serve("old")
    for number in range(SITES):
        await house.store(f"site-{number}")
    await next_release.upgrade()
    assert await find_revision(house.database) == NEXT
    async with next_release.work():
        await machines.wait_until(lambda: machines.have_ended(SITES), seconds=120)
        await old.end()
        again = await machines.serve("old")
        await house.store("one-more", due=None)
        assert (await again.trigger("one-more"))["status"] == "succeeded"
        _, answer = await again.ask("/api/workers")
    assert len(answer["workers"]) >= 2
    assert set(house.engine.accepted.values()) == {SITES + 1}
    assert [status for _, status in await house.list_statuses()] == ["succeeded"] * (SITES + 1)


async def test_releases_that_cannot_work_together_refuse(machines: Machines) -> None:
    """A41: a server whose tables a newer release has changed for good ends by itself, says why, and does not start."""
    old = await machines.serve("old", "--no-work")
    async with machines.house.database.write() as connection:
        await connection.execute(text(f"UPDATE alembic_version SET version_num = '{NEXT}'"))
        await connection.execute(text(compatibility(NEXT)))
    ended = await end(old.process)
    again = await end(await (await machines.open_terminal("old")).start("serve", "--port", "0", "--quiet"))
    reason = f"revision {NEXT}, this release knows {newest_revision()} and cannot work on them; nothing was changed"
    assert (ended.code, reason in ended.err) == (2, True)
    assert (again.code, reason in again.err) == (2, True)
