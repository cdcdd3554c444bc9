"""The dashboard's texts: one catalogue per language, `texts/en.toml` and `texts/zh.toml`, with the same keys.

A text may hold `{name}` fields. A text with a number has the forms `one` and `other` in English, `other` in Chinese.
"""

import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

CATALOGUES: Final = Path(__file__).parents[1] / "texts"
# Chinese for the rules of form fields.
RULES: Final = CATALOGUES / "rules.zh.toml"
# Chinese for the summaries of the API's operations.
OPERATIONS: Final = CATALOGUES / "operations.zh.toml"


class PageLanguage(StrEnum):
    ENGLISH = "en"
    CHINESE = "zh"


class Texts:
    """The catalogue of one language."""

    def __init__(self, language: PageLanguage, entries: Mapping[str, str]) -> None:
        self.language = language
        self.entries = entries

    def __call__(self, key: str, **values: object) -> str:
        """The text of this key, in the form that fits its field `n`.

        Raises KeyError: a test keeps every key that the code names in both catalogues.
        """
        if key not in self.entries:
            key = self._find_form(key, is_one=values.get("n") == "1")
        text = self.entries[key]
        return text.format_map(values) if values else text

    def count(self, key: str, number: int, **values: object) -> str:
        """The form of this text for `number`; the field `{n}` shows the number."""
        return self(self._find_form(key, is_one=number == 1), **{"n": f"{number:,}", **values})

    def _find_form(self, key: str, *, is_one: bool) -> str:
        return f"{key}.one" if is_one and f"{key}.one" in self.entries else f"{key}.other"

    def find(self, key: str, other: str = "", **values: object) -> str:
        """The text of this key; `other` if there is none."""
        return self(key, **values) if key in self.entries else other


@cache
def load_texts(language: PageLanguage) -> Texts:
    document = tomllib.loads((CATALOGUES / f"{language}.toml").read_text(encoding="utf-8"))
    return Texts(language, dict(_flatten(document)))


def choose_language(cookie: str | None, accept: str | None, *, default: PageLanguage) -> PageLanguage:
    """The language of the person's choice, else the first of the browser's that exists, else the installation's."""
    if cookie in set(PageLanguage):
        return PageLanguage(cookie)
    for part in (accept or "").split(","):
        tag = part.partition(";")[0].strip().lower().partition("-")[0]
        if tag in set(PageLanguage):
            return PageLanguage(tag)
    return default


def _flatten(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)
