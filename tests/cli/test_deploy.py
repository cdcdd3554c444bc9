"""The files of deploy/ start commands that exist, with options that they have."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.test_help import read_help

DEPLOY = Path(__file__).parents[2] / "deploy"


def list_started() -> list[list[str]]:
    units = [path.read_text() for path in DEPLOY.glob("*.service")]
    started = [found.split() for text in units for found in re.findall(r"^ExecStart=\S+/tidings (.+)$", text, re.M)]
    texts = [(DEPLOY / name).read_text() for name in ("compose.yaml", "Dockerfile")]
    lists = [found for text in texts for found in re.findall(r"(?:command:|CMD) (\[.+\])", text)]
    return started + [words for words in map(json.loads, lists) if words[0] != "postgres"]


@pytest.mark.parametrize("words", list_started(), ids=" ".join)
def test_every_started_command_exists_with_its_options(words: list[str]) -> None:
    """A25: `serve` and `worker`, by systemd and in containers."""
    help_text = read_help(words[0])
    assert [word for word in words if word.startswith("--") and word not in help_text] == []


def test_both_units_and_all_containers_are_looked_at() -> None:
    assert sorted(words[0] for words in list_started()) == ["serve", "serve", "serve", "worker", "worker"]
