"""`tidings audit` and `scripts/security_audit.py` as people run them: real commands set up what is then looked at."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.terminal import Ended, Terminal, end
from tidings.audit.report import CheckName

pytestmark = pytest.mark.slow

AUDIT = Path(__file__).parents[2] / "scripts" / "security_audit.py"
CANARY = "040069b1kanarienvogel7f3b9c"
COOKIE = f"web_session={CANARY}; a1=1"
TOKEN = "9f86d081884c7d659a2feaa0"


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    """An installation with a site, a cookie, a log and a backup in its folder."""
    opened = Terminal(tmp_path)
    opened.variables["TIDINGS_TOKEN"] = TOKEN
    await pipe(opened, "cookies", "add", "mine", "--platform", "xiaohongshu", given=COOKIE)
    site = ("sites", "add", "https://example.com/sitemap.xml", "--key", "7c1e55d2a9b84f60")
    assert (await opened.run(*site)).code == 0
    assert (await opened.run("backup", "data/nightly.backup")).code == 0
    yield opened
    await opened.close()


async def pipe(terminal: Terminal, *words: str, given: str) -> None:
    assert (await terminal.pipe(*words, given=given)).code == 0


async def run_script(terminal: Terminal, *options: str) -> Ended:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(AUDIT), *options, cwd=terminal.folder, env=terminal.variables, stdout=PIPE, stderr=PIPE
    )
    return await end(process)


async def test_script_passes_what_the_commands_have_made_and_fails_on_a_planted_cookie(terminal: Terminal) -> None:
    """C7, C25: JSON with `passed` and one entry a check, exit code 0 or 1, and never the cookie."""
    clean = await run_script(terminal)
    log = terminal.data_dir / "tidings.log"
    before = log.read_text()
    log.write_text(f"{before}{COOKIE}\n")
    (terminal.folder / "export.json").write_text(json.dumps({"name": "web_session", "path": "/", "value": CANARY}))
    found = await run_script(terminal)
    assert (clean.code, clean.err, clean.document["passed"]) == (0, "", True)
    assert [check["check"] for check in clean.document["checks"]] == list(CheckName)
    assert all(check["passed"] and not check["findings"] for check in clean.document["checks"])
    assert (found.code, found.document["passed"]) == (1, False)
    failed = {check["check"]: check["findings"] for check in found.document["checks"] if not check["passed"]}
    assert set(failed) == {"logs", "repository"}
    assert {"where": f"{log}, line {before.count(chr(10)) + 1}", "what": "the cookie mine"} in failed["logs"]
    assert CANARY not in found.out + found.err


async def test_command_tells_the_same_in_words(terminal: Terminal) -> None:
    """C25: `tidings audit` and `tidings audit --json`, with a backup and a folder that are named."""
    clean, script = await terminal.run("audit", "--json"), await run_script(terminal)
    leaked = terminal.folder / "elsewhere" / "leaked.sql"
    leaked.parent.mkdir()
    leaked.write_text(COOKIE)
    leaked.chmod(0o644)
    found = await terminal.run("audit", "--backup", str(leaked), "--repository", str(terminal.data_dir))
    weak = await terminal.run("audit", TIDINGS_TOKEN="changeme")
    assert (clean.code, clean.document) == (0, script.document)
    assert found.code == 1
    lines = [" ".join(line.split()) for line in found.out.splitlines()]
    assert f"{leaked}, line 1: the cookie mine" in lines
    assert [line.split(" (")[0] for line in lines if "FAILED" in line] == ["FAILED backups", "FAILED file modes"]
    assert lines[-1] == "not passed"
    assert (weak.code, "FAILED tokens" in weak.out, "changeme" in weak.out) == (1, True, False)
    assert CANARY not in found.out + found.err


async def test_bad_settings_end_with_2_and_one_line(terminal: Terminal) -> None:
    """C25: an audit of something else would be worth nothing."""
    ended = await terminal.run("audit", "--json", TIDINGS_PORT="none")
    assert (ended.code, "TIDINGS_PORT" in ended.complaint) == (2, True)
