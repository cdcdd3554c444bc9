"""How a site stands, in one look: does it run, when next, how did it go last, and how is it with Bing."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tidings.announce.bing_status import BingStatus, read_bing_status
from tidings.announce.ledger import Channel
from tidings.announce.live import LiveExecutions
from tidings.announce.memory import BrokenEngine, BrokenEngines
from tidings.announce.schedule import Schedules, ScheduleState
from tidings.announce.sites import Site
from tidings.core.clock import Clock, to_text
from tidings.core.database import Database
from tidings.core.executions import ExecutionRecord, Executions, ExecutionStatus


class SiteState(StrEnum):
    """`broken`: a channel is off until a person does something about it."""

    RUNNING = "running"
    PAUSED = "paused"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class SiteOverview:
    """All that /status tells of a site."""

    site: str
    state: SiteState
    reason: str | None
    last: ExecutionRecord | None
    current: ExecutionRecord | None
    next_run: datetime | None
    bing: BingStatus
    live: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.state.value,
            **({"reason": self.reason} if self.reason else {}),
            "siteId": self.site,
            "lastExecution": None if self.last is None else describe_execution(self.last),
            "executing": self.current is not None,
            "execution": None if self.current is None else describe_execution(self.current, live=self.live),
            "nextRun": None if self.next_run is None else to_text(self.next_run),
            "bing": self.bing.to_json(),
            "bingQuota": self.bing.describe_quota(),
        }


async def read_overview(
    site: Site,
    *,
    database: Database,
    clock: Clock,
    executions: Executions,
    schedules: Schedules,
    live: LiveExecutions,
) -> SiteOverview:
    """How the site stands now."""
    recent = await executions.list_recent(site.workflow_name, limit=2)
    current = next((record for record in recent if record.status is ExecutionStatus.RUNNING), None)
    schedule = await schedules.read(site.number)
    bing = await read_bing_status(site, database=database, clock=clock)
    broken = await BrokenEngines(database, site=site, channel=Channel.INDEXNOW).list_broken()
    state, reason = _judge(site, schedule, bing, broken)
    return SiteOverview(
        site=site.id,
        state=state,
        reason=reason,
        last=next((record for record in recent if record is not current), None),
        current=current,
        next_run=None if state is SiteState.PAUSED else schedule.next_run,
        bing=bing,
        live=None if current is None else live.describe(current.public_id),
    )


def _judge(
    site: Site, schedule: ScheduleState, bing: BingStatus, broken: list[BrokenEngine]
) -> tuple[SiteState, str | None]:
    if schedule.paused_everything:
        return SiteState.PAUSED, "everything is paused"
    if schedule.paused:
        return SiteState.PAUSED, None
    if not site.enabled:
        return SiteState.PAUSED, "the site is disabled"
    if bing.broken:
        return SiteState.BROKEN, f"Bing: {bing.reason}"
    refusing = {each.engine: each.reason for each in broken}
    if all(engine.endpoint in refusing for engine in site.engines):
        reasons = "; ".join(f"{engine}: {refusing[engine.endpoint]}" for engine in site.engines)
        return SiteState.BROKEN, f"IndexNow: every engine refuses the key ({reasons})"
    return SiteState.RUNNING, None


def describe_execution(record: ExecutionRecord, *, live: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One execution for people and scripts. `live` is how far it is, where it runs in this process."""
    return {
        "executionId": record.public_id,
        "site": record.workflow_name.partition(":")[2],
        "status": record.status.value,
        "startedAt": to_text(record.started_at),
        "completedAt": None if record.completed_at is None else to_text(record.completed_at),
        "result": live or record.result or record.progress or None,
    }
