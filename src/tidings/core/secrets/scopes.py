"""The rights of an API token. Plain values; `tokens` stores them, `tidings.web.middleware.auth` enforces them."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """The rights of a token, the strongest first. `workflow` includes `crawl`, because a workflow calls the crawl API.
    `viewer` reads announce's status, of all sites or one group. `site` may only call /trigger and /urls of one site."""

    ADMIN = "admin"
    WORKFLOW = "workflow"
    CRAWL = "crawl"
    METRICS = "metrics"
    VIEWER = "viewer"
    SITE = "site"


@dataclass(frozen=True, slots=True)
class Grant:
    """The rights that one token grants."""

    scope: Scope
    name: str
    # The site's number, for the scope `site` alone.
    site: int | None = None
    # The only group of sites that it sees, for the scope `viewer` alone; None: all.
    group: str | None = None

    def allows(self, scopes: Collection[Scope]) -> bool:
        """Whether the token has one of these scopes; admin has all."""
        return self.scope is Scope.ADMIN or self.scope in scopes

    def allows_site(self, number: int) -> bool:
        """Whether the token may act on this site."""
        return self.scope is Scope.ADMIN or (self.scope is Scope.SITE and self.site == number)

    def allows_group(self, group: str | None) -> bool:
        """Whether the token may see sites of this group."""
        return self.group is None or self.group == group
