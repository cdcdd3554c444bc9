"""Tidings as people run it: commands, each in a process of its own, with an environment and a data directory of one
test. The processes talk to the sandbox, which the test starts."""

import asyncio
import functools
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.fork_server import Command, ForkServer
from tidings.core.secrets.master_key import new_master_key
from tidings.sandbox.bundle import Sandbox
from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.site.site import SandboxSite

SCRIPT = Path(sys.executable).with_name("tidings")
LONGEST_RUN = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended, and all it said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Standard output as one JSON object; anything else there is an error."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document

    @property
    def complaint(self) -> str:
        """The one line on standard error, where there is no other and nothing on standard output."""
        lines = self.err.splitlines()
        assert len(lines) == 1, f"not one line: {self.err}"
        assert self.out == ""
        return lines[0]


class Terminal:
    """Runs commands one after the other or side by side, all on one data directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "COOKIE_MASTER_KEY": new_master_key(),
            "TIDINGS_DATA_DIR": str(self.data_dir),
            "TIDINGS_ALLOW_NETWORKS": "127.0.0.0/8",
            "TIDINGS_RETRY_SCALE": "0.01",
            "TIDINGS_RESUBMIT_GAP_SECONDS": "0",
            "REQUEST_INTERVAL_MS": "1",
        }
        self._started: list[Command] = []

    def keep(self, secret: str, *, name: str = "secret.txt") -> str:
        """A file that holds this secret, for an option that takes one."""
        path = self.folder / name
        path.write_text(f"{secret}\n")
        return str(path)

    async def start(self, *arguments: str, **variables: str | None) -> Command:
        """Start a command; `variables` change its environment, None takes one out."""
        return await self.start_reading(DEVNULL, *arguments, **variables)

    async def start_reading(self, stdin: int, *arguments: str, **variables: str | None) -> Command:
        """Start a command whose standard input is PIPE or this file descriptor."""
        merged = {**self.variables, **variables}
        environment = {name: value for name, value in merged.items() if value is not None}
        command = await _find_server().start(*arguments, folder=self.folder, environment=environment, stdin=stdin)
        self._started.append(command)
        return command

    async def run(self, *arguments: str, **variables: str | None) -> Ended:
        return await end(await self.start(*arguments, **variables))

    async def pipe(self, *arguments: str, given: str | bytes) -> Ended:
        """Run a command with this on its standard input."""
        command = await self.start_reading(PIPE, *arguments)
        return await end(command, given=given.encode() if isinstance(given, str) else given)

    async def run_script(self, *arguments: str) -> Ended:
        """Run the installed script, which loads all modules again."""
        return await end(
            await asyncio.create_subprocess_exec(
                SCRIPT, *arguments, cwd=self.folder, env=self.variables, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
            )
        )

    async def close(self) -> None:
        """Leave nothing running, however the test ended."""
        for process in self._started:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    @property
    def log(self) -> str:
        return (self.data_dir / "tidings.log").read_text()


async def end(process: Process | Command, *, given: bytes | None = None) -> Ended:
    """Wait for the end of a process; raises TimeoutError."""
    async with asyncio.timeout(LONGEST_RUN):
        out, err = await process.communicate(given)
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


@functools.cache
def _find_server() -> ForkServer:
    return ForkServer()


def make_sandbox(*, pages: int = 60, per_sitemap: int = 20, engines: int = 1) -> Sandbox:
    names = ("alpha", "beta", "gamma")[:engines]
    return Sandbox(
        site=SandboxSite(pages=pages, per_sitemap=per_sitemap), engines=[SandboxEngine(name) for name in names]
    )


def announce_words(sandbox: Sandbox, *options: str) -> list[str]:
    """The command that announces the sandbox's site to all its engines."""
    engines = [word for engine in sandbox.engines for word in ("--engine", engine.endpoint)]
    return ["announce", sandbox.site.sitemap_url, "--key", sandbox.site.key, *engines, *options]


def count_each_once(sandbox: Sandbox) -> dict[str, int]:
    """What an engine has accepted when it got every page, and none twice."""
    return dict.fromkeys(sandbox.site.urls(), 1)
