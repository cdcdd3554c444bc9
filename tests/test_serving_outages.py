"""`tidings serve` on a full disk, on a disk that cannot be written, without its database file, and without PostgreSQL
for a minute. Each time the answers say so and can be repeated, nothing is lost, and it goes on by itself."""

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, ClientSession

from tests.cli.terminal import Terminal, end
from tests.postgres import Server as PostgresServer
from tests.test_serve import CONCURRENCY, LONGEST_END, TOKEN, House, Served, Server, open_house
from tests.test_workers import open_machines, own_postgres
from tests.waiting import Held, wait_until
from tests.web.test_database_away import REQUESTS
from tidings.announce.site.site import SubmitMethod

__all__ = ["own_postgres"]

pytestmark = pytest.mark.slow

PAGES = 60
SIZE = "8m"
AWAY_SECONDS = 60.0


class SmallDisk:
    """A disk of 8 MB, which is mounted. Only root may do that; for anybody else a limit on the process's files stands
    in for a full disk, and the mode of the folder for one that cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._is_mounted = os.geteuid() == 0
        folder.mkdir(mode=0o700)
        if self._is_mounted:
            _mount("-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", folder)

    def fill(self, process: int) -> None:
        if not self._is_mounted:
            resource.prlimit(process, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            return
        with (self.folder / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    def free(self, process: int) -> None:
        if self._is_mounted:
            (self.folder / "filler").unlink()
        else:
            resource.prlimit(process, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def set_writable(self, *, writable: bool) -> None:
        if self._is_mounted:
            _mount("-o", f"remount,{'rw' if writable else 'ro'}", self.folder)
        else:
            self.folder.chmod(0o700 if writable else 0o500)

    def close(self) -> None:
        if self._is_mounted:
            subprocess.run(["umount", "--lazy", self.folder], check=True)


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    opened = SmallDisk(tmp_path / "disk")
    yield opened
    opened.close()


@pytest.fixture
async def terminal(disk: SmallDisk, tmp_path: Path) -> AsyncIterator[Terminal]:
    """A terminal whose data directory is on the small disk."""
    opened = Terminal(tmp_path)
    opened.data_dir = disk.folder
    opened.variables |= {"TIDINGS_DATA_DIR": str(disk.folder), "TIDINGS_TOKEN": TOKEN}
    yield opened
    await opened.close()


@pytest.fixture
async def server(terminal: Terminal) -> AsyncIterator[Server]:
    async with ClientSession() as client:
        yield Server(terminal, client)


async def ask_everything(served: Served) -> None:
    """Every kind of route answers 503 and that the same request can succeed later; the process itself lives."""
    for method, path, document in REQUESTS:
        status, answer = await served.ask(path, method=method, document=document)
        assert status == 503, (path, answer)
        if path.startswith("/workflow"):
            assert (answer["error"]["retryable"], answer["error"]["asked"]) == (True, False), path
        else:
            assert answer["code"] == "database_unavailable", path
    assert (await served.ask("/health/live"))[0] == 200
    assert (await served.ask("/health/ready"))[0] == 503


async def check_all_sent(house: House, served: Served) -> None:
    """Everything arrives, by itself or when it is asked for, and nothing twice but what was in flight."""
    assert (await served.trigger("shop"))["status"] == "succeeded"
    assert set(house.engine.accepted) == set(house.web.urls())
    assert house.engine.accepted.total() - PAGES <= CONCURRENCY


async def test_on_a_full_disk_writes_are_refused_and_go_on_when_there_is_room(
    terminal: Terminal, server: Server, disk: SmallDisk
) -> None:
    """A11, A13, C35: reading works, the answer to a write is 503, and nothing that was saved is gone."""
    async with open_house(terminal, pages=PAGES) as house:
        await house.store(due=None, submit_method=SubmitMethod.GET)
        served = await server.start()
        disk.fill(served.process.pid)
        assert (await served.ask("/api/sites"))[0] == 200
        for _ in range(3):
            status, answer = await served.ask("/trigger?site=shop", method="POST")
            assert (status, answer["code"]) == (503, "database_unavailable")
            status, answer = await served.ask("/api/sites/shop/pause", method="POST")
            assert (status, answer["code"]) == (503, "database_unavailable")
        assert not house.engine.requests
        disk.free(served.process.pid)
        await check_all_sent(house, served)


async def test_a_disk_that_fills_in_the_middle_of_an_execution_loses_nothing(
    terminal: Terminal, server: Server, disk: SmallDisk
) -> None:
    """A11, A13: what could not be recorded is sent again, at most what was in flight."""
    async with open_house(terminal, pages=PAGES) as house:
        await house.store(due=None, submit_method=SubmitMethod.GET)
        held = Held()
        served = await server.start()
        house.engine.on_request = held.wait
        assert (await served.ask("/trigger?site=shop", method="POST"))[0] == 202
        await held.arrive()
        disk.fill(served.process.pid)
        house.engine.on_request = None
        held.let_go()
        await house.engine.wait_until_idle()
        assert (await served.ask("/health/live"))[0] == 200
        disk.free(served.process.pid)

        async def is_free() -> bool:
            status, _ = await served.ask("/trigger?site=shop&wait=true", method="POST")
            return status == 200

        await wait_until(is_free)
        await check_all_sent(house, served)


async def test_a_disk_that_cannot_be_written_is_named_and_works_again_when_it_can(
    terminal: Terminal, server: Server, disk: SmallDisk
) -> None:
    """A1, A11: one line and no harm; after that, everything is sent once."""
    async with open_house(terminal, pages=PAGES) as house:
        await house.store(due=None, submit_method=SubmitMethod.GET)
        await house.database.close()
        disk.set_writable(writable=False)
        ended = await terminal.run("serve", "--port", "0")
        assert (ended.code, ended.out) == (1, "")
        complaints = [line for line in ended.err.splitlines() if line.startswith("tidings: ")]
        assert len(complaints) == 1, ended.err
        assert "Traceback" not in ended.err
        disk.set_writable(writable=True)
        await check_all_sent(house, await server.start())


async def test_without_its_file_the_database_is_away_and_goes_on_when_it_is_back(
    terminal: Terminal, server: Server, disk: SmallDisk
) -> None:
    """A13, C35: nothing is written to a file that has no name any more."""
    async with open_house(terminal, pages=PAGES) as house:
        await house.store(due=None, submit_method=SubmitMethod.GET)
        served = await server.start()
        file = disk.folder / "tidings.db"
        shutil.move(file, file.with_suffix(".away"))
        await ask_everything(served)
        assert (await served.ask("/trigger?site=shop", method="POST"))[0] == 503
        shutil.move(file.with_suffix(".away"), file)
        await check_all_sent(house, served)


async def test_a_minute_without_postgresql_loses_nothing_and_nobody_has_to_help(
    tmp_path: Path, own_postgres: PostgresServer
) -> None:
    """A11, A13, A39, C35: away in the middle of an execution; every answer meanwhile is a 503 that may be repeated."""
    async with open_machines(tmp_path, own_postgres.make_database(), pages=PAGES) as machines:
        house = machines.house
        await house.store(submit_method=SubmitMethod.GET)
        held = Held()
        house.engine.on_request = held.wait
        served = await machines.serve()
        await held.arrive()
        await asyncio.to_thread(own_postgres.stop)
        back_at = time.monotonic() + AWAY_SECONDS
        house.engine.on_request = None
        held.let_go()
        while time.monotonic() < back_at:
            await ask_everything(served)
            await asyncio.sleep(5)
        await asyncio.to_thread(own_postgres.start)
        await machines.wait_until(lambda: machines.have_ended(1), seconds=120)
        assert set(house.engine.accepted) == set(house.web.urls())
        assert house.engine.accepted.total() - PAGES <= CONCURRENCY
        assert (await served.ask("/health/ready"))[0] == 200


async def has_stopped_listening(served: Served) -> bool:
    try:
        await served.ask("/health/live")
    except ClientConnectionError:
        return True
    return False


async def test_a_postgresql_that_hangs_keeps_neither_an_answer_nor_the_end_waiting(
    tmp_path: Path, own_postgres: PostgresServer
) -> None:
    """A39: it takes connections and answers nothing, so no error says that it is away. Neither the end in good order
    nor the one at a second signal waits for it."""
    async with open_machines(tmp_path, own_postgres.make_database(), pages=PAGES) as machines:
        served = await machines.serve()
        with own_postgres.frozen():
            assert (await served.ask("/health/live"))[0] == 200
            assert (await served.ask("/health/ready"))[0] == 503
            served.process.send_signal(signal.SIGTERM)
            ended = [await end(served.process)]
        again = await machines.serve()
        with own_postgres.frozen():
            again.process.send_signal(signal.SIGTERM)
            await wait_until(lambda: has_stopped_listening(again))
            again.process.send_signal(signal.SIGTERM)
            ended.append(await end(again.process))
        for each in ended:
            assert each.code == 1
            assert "something did not end in time; the database may hang; everything saved before is kept" in each.err
        last = await machines.serve()
        assert await last.end() < LONGEST_END
