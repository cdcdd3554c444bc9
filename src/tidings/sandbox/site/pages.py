"""The pages of the sandbox site: which there are and when each was last changed. Pages are numbered from 1 and
generated from their number, so only what deviates (changed, removed) is stored and a million pages cost nothing.
How they appear in a sitemap is in `rendering`.

LookupError
└── NoSuchPageError    a number that the site never had, or whose page was removed
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import product

_QUALITIES = ("amber", "brisk", "calm", "dawn", "early", "fresh", "golden", "high", "keen", "late", "mild", "open")
_THINGS = ("anchor", "bridge", "canal", "delta", "fjord", "garden", "harbour", "island", "kiln", "lantern", "market")
_SLUGS = [f"{quality}-{thing}-letters" for quality, thing in product(_QUALITIES, _THINGS)]
_PATH = re.compile(r"/pages/(\d{7,12})/")

# 2,500 stamps from 2019-01-01 to 2025-11-05, a day and a few minutes apart; a prime step spreads neighbours over them.
_FIRST = datetime(2019, 1, 1, 6, 0, tzinfo=UTC)
_STAMPS = [_FIRST + timedelta(days=day, seconds=day * 17) for day in range(2_500)]
_STEP = 7_919


class NoSuchPageError(LookupError):
    """The site has no page of this number."""


def page_path(number: int) -> str:
    return f"/pages/{number:07d}/{_SLUGS[number % len(_SLUGS)]}.html"


def page_number(path: str) -> int | None:
    """The number of the page that has this path, whether the site has that page or not."""
    found = _PATH.match(path)
    number = int(found[1]) if found else 0
    return number if number and page_path(number) == path else None


def stamp_index(number: int) -> int:
    return number * _STEP % len(_STAMPS)


def generated_stamps() -> list[datetime]:
    """The times that pages which were never changed carry; page n has the one at `stamp_index(n)`."""
    return list(_STAMPS)


class SitePages:
    """The set of pages. Numbers are never used again, as addresses are not."""

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
        return self.changed.get(number) or _STAMPS[stamp_index(number)]

    def change(self, number: int) -> datetime:
        """Set a page's time to now; returns it."""
        self._require(number)
        self.changed[number] = datetime.now(UTC)
        return self.changed[number]

    def add(self, count: int) -> range:
        """Add pages behind the last; returns their numbers."""
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
