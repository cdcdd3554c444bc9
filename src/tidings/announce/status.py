"""Site status for GET /status: schedule, last and current execution, quota of each channel.

One statement reads it, and no key is decrypted, because monitors ask again and again. Further statements run only if a
key may have been refused, or rests.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NotRequired, cast

from sqlalchemy import FromClause, Select, and_, bindparam, exists, select
from typing_extensions import TypedDict

from tidings.announce.channels.broken_engines import BrokenEngines, broken_engines
from tidings.announce.channels.google.submissions import SitemapSubmission, SitemapSubmissions, SubmissionJson
from tidings.announce.channels.quota.key_cooldowns import KeyRests, key_rests
from tidings.announce.channels.quota.kinds import RANKED_KINDS, find_kind
from tidings.announce.channels.quota.quota import QuotaState, channel_quota
from tidings.announce.channels.quota.ranked import RankedKind
from tidings.announce.channels.quota.site_columns import join_quota, read_quota
from tidings.announce.execution.report import describe_quota
from tidings.announce.execution.report_json import QuotaJson, ReportJson
from tidings.announce.execution.running_executions import LiveExecutions
from tidings.announce.ledger.ledger import Channel
from tidings.announce.schedule.table import EVERYTHING, ScheduleState, read_state, schedules
from tidings.announce.site.site import ANNOUNCE, Site, name_workflow
from tidings.announce.site.table import SiteRecords, sites
from tidings.core.clock import Clock, read_timestamp, to_milliseconds, to_text
from tidings.core.db.database import Database
from tidings.core.executions import ExecutionRecord, ExecutionStatus, executions, read_record


class SiteState(StrEnum):
    """`broken`: a channel is off until a person does something about it."""

    RUNNING = "running"
    PAUSED = "paused"
    BROKEN = "broken"


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


class ExecutionJson(TypedDict):
    """An execution for people and scripts."""

    executionId: str
    site: str
    status: str
    startedAt: str
    completedAt: str | None
    # The live report while it runs.
    result: ReportJson | None


class StatusJson(TypedDict):
    status: str
    reason: NotRequired[str]
    siteId: str
    lastExecution: ExecutionJson | None
    executing: bool
    execution: ExecutionJson | None
    nextRun: str | None
    bing: ChannelJson
    baidu: ChannelJson
    google: ChannelJson
    bingQuota: ChannelQuotaJson | None
    baiduQuota: ChannelQuotaJson | None
    googleQuota: ChannelQuotaJson | None
    googleSitemaps: list[SubmissionJson]


@dataclass(frozen=True, slots=True)
class SiteOverview:
    """The status of a site."""

    site: str
    state: SiteState
    reason: str | None
    last: ExecutionRecord | None
    current: ExecutionRecord | None
    next_run: datetime | None
    # By channel with a quota.
    channels: Mapping[Channel, ChannelStatus]
    # The sitemaps at Google.
    sitemaps: Sequence[SitemapSubmission] = ()
    live: ReportJson | None = None

    def to_json(self) -> StatusJson:
        bing, baidu, google = (self.channels[each] for each in (Channel.BING, Channel.BAIDU, Channel.GOOGLE))
        document: StatusJson = {
            "status": self.state.value,
            "siteId": self.site,
            "lastExecution": None if self.last is None else describe_execution(self.last),
            "executing": self.current is not None,
            "execution": None if self.current is None else describe_execution(self.current, live=self.live),
            "nextRun": None if self.next_run is None else to_text(self.next_run),
            "bing": bing.to_json(),
            "baidu": baidu.to_json(),
            "google": google.to_json(),
            "bingQuota": bing.describe_quota(),
            "baiduQuota": baidu.describe_quota(),
            "googleQuota": google.describe_quota(),
            "googleSitemaps": [each.to_json() for each in self.sitemaps],
        }
        if self.reason:
            document["reason"] = self.reason
        return document


async def read_overview(
    site_id: str, *, database: Database, records: SiteRecords, clock: Clock, live: LiveExecutions
) -> SiteOverview | None:
    """The status of the site now; None if there is no site of this id."""
    now = clock.now()
    values = {
        "site_id": site_id,
        "workflow": name_workflow(site_id),
        **{f"{kind.channel}_day": kind.find_day(now).isoformat() for kind in RANKED_KINDS},
        "now": to_milliseconds(now),
    }
    rows = await database.look_up(_STATUS, values)
    if not rows:
        return None
    row = rows[0]
    channels, refusal = {kind.channel: _read_channel(row, kind, now=now) for kind in RANKED_KINDS}, None
    if row.refused or (row.rests and any(status.quota is not None for status in channels.values())):
        site = await records.find(site_id)
        if site is None:
            return None
        for kind in RANKED_KINDS:
            if channels[kind.channel].quota is not None:
                broken, reason = await _find_trouble(site, kind, database=database, now=now)
                channels[kind.channel] = replace(channels[kind.channel], broken=broken, reason=reason)
        refusal = await _find_refusal(site, database=database)
    recent = [read_record(each) for each in rows if each.public_id is not None]
    current = next((record for record in recent if record.status is ExecutionStatus.RUNNING), None)
    schedule = read_state(row, paused_everything=row.everything_paused_at is not None)
    state, reason = _judge(schedule, channels, enabled=bool(row.enabled), refusal=refusal)
    return SiteOverview(
        site=site_id,
        state=state,
        reason=reason,
        last=next((record for record in recent if record is not current), None),
        current=current,
        next_run=None if state is SiteState.PAUSED else schedule.next_run,
        channels=channels,
        sitemaps=await SitemapSubmissions(database, site=row.number).list() if row.has_google else (),
        live=None if current is None else live.describe(current.public_id),
    )


def _select_status() -> Select[Any]:
    """A row for each of the site's two newest executions, the newest first; one row if there is none."""
    everything, newest = schedules.alias("everything"), executions.alias("newest")
    two_newest = (
        select(newest.c.id)
        .where(newest.c.workflow_name == bindparam("workflow"), newest.c.kind == ANNOUNCE)
        .order_by(newest.c.id.desc())
        .limit(2)
    )
    columns: list[Any] = [
        *(sites.c.number, sites.c.settings, sites.c.enabled),
        sites.c.google_credentials.is_not(None).label("has_google"),
        *(schedules.c.next_at, schedules.c.last_run_at, schedules.c.paused_at),
        everything.c.paused_at.label("everything_paused_at"),
        exists().where(broken_engines.c.site == sites.c.number).label("refused"),
        exists().where(key_rests.c.until > bindparam("now")).label("rests"),
        *(column for column in executions.c if column.name not in ("id", "request")),
    ]
    tables: FromClause = (
        sites.outerjoin(schedules, schedules.c.site == sites.c.number)
        .outerjoin(everything, everything.c.site == EVERYTHING)
        .outerjoin(executions, executions.c.id.in_(two_newest))
    )
    for kind in RANKED_KINDS:
        tables, quota = join_quota(tables, kind, day=bindparam(f"{kind.channel}_day"))
        columns += [*quota, _select_last_submission(kind.channel).scalar_subquery().label(f"{kind.channel}_last")]
    there = and_(sites.c.removed_at.is_(None), sites.c.id == bindparam("site_id"))
    return select(*columns).select_from(tables).where(there).order_by(executions.c.id.desc())


