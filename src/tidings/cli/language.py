"""The language of command output. English stands in the code; `texts/zh.toml` has the Chinese text of each English one.

`speak` chooses the language once the settings are known. The catalogue is read only if it is not English. Help texts,
JSON, logs, and reasons that come from other services stay as they are.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

CATALOGUE: Final = Path(__file__).parent / "texts" / "zh.toml"

_texts: Mapping[str, str] = {}


def speak(language: str) -> None:
    """Choose the language of every later text: `en` or `zh`."""
    global _texts
    _texts = _load_chinese() if language == "zh" else {}


def say(text: str, /, **values: object) -> str:
    """The text in the chosen language, with its `{name}` fields filled in. A test keeps the catalogue complete."""
    chosen = _texts.get(text, text)
    return chosen.format_map(values) if values else chosen


@cache
def _load_chinese() -> Mapping[str, str]:
    return {key: str(value) for key, value in tomllib.loads(CATALOGUE.read_text(encoding="utf-8")).items()}
