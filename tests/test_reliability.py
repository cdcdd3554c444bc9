"""docs/reliability.md names tests that exist, and `make test-chaos` runs them."""

import re
from pathlib import Path

from scripts.requirements import list_tests

ROOT = Path(__file__).parents[1]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "reliability.md").read_text())


def test_every_test_that_the_page_names_exists() -> None:
    assert len(NAMED) >= 15
    assert set(NAMED) <= {(file, name) for file, name, _ in list_tests()}


def test_make_runs_every_test_that_the_page_names() -> None:
    chaos = (ROOT / "Makefile").read_text().partition("CHAOS :=")[2].partition("test-chaos:")[0].split()
    assert {file for file, _ in NAMED} <= set(chaos)
    assert all((ROOT / file).is_file() for file in chaos if file != "\\")
