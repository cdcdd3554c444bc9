"""The rights of an API token. Plain values; `tokens` stores them, `tidings.web.middleware.auth` enforces them."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a token opens, the stronger first: `workflow` includes `crawl`, which it drives. `viewer` reads what
    announce does, for all sites or one group. `site` is for one site's /trigger and /urls."""

    ADMIN = "admin"
    WORKFLOW = "workflow"
    CRAWL = "crawl"
    METRICS = "metrics"
    VIEWER = "viewer"
    SITE = "site"


@dataclass(frozen=True, slots=True)
class Grant:
    """What the bearer of a token may do."""

    scope: Scope
    name: str
    # The site's number, for the scope `site` alone.
    site: int | None = None
    # The only group of sites that it sees, for the scope `viewer` alone; None: all.
    group: str | None = None

    def allows(self, scopes: Collection[Scope]) -> bool:
        """Whether one of these scopes is enough; admin may do everything."""
        return self.scope is Scope.ADMIN or self.scope in scopes

    def allows_site(self, number: int) -> bool:
        """Whether this site may be worked on."""
        return self.scope is Scope.ADMIN or (self.scope is Scope.SITE and self.site == number)

    def allows_group(self, group: str | None) -> bool:
        """Whether sites of this group may be seen."""
        return self.group is None or self.group == group
