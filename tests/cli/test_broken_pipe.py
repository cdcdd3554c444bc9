"""`tidings … | head -1`: the reader of the output goes away, and nothing is said about it. Output that cannot be
written, as on a full disk, ends a command with one line."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest

from tests.cli.terminal import LONGEST_RUN, SCRIPT, Terminal, announce_words, make_sandbox


async def run_unread(terminal: Terminal, *words: str) -> str:
    """Run a command whose output nobody reads; what it says on standard error."""
    reading, writing = os.pipe()
    os.close(reading)
    return (await run_into(writing, terminal, *words))[1]


async def run_into(output: int, terminal: Terminal, *words: str) -> tuple[int | None, str]:
    """Run a command with this standard output; its exit code, and what it says on standard error."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "default", str(SCRIPT), *words),
            cwd=terminal.folder,
            env=terminal.variables,
            stdin=DEVNULL,
            stdout=output,
            stderr=PIPE,
        )
    finally:
        os.close(output)
    _, said = await process.communicate()
    return process.returncode, said.decode()


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


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["keys", "new"],
        ["sites", "list"],
        ["collect", "notes", "export", "-", "--format", "csv"],
    ],
    ids=" ".join,
)
async def test_output_that_cannot_be_written_is_one_line(terminal: Terminal, words: list[str]) -> None:
    """Interfaces: exit code 1 and no traceback, also for what is written only when Python ends."""
    terminal.data_dir.mkdir(mode=0o700)
    code, said = await run_into(os.open(os.devnull, os.O_RDONLY), terminal, *words)
    assert (code, said.splitlines()[1:]) == (1, [])
    assert said.startswith("tidings: Bad file descriptor")


@pytest.mark.thorough
@pytest.mark.parametrize("words", [["backup"], ["collect", "notes", "export"]], ids=" ".join)
async def test_a_file_is_written_though_its_command_cannot_say_so(terminal: Terminal, words: list[str]) -> None:
    """A41, C28: what fails after the file is complete does not make it an absent one."""
    await terminal.run("sites", "list")
    code, said = await run_into(os.open(os.devnull, os.O_RDONLY), terminal, *words, "file.csv")
    assert (code, said.partition(";")[0]) == (1, "tidings: Bad file descriptor")
    assert "was written" not in said
    assert (terminal.folder / "file.csv").exists()


# Its clean-up never ends, as with a database that hangs.
HANGING = """
import asyncio
from datetime import timedelta
from tidings.cli.session import stop_on_signals
from tidings.core.clock import SystemClock
from tidings.core.stop import Stop

async def hang():
    with stop_on_signals(Stop(clock=SystemClock()), within=timedelta(0)):
        print("works", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()

asyncio.run(hang())
"""


async def test_a_process_that_hangs_ends_though_nobody_reads_its_last_words() -> None:
    """A39: Ctrl-C ends `tee` of `tidings serve 2>&1 | tee log` too, and earlier."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", HANGING, stdout=PIPE, stderr=writing)
    finally:
        os.close(writing)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"works\n"
        process.terminate()
        async with asyncio.timeout(LONGEST_RUN):
            assert await process.wait() == 1
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
