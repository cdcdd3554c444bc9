"""Channels with a daily quota, as the sender sees them: reserve quota, send, settle. One class for all of them.

A channel's own module has its protocol (`RankedApi`): how a request looks and what an answer means.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.answer import ChannelRequest, Outcome, Verdict
from tidings.announce.channels.channel import ExecutionContext, Reservation, SendingLimits
from tidings.announce.channels.quota.key_cooldowns import KeyRest, KeyRests
from tidings.announce.channels.quota.quota import Quota, QuotaTerms, read_limit
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.channel_settings import AUTO, RankedFields, RankedSettings
from tidings.announce.site.site import Engine, Site
from tidings.core.clock import Clock, to_text
from tidings.core.db.database import Database
from tidings.core.logs.logger import get_logger

KEY_REST = timedelta(hours=1)
# A key that took pages within this time is not refused for good, if the channel's refusals can also mean "too often".
TRUSTED_FOR = timedelta(days=2)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedKind(QuotaTerms):
    """One channel with a quota."""

    # The names of its settings, and its settings of a site.
    fields: RankedFields
    pick: Callable[[Site], RankedSettings]
    limits: SendingLimits
    # It may also refuse a good key, after too many requests.
    refusal_may_pass: bool = False

    @property
    def engine(self) -> Engine:
        """Its name in the outbox and in summaries."""
        return Engine(endpoint=str(self.channel), host=str(self.channel))

    @property
    def tells_limit(self) -> bool:
        """Whether the limit that the channel named may count."""
        return self.learns or self.fields.asks

    def find_limit(self, settings: Mapping[str, Any], *, allowed: int | None) -> int:
        """The limit of a day, by the site's stored settings and by what the channel named last."""
        configured = settings.get(self.fields.daily_quota, self.fields.default_quota)
        if configured == AUTO:
            return read_limit(allowed, configured=self.fields.default_quota)
        return read_limit(allowed if self.learns else None, configured=int(configured))


def open_quota(site: Site, kind: RankedKind, *, database: Database, clock: Clock, at: datetime | None = None) -> Quota:
    """The quota of the channel's day at this time; now by default."""
    settings = kind.pick(site)
    return Quota(
        database,
        terms=kind,
        site=site.number,
        day=kind.find_day(at or clock.now()),
        limit=settings.daily_quota,
        clock=clock,
        asked=settings.auto,
        project=settings.quota_project,
    )


class RankedApi(Protocol):
    """The protocol of a channel with a quota."""

    @property
    def host(self) -> str:
        """The host that requests are paced by."""

    def build_request(self, site: Site, urls: Sequence[str]) -> ChannelRequest: ...

    async def submit(self, site: Site, request: ChannelRequest, *, count: int) -> Outcome:
        """Send one batch and judge the answer; a lost connection is judged too. Nothing is retried here."""


@dataclass(frozen=True, slots=True)
class RankedChannel:
    """A channel with a quota for one site in one execution.

    A crash between reserving and settling leaves the quota charged and the pages in the outbox: the count may be too
    high, never too low, and nothing is lost.
    """

    kind: RankedKind
    api: RankedApi
    quota: Quota
    context: ExecutionContext

    @property
    def site(self) -> Site:
        return self.context.site

    @property
    def channel(self) -> Channel:
        return self.kind.channel

    @property
    def engine(self) -> Engine:
        return self.kind.engine

    @property
    def settings(self) -> RankedSettings:
        return self.kind.pick(self.site)

    @property
    def host(self) -> str:
        return self.api.host

    @property
    def limits(self) -> SendingLimits:
        return self.kind.limits

    def build_request(self, urls: Sequence[str]) -> ChannelRequest:
        return self.api.build_request(self.site, urls)

    async def submit(self, request: ChannelRequest, *, count: int) -> Outcome:
        outcome = await self.api.submit(self.site, request, count=count)
        if outcome.verdict is Verdict.FORBIDDEN and self.kind.refusal_may_pass:
            since = self.context.clock.now() - TRUSTED_FOR
            if await self.quota.was_taken_since(since):
                return replace(outcome, verdict=Verdict.THROTTLED, advice="Nothing to do: the key rests for an hour.")
        return outcome

    async def find_rest(self) -> KeyRest | None:
        """The rest of the site's key, or None if it may be used."""
        return await KeyRests(self.context.database).find(self.settings.require_key(), now=self.context.clock.now())

    async def reserve(self, count: int, *, least: int) -> Reservation:
        """Reserve quota for up to `count` pages, at least `least`; none once the key rests or the day is full."""
        rest = await self.find_rest()
        if rest is not None:
            return Reservation(0, f"the key rests until {to_text(rest.until)}: {rest.reason}")
        async with self.context.transaction() as connection:
            granted = await self.quota.reserve(connection, count)
            if 0 < granted < least:
                await self.quota.release(connection, granted)
                granted = 0
        if not granted:
            self.quota.log_exhausted(self.site.id)
        return Reservation(granted)

    async def release(self, count: int) -> None:
        """Give back a reservation that was not used."""
        async with self.context.transaction() as connection:
            await self.quota.release(connection, count)

    async def settle(self, connection: AsyncConnection, outcome: Outcome, *, count: int) -> None:
        """Settle a reservation by the channel's answer."""
        match outcome.verdict:
            case Verdict.ACCEPTED:
                rejected = len(outcome.rejected)
                await self.quota.confirm(connection, count, rejected=rejected, remaining=outcome.remaining)
            case Verdict.UNCERTAIN:
                await self.quota.keep(connection, count)
            case Verdict.QUOTA_REMAINING:
                await self.quota.correct(connection, remaining=outcome.remaining or 0, reserved=count)
            case Verdict.QUOTA_FULL:
                await self.quota.close(connection, reserved=count, total=outcome.total)
            case _:
                await self.quota.release(connection, count)
        if outcome.verdict is Verdict.THROTTLED:
            await self._rest_key(connection, outcome)

    async def _rest_key(self, connection: AsyncConnection, outcome: Outcome) -> None:
        until = self.context.clock.now() + KEY_REST
        key = self.settings.require_key()
        await KeyRests(self.context.database).begin(connection, key, until=until, reason=outcome.reason)
        _log.warning(
            f"{self.channel}.key_rests", site=self.site.id, key=key.hint, until=to_text(until), reason=outcome.reason
        )
