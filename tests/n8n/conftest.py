"""The fixtures: one n8n for all tests, with the shipped files in it; and for each test a stage of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.cli.terminal import Terminal
from tests.collect.moody_platform import MoodyPlatform
from tests.n8n.driver import N8n, find_port
from tests.n8n.install import find_place
from tests.n8n.stage import CANARY, KEYWORD, TOKEN, Outside, Stage, serve
from tests.n8n.wire import open_wire
from tests.postgres import Server
from tidings.collect.write.keywords import Keywords
from tidings.core.clock import SystemClock
from tidings.core.db.database import open_database
from tidings.core.db.revisions import prepare_database
from tidings.sandbox.media import bilibili


@pytest.fixture
async def outside() -> AsyncIterator[Outside]:
    noted = Outside()
    async with await asyncio.start_server(noted.answer, "127.0.0.1", 0) as server:
        noted.port = server.sockets[0].getsockname()[1]
        yield noted


@pytest.fixture(scope="session")
def prepared_n8n(tmp_path_factory: pytest.TempPathFactory, postgres_server: Server) -> N8n:
    place = find_place()
    assert place.is_complete, "n8n is not installed: `make test-n8n` does it, or `python -m tests.n8n.install`"
    database = postgres_server.make_database(empty=True)
    folder = tmp_path_factory.mktemp("n8n")
    prepared = N8n(place, folder=folder, database=database, base_url=f"http://127.0.0.1:{find_port()}")
    prepared.prepare(TOKEN)
    return prepared


@pytest.fixture
async def n8n(prepared_n8n: N8n) -> AsyncIterator[N8n]:
    yield prepared_n8n
    await prepared_n8n.close()


@pytest.fixture
def variables() -> dict[str, str]:
    """Settings of the service that a test chooses."""
    return {}


@pytest.fixture
async def moody() -> AsyncIterator[MoodyPlatform]:
    """What the service takes for Weibo."""
    async with MoodyPlatform(notes=10) as running:
        yield running


@pytest.fixture
async def stage(
    tmp_path: Path, n8n: N8n, outside: Outside, moody: MoodyPlatform, variables: dict[str, str]
) -> AsyncIterator[Stage]:
    """With a cookie, and a keyword that is watched and finds twelve notes."""
    terminal = Terminal(tmp_path)
    terminal.data_dir.mkdir(mode=0o700)
    terminal.variables |= {"TIDINGS_WORKFLOW_TOKEN": TOKEN, "TIDINGS_COLLECT_RUNNER": "off"}
    terminal.variables |= {"PLATFORM_INTERVAL_SECONDS": "0", "COOKIE_INTERVAL_SECONDS": "0"}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(terminal.close)
        platform = await stack.enter_async_context(bilibili.SandboxBilibili(sessions=[CANARY]))
        client = await stack.enter_async_context(ClientSession())
        terminal.variables |= {"BILIBILI_BASE_URL": platform.origin, "WEIBO_BASE_URL": moody.origin} | variables
        database = open_database(f"sqlite:///{terminal.data_dir / 'tidings.db'}")
        stack.push_async_callback(database.close)
        await prepare_database(database)
        await Keywords(database, clock=SystemClock()).add("bilibili", KEYWORD)
        words = ("cookies", "add", "canary", "--platform", "bilibili", "--daily-limit", "1000")
        ended = await terminal.pipe(*words, given=f"SESSDATA={CANARY}; buvid3=device")
        assert ended.code == 0, ended
        wire = await stack.enter_async_context(open_wire(n8n.base_url, client))
        served = await serve(terminal, client)
        wire.target = served.said[-1].split()[3]
        yield Stage(n8n, wire, terminal, served, platform, database, outside)
        await served.end()
    assert outside.wanted == []
