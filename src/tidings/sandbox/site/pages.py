"""The pages of the site: which exist and when each changed. Pages are numbered from 1 and generated from their number,
so only changed and removed pages take memory.

    LookupError
    └── NoSuchPageError    the site has no page of this number
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import product

_QUALITIES = ("amber", "brisk", "calm", "dawn", "early", "fresh", "golden", "high", "keen", "late", "mild", "open")
_THINGS = ("anchor", "bridge", "canal", "delta", "fjord", "garden", "harbour", "island", "kiln", "lantern", "market")
_SLUGS = [f"{quality}-{thing}-letters" for quality, thing in product(_QUALITIES, _THINGS)]
_PATH = re.compile(r"/pages/(\d{7,12})/")

# An unchanged page has one of 2,500 timestamps from here to 2025-11-05, about a day apart. A prime step spreads
# neighbouring pages over them.
_FIRST = datetime(2019, 1, 1, 6, 0, tzinfo=UTC)
_APART = timedelta(days=1, seconds=17)
_TIMESTAMPS = 2_500
_STEP = 7_919


class NoSuchPageError(LookupError):
    """The site has no page of this number."""


def page_path(number: int) -> str:
    return f"/pages/{number:07d}/{_SLUGS[number % len(_SLUGS)]}.html"


def page_number(path: str) -> int | None:
    """The number in the path of a page, whether that page exists or not. None for other paths."""
    found = _PATH.match(path)
    number = int(found[1]) if found else 0
    return number if number and page_path(number) == path else None


class SitePages:
    """The set of pages. The number of a removed page is not used again."""

    def __init__(self, count: int) -> None:
        self.highest = count
        self.changed: dict[int, datetime] = {}
        self._removed: set[int] = set()

    def __len__(self) -> int:
        return self.highest - len(self._removed)

    def __contains__(self, number: int) -> bool:
        return 1 <= number <= self.highest and number not in self._removed

    def was_removed(self, number: int) -> bool:
        return number in self._removed

    def lastmod(self, number: int) -> datetime:
        self._require(number)
        return self.changed.get(number) or _FIRST + number * _STEP % _TIMESTAMPS * _APART

    def change(self, number: int) -> datetime:
        """Set the timestamp of a page to now. Returns it."""
        self._require(number)
        self.changed[number] = datetime.now(UTC)
        return self.changed[number]

    def add(self, count: int) -> range:
        """Add pages after the last one. Returns their numbers."""
        added = range(self.highest + 1, self.highest + count + 1)
        self.highest += count
        return added

    def remove(self, number: int) -> None:
        self._require(number)
        self._removed.add(number)
        self.changed.pop(number, None)

    def within(self, numbers: range) -> Iterable[int]:
        """Those of `numbers` that the site has."""
        if not self._removed:
            return numbers
        return (number for number in numbers if number not in self._removed)

    def _require(self, number: int) -> None:
        if number not in self:
            raise NoSuchPageError(f"the site has no page {number}")
