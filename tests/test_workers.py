"""Several machines on one PostgreSQL: real `tidings serve` and `tidings worker` processes, each with a data directory
of its own, that are killed, frozen and cut off from a database that restarts."""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import ClientSession
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from tests.cli.fork_server import Command
from tests.cli.terminal import Terminal, end
from tests.conftest import _fill
from tests.postgres import Server as PostgresServer
from tests.test_serve import TOKEN, House, Served, Server, open_house
from tests.waiting import Held
from tidings.announce.site.site import SubmitMethod

pytestmark = pytest.mark.slow

# A frozen worker's locks go after 15 s, it counts as dead after 15 s more, and the next tick is 5 s later; the rest is
# for a busy machine.
SOON = 120.0
# Seconds that a worker is frozen for, at least.
FROZEN = 24.0


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server that the test may restart."""
    folder = Path(tempfile.mkdtemp(prefix="tidings-own-"))
    server = PostgresServer(folder, fill=_fill, durable=True)
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Machines:
    """An installation on PostgreSQL with as many machines as a test starts."""

    house: House
    folder: Path
    variables: dict[str, str]
    client: ClientSession
    stack: AsyncExitStack

    async def open_terminal(self, name: str) -> Terminal:
        terminal = Terminal(self.folder / name)
        terminal.folder.mkdir(exist_ok=True)
        terminal.variables |= self.variables
        terminal.variables["TIDINGS_DATA_DIR"] = str(terminal.data_dir)
        self.stack.push_async_callback(terminal.close)
        return terminal

    async def serve(self, name: str = "served", *words: str) -> Served:
        terminal = await self.open_terminal(name)
        return await Server(terminal, self.client).start_with(*words)

    async def start_worker(self, name: str, *, queues: Sequence[str] = ("announce",)) -> Command:
        """A worker that takes jobs of these queues."""
        words = [word for queue in queues for word in ("--queue", queue)]
        process = await (await self.open_terminal(name)).start("worker", *words, "--quiet")
        async with asyncio.timeout(SOON):
            line = await process.stdout.readline()
            assert b"takes jobs" in line, (await end(process)).err
        return process

    async def wait_until(self, is_so: Callable[[], Awaitable[bool]], *, seconds: float = SOON) -> float:
        """How long it took; the database may be away meanwhile."""
        began = time.monotonic()
        async with asyncio.timeout(seconds):
            while True:
                try:
                    if await is_so():
                        return time.monotonic() - began
                except SQLAlchemyError:
                    pass
                await asyncio.sleep(0.05)

    async def is_settled(self) -> bool:
        """Whether PostgreSQL has run for longer than its grace."""
        age = text("SELECT extract(epoch FROM now() - pg_postmaster_start_time())")
        async with self.house.database.read() as connection:
            return float((await connection.execute(age)).scalar_one()) > 40

    async def have_ended(self, count: int) -> bool:
        return sum(status == "succeeded" for _, status in await self.house.list_statuses()) >= count


@asynccontextmanager
async def open_machines(folder: Path, url: str, *, pages: int = 20) -> AsyncIterator[Machines]:
    async with AsyncExitStack() as stack:
        terminal = Terminal(folder)
        house = await stack.enter_async_context(open_house(terminal, pages=pages, database_url=url))
        client = await stack.enter_async_context(ClientSession())
        variables = {
            "TIDINGS_TOKEN": TOKEN,
            "TIDINGS_DATABASE_URL": url,
            "COOKIE_MASTER_KEY": terminal.variables["COOKIE_MASTER_KEY"],
        }
        yield Machines(house, folder, variables, client, stack)


async def test_a_restart_of_postgresql_in_the_middle_of_a_run_leaves_nobody_waiting(
    tmp_path: Path, own_postgres: PostgresServer
) -> None:
    """A20, A39: every page is sent, the site is free again soon, and the worker takes the next job."""
    async with open_machines(tmp_path, own_postgres.make_database()) as machines:
        house = machines.house
        site = await house.store(submit_method=SubmitMethod.GET)
        held = Held()
        house.engine.on_request = held.wait
        await machines.start_worker("one")
        await held.arrive()
        await asyncio.to_thread(own_postgres.restart)
        held.let_go()
        house.engine.on_request = None
        await machines.wait_until(lambda: machines.have_ended(1), seconds=90)
        assert set(house.engine.accepted) == set(house.web.urls())
        # At most three requests are in flight.
        assert house.engine.accepted.total() <= 20 + 3
        await house.store(site.id)
        await machines.wait_until(lambda: machines.have_ended(2))


async def test_a_worker_that_is_killed_is_replaced_by_another_machine(tmp_path: Path, postgres_url: str) -> None:
    """A39: the other has a data directory of its own, and knows of it by heartbeats alone."""
    async with open_machines(tmp_path, postgres_url) as machines:
        house = machines.house
        await house.store(submit_method=SubmitMethod.GET)
        held = Held()
        house.engine.on_request = held.wait
        first = await machines.start_worker("one")
        await held.arrive()
        await machines.start_worker("two")
        # Nobody is judged in the first half minute of a PostgreSQL.
        await machines.wait_until(machines.is_settled)
        first.kill()
        house.engine.on_request = None
        took = await machines.wait_until(lambda: machines.have_ended(1))
        held.let_go()
        assert took < 30
        assert [status for _, status in await house.list_statuses()] == ["interrupted", "succeeded"]
        assert set(house.engine.accepted) == set(house.web.urls())


async def test_a_frozen_worker_writes_nothing_after_it_wakes(tmp_path: Path, postgres_url: str) -> None:
    """A39: another took its execution over, so what it wanted to write is refused; after that it takes jobs again."""
    async with open_machines(tmp_path, postgres_url) as machines:
        house = machines.house
        await house.store(submit_method=SubmitMethod.GET)
        held = Held()
        house.engine.on_request = held.wait
        first = await machines.start_worker("one")
        await held.arrive()
        await machines.wait_until(machines.is_settled)
        os.kill(first.pid, signal.SIGSTOP)
        frozen_at = time.monotonic()
        house.engine.on_request = None
        second = await machines.start_worker("two")
        await machines.wait_until(lambda: machines.have_ended(1))
        second.kill()
        await asyncio.sleep(max(0.0, FROZEN - (time.monotonic() - frozen_at)))
        before = await _read_rows(machines)
        held.let_go()
        os.kill(first.pid, signal.SIGCONT)
        log = machines.folder / "one" / "data" / "tidings.log"

        async def is_refused() -> bool:
            return "execution.lost" in log.read_text()

        await machines.wait_until(is_refused)
        assert await _read_rows(machines) == before
        assert [status for _, status in await house.list_statuses()] == ["interrupted", "succeeded"]
        assert set(house.engine.accepted) == set(house.web.urls())
        await house.store("other")
        await machines.wait_until(lambda: machines.have_ended(2))


async def _read_rows(machines: Machines) -> dict[str, list[str]]:
    """All that an execution writes, as text."""
    tables = ("executions", "last_executions", "ledger", "batches", "deliveries", "daily_stats", "sitemap_validators")
    async with machines.house.database.read() as connection:
        return {
            table: list((await connection.execute(text(f"SELECT t::text FROM {table} AS t ORDER BY 1"))).scalars())
            for table in tables
        }


async def test_what_was_answered_with_202_is_sent_after_kill_9(tmp_path: Path, postgres_url: str) -> None:
    """A13, A35: nobody works when it is asked for; the server dies; a worker that starts later sends it."""
    async with open_machines(tmp_path, postgres_url) as machines:
        house = machines.house
        site = await house.store(due=None, enabled=False)
        served = await machines.serve("served", "--no-work")
        unlisted = f"{house.web.origin}/unlisted"
        status, _ = await served.ask(f"/api/sites/{site.id}/urls", method="POST", document={"urls": [unlisted]})
        served.process.kill()
        assert status == 202
        await machines.start_worker("one")
        await machines.wait_until(lambda: machines.have_ended(1))
        assert dict(house.engine.accepted) == {unlisted: 1}


async def test_a_run_on_one_machine_is_begun_watched_and_stopped_from_another(
    tmp_path: Path, postgres_url: str
) -> None:
    """A35, A36: trigger on A, work on B; A sees how far it is, and stops it within a second."""
    async with open_machines(tmp_path, postgres_url, pages=60) as machines:
        house = machines.house
        site = await house.store(due=None, submit_method=SubmitMethod.GET)
        served = await machines.serve("served", "--no-work")
        await machines.start_worker("one")
        held = Held()
        house.engine.on_request = held.wait
        status, started = await served.ask(f"/trigger?site={site.id}", method="POST")
        await held.arrive()
        path = f"/api/sites/{site.id}/executions/{started['executionId']}"

        async def is_seen() -> bool:
            _, seen = await served.ask(path)
            return bool((seen["execution"]["result"] or {}).get("new") == 60)

        await machines.wait_until(is_seen)
        status, _ = await served.ask(f"{path}/stop", method="POST")
        held.let_go()
        assert status == 202

        async def is_stopped() -> bool:
            _, seen = await served.ask(path)
            return bool(seen["execution"]["status"] == "interrupted")

        assert await machines.wait_until(is_stopped) < 10
        assert house.engine.accepted.total() < 60
        status, answer = await served.ask("/api/workers")
        assert (status, [worker["queues"] for worker in answer["workers"]]) == (200, [["announce"]])
