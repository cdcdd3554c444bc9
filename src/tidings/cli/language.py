"""The language of command output. English stands in the code; `texts/zh.toml` has the Chinese text of each English one.

`speak` chooses the language. The catalogue is read only if it is not English. JSON and logs stay as they are, and help
has a catalogue of its own (`help`). `translate` is for texts from other parts of the program, such as findings and
alerts. It uses the patterns of `wiring.alerts.list_catalogues`. Other texts stay English.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, Final

from tidings.core.alerts.translation import Translator, read_catalogue

CATALOGUE: Final = Path(__file__).parent / "texts" / "zh.toml"

_texts: Mapping[str, str] = {}


class _Numbers(Formatter):
    """Writes whole numbers as 1,204. `{count:page|pages}` is the first word for one, the second for any other number;
    Chinese needs neither.
    """

    def format_field(self, value: Any, format_spec: str) -> str:
        one, is_plural, many = format_spec.partition("|")
        if is_plural:
            return one if value == 1 else many
        return f"{value:,}" if isinstance(value, int) else str(super().format_field(value, format_spec))


_FORMATTER: Final = _Numbers()


def speak(language: str) -> None:
    """Choose the language of every later text: `en` or `zh`."""
    global _texts
    _texts = _load_chinese() if language == "zh" else {}


def is_chinese() -> bool:
    """Whether the chosen language is Chinese."""
    return bool(_texts)


def say(text: str, /, **values: object) -> str:
    """The text in the chosen language, with its `{name}` fields filled in. A test keeps the catalogue complete.

    A whole number gets its separators, and `{count:page|pages}` is the word for it.
    """
    chosen = _texts.get(text, text)
    return _FORMATTER.vformat(chosen, (), values) if values else chosen


def say_word(value: str) -> str:
    """The word for a value of an enumeration, such as the status of an execution."""
    return _texts.get(value, value)


def translate(text: str) -> str:
    """A text that another part of the program wrote, in the chosen language if a catalogue knows it."""
    return _load_translator().translate(text) if _texts else text


def label(name: str, message: str) -> str:
    """A message with the name of its subject before it, and the colon of the chosen language between them."""
    return say("{name}: {message}", name=name, message=message)


def say_rule(name: str, rule: str) -> str:
    """The sentence that a setting or field breaks its rule."""
    return translate(rule) if rule.startswith(name) else label(name, translate(rule))


@cache
def _load_translator() -> Translator:
    from tidings.wiring.alerts import list_catalogues

    return Translator(list_catalogues())


@cache
def _load_chinese() -> Mapping[str, str]:
    return read_catalogue(CATALOGUE)
