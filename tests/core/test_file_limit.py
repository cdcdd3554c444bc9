"""A process that holds many connections raises its own limit of files."""

import asyncio
import resource
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest

from tests.cli.terminal import SCRIPT, Terminal
from tidings.core.file_limit import raise_file_limit
from tidings.core.secrets.master_key import new_master_key

SOON = 60.0


def test_the_soft_limit_is_raised_towards_the_hard_one() -> None:
    """Attack cases "API": our own requests and the database need files too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        files = raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (files, hard)
        assert files >= min(soft, 10_240)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.thorough
async def test_a_worker_raises_its_limit_of_files(tmp_path: Path, postgres_url: str) -> None:
    """Attack cases "Fetching": at 1,024 files, four hundred executions with slow names left none for the database."""
    terminal = Terminal(tmp_path)
    terminal.variables |= {"TIDINGS_DATABASE_URL": postgres_url, "COOKIE_MASTER_KEY": new_master_key()}
    command = f"ulimit -S -n 256; exec {SCRIPT} worker --quiet"
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", command, cwd=terminal.folder, env=terminal.variables, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None
    try:
        assert b"takes jobs" in await asyncio.wait_for(process.stdout.readline(), SOON)
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft >= min(hard, 10_240)
    finally:
        process.kill()
        await process.communicate()