def _select_last_submission(channel: Channel) -> Select[Any]:
    """When the site was last submitted. Only the latest day is read, because it has the latest submission."""
    columns = channel_quota.c
    return (
        select(columns.submitted_at)
        .where(columns.site == sites.c.number, columns.channel == channel.value, columns.submitted_at.is_not(None))
        .order_by(columns.day.desc())
        .limit(1)
    )


_STATUS = _select_status()


def _read_channel(row: Any, kind: RankedKind, *, now: datetime) -> ChannelStatus:
    """The status of a channel whose key is in order."""
    settings = json.loads(row.settings)
    if not settings.get(kind.fields.enabled, False):
        return ChannelStatus()
    quota = read_quota(row, kind, settings, day=kind.find_day(now))
    return ChannelStatus(quota, read_timestamp(getattr(row, f"{kind.channel}_last")))


async def _find_trouble(site: Site, kind: RankedKind, *, database: Database, now: datetime) -> tuple[bool, str | None]:
    """Whether the channel needs a person, and why nothing is sent: its key is refused, or rests."""
    if broken := await BrokenEngines(database, site=site, channel=kind.channel).list_broken():
        return True, f"switched off since {to_text(broken[0].since)}: {broken[0].reason}"
    if rest := await KeyRests(database).find(kind.pick(site).require_key(), now=now):
        return False, f"the key rests until {to_text(rest.until)}: {rest.reason}"
    return False, None


async def _find_refusal(site: Site, *, database: Database) -> str | None:
    """The engines' own words, if every one of them refuses the key."""
    broken = await BrokenEngines(database, site=site, channel=Channel.INDEXNOW).list_broken()
    refusing = {each.engine: each.reason for each in broken}
    if not all(engine.endpoint in refusing for engine in site.engines):
        return None
    return "; ".join(f"{engine}: {refusing[engine.endpoint]}" for engine in site.engines)


def _judge(
    schedule: ScheduleState, channels: Mapping[Channel, ChannelStatus], *, enabled: bool, refusal: str | None
) -> tuple[SiteState, str | None]:
    if schedule.paused_everything:
        return SiteState.PAUSED, "everything is paused"
    if schedule.paused:
        return SiteState.PAUSED, None
    if not enabled:
        return SiteState.PAUSED, "the site is disabled"
    for channel, status in channels.items():
        if status.broken:
            return SiteState.BROKEN, f"{find_kind(channel).title}: {status.reason}"
    if refusal is not None:
        return SiteState.BROKEN, f"IndexNow: every engine refuses the key ({refusal})"
    return SiteState.RUNNING, None


def describe_execution(record: ExecutionRecord, *, live: ReportJson | None = None) -> ExecutionJson:
    """`live`: its progress while it runs."""
    stored = cast("ReportJson | None", record.result or record.progress or None)
    return {
        "executionId": record.public_id,
        "site": record.workflow_name.partition(":")[2],
        "status": record.status.value,
        "startedAt": to_text(record.started_at),
        "completedAt": None if record.completed_at is None else to_text(record.completed_at),
        "result": (live if record.status is ExecutionStatus.RUNNING else None) or stored,
    }
