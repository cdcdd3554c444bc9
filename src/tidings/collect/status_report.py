"""The whole status of collect, for `tidings collect status` and GET /api/collect/status: candidates, executions,
cookies, pauses, the mirror, and what needs a person; and JSON objects of its parts. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidings.collect.alert_kinds import CollectAlert
from tidings.collect.alerts import find_obstacle
from tidings.collect.candidate_counts import count_candidates
from tidings.collect.crawl.cookies.table import Cookie
from tidings.collect.feishu.mirror import FeishuMirror
from tidings.collect.feishu.status import MirrorStatus
from tidings.collect.status import ListedCandidate, PlatformPause, list_executions, list_pauses
from tidings.collect.tables import CandidateStatus
from tidings.collect.write import Keyword, Keywords
from tidings.collect.write.cookies import CookieRecords
from tidings.core.alerts import Alerts, OpenCondition
from tidings.core.clock import Clock, to_text
from tidings.core.db.database import Database
from tidings.core.executions import ExecutionRecord
from tidings.core.secrets.keyring import KeyRing

_MOST_EXECUTIONS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectStatus:
    """The state of collect at one time."""

    # The number of candidates, by platform and status.
    candidates: dict[str, dict[CandidateStatus, int]]
    # The last executions, newest first.
    executions: Sequence[ExecutionRecord]
    # Alerts that have fired and are not resolved.
    alerts: Sequence[OpenCondition]
    keywords: Sequence[Keyword]
    cookies: Sequence[Cookie]
    # The names of the cookies that can be used now.
    usable: frozenset[str]
    # Platforms that are left alone for now.
    pauses: Sequence[PlatformPause]
    # None: there is no mirror.
    mirror: MirrorStatus | None

    def count_cookies(self) -> dict[str, tuple[int, int]]:
        """For each platform, the cookies that can be used, and all cookies."""
        counts: dict[str, tuple[int, int]] = {}
        for cookie in self.cookies:
            usable, total = counts.get(cookie.platform, (0, 0))
            counts[cookie.platform] = usable + (cookie.name in self.usable), total + 1
        return counts

    def to_json(self) -> dict[str, Any]:
        return {
            "candidates": {
                platform: {status.value: counts.get(status, 0) for status in CandidateStatus}
                for platform, counts in self.candidates.items()
            },
            "executions": [describe_execution(record) for record in self.executions],
            "alerts": [_describe_alert(each) for each in self.alerts],
            "keywords": {"enabled": sum(each.enabled for each in self.keywords), "total": len(self.keywords)},
            "cookies": {
                platform: {"usable": usable, "total": total}
                for platform, (usable, total) in self.count_cookies().items()
            },
            "pauses": [describe_pause(pause) for pause in self.pauses],
            "mirror": None if self.mirror is None else _describe_mirror(self.mirror),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectStatusReader:
    """Reads the status of collect."""

    database: Database
    clock: Clock
    keys: KeyRing
    alerts: Alerts
    keywords: Keywords
    cookies: CookieRecords
    mirror: FeishuMirror | None

    async def read(self) -> CollectStatus:
        now, kinds = self.clock.now(), frozenset(CollectAlert)
        cookies = await self.cookies.list_all()
        async with self.database.read() as connection:
            candidates = await count_candidates(connection)
            executions = await list_executions(connection, limit=_MOST_EXECUTIONS)
            pauses = await list_pauses(connection)
        return CollectStatus(
            candidates=candidates,
            executions=executions,
            alerts=[each for each in await self.alerts.list_open() if each.kind in kinds and each.fired_at],
            keywords=await self.keywords.list_all(),
            cookies=cookies,
            usable=frozenset(each.name for each in cookies if find_obstacle(each, at=now, keys=self.keys) is None),
            pauses=pauses,
            mirror=None if self.mirror is None else await self.mirror.describe(),
        )


def describe_execution(record: ExecutionRecord) -> dict[str, Any]:
    """An execution of collect as a JSON object."""
    return {
        "workflow": record.workflow_name,
        "executionId": record.public_id,
        "status": record.status.value,
        "startedAt": to_text(record.started_at),
        "completedAt": None if record.completed_at is None else to_text(record.completed_at),
        "itemsProcessed": record.items_processed,
        "itemsFailed": record.items_failed,
    }


def describe_keyword(keyword: Keyword) -> dict[str, Any]:
    """A watched keyword as a JSON object."""
    return {
        "id": keyword.id,
        "platform": keyword.platform,
        "keyword": keyword.keyword,
        "pages": keyword.pages,
        "refresh": None if keyword.refresh is None else keyword.refresh.describe(),
        "enabled": keyword.enabled,
        "lastRunAt": None if keyword.last_run_at is None else to_text(keyword.last_run_at),
        "lastFound": keyword.last_found,
        "lastCreated": keyword.last_created,
        "lastErrorCode": keyword.last_error_code,
    }


def describe_candidate(candidate: ListedCandidate) -> dict[str, Any]:
    """A candidate as a JSON object."""
    return {
        "platform": candidate.platform,
        "noteId": candidate.note_id,
        "url": candidate.note_url,
        "title": candidate.title,
        "status": candidate.status.value,
        "keyword": candidate.source_keyword,
        "retryCount": candidate.retry_count,
        "errorCode": candidate.code,
        "error": candidate.message,
        "createdAt": to_text(candidate.created_at),
        "updatedAt": to_text(candidate.updated_at),
    }


def describe_cookie(cookie: Cookie) -> dict[str, Any]:
    """A cookie's name and state as a JSON object, never its value."""
    state = cookie.state
    return {
        "name": cookie.name,
        "platform": cookie.platform,
        "status": state.status.value,
        "priority": cookie.priority,
        "dailyUsed": state.daily_used,
        "dailyLimit": cookie.daily_limit,
        "consecutiveErrors": state.consecutive_errors,
        "totalErrors": state.total_errors,
        "coolingUntil": None if state.cooling_until is None else to_text(state.cooling_until),
        "lastUsedAt": None if cookie.last_used_at is None else to_text(cookie.last_used_at),
        "createdAt": to_text(cookie.created_at),
        "updatedAt": to_text(cookie.updated_at),
    }


def describe_pause(pause: PlatformPause) -> dict[str, Any]:
    """A paused platform as a JSON object."""
    return {
        "platform": pause.platform,
        "cause": pause.cause.value,
        "message": pause.message,
        "failures": pause.failures,
        "since": to_text(pause.since),
        "until": to_text(pause.until),
    }


def _describe_alert(condition: OpenCondition) -> dict[str, Any]:
    return {
        "kind": condition.kind,
        "subject": condition.subject,
        "reason": condition.reason,
        "action": condition.action,
        "count": condition.count,
        "since": to_text(condition.since),
    }


def _describe_mirror(mirror: MirrorStatus) -> dict[str, Any]:
    return {
        "waiting": mirror.waiting,
        "oldest": None if mirror.oldest is None else to_text(mirror.oldest),
        "refused": mirror.refused,
        "lastError": mirror.last_error,
        "deliveredAt": None if mirror.delivered_at is None else to_text(mirror.delivered_at),
    }
