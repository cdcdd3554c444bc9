"""The drill: a release that announces the wrong pages is taken back, each step a command as it stands in
docs/operations.md. Afterwards the engines have heard of every page that is right, and of no wrong one again."""

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import pytest

from tests.cli.fork_server import Command
from tests.cli.terminal import Ended, Terminal, end, make_sandbox
from tidings.core.db.revisions import MIGRATIONS, newest_revision
from tidings.sandbox.bundle import Sandbox

pytestmark = pytest.mark.slow

BACKUP = "before.backup"
PAGES = 60


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    await opened.close()


class Way(StrEnum):
    """How the database goes back."""

    RESTORE = "the backup is restored"
    DOWNGRADE = "the tables go down a revision and up again"
    KEEP = "it stays"


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("sqlite", Way.KEEP),
        ("sqlite", Way.RESTORE),
        ("sqlite", Way.DOWNGRADE),
        ("postgresql", Way.RESTORE),
        ("postgresql", Way.DOWNGRADE),
    ],
)
async def test_bad_release_is_rolled_back_and_exactly_the_right_pages_go_out(
    request: pytest.FixtureRequest, terminal: Terminal, kind: str, way: Way
) -> None:
    """A41, A36, A38: pause, back to the previous release and database, forget, resume, run."""
    if kind == "postgresql":
        terminal.variables["TIDINGS_DATABASE_URL"] = request.getfixturevalue("postgres_url")
    async with make_sandbox(pages=PAGES) as sandbox:
        await announce_first(terminal, sandbox)
        await run_well(terminal, "backup", BACKUP)
        began, wrong, changed = datetime.now(UTC), sandbox.site.add(20), range(1, 11)
        sandbox.site.change_many(changed)
        service = await start_service(terminal)
        assert (await run_well(terminal, "run", "mine", "--json")).document["submitted"] == 30
        await run_well(terminal, "pause")
        await stop_service(service)
        for number in wrong:
            sandbox.site.remove(number)
        fresh = sandbox.site.add(5)
        before = dict(sandbox.engines[0].accepted)
        await take_back(terminal, way)
        forgotten = await run_well(terminal, "ledger", "forget", "mine", "--since", began.isoformat())
        assert forgotten.out.startswith("0 entries" if way is Way.RESTORE else "30 entries")
        await check_pause(terminal, sandbox, before)
        assert (await run_well(terminal, "resume")).out == "Everything runs again.\n"
        ran = await run_well(terminal, "run", "mine", "--json")
        again = await run_well(terminal, "run", "mine", "--json")
        sent = {url: times - before.get(url, 0) for url, times in sandbox.engines[0].accepted.items()}
        right = {sandbox.site.url(number) for number in (*changed, *fresh)}
        assert {url: times for url, times in sent.items() if times} == dict.fromkeys(right, 1)
        assert (ran.document["status"], ran.document["submitted"], again.document["submitted"]) == ("succeeded", 15, 0)
        assert set(sandbox.site.urls()) <= set(sandbox.engines[0].accepted)


async def announce_first(terminal: Terminal, sandbox: Sandbox) -> None:
    site, engine = sandbox.site, sandbox.engines[0]
    # Never due by itself while this test runs: what goes out is what it runs.
    words = ["--engine", engine.endpoint, "--id", "mine", "--schedule", "0 0 29 2 *"]
    await run_well(terminal, "sites", "add", site.sitemap_url, "--key", site.key, *words)
    assert (await run_well(terminal, "run", "mine", "--json")).document["submitted"] == PAGES


async def take_back(terminal: Terminal, way: Way) -> None:
    """The database as the previous release knows it."""
    if way is Way.RESTORE:
        restored = await run_well(terminal, "restore", BACKUP, "--replace", "--yes")
        assert "Everything is still paused" in restored.out
    if way is Way.DOWNGRADE:
        older = sorted(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))[-2]
        down = await run_well(terminal, "database", "downgrade", older, "--yes")
        up = await run_well(terminal, "database", "upgrade")
        assert [down.out, up.out] == [f"The tables are at revision {each}.\n" for each in (older, newest_revision())]


async def check_pause(terminal: Terminal, sandbox: Sandbox, before: dict[str, int]) -> None:
    """The service starts, finds everything paused, and sends nothing."""
    await stop_service(await start_service(terminal))
    assert dict(sandbox.engines[0].accepted) == before
    assert (await run_well(terminal, "pause")).out == "Everything was paused already.\n"


async def run_well(terminal: Terminal, *words: str) -> Ended:
    ended = await terminal.run(*words)
    assert ended.code == 0, ended
    return ended


async def start_service(terminal: Terminal) -> Command:
    process = await terminal.start("serve", "--port", "0", "--quiet", TIDINGS_TOKEN="a-long-one-for-rollbacks-7Kp2")
    async with asyncio.timeout(30):
        assert b"Tidings listens on" in await process.stdout.readline()
    return process


async def stop_service(process: Command) -> None:
    process.send_signal(signal.SIGTERM)
    assert (await end(process)).code == 0
