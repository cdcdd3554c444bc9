"""Typed access to environment variables. The classes of settings declare with `parsed`, `duration`, `whole`, `choice`
and `secret` which variable a field is read from, and by which rule.

ValueError
└── SettingError    a variable breaks its rule
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from tidings.announce.site.errors import SiteError
from tidings.core.clock import UNITS, parse_duration
from tidings.core.secrets.secret import Secret

Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=StrEnum)

LARGEST: Final = 1_000_000
_WHOLE: Final = re.compile(r"[0-9]{1,9}")
_PREFIX: Final = "TIDINGS_"
# Only our variables have these prefixes.
_OWN_PREFIXES: Final = frozenset({"TIDINGS", "INDEXNOW", "BING", "BAIDU", "FEISHU", "BILIBILI", "XIAOHONGSHU", "WEIBO"})


class SettingError(ValueError):
    """A variable breaks its rule; the message is one line that names both."""

    def __init__(self, name: str, rule: str) -> None:
        super().__init__(f"{name}: {rule}")
        self.name = name
        self.rule = rule


@dataclass(frozen=True, slots=True)
class SettingSource:
    """One setting and where its value comes from, for people."""

    name: str
    # The text as it was given, or the default; None for a secret and for what is not set.
    value: str | None
    # "environment", "file" or "default".
    source: str
    secret: bool = False


class Variables:
    """Reads variables of an environment, and records which names and secrets were read."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.secrets: dict[str, Secret] = {}
        self.known: set[str] = set()
        self._defaults: dict[str, str] = {}
        self._secret_names: set[str] = set()

    def list_sources(self) -> tuple[SettingSource, ...]:
        """Every setting that was read, by name; secrets without their values."""
        files = {f"{name}_FILE" for name in self._secret_names}
        return tuple(self._describe(name) for name in sorted(self.known - files))

    def _describe(self, name: str) -> SettingSource:
        given, is_secret = self._read(name), name in self._secret_names
        from_file = is_secret and self._read(f"{name}_FILE") is not None
        source = "environment" if given else "file" if from_file else "default"
        value = None if is_secret else given or self._defaults.get(name) or None
        return SettingSource(name, value, source, secret=is_secret and source != "default")

    def _read(self, name: str) -> str | None:
        return self._environment.get(name, "").strip() or None

    def text(self, name: str, *, default: object = None, unit: str = "") -> str | None:
        """The value without white space around it, or None if it is missing or empty.

        `default`: the caller's default, for display; a duration is in `unit`.
        """
        self.known.add(name)
        self._defaults[name] = _describe_default(default, unit=unit)
        return self._read(name)

    def secret(self, name: str, parse: Callable[[str], str] = str) -> Secret | None:
        """The value, or else the content of the file that NAME_FILE names. `parse` checks and normalises it."""
        self._secret_names.add(name)
        direct, from_file = self.text(name), self.text(f"{name}_FILE")
        text = direct or (None if from_file is None else self._read_file(f"{name}_FILE", from_file))
        if text is None:
            return None
        secret = Secret(self.check(name, lambda: parse(text)))
        self.secrets[name] = secret
        return secret

    def read(self, name: str, parse: Callable[[str], Value], default: Value, *, unit: str = "") -> Value:
        text = self.text(name, default=default, unit=unit)
        return default if text is None else self.check(name, lambda: parse(text))

    def check(self, name: str, parse: Callable[[], Value]) -> Value:
        """The result of `parse`. Raises SettingError with the rule that its ValueError names."""
        try:
            return parse()
        except SiteError as error:
            raise SettingError(name, error.rule) from None
        except ValueError as error:
            raise SettingError(name, str(error)) from None

    def find_unknown(self) -> Iterator[tuple[str, str]]:
        """Variables of the environment that look like ours and are not, each with the nearest name of ours.

        All variables with our own prefixes count. With common prefixes such as MAX_, only those that are similar to one
        of our names. Names are compared without TIDINGS_, because some of ours lack it.
        """
        families = {name.partition("_")[0] for name in self.known}
        for name in sorted(set(self._environment) - self.known):
            family = name.partition("_")[0]
            # TIDINGS alone is the address of the service in docs/api.md.
            if family not in families or name == "TIDINGS":
                continue
            cutoff = 0 if family in _OWN_PREFIXES else 0.6
            nearest = max(sorted(self.known), key=lambda known: _compare_names(name, known))
            if _compare_names(name, nearest) >= cutoff:
                yield name, nearest

    @staticmethod
    def _read_file(name: str, path: str) -> str:
        try:
            text = Path(path).read_text().strip()
        except OSError as error:
            raise SettingError(name, f"the file cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise SettingError(name, "the file cannot be read (it is not text)") from None
        if not text:
            raise SettingError(name, "the file is empty")
        return text


def parsed(name: str, default: Value, parse: Callable[[str], Value], *, unit: str = "") -> Value:
    """A field of settings that this variable sets."""
    return _declare(default, lambda variables: variables.read(name, parse, default, unit=unit))


def duration(name: str, default: timedelta, *, unit: str, least: float = 0, most: float = LARGEST) -> timedelta:
    """A field: a number of its unit, or with a unit of its own. `least` and `most` count in `unit`."""
    return parsed(name, default, lambda text: parse_duration(text, unit=unit, least=least, most=most), unit=unit)


def whole(name: str, default: int, *, least: int, most: int) -> int:
    """A field: a whole number."""
    return parsed(name, default, parse_whole(least=least, most=most))


def choice(name: str, default: Choice) -> Choice:
    """A field: one of the values of the default's enumeration."""
    return parsed(name, default, parse_choice(type(default)))


def secret(name: str, parse: Callable[[str], str] = str) -> Secret | None:
    """A field that `Variables.secret` reads; None where it is not set."""
    return _declare(None, lambda variables: variables.secret(name, parse))


def _declare(default: Value, read: Callable[[Variables], Value]) -> Value:
    return field(default=default, metadata={"read": read})


def parse_whole(*, least: int, most: int, beside: str = "") -> Callable[[str], int]:
    """Reads a whole number. `beside`: the end of the rule, if the caller also takes a word."""

    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(f"it must be a whole number from {least:,} to {most:,}{beside}")
        return int(text)

    return parse


def parse_choice(kind: type[Choice]) -> Callable[[str], Choice]:
    """Reads one of the values of an enumeration."""

    def parse(text: str) -> Choice:
        if text not in tuple(kind):
            raise ValueError(f"it must be one of {', '.join(kind)}")
        return kind(text)

    return parse


def parse_switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError("it must be on or off")
    return text == "on"


def read_fields(kind: type[Any], variables: Variables) -> dict[str, Any]:
    """The values of the fields of a dataclass that were declared with the functions above."""
    return {each.name: each.metadata["read"](variables) for each in fields(kind) if each.metadata}


def _compare_names(name: str, known: str) -> float:
    """How alike two names are without our prefix, from 0 to 1."""
    return difflib.SequenceMatcher(None, known.removeprefix(_PREFIX), name.removeprefix(_PREFIX)).ratio()


def _describe_default(default: object, *, unit: str) -> str:
    """A default as its variable would give it; empty where there is none."""
    match default:
        case None:
            return ""
        case bool():
            return "on" if default else "off"
        case float():
            return f"{default:g}"
        case timedelta():
            return f"{default / UNITS[unit]:g}" if unit else f"{default.total_seconds():g}s"
        case Mapping():
            return ", ".join(f"{name}={value}" for name, value in default.items())
        case tuple() | list() | frozenset():
            return ", ".join(_describe_default(each, unit=unit) for each in default)
        case _:
            return str(default)
