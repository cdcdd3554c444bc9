"""The list of commands: its names are fixed, and its help can be read on a terminal of 80 columns."""

import inspect
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tests.cli.terminal import Terminal
from tidings.cli.help import translate_help, wrap
from tidings.cli.language import speak
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


@pytest.fixture
def chinese() -> Iterator[None]:
    speak("zh")
    yield
    speak("en")


CHINESE = re.compile(r"[\u4e00-\u9fff]")


def list_help_texts(command: Any) -> Iterator[str]:
    """Each paragraph of help, and the help of each option, of a command and of those below it."""
    yield from (" ".join(each.split()) for each in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")))
    yield from (parameter.help or "" for parameter in command.params)
    for below in getattr(command, "commands", {}).values():
        yield from list_help_texts(below)


def test_every_help_has_chinese_words() -> None:
    """Interfaces: TIDINGS_LANGUAGE=zh. Defaults in square brackets are translated by themselves."""
    texts = {text.partition(" [")[0] for text in list_help_texts(get_command(make_app()))}
    assert len(texts) > 200
    assert sorted(text for text in texts if not CHINESE.search(translate_help(text))) == []


@pytest.mark.thorough
@pytest.mark.usefixtures("chinese")
def test_every_chinese_help_fits_into_80_columns() -> None:
    """Interfaces: a Chinese character takes two columns."""
    found = list(walk_chinese())
    assert len(found) > 50
    for path in found:
        for line in read_help(*path).splitlines():
            columns = sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in line)
            assert columns <= 80, (path, line)


def walk_chinese(*path: str) -> Iterator[tuple[str, ...]]:
    yield path
    for name in re.findall(r"^  (\w+)", read_help(*path).partition("\n命令：\n")[2], re.MULTILINE):
        yield from walk_chinese(*path, name)


def test_chinese_lines_break_between_characters_and_not_before_their_stops() -> None:
    """Interfaces: TIDINGS_LANGUAGE=zh. A word and a URL stay whole."""
    assert wrap("每天推送 sitemap，失败保留。", 12) == ["每天推送", "sitemap，失", "败保留。"]
    assert wrap("见 https://example.com/very/long/path 第二页", 10) == [
        "见",
        "https://example.com/very/long/path",
        "第二页",
    ]


@pytest.mark.parametrize(
    ("words", "english", "chinese"),
    [
        (
            ["annouce"],
            "tidings: No such command 'annouce'. Did you mean 'announce'? See `tidings --help`.",
            "tidings: 没有命令 'annouce'，是否想用 'announce'？用法见 `tidings --help`。",
        ),
        (
            ["announce", "--nope"],
            "tidings: No such option: --nope (Possible options: --since). See `tidings announce --help`.",
            "tidings: 没有选项 --nope（相近的有 --since）。用法见 `tidings announce --help`。",
        ),
        (
            ["serve", "--port", "99999"],
            "tidings: Invalid value for '--port': 99999 is not in the range 0<=x<=65535. See `tidings serve --help`.",
            "tidings: '--port' 的值不对：99999 不在范围 0<=x<=65535 内。用法见 `tidings serve --help`。",
        ),
        (
            ["keys", "file"],
            "tidings: Missing argument 'docroot'. See `tidings keys file --help`.",
            "tidings: 缺少参数 'docroot'。用法见 `tidings keys file --help`。",
        ),
        (
            ["collect", "notes", "list", "--search"],
            "tidings: Option '--search' requires an argument. See `tidings collect notes list --help`.",
            "tidings: 选项 '--search' 需要一个值。用法见 `tidings collect notes list --help`。",
        ),
    ],
)
async def test_wrong_words_end_with_2_and_one_line(
    terminal: Terminal, words: list[str], english: str, chinese: str
) -> None:
    """Interfaces: bad input ends with 2, and with one line that says where to look it up, in both languages."""
    for language, line in (("en", english), ("zh", chinese)):
        ended = await terminal.run(*words, TIDINGS_LANGUAGE=language)
        assert (ended.code, ended.complaint) == (2, line)
