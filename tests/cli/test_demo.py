"""`tidings demo`: the first thing that a newcomer runs. It has to work in an empty folder, explain itself and be true.
The whole demo is run once as it is, and once more with shorter waits."""

import asyncio
import fcntl
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.cli.terminal import SCRIPT, Ended, Terminal, end
from tests.waiting import wait_until

PAGES = 4_000
QUOTA = 250
REFUSED = 3
PATIENCE = 120.0


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    """A newcomer's: nothing is set."""
    opened = Terminal(tmp_path)
    opened.variables = {name: opened.variables[name] for name in ("PATH", "HOME", "LANG")}
    opened.data_dir = tmp_path / "tidings-data" / "demo"
    yield opened
    await opened.close()


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the story: its heading, how the execution went, and what the engines took."""

    heading: str
    status: str
    accepted: list[int]


@pytest.mark.thorough
async def test_demo_works_in_an_empty_folder_and_again(terminal: Terminal) -> None:
    """A11, A12, A13, A18, A28, C19: three steps, nothing twice in the second, exactly the changed page in the third;
    Bing gets as much as its quota allows, once. Then notes are collected, and none twice."""
    first = await terminal.run("demo", "--once")
    second = await terminal.run("demo", "--once", REQUEST_INTERVAL_MS="5")
    for ended in (first, second):
        assert ended.code == 0, ended
        announced, repeated, changed = _read_steps(ended)
        assert announced.heading.startswith("1. Announce the site.")
        assert (announced.status, announced.accepted) == ("partial", [PAGES, PAGES - REFUSED, QUOTA])
        assert repeated.heading.startswith("2. Announce it again. Nothing is sent twice")
        assert (repeated.status, repeated.accepted) == ("succeeded", [0, REFUSED, 0])
        assert changed.heading == "3. Page 2718 changes. Only that page is sent."
        assert (changed.status, changed.accepted) == ("succeeded", [1, 1, 0])
        assert ended.out.count("This was the first execution") == 1
        assert "page 2718 twice, and Bing's quota used up: as it should be." in ended.out
        assert "4. Watch 咖啡 on both." in ended.out
        assert re.findall(r"succeeded discover: (\d+) found, (\d+) new", ended.out) == [("22", "22"), ("22", "0")]
        assert re.findall(r"(bilibili|weibo) +succeeded +(\d+) *$", sort_lines(ended.out), re.MULTILINE) == [
            ("bilibili", "12"),
            ("weibo", "10"),
        ]
        assert "Every candidate has its note, once: as it should be." in ended.out
        assert str(terminal.data_dir) in ended.out
    assert [path.name for path in terminal.folder.iterdir()] == ["tidings-data"]


async def test_a_second_demo_leaves_the_first_ones_folder_alone(terminal: Terminal) -> None:
    """One line says that a demo is running there, and nothing of it is removed."""
    mark, data = terminal.data_dir / "made-by-tidings-demo", terminal.data_dir / "tidings.db"
    terminal.data_dir.mkdir(parents=True)
    data.touch()
    with mark.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused = await terminal.run("demo", "--once")
    assert refused.code != 0
    assert "a demo is running in" in refused.err
    assert "Ctrl-C" in refused.err
    assert data.exists()


@pytest.mark.slow
async def test_demo_ends_on_a_dashboard_with_moving_data(terminal: Terminal) -> None:
    """Address and token have a line each; it serves until Ctrl-C, and then ends in good order."""
    environment = {**terminal.variables, "TIDINGS_PORT": "0"}
    command = await asyncio.create_subprocess_exec(
        SCRIPT, "demo", cwd=terminal.folder, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    try:
        line = await wait_for_line(command, "Dashboard: ")
        line += await wait_for_line(command, "Token: ")
        found = re.fullmatch(r"Dashboard: (http://127\.0\.0\.1:\d+)\nToken:     (tid_\S+)\n", line)
        assert found, line
        async with ClientSession(headers={"Authorization": f"Bearer {found[2]}"}) as client:
            async with client.get(f"{found[1]}/") as page:
                assert page.status == 200
                assert "Overview" in await page.text()
            async with client.get(f"{found[1]}/api/sites") as answer:
                sites = [each["id"] for each in (await answer.json())["sites"]]
            assert len(sites) == 5
            before = await count_today(client, found[1])

            async def has_moved() -> bool:
                return await count_today(client, found[1]) > before

            await wait_until(has_moved)
            for site in sites:
                async with client.get(f"{found[1]}/api/sites/{site}/executions?limit=100") as answer:
                    check_figures((await answer.json())["executions"])
            # The month before lies behind every schedule.
            async with client.get(f"{found[1]}/status?site=docs.example") as answer:
                assert datetime.fromisoformat((await answer.json())["nextRun"]) > datetime.now(UTC)
        command.send_signal(signal.SIGINT)
        assert (await end(command)).code == 0
    finally:
        if command.returncode is None:
            command.kill()
            await command.wait()


async def count_today(client: ClientSession, origin: str) -> int:
    """Pages of all sites that engines took today, as the dashboard counts them."""
    async with client.get(f"{origin}/api/stats/daily?days=1") as answer:
        [today] = (await answer.json())["daily"]
        return int(today["indexnow"]["successful"])


def check_figures(executions: Sequence[Mapping[str, Any]]) -> None:
    """A37: what was accepted beyond what was due has its count, and an execution with trouble its reason."""
    assert executions
    for each in executions:
        result = each["result"]
        extra = result.get("submittedAgain", 0) + result.get("submittedByQuota", 0)
        assert result.get("submitted", 0) <= result.get("new", 0) + result.get("removed", 0) + extra, each
        assert each["status"] in ("running", "succeeded") or result["errors"] or result["warnings"], each


async def wait_for_line(command: Process, start: str) -> str:
    assert command.stdout is not None
    async with asyncio.timeout(PATIENCE):
        while True:
            line = (await command.stdout.readline()).decode()
            assert line, "the demo ended"
            if line.startswith(start):
                return line


@pytest.mark.slow
async def test_ctrl_c_while_the_demo_announces_ends_the_demo(terminal: Terminal) -> None:
    """A1: no further step begins."""
    command = await terminal.start("demo", "--once")
    log = terminal.data_dir / "tidings.log"

    async def has_begun() -> bool:
        # The dashboard's further sites have names; their month passes first.
        return log.exists() and re.search(r'"execution.started".*"site": "127', log.read_text()) is not None

    async with asyncio.timeout(PATIENCE):
        while not (await command.stdout.readline()).startswith(b"   Bing gets"):
            pass
    await wait_until(has_begun)
    command.send_signal(signal.SIGINT)
    out, _ = await command.communicate()
    assert command.returncode == 130
    assert b"interrupted" in out
    assert b"2. Announce it again" not in out


async def test_demo_deletes_no_folder_that_it_did_not_make(terminal: Terminal) -> None:
    """A1: what stands in its place is kept, and named."""
    terminal.data_dir.mkdir(parents=True)
    precious = terminal.data_dir / "thesis.txt"
    precious.write_text("the only copy")
    ended = await terminal.run("demo")
    assert ended.code == 2
    assert "tidings-data/demo is not the demo's own folder; set TIDINGS_DATA_DIR to another place" in ended.complaint
    assert precious.read_text() == "the only copy"


async def test_a_demo_that_has_no_place_says_what_to_set(terminal: Terminal) -> None:
    """A25: nothing was stored, and nothing is said to be kept."""
    ended = await terminal.run("demo", TIDINGS_DATA_DIR="/proc/nowhere")
    assert ended.code == 2
    assert ended.complaint.endswith("(No such file or directory); set TIDINGS_DATA_DIR to another")


def sort_lines(text: str) -> str:
    return "\n".join(sorted(text.splitlines()))


def _read_steps(ended: Ended) -> list[Step]:
    """The steps as they stand on the screen: what each engine accepted is the second column of its row."""
    parts = re.split(r"^(?=\d\. )", ended.out.partition("Accepted in all")[0], flags=re.MULTILINE)[1:]
    return [_read_step(part.strip().splitlines()) for part in parts]


def _read_step(lines: list[str]) -> Step:
    rows = [re.match(r"(?:127\.0\.0\.1:\d+|bing) +([\d,]+) +[\d,]+ +[\d,]+ +[\d,]+ ", line) for line in lines]
    accepted = [int(row[1].replace(",", "")) for row in rows if row]
    status = next(line for line in lines[1:] if not line.startswith(" ")).split()[0]
    return Step(heading=lines[0], status=status, accepted=accepted)
