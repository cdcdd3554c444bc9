"""Environment variables, read by type and rule. Which there are, and what they mean, is known to `settings` alone.

ValueError
└── SettingError    a variable breaks its rule
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

from tidings.announce.site.site import SiteError
from tidings.core.secrets.secret import Secret

Value = TypeVar("Value")

_LARGEST: Final = 1_000_000
_MOST_DIGITS: Final = 9


class SettingError(ValueError):
    """A variable breaks its rule; the message is one line that names both."""

    def __init__(self, name: str, rule: str) -> None:
        super().__init__(f"{name}: {rule}")
        self.name = name


class Variables:
    """Typed access to the variables; remembers every secret it has read."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.secrets: list[Secret] = []

    def text(self, name: str) -> str | None:
        """The value, or None where it is missing or empty."""
        return self._environment.get(name, "").strip() or None

    def secret(self, name: str) -> Secret | None:
        text = self.text(name) or self._read_file(f"{name}_FILE")
        if text is None:
            return None
        secret = Secret(text)
        self.secrets.append(secret)
        return secret

    def read(self, name: str, parse: Callable[[str], Value], default: Value) -> Value:
        text = self.text(name)
        return default if text is None else self.check(name, lambda: parse(text))

    def check(self, name: str, parse: Callable[[], Value]) -> Value:
        try:
            return parse()
        except SiteError as error:
            raise SettingError(name, error.rule) from None
        except ValueError as error:
            raise SettingError(name, str(error)) from None

    def whole(self, name: str, *, default: int, least: int, most: int) -> int:
        rule = f"it must be a whole number from {least:,} to {most:,}"
        text = self.text(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS or not least <= int(text) <= most:
            raise SettingError(name, rule)
        return int(text)

    def number(self, name: str, *, default: float, least: float) -> float:
        text = self.text(name)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= _LARGEST:
            raise SettingError(name, f"it must be a number from {least:g} to {_LARGEST:,}")
        return value

    def seconds(self, name: str, default: timedelta, *, least: float = 0) -> timedelta:
        return timedelta(seconds=self.number(name, default=default.total_seconds(), least=least))

    def minutes(self, name: str, default: timedelta, *, least: float = 0.01) -> timedelta:
        return timedelta(minutes=self.number(name, default=default / timedelta(minutes=1), least=least))

    def _read_file(self, name: str) -> str | None:
        path = self.text(name)
        if path is None:
            return None
        try:
            text = Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(name, f"the file cannot be read ({error.__class__.__name__})") from None
        if not text:
            raise SettingError(name, "the file is empty")
        return text
