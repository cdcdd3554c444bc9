"""docs/reliability.md names tests that exist, and `make test-chaos` runs them."""

import re
from pathlib import Path

from scripts.requirements import list_tests

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NAMED = TEST.findall(PAGE)
# Attacks are tried by `make test` and `make test-more`.
CHAOS_NAMED = TEST.findall(PAGE.partition("\n## Attacks\n")[0])


def test_every_test_that_the_page_names_exists() -> None:
    assert len(NAMED) >= 15
    assert set(NAMED) <= {(file, name) for file, name, _ in list_tests()}


def test_make_runs_every_test_that_the_page_names() -> None:
    chaos = (ROOT / "Makefile").read_text().partition("CHAOS :=")[2].partition("test-chaos:")[0].split()
    assert len(CHAOS_NAMED) >= 15
    assert {file for file, _ in CHAOS_NAMED} <= set(chaos)
    assert all((ROOT / file).is_file() for file in chaos if file != "\\")
