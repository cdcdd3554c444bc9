"""Chinese for the reasons and actions of alerts. A catalogue maps each English text to its Chinese one. `{0}`, `{1}` …
are variable parts, which are translated too if the catalogue has them. An unknown text stays English.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

_PLACE: Final = re.compile(r"\\\{(\d)\\\}")
_DEPTH: Final = 3
# Several reasons stand beside each other with this between them.
_BETWEEN: Final = "; "
# `subject: message`. It matches almost every text, so it comes last.
_LABEL: Final = "{0}: {1}"

# Each English text as a pattern, and its Chinese text.
_Patterns = list[tuple[re.Pattern[str], str]]


class Translator:
    """Translates texts by catalogues of TOML files, which are read when the first text comes."""

    def __init__(self, files: Iterable[Path] = ()) -> None:
        self._files = tuple(files)

    def translate(self, text: str) -> str:
        """The Chinese text; the English one where the catalogue has none."""
        return self._translate(text, depth=_DEPTH)

    def _translate(self, text: str, *, depth: int) -> str:
        if not text or depth == 0:
            return text
        parts = text.split(_BETWEEN)
        if len(parts) > 1:
            if (found := self._find(text, self._joined, depth=depth)) is not None:
                return found
            # Before a text of one reason, whose places could swallow parts of several.
            known = [self._find(part, self._patterns, depth=depth) for part in parts]
            if all(part is not None for part in known):
                return "；".join(part for part in known if part is not None)
        if (found := self._find(text, self._patterns, depth=depth)) is not None:
            return found
        if (labelled := self._find(text, self._label, depth=depth)) is not None:
            return labelled
        every = [*self._patterns, *self._label]
        return "；".join(self._find(part, every, depth=depth) or part for part in parts) if len(parts) > 1 else text

    def _find(self, text: str, patterns: _Patterns, *, depth: int) -> str | None:
        for pattern, chinese in patterns:
            if match := pattern.fullmatch(text):
                # A template may use its places in another order.
                places = {name[1:]: value for name, value in match.groupdict().items()}
                for number, value in places.items():
                    chinese = chinese.replace(f"{{{number}}}", self._translate(value, depth=depth - 1))
                return chinese
        return None

    @cached_property
    def _patterns(self) -> _Patterns:
        # The longest first: a text without places before one that could swallow it.
        ordered = sorted(self._texts.items(), key=lambda pair: ("{0}" in pair[0], -len(pair[0])))
        return [(_compile(english), chinese) for english, chinese in ordered if english != _LABEL]

    @cached_property
    def _joined(self) -> _Patterns:
        """Those whose own text has what else stands between reasons."""
        between = re.escape(_BETWEEN)
        return [(pattern, chinese) for pattern, chinese in self._patterns if between in pattern.pattern]

    @cached_property
    def _label(self) -> _Patterns:
        return [(_compile(_LABEL), self._texts[_LABEL])] if _LABEL in self._texts else []

    @cached_property
    def _texts(self) -> dict[str, str]:
        texts: dict[str, str] = {}
        for file in self._files:
            texts |= read_catalogue(file)
        return texts


def read_catalogue(file: Path) -> Mapping[str, str]:
    """English → Chinese."""
    document = tomllib.loads(file.read_text("utf-8"))
    return {str(english): str(chinese) for english, chinese in document.items()}


def _compile(english: str) -> re.Pattern[str]:
    return re.compile(_PLACE.sub(r"(?P<p\1>.+?)", re.escape(english)), re.DOTALL)
