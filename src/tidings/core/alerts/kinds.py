"""Kinds of alerts. Each pipeline lists its own in a subclass of `AlertKind`; the composition root registers them."""

from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property
from typing import Self


class AlertLevel(StrEnum):
    """How urgent an alert is, the most urgent first."""

    P0 = "P0"
    P1 = "P1"
    P2 = "P2"
    INFO = "info"

    def reaches(self, least: "AlertLevel") -> bool:
        """Whether an alert of this level goes to a destination with that minimum level."""
        order = list(AlertLevel)
        return order.index(self) <= order.index(least)


class Language(StrEnum):
    """The language of titles and labels."""

    ENGLISH = "en"
    CHINESE = "zh"


class AlertKind(StrEnum):
    """One kind. Its value is the name that tables, logs and webhooks show.

    A member is written as its name, its level, and its title in English and in Chinese.
    """

    level: AlertLevel
    titles: dict[Language, str]

    def __new__(cls, name: str, level: AlertLevel, english: str, chinese: str) -> Self:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.level = level
        kind.titles = {Language.ENGLISH: english, Language.CHINESE: chinese}
        return kind


class AlertKinds:
    """Kinds by name. They are read at the first look-up: until then the pipelines need not be imported."""

    def __init__(self, kinds: Iterable[AlertKind]) -> None:
        self._kinds = kinds

    def find(self, name: str) -> AlertKind | None:
        """The kind of this name; None for one that only another release knows."""
        return self._by_name.get(name)

    @cached_property
    def ranks(self) -> dict[str, int]:
        """How urgent each kind is, by its name: 0 is P0."""
        levels = list(AlertLevel)
        return {name: levels.index(kind.level) for name, kind in self._by_name.items()}

    @cached_property
    def _by_name(self) -> dict[str, AlertKind]:
        return {kind.value: kind for kind in self._kinds}
