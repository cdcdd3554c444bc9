"""Search Console's sitemaps: submit one, and read what Google says of it."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from tidings.announce.channels.answer import ChannelRequest, Outcome, Verdict
from tidings.announce.channels.google.access import GoogleAccess
from tidings.announce.channels.quota.api import read_document
from tidings.announce.site.site import Site

SEARCH_CONSOLE_SCOPE = "https://www.googleapis.com/auth/webmasters"
NO_PROPERTY = (
    "Set googleProperty to the property as Search Console names it, and add the service account to it as an owner."
)


@dataclass(frozen=True, slots=True)
class GoogleSitemap:
    """What Google says of a sitemap."""

    # When Google last got it submitted, and when it last downloaded it.
    submitted_at: datetime | None = None
    downloaded_at: datetime | None = None
    # Google has not processed it yet.
    pending: bool = False
    warnings: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class SearchConsole:
    """Search Console's API for sitemaps."""

    access: GoogleAccess

    async def submit(self, site: Site, sitemap: str) -> Outcome:
        """Submit a sitemap. Submitting it twice does no harm."""
        outcome, _ = await self.access.ask(site.google, self._build("PUT", site, sitemap), scope=SEARCH_CONSOLE_SCOPE)
        return _advise(outcome)

    async def describe(self, site: Site, sitemap: str) -> GoogleSitemap | Outcome:
        """What Google says of a sitemap, or the outcome of a failed request."""
        request = self._build("GET", site, sitemap)
        outcome, answer = await self.access.ask(site.google, request, scope=SEARCH_CONSOLE_SCOPE)
        if not outcome.accepted or answer is None:
            return _advise(outcome)
        return read_sitemap(read_document(answer.body) or {})

    def _build(self, method: str, site: Site, sitemap: str) -> ChannelRequest:
        names = (quote(name_property(site), safe=""), quote(sitemap, safe=""))
        return ChannelRequest(method, f"{self.access.base}/webmasters/v3/sites/{names[0]}/sitemaps/{names[1]}")


def name_property(site: Site) -> str:
    """The site's property in Search Console."""
    return site.google.console_property or f"{site.origin}/"


def read_sitemap(document: dict[str, Any]) -> GoogleSitemap:
    """Google writes numbers as text, and leaves out what it does not know."""
    return GoogleSitemap(
        submitted_at=_read_time(document.get("lastSubmitted")),
        downloaded_at=_read_time(document.get("lastDownloaded")),
        pending=document.get("isPending") is True,
        warnings=_read_count(document.get("warnings")),
        errors=_read_count(document.get("errors")),
    )


def _advise(outcome: Outcome) -> Outcome:
    if outcome.verdict is Verdict.REFUSED and outcome.status == 404:
        return replace(outcome, advice=NO_PROPERTY)
    return outcome


def _read_time(value: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)


def _read_count(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
