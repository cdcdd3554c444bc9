"""The services that are photographed: the demo with its moving data, and one that is empty."""

import asyncio
import os
import re
import secrets
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIDINGS = Path(sys.executable).with_name("tidings")
_DASHBOARD = re.compile(r"(http://127\.0\.0\.1:\d+)\S*\s+Token: +(\S+)")
_LISTENING = re.compile(r"(http://127\.0\.0\.1:\d+)")


@dataclass(frozen=True, slots=True)
class Photographed:
    """A running service."""

    origin: str
    # A token of the admin.
    token: str
    # A token that may only look; empty where there is nothing to see.
    viewer: str = ""


@asynccontextmanager
async def run_demo() -> AsyncIterator[Photographed]:
    """The demo's dashboard."""
    with tempfile.TemporaryDirectory(prefix="tidings-screenshots-") as folder:
        environment = {**os.environ, "TIDINGS_DATA_DIR": folder, "TIDINGS_PORT": "0", "COLUMNS": "200"}
        async with _running("demo", environment=environment) as process:
            origin, token = await _read(process, _DASHBOARD)
            there = {**environment, "TIDINGS_DATA_DIR": f"{folder}/demo"}
            made = await asyncio.create_subprocess_exec(TIDINGS, "tokens", "new", "viewer", env=there, stdout=PIPE)
            output = (await made.communicate())[0].decode()
            yield Photographed(origin, token, viewer=output.split()[-1])


@asynccontextmanager
async def run_empty() -> AsyncIterator[Photographed]:
    """A service that nobody has used yet."""
    token = secrets.token_hex(24)
    with tempfile.TemporaryDirectory(prefix="tidings-screenshots-") as folder:
        own = {"TIDINGS_DATA_DIR": folder, "TIDINGS_PORT": "0", "TIDINGS_TOKEN": token}
        async with _running("serve", environment={**os.environ, **own}) as process:
            [origin] = await _read(process, _LISTENING)
            yield Photographed(origin, token)


@asynccontextmanager
async def _running(command: str, *, environment: dict[str, str]) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        TIDINGS, command, cwd=ROOT, env=environment, stdout=PIPE, stderr=STDOUT
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()


async def _read(process: Process, wanted: re.Pattern[str]) -> tuple[str, ...]:
    """What the pattern finds in the process' output. Afterwards the output is read and dropped."""
    seen = ""
    if process.stdout is None:
        raise SystemExit("there is no output")
    async for line in process.stdout:
        seen += line.decode()
        found = wanted.search(seen)
        if found:
            return found.groups()
    raise SystemExit(f"the service ended before it showed an address:\n{seen}")
