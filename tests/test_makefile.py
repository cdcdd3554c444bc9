"""`make` with an old Python: it says which one is needed, and recovers by itself."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

MAKEFILE = Path(__file__).parents[1] / "Makefile"


def make(folder: Path, *, python: str) -> subprocess.CompletedProcess[str]:
    words = ["make", "-f", str(MAKEFILE), "python", f"VENV={folder / 'venv'}", f"PYTHON={python}"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def write_script(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_an_old_python_is_named_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The first try fails with one clear line; the second, with a newer Python, works."""
    old = write_script(tmp_path / "python3.10", '[ "$1" = -V ] && echo "Python 3.10.13" && exit; exit 1')
    first = make(tmp_path, python=old)
    assert first.returncode != 0
    assert "needs Python 3.11 or later" in first.stderr
    assert "Python 3.10.13" in first.stderr
    assert not (tmp_path / "venv").exists()
    closed = tmp_path / "closed" / "python3"
    write_script(closed, "exit 1")
    closed.chmod(0o600)
    for unreachable in ("no-such-python", str(closed)):
        missing = make(tmp_path, python=unreachable)
        assert missing.returncode != 0
        assert f"needs Python 3.11 or later, and {unreachable} cannot be run.\n" in missing.stderr
        assert "sh:" not in missing.stderr
    # What an earlier release of this file left: an environment of the old Python.
    write_script(tmp_path / "venv" / "bin" / "python", "exit 1")
    second = make(tmp_path, python=sys.executable)
    assert second.returncode == 0, second.stderr
    version = subprocess.run([tmp_path / "venv" / "bin" / "python", "-m", "pip", "-V"], capture_output=True, check=True)
    assert version.stdout
    marker = tmp_path / "venv" / "kept"
    marker.touch()
    assert make(tmp_path, python=old).returncode == 0
    assert marker.exists()
    shutil.rmtree(tmp_path / "venv")
