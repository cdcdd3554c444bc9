"""The whole status of collect, for `tidings collect status` and GET /api/collect/status: candidates, executions,
cookies, pauses, the mirror, and open alerts. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidings.collect.alerts.kinds import CollectAlert
from tidings.collect.alerts.monitor import find_obstacle
from tidings.collect.candidate_counts import count_candidates
from tidings.collect.crawl.cookies.table import Cookie
from tidings.collect.feishu.mirror import FeishuMirror, MirrorStatus
from tidings.collect.status.queries import PlatformPause, count_threads, list_executions, list_pauses
from tidings.collect.tables import CandidateStatus, StageStatus
from tidings.collect.write.cookies import CookieRecords
from tidings.collect.write.keywords import Keyword, Keywords
from tidings.core.alerts.conditions import OpenCondition
from tidings.core.alerts.service import Alerts
from tidings.core.clock import Clock
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
    # Notes whose comments are not all read, by platform and status.
    comments: dict[str, dict[StageStatus, int]]
    cookies: Sequence[Cookie]
    # The names of the cookies that can be used now.
    usable: frozenset[str]
    # Paused platforms.
    pauses: Sequence[PlatformPause]
    # None if there is no mirror.
    mirror: MirrorStatus | None

    @property
    def cookie_counts(self) -> dict[str, dict[str, int]]:
        """For each platform, the cookies that can be used, and all cookies."""
        counts: dict[str, dict[str, int]] = {}
        for cookie in self.cookies:
            count = counts.setdefault(cookie.platform, {"usable": 0, "total": 0})
            count["usable"] += cookie.name in self.usable
            count["total"] += 1
        return counts

    @property
    def keyword_counts(self) -> dict[str, int]:
        return {"enabled": sum(each.enabled for each in self.keywords), "total": len(self.keywords)}


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
            threads = await count_threads(connection)
        return CollectStatus(
            candidates={
                platform: {status: counts.get(status, 0) for status in CandidateStatus}
                for platform, counts in candidates.items()
            },
            executions=executions,
            alerts=[each for each in await self.alerts.list_open() if each.kind in kinds and each.fired_at],
            keywords=await self.keywords.list_all(),
            comments={
                platform: {status: counts.get(status, 0) for status in StageStatus if status is not StageStatus.DONE}
                for platform, counts in threads.items()
            },
            cookies=cookies,
            usable=frozenset(each.name for each in cookies if find_obstacle(each, at=now, keys=self.keys) is None),
            pauses=pauses,
            mirror=None if self.mirror is None else await self.mirror.describe(),
        )
