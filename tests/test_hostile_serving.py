"""`tidings serve` while it reads a hostile page: it answers, it ends in time, and it leaves no process behind."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.cli.terminal import Terminal
from tests.collect.test_hostile_pages import TEXT, make_page
from tests.processes import list_readers, wait_for_end, wait_for_no_reader, wait_for_reader
from tests.test_serve import LONGEST_END, TOKEN, Served, Server
from tidings.sandbox.media.openweb import SandboxOpenWeb

pytestmark = pytest.mark.slow

LONGEST_SILENCE = 2.0
# Its cost grows with their square: a minute of CPU, so that every machine gives it up at its limit of five seconds.
ATTRIBUTES = 150_000


@pytest.fixture
async def site() -> AsyncIterator[SandboxOpenWeb]:
    async with SandboxOpenWeb() as running:
        running.serve(
            "/hostile", make_page(body=f"<p {' '.join(f'a{number}=1' for number in range(ATTRIBUTES))}>x{TEXT}")
        )
        yield running


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    terminal = Terminal(tmp_path)
    terminal.variables |= {"TIDINGS_TOKEN": TOKEN, "PLATFORM_INTERVAL_SECONDS": "0"}
    async with ClientSession() as client:
        yield await Server(terminal, client).start()
    await terminal.close()


async def ask_for_page(served: Served, site: SandboxOpenWeb) -> object:
    url, body = served.said[-1].split()[3], {"platform": "web", "url": f"{site.origin}/hostile"}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with served.client.post(f"{url}/crawler/detail", json=body, headers=headers) as answer:
        return (await answer.json())["error"]["code"]


async def test_the_service_answers_while_it_reads_a_hostile_page(served: Served, site: SandboxOpenWeb) -> None:
    """C16: /health/live is never silent; the page gets its error; SIGTERM then ends everything in ten seconds."""
    asking = asyncio.create_task(ask_for_page(served, site))
    longest = 0.0
    while not asking.done():
        began = time.monotonic()
        assert (await served.ask("/health/live"))[0] == 200
        longest = max(longest, time.monotonic() - began)
    assert await asking in ("INVALID_INPUT", "TIMEOUT_ERROR")
    assert longest < LONGEST_SILENCE
    again = asyncio.create_task(ask_for_page(served, site))
    await wait_for_reader(served.process.pid)
    assert await served.end() < LONGEST_END
    await asyncio.gather(again, return_exceptions=True)
    await wait_for_no_reader(served.process.pid)


async def test_a_killed_service_leaves_no_process_that_reads(served: Served, site: SandboxOpenWeb) -> None:
    """C16: also while it is in the middle of a hostile page."""
    asking = asyncio.create_task(ask_for_page(served, site))
    reader = await wait_for_reader(served.process.pid)
    assert list_readers(served.process.pid) == {reader}
    os.kill(served.process.pid, signal.SIGKILL)
    await asyncio.gather(asking, return_exceptions=True)

    await wait_for_end(reader)
