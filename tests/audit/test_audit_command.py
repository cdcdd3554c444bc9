"""`tidings audit` and `scripts/security_audit.py` on an installation that Tidings' own parts have made."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.audit.installation import CANARY, COOKIE, TOKEN, Planted, build_installation
from tidings.audit.report import CheckName
from tidings.cli.main import make_app
from tidings.core.db.database import open_database

SCRIPT = Path(__file__).parents[2] / "scripts" / "security_audit.py"


@pytest.fixture
def planted(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Planted:
    """A clean installation that the environment names, with its working folder as the current one."""

    async def build() -> Planted:
        database = open_database(sqlite_url)
        try:
            return await build_installation(tmp_path, database)
        finally:
            await database.close()

    planted = asyncio.run(build())
    assert planted.subject.master_key is not None
    monkeypatch.chdir(planted.subject.repository)
    monkeypatch.setenv("TIDINGS_DATA_DIR", str(planted.data_dir))
    monkeypatch.setenv("TIDINGS_DATABASE_URL", sqlite_url)
    monkeypatch.setenv("TIDINGS_TOKEN", TOKEN)
    monkeypatch.setenv("COOKIE_MASTER_KEY", planted.subject.master_key.reveal())
    return planted


@pytest.mark.thorough
def test_script_passes_a_clean_installation_and_fails_on_a_planted_cookie(planted: Planted) -> None:
    """C7, C25, C27: JSON with `passed` and one entry per check, exit code 0 or 1, and never the cookie."""
    clean = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=60)
    log = planted.write("tidings.log", f"first\n{COOKIE}\n")
    (planted.subject.repository / "export.json").write_text(json.dumps({"name": "web_session", "value": CANARY}))
    found = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=60)
    document = json.loads(clean.stdout)
    assert (clean.returncode, clean.stderr, document["passed"]) == (0, "", True)
    assert [check["check"] for check in document["checks"]] == list(CheckName)
    document = json.loads(found.stdout)
    assert (found.returncode, document["passed"]) == (1, False)
    failed = {check["check"]: check["findings"] for check in document["checks"] if not check["passed"]}
    assert set(failed) == {"logs", "repository"}
    assert {"where": f"{log}, line 2", "what": "the cookie one"} in failed["logs"]
    assert CANARY not in found.stdout + found.stderr


@pytest.mark.thorough
def test_command_says_the_same_in_words(planted: Planted) -> None:
    """C25: with a named backup and folder."""
    terminal = CliRunner()
    clean = terminal.invoke(make_app(), ["audit", "--json"])
    leaked = planted.data_dir.with_name("elsewhere") / "leaked.sql"
    leaked.parent.mkdir()
    leaked.write_text(COOKIE)
    leaked.chmod(0o644)
    found = terminal.invoke(make_app(), ["audit", "--backup", str(leaked), "--repository", str(planted.data_dir)])
    nowhere = terminal.invoke(make_app(), ["audit", "--repository", str(planted.data_dir / "nowhere")])
    assert (nowhere.exit_code, "is not a folder" in nowhere.stderr) == (2, True)
    missing = terminal.invoke(make_app(), ["audit", "--backup", str(leaked), "--backup", "kept.backup"])
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert missing.stderr == "tidings: --backup: kept.backup does not exist; nothing was searched\n"
    weak = terminal.invoke(make_app(), ["audit"], env={"TIDINGS_TOKEN": "changeme"})
    assert (clean.exit_code, json.loads(clean.stdout)["passed"]) == (0, True)
    assert found.exit_code == 1
    lines = [" ".join(line.split()) for line in found.output.splitlines()]
    assert f"{leaked}, line 1: the cookie one" in lines
    assert [line.split(" (")[0] for line in lines if "FAILED" in line] == ["FAILED backups", "FAILED file modes"]
    assert lines[-1] == "not passed"
    assert (weak.exit_code, "FAILED tokens" in weak.output, "changeme" in weak.output) == (1, True, False)
    assert CANARY not in found.output


def test_bad_settings_end_with_2_and_one_line(planted: Planted) -> None:
    """C25: an audit of another installation would be worthless."""
    ended = CliRunner().invoke(make_app(), ["audit", "--json"], env={"TIDINGS_PORT": "none"})
    assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "TIDINGS_PORT" in ended.stderr
