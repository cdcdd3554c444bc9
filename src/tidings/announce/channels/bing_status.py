"""Bing status of a site for people: quota used and left today, when it resets, and why nothing is sent."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, select

from tidings.announce.channels.answer import Verdict
from tidings.announce.channels.bing import AskedQuota, BingApi
from tidings.announce.channels.broken_engines import BrokenEngines
from tidings.announce.channels.key_cooldowns import KeyRests
from tidings.announce.channels.quota import Quota, QuotaState, bing_quota
from tidings.announce.execution.report import describe_quota
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.check import SiteFinding
from tidings.announce.site.site import Site
from tidings.core.clock import Clock, from_milliseconds, to_text
from tidings.core.db.database import Database

TRY_AGAIN = "Check that Bing can be reached, and BING_API_BASE if you set it; then try again."


@dataclass(frozen=True, slots=True)
class BingStatus:
    """`quota` is None where Bing is off; `reason` says why nothing is sent, `broken` that a person is needed."""

    quota: QuotaState | None = None
    last_submission: datetime | None = None
    broken: bool = False
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        if self.quota is None:
            return {"enabled": False}
        return {
            "enabled": True,
            "todayQuotaUsed": self.quota.used,
            "todayQuotaRemaining": self.quota.remaining,
            "lastSubmission": None if self.last_submission is None else to_text(self.last_submission),
        }

    def describe_quota(self) -> dict[str, Any] | None:
        """The quota in full, with what keeps it from being used; None where Bing is off."""
        if self.quota is None:
            return None
        return {**describe_quota(self.quota), "switchedOff": self.broken, "reason": self.reason}


async def read_bing_status(site: Site, *, database: Database, clock: Clock) -> BingStatus:
    """The Bing status of a site now."""
    if not site.bing.enabled:
        return BingStatus()
    quota = await make_quota(site, database=database, clock=clock).read()
    broken = await BrokenEngines(database, site=site, channel=Channel.BING).list_broken()
    rest = await KeyRests(database).find(site.bing.require_key(), now=clock.now())
    reason = None
    if broken:
        reason = f"switched off since {to_text(broken[0].since)}: {broken[0].reason}"
    elif rest is not None:
        reason = f"the key rests until {to_text(rest.until)}: {rest.reason}"
    return BingStatus(quota, await _find_last_submission(site, database), bool(broken), reason)


async def _find_last_submission(site: Site, database: Database) -> datetime | None:
    async with database.read() as connection:
        submitted_at = (await connection.execute(select_last_submission(site.number))).scalar()
    return None if submitted_at is None else from_milliseconds(submitted_at)


def select_last_submission(site: int | ColumnElement[int]) -> Select[Any]:
    """When the site was last submitted. A later day has the later submissions, so no other days are looked at."""
    return (
        select(bing_quota.c.submitted_at)
        .where(bing_quota.c.site == site, bing_quota.c.submitted_at.is_not(None))
        .order_by(bing_quota.c.day.desc())
        .limit(1)
    )


def make_quota(site: Site, *, database: Database, clock: Clock) -> Quota:
    """The quota of the present UTC day."""
    day = clock.now().astimezone(UTC).date()
    return Quota(database, site=site.number, day=day, limit=site.bing.daily_quota, clock=clock)


async def check_bing(site: Site, *, api: BingApi, quota: QuotaState) -> SiteFinding:
    """Does Bing know the key and the site, and does its quota fit the one that is configured?"""
    asked = await api.ask_quota(site)
    if not isinstance(asked, AskedQuota):
        advice = asked.advice if asked.verdict in (Verdict.FORBIDDEN, Verdict.THROTTLED) else TRY_AGAIN
        return SiteFinding("Bing", good=False, message=asked.reason, advice=advice)
    counted = f"{quota.limit:,} a day are configured, {quota.used:,} of them are used today"
    if asked.daily > quota.limit:
        message = f"Bing allows {asked.daily:,} today and {asked.monthly:,} this month; {counted}"
        return SiteFinding("Bing", good=True, message=message, advice="bingDailyQuota can be raised.")
    # Whether Bing says the total or what remains of it, reports differ: either is as it should be.
    if asked.daily >= quota.remaining:
        return SiteFinding("Bing", good=True, message=f"Bing says {asked.daily:,} for today; {counted}")
    return SiteFinding(
        "Bing",
        good=False,
        message=f"Bing takes only {asked.daily:,} today; {counted}",
        advice="Set bingDailyQuota to what Bing allows, or find out what else uses this quota.",
    )
