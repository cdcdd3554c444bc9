"""The lock files: complete, and installed as they are, so that a package released tomorrow changes nothing."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTALLERS = [ROOT / "Makefile", ROOT / "deploy" / "Dockerfile", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_install_takes_the_lock_as_it_is() -> None:
    """pip resolves `psycopg[pool]` to the newest release before it looks at the pin, and then has no hash for it."""
    lines = [line for path in INSTALLERS for line in path.read_text().splitlines() if "--require-hashes" in line]
    assert lines
    assert [line for line in lines if "--no-deps" not in line] == []


def test_the_locks_miss_no_package() -> None:
    """Without resolving, nothing but the lock brings a package that another one needs."""
    check = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout
