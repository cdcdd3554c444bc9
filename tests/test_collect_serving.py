"""Collecting in `tidings serve`, as people run it: a keyword is watched, and its notes stand in the table without
anybody asking; the end of the service is the end of what collects, in good order."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import pytest
from aiohttp import ClientSession
from sqlalchemy import select, text

from tests.cli.terminal import Terminal
from tests.test_serve import LONGEST_END, PATIENCE, TOKEN, Served, Server
from tests.waiting import wait_until
from tidings.collect.tables import candidates
from tidings.collect.write.cookies import make_cookie
from tidings.core.db.database import Database
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media.weibo import DEMO_WEIBO_COOKIE, DEMO_WEIBO_SESSION, SHOW_PATH, SandboxWeibo
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.settings.settings import read_settings
from tidings.wiring.opening import open_installation

pytestmark = pytest.mark.slow

TOPIC = "bread"


@pytest.fixture
async def weibo() -> AsyncIterator[SandboxWeibo]:
    async with SandboxWeibo() as running:
        yield running


@pytest.fixture
async def terminal(tmp_path: Path, weibo: SandboxWeibo) -> AsyncIterator[Terminal]:
    opened = Terminal(tmp_path)
    opened.variables |= {
        "TIDINGS_TOKEN": TOKEN,
        "WEIBO_BASE_URL": weibo.origin,
        "PLATFORM_INTERVAL_SECONDS": "0",
        "COOKIE_INTERVAL_SECONDS": "0",
        "BACKOFF_SECONDS": "0",
    }
    yield opened
    await opened.close()


@pytest.fixture
async def server(terminal: Terminal) -> AsyncIterator[Server]:
    async with ClientSession() as client:
        yield Server(terminal, client)


@asynccontextmanager
async def open_house(terminal: Terminal) -> AsyncIterator[Database]:
    """The database that the service works on, with a keyword on Weibo and a cookie for it."""
    async with open_installation(read_settings(terminal.variables), redactor=Redactor()) as installation:
        await installation.collect.keywords.add("weibo", TOPIC)
        await installation.collect.cookies.add(make_cookie("mine", platform="weibo", secret=Secret(DEMO_WEIBO_COOKIE)))
        yield installation.database


async def count_statuses(database: Database) -> dict[str, int]:
    async with database.write() as connection:
        return dict(Counter((await connection.execute(select(candidates.c.status))).scalars()))


async def list_executions(database: Database) -> Counter[tuple[str, str]]:
    statement = text("SELECT workflow_name, status FROM tbl_crawl_execution")
    async with database.write() as connection:
        return Counter((row.workflow_name, row.status) for row in await connection.execute(statement))


async def wait_for(database: Database, expected: dict[str, int]) -> None:
    async def is_so() -> bool:
        return await count_statuses(database) == expected

    await wait_until(is_so)


async def wait_until_ready(service: Served) -> None:
    async def is_ready() -> bool:
        return (await service.ask("/health/ready"))[0] == HTTPStatus.OK

    await wait_until(is_ready)


async def test_two_services_collect_what_is_watched_once(
    terminal: Terminal, server: Server, weibo: SandboxWeibo
) -> None:
    """C3, C19, C27: two processes on one database; every note is asked for once, and both stay healthy."""
    async with open_house(terminal) as database:
        services = [await server.start(), await server.start()]
        await wait_for(database, {"collected": 10})
        for service in services:
            await wait_until_ready(service)
        durations = [await service.end() for service in services]
        ended = await list_executions(database)
    assert max(durations) < LONGEST_END
    assert ended == {("discover", "succeeded"): 1, ("collect:weibo", "succeeded"): 1}
    assert sum(request.path == SHOW_PATH for request in weibo.requests) == 10
    assert DEMO_WEIBO_SESSION not in terminal.log
    assert "job.failed" not in terminal.log


async def test_the_end_of_the_service_interrupts_a_collection_and_the_next_start_goes_on(
    terminal: Terminal, server: Server, weibo: SandboxWeibo
) -> None:
    """C5, C19: within ten seconds, though the platform never answers; nothing counts as a failure."""
    async with open_house(terminal) as database:
        weibo.misbehave(Fault(FaultKind.HANG, path=SHOW_PATH))
        service = await server.start()
        await weibo.wait_for_requests(2, timeout=PATIENCE)
        took = await service.end()
        between = await count_statuses(database)
        statement = select(candidates.c.retry_count, candidates.c.processing_lock).distinct()
        async with database.write() as connection:
            (left,) = await connection.execute(statement)
        first = await list_executions(database)
        weibo.recover()
        async with database.write() as connection:
            await connection.execute(text("DELETE FROM due_jobs"))
        again = await server.start()
        await wait_for(database, {"collected": 10})
        await again.end()
    assert took < LONGEST_END
    assert (between, tuple(left)) == ({"pending": 10}, (0, None))
    assert first == {("discover", "succeeded"): 1, ("collect:weibo", "interrupted"): 1}


async def test_a_service_whose_workflows_others_drive_asks_no_platform(
    terminal: Terminal, server: Server, weibo: SandboxWeibo
) -> None:
    """C19: TIDINGS_COLLECT_RUNNER=off; what a dead driver left is freed all the same."""
    async with open_house(terminal) as database:
        async with database.write() as connection:
            await connection.execute(
                text(
                    "INSERT INTO tbl_candidate (platform, note_id, note_url, title, status, processing_lock, locked_at,"
                    " retry_count, source_keyword, exec_meta, due_at, created_at, updated_at)"
                    " VALUES ('weibo', '1', '', '', 'processing', 'exec-1-dead', 1, 0, '', '{}', 1, 1, 1)"
                )
            )
        service = await server.start(TIDINGS_COLLECT_RUNNER="off")
        await wait_for(database, {"pending": 1})
        await service.end()
        assert await list_executions(database) == {}
    assert len(weibo.requests) == 0
