"""Help in Chinese, and usage errors in one line. English help is Typer's own.

`texts/help.zh.toml` has the Chinese text of each paragraph and option. Chinese has no spaces and its characters are two
columns wide, so the lines are broken here.
"""

import inspect
import re
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import typer
from typer.core import TyperCommand, TyperGroup

from tidings.cli.language import is_chinese, say, translate
from tidings.core.alerts.translation import Translator

HELP_TEXTS: Final = Path(__file__).parent / "texts" / "help.zh.toml"

# The maximum width of the names of options; longer ones have a line of their own.
_NAMES: Final = 30
_USAGE: Final = "用法："
_WIDE: Final = "\u2e80-\uffef"
_OPENING, _CLOSING = "（《「", "，。；：、）》」！？"
# Units that are not broken: a Chinese character or a word, with its punctuation.
_UNIT: Final = re.compile(rf"[{_OPENING}]*(?:[{_WIDE}]|[^\s{_WIDE}]+)[{_CLOSING}]*|\s+")
# A default at the end of a help text.
_DEFAULT: Final = re.compile(r"\s+\[([^]]*)\](?=$|\s+\[)")


class SpeakingCommand(TyperCommand):
    """A command with help in the chosen language."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # An option without its value does not say of which command it is.
            if isinstance(error, UsageProblem) and getattr(error, "ctx", None) is None:
                vars(error)["ctx"] = ctx
            raise

    def get_help(self, ctx: Any) -> str:
        return "\n".join(_write_help(self, ctx)) if is_chinese() else super().get_help(ctx)


class SpeakingGroup(TyperGroup):
    """A group of commands with help in the chosen language."""

    def get_help(self, ctx: Any) -> str:
        return "\n".join(_write_help(self, ctx)) if is_chinese() else super().get_help(ctx)


def teach(app: typer.Typer) -> typer.Typer:
    """Give an application and everything below it help in the chosen language."""
    app.info.cls = SpeakingGroup
    for command in app.registered_commands:
        command.cls = SpeakingCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            teach(group.typer_instance)
    return app


@runtime_checkable
class UsageProblem(Protocol):
    """An error of Typer: the words of a command are wrong."""

    exit_code: int

    def format_message(self) -> str: ...


def describe_problem(problem: UsageProblem) -> str:
    """One line: what is wrong, and where to look it up. For a group without a command, the help of the group."""
    message = problem.format_message()
    if message.startswith(("Usage:", _USAGE)):
        return message
    path = getattr(getattr(problem, "ctx", None), "command_path", "tidings")
    sentence = translate(" ".join(message.split()))
    if sentence[-1] not in ".?。？":
        sentence = say("{sentence}.", sentence=sentence)
    advice = say("See `{command} --help`.", command=path)
    return f"tidings: {say('{problem} {advice}', problem=sentence, advice=advice)}"


def _write_help(command: TyperCommand | TyperGroup, ctx: Any) -> Iterator[str]:
    width = min(shutil.get_terminal_size().columns, 80) - 2
    pieces = " ".join(command.collect_usage_pieces(ctx)).replace("[OPTIONS]", "[选项]")
    yield from wrap(f"{_USAGE}{ctx.command_path} {pieces.replace('COMMAND [ARGS]', '命令 [参数]')}", width)
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        yield ""
        yield from (f"  {line}" for line in wrap(translate_help(" ".join(paragraph.split())), width - 2))
    arguments: list[tuple[str, str]] = []
    options: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        if (record := parameter.get_help_record(ctx)) is not None:
            rows = arguments if parameter.param_type_name == "argument" else options
            rows.append((record[0], _translate_with_defaults(record[1])))
    commands = [(name, _summarise(each)) for name, each in getattr(command, "commands", {}).items()]
    for title, rows in (("参数：", arguments), ("选项：", options), ("命令：", commands)):
        if rows:
            yield from ("", title, *_write_rows(rows, width=width))


def _write_rows(rows: Sequence[tuple[str, str]], *, width: int) -> Iterator[str]:
    """Names on the left, what they mean on the right."""
    left = min(max(_measure(name) for name, _ in rows), _NAMES) + 2
    for name, text in rows:
        lines = wrap(text, width - left - 2)
        if _measure(name) > left - 2:
            yield f"  {name}"
        else:
            yield f"  {name}{' ' * (left - _measure(name))}{lines.pop(0)}"
        yield from (f"{' ' * (left + 2)}{line}" for line in lines)


def _summarise(command: TyperCommand | TyperGroup) -> str:
    """The first sentence of a command's help."""
    first = translate_help(" ".join(takewhile(str.strip, inspect.cleandoc(command.help or "").splitlines())))
    return first.partition("。")[0]


def _translate_with_defaults(text: str) -> str:
    """A help text with its defaults, which stand in square brackets at its end."""
    sentence, *defaults = _DEFAULT.split(text)
    translated = ["；".join(translate_help(part) for part in each.split("; ")) for each in defaults if each]
    return "  ".join((translate_help(sentence), *(f"[{each}]" for each in translated)))


def translate_help(text: str) -> str:
    """A paragraph of help in Chinese."""
    return _load_translator().translate(text)


@cache
def _load_translator() -> Translator:
    return Translator([HELP_TEXTS])


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most this many columns. A longer word stays whole."""
    lines, used = [""], 0
    for unit in _UNIT.findall(text):
        size = _measure(unit)
        if used and used + size > width:
            lines.append("")
            used = 0
        if used or not unit.isspace():
            lines[-1] += unit
            used += size
    return [line.rstrip() for line in lines]


def _measure(text: str) -> int:
    """The columns that a text takes on a terminal."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)
