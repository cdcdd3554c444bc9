"""Status of a site's channels with a quota: used and left today, when it resets, and why nothing is sent."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NotRequired

from sqlalchemy import ColumnElement, Select, select
from typing_extensions import TypedDict

from tidings.announce.channels.broken_engines import BrokenEngines
from tidings.announce.channels.quota.key_cooldowns import KeyRests
from tidings.announce.channels.quota.quota import QuotaState, channel_quota
from tidings.announce.channels.quota.ranked import RankedKind
from tidings.announce.execution.report import describe_quota
from tidings.announce.execution.report_json import QuotaJson
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.site import Site
from tidings.core.clock import to_text
from tidings.core.db.database import Database


class ChannelJson(TypedDict):
    """A channel that is off has no other field."""

    enabled: bool
    todayQuotaUsed: NotRequired[int]
    todayQuotaRemaining: NotRequired[int]
    lastSubmission: NotRequired[str | None]


class ChannelQuotaJson(QuotaJson):
    """The whole quota, with the reason why nothing is sent."""

    switchedOff: bool  # noqa: N815 - the API's name
    reason: str | None


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """The status of one channel."""

    # None: the channel is off.
    quota: QuotaState | None = None
    last_submission: datetime | None = None
    # It needs a person.
    broken: bool = False
    # Why nothing is sent.
    reason: str | None = None

    def to_json(self) -> ChannelJson:
        if self.quota is None:
            return {"enabled": False}
        return {
            "enabled": True,
            "todayQuotaUsed": self.quota.used,
            "todayQuotaRemaining": self.quota.remaining,
            "lastSubmission": None if self.last_submission is None else to_text(self.last_submission),
        }

    def describe_quota(self) -> ChannelQuotaJson | None:
        """None where the channel is off."""
        if self.quota is None:
            return None
        return {**describe_quota(self.quota), "switchedOff": self.broken, "reason": self.reason}


async def add_trouble(
    status: ChannelStatus, site: Site, kind: RankedKind, *, database: Database, now: datetime
) -> ChannelStatus:
    """The status of a channel with the reason why nothing is sent: its key is refused, or rests."""
    if status.quota is None:
        return status
    if broken := await BrokenEngines(database, site=site, channel=kind.channel).list_broken():
        return replace(status, broken=True, reason=f"switched off since {to_text(broken[0].since)}: {broken[0].reason}")
    if rest := await KeyRests(database).find(kind.pick(site).require_key(), now=now):
        return replace(status, reason=f"the key rests until {to_text(rest.until)}: {rest.reason}")
    return status


def select_last_submission(site: int | ColumnElement[int], channel: Channel) -> Select[Any]:
    """When the site was last submitted. Only the latest day is read, because it has the latest submission."""
    columns = channel_quota.c
    return (
        select(columns.submitted_at)
        .where(columns.site == site, columns.channel == channel.value, columns.submitted_at.is_not(None))
        .order_by(columns.day.desc())
        .limit(1)
    )
