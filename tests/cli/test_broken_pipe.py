"""`tidings … | head -1`: the reader of the output goes away, and nothing is said about it."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest

from tests.cli.terminal import SCRIPT, Terminal, announce_words, make_sandbox


async def run_unread(terminal: Terminal, *words: str) -> str:
    """Run a command whose output nobody reads; what it says on standard error."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "default", str(SCRIPT), *words),
            cwd=terminal.folder,
            env=terminal.variables,
            stdin=DEVNULL,
            stdout=writing,
            stderr=PIPE,
        )
    finally:
        os.close(writing)
    _, said = await process.communicate()
    return said.decode()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["keys", "new"],
        ["sites", "list"],
        ["status", "--json"],
        ["collect", "status"],
    ],
    ids=" ".join,
)
async def test_a_reader_that_is_gone_causes_no_message(terminal: Terminal, words: list[str]) -> None:
    """Interfaces: short output, which is written only when Python ends; text, tables and JSON alike."""
    terminal.data_dir.mkdir(mode=0o700)
    assert await run_unread(terminal, *words) == ""


@pytest.mark.thorough
async def test_a_long_list_that_nobody_reads_causes_no_message(terminal: Terminal, tmp_path: Path) -> None:
    """A12: `announce --dry-run | head -1` ends at once; the next command finds everything in order."""
    async with make_sandbox(pages=900) as sandbox:
        said = await run_unread(terminal, *announce_words(sandbox, "--dry-run"))
        after = await terminal.run(*announce_words(sandbox, "--json"))
        assert said == ""
        assert (after.code, after.document["new"]) == (0, 900)
