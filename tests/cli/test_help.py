"""The list of commands: its names are fixed, and its help can be read on a terminal of 80 columns."""

import re
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from tidings.cli.main import make_app

# The commands of the specification that exist; scripts rely on these names.
FIXED = """
demo serve announce run check status pause resume audit backup restore sandbox
sites: list add show set remove
ledger: forget find
collect: run discover recover status failed retry mirror
collect keywords: add list pause remove
collect notes: list show export delete
cookies: add list enable remove
keys: new rotate status
tokens: new list revoke
database: upgrade downgrade
"""


def read_help(*path: str) -> str:
    result = CliRunner().invoke(make_app(), [*path, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert result.exit_code == 0
    return result.output


def list_commands(*path: str) -> list[str]:
    listed = read_help(*path).partition("\nCommands:\n")[2]
    return re.findall(r"^  (\w+)", listed, re.MULTILINE)


def walk(*path: str) -> Iterator[tuple[str, ...]]:
    yield path
    for name in list_commands(*path):
        yield from walk(*path, name)


@pytest.mark.parametrize("line", FIXED.strip().splitlines())
def test_fixed_commands_have_their_names(line: str) -> None:
    """Interfaces: these do not change."""
    group, _, names = line.rpartition(": ")
    assert set(names.split()) <= set(list_commands(*group.split()))


@pytest.mark.thorough
def test_every_help_fits_into_80_columns_and_no_summary_is_cut() -> None:
    """Interfaces: a summary that ends in dots says nothing."""
    found = list(walk())
    assert len(found) > 50
    for path in found:
        text = read_help(*path)
        assert max(map(len, text.splitlines())) <= 80, path
        assert not re.search(r"^  \w+ +\S.*\.\.\.$", text.partition("\nCommands:\n")[2], re.MULTILINE), path
        assert path == () or text.partition("\n\n")[2].strip(), path
