"""Whether and how many due pages of a site are fetched before they are announced."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tidings.announce.site.errors import SiteError

DEFAULT_LIMIT: Final = 100
MOST_PAGES: Final = 10_000


class PageCheckMode(StrEnum):
    """`sample`: pages at random. `all`: the first due pages. Both up to the limit; the others go out unchecked."""

    OFF = "off"
    SAMPLE = "sample"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class PageCheck:
    """The page check of one site."""

    mode: PageCheckMode = PageCheckMode.OFF
    # Pages of one execution, at most.
    limit: int = DEFAULT_LIMIT

    @classmethod
    def read(cls, given: dict[str, Any]) -> "PageCheck":
        """From the fields of a site's document that are not null. Raises SiteError."""
        limit = given.get("pageCheckLimit", DEFAULT_LIMIT)
        if not 1 <= limit <= MOST_PAGES:
            raise SiteError("pageCheckLimit", f"it must be a whole number from 1 to {MOST_PAGES:,}")
        return cls(PageCheckMode(given.get("pageCheck", PageCheckMode.OFF)), limit)

    def describe(self) -> dict[str, Any]:
        return {"pageCheck": self.mode.value, "pageCheckLimit": self.limit}
