"""The Indexing API: one request for each page. Google allows it for pages with job postings or live streams alone."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo

from tidings.announce.channels.answer import ChannelRequest, Outcome, Verdict
from tidings.announce.channels.channel import SendingLimits
from tidings.announce.channels.google.access import DEFAULT_GOOGLE_BASE, GoogleAccess
from tidings.announce.channels.quota.api import CLOSED_AT_ONCE
from tidings.announce.channels.quota.ranked import RankedKind
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.google_settings import GOOGLE_FIELDS
from tidings.announce.site.site import Site, find_origin

INDEXING_SCOPE = "https://www.googleapis.com/auth/indexing"

_INDEXING_BASE = "https://indexing.googleapis.com"


class PacificTime(tzinfo):
    """The time zone of California, by the rule since 2007. Not every machine has a time zone database."""

    def utcoffset(self, at: datetime | None) -> timedelta:
        return timedelta(hours=-8) + self.dst(at)

    def dst(self, at: datetime | None) -> timedelta:
        if at is None:
            return timedelta()
        begins, ends = _find_sunday(at.year, 3, 2), _find_sunday(at.year, 11, 1)
        return timedelta(hours=1 if begins <= at.replace(tzinfo=None) < ends else 0)

    def tzname(self, at: datetime | None) -> str:
        return "PDT" if self.dst(at) else "PST"


def _find_sunday(year: int, month: int, number: int) -> datetime:
    """Two o'clock on the month's first or second Sunday."""
    first = date(year, month, 1)
    day = 1 + (6 - first.weekday()) % 7 + 7 * (number - 1)
    return datetime(year, month, day, 2)  # noqa: DTZ001 - the wall clock of the zone


GOOGLE_KIND = RankedKind(
    Channel.GOOGLE,
    "Google",
    zone=PacificTime(),
    shared=True,
    fields=GOOGLE_FIELDS,
    pick=lambda site: site.google,
    limits=SendingLimits(
        batch_size=100,
        urls_per_request=1,
        # A request has one URL: nothing can be halved.
        most_split_requests=1,
        # One refusal may concern the page, but not two in a row.
        failures_until_closed=CLOSED_AT_ONCE | {Verdict.REFUSED: 2},
        # 380 requests a minute.
        least_interval=timedelta(seconds=60 / 380),
    ),
)


@dataclass(frozen=True, slots=True)
class GoogleIndexingApi:
    """Google's Indexing API."""

    access: GoogleAccess

    @property
    def host(self) -> str:
        """The host that requests are paced by."""
        return find_origin(self._base).partition("://")[2]

    @property
    def _base(self) -> str:
        return _INDEXING_BASE if self.access.base == DEFAULT_GOOGLE_BASE else self.access.base

    def build_request(self, site: Site, urls: Sequence[str]) -> ChannelRequest:
        body = json.dumps({"url": urls[0], "type": "URL_UPDATED"}, ensure_ascii=False).encode()
        return ChannelRequest("POST", f"{self._base}/v3/urlNotifications:publish", body)

    async def submit(self, site: Site, request: ChannelRequest, *, count: int) -> Outcome:
        """Send one page and judge the answer; a lost connection is judged too. Nothing is retried here."""
        outcome, _ = await self.access.ask(site.google, request, scope=INDEXING_SCOPE)
        return outcome
