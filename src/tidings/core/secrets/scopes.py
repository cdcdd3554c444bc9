"""The rights of an API token. Plain values; `tokens` stores them, `tidings.web.middleware.auth` enforces them."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a token opens, the stronger first: `workflow` includes `crawl`, which it drives. `site` is for one site's
    /trigger and /urls."""

    ADMIN = "admin"
    WORKFLOW = "workflow"
    CRAWL = "crawl"
    METRICS = "metrics"
    SITE = "site"


@dataclass(frozen=True, slots=True)
class Grant:
    """What the bearer of a token may do. `site` is the site's number, for the scope `site` alone."""

    scope: Scope
    name: str
    site: int | None = None

    def allows(self, scopes: Collection[Scope]) -> bool:
        """Whether one of these scopes is enough; admin may do everything."""
        return self.scope is Scope.ADMIN or self.scope in scopes

    def allows_site(self, number: int) -> bool:
        """Whether this site may be worked on."""
        return self.scope is Scope.ADMIN or (self.scope is Scope.SITE and self.site == number)
