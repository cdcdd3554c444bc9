"""Checks the conditions of collect every minute: raises an alert for each that holds, and resolves the others.
`core.alerts` notifies people once per alert.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.alerts import conditions
from tidings.collect.alerts.conditions import MOST_PENDING, RATE_WINDOW, SUBJECT, USED_UP, CollectCondition
from tidings.collect.alerts.kinds import CollectAlert
from tidings.collect.crawl.cookies.states import CookieStatus, settle_state
from tidings.collect.crawl.cookies.table import Cookie, open_cookie, read_cookies
from tidings.collect.errors import RULES, Action, CrawlError
from tidings.collect.run.report import EndedExecution
from tidings.collect.status import queries
from tidings.collect.status.queries import PlatformPause, SuccessRate
from tidings.collect.tables import collect_minutes
from tidings.collect.write.keywords import Keyword, list_keywords
from tidings.core.alerts.events import Alert
from tidings.core.alerts.service import Alerts
from tidings.core.clock import CLOCK_TOLERANCE, Clock
from tidings.core.db.database import Database
from tidings.core.executions import ExecutionStatus
from tidings.core.secrets.escapes import escape_controls
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import KeyRingError

# The kinds that `CollectMonitor.check` raises and resolves.
_MONITORED: Final = frozenset(CollectAlert) - {CollectAlert.WORKFLOW_FAILED, CollectAlert.MIRROR_FAILED}
SKIPPED_WINDOW: Final = timedelta(hours=1)
# A cookie that ends within this time needs a new one.
ENDS_SOON: Final = timedelta(days=3)
STATISTICS_KEPT: Final = timedelta(days=1)

_SKIPPED: Final = tuple(code for code, rule in RULES.items() if rule.action is Action.SKIP and rule.alerts)
_FAILURE_ACTION: Final = "look at this execution where the workflow runs; its leased candidates are tried again"
# `partial` is missing: it concerns single candidates, which have conditions of their own.
_WELL: Final = frozenset({ExecutionStatus.SUCCEEDED, ExecutionStatus.PARTIAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSnapshot:
    """Everything that the conditions depend on, read at one time."""

    # Platforms with pending or processing candidates.
    waiting: set[str]
    # The enabled keywords, with the result of their last search.
    searches: Sequence[Keyword]
    cookies: Sequence[Cookie]
    rate: SuccessRate
    # Pending candidates, counted up to MOST_PENDING + 1.
    pending: int
    # Candidates that were skipped within SKIPPED_WINDOW, by platform and code.
    skipped: dict[str, dict[str, int]]
    pauses: Sequence[PlatformPause]

    @property
    def busy(self) -> set[str]:
        """The platforms with keywords or candidates."""
        return self.waiting | {search.platform for search in self.searches}

    def is_idle(self, workflow: str) -> bool:
        """Whether a workflow has nothing to do. Then no execution of it would resolve its alert."""
        name, _, platform = workflow.partition(":")
        if name == "discover":
            return not self.searches
        return name == "collect" and (platform not in self.waiting if platform else not self.waiting)


@dataclass(frozen=True, slots=True)
class WorkflowAlerts:
    """The alert that a workflow failed as a whole."""

    database: Database
    alerts: Alerts

    async def report_failure(self, workflow_name: str, message: str, *, execution_id: str | None) -> None:
        """Raise the alert. `execution_id` is the driver's own."""
        where = "" if execution_id is None else f"execution {execution_id}: "
        alert = Alert(
            kind=CollectAlert.WORKFLOW_FAILED,
            subject=workflow_name,
            reason=f"{where}{message or 'no reason was given'}",
            action=_FAILURE_ACTION,
        )
        async with self.database.write() as connection:
            await self.alerts.raise_alert(connection, alert)
        self.alerts.wake()

    async def judge_end(self, workflow_name: str, status: ExecutionStatus) -> None:
        """Resolve the alert when an execution of the workflow succeeds, in full or in part."""
        if status not in _WELL:
            return
        async with self.database.write() as connection:
            await self.alerts.resolve_alert(connection, CollectAlert.WORKFLOW_FAILED, workflow_name)
        self.alerts.wake()

    async def record_recovery(self) -> None:
        """Resolve the alert of a failed recovery. It takes no lock, so there is no execution to resolve it."""
        await self.judge_end("recover", ExecutionStatus.SUCCEEDED)


@dataclass(frozen=True, slots=True)
class CollectMonitor(WorkflowAlerts):
    """Checks the conditions."""

    _: KW_ONLY
    keys: KeyRing
    clock: Clock
    # Tells whether a platform needs a cookie. Raises CrawlError if the platform does not exist.
    needs_cookie: Callable[[str], bool]

    async def check(self) -> None:
        """Raise and resolve the alerts of all conditions, and delete statistics that are older than a day or of a
        clock that was ahead."""
        now = self.clock.now()
        async with self.database.read() as connection:
            snapshot = await _read_snapshot(connection, at=now)
        found = list(self._examine(snapshot, at=now))
        holding = {(each.kind, escape_controls(each.subject)) for each in found}

        def is_over(kind: str, subject: str) -> bool:
            if kind == CollectAlert.WORKFLOW_FAILED:
                return snapshot.is_idle(subject)
            return kind in _MONITORED and (kind, subject) not in holding

        async with self.database.write() as connection:
            if not conditions.is_judged(snapshot.rate) and await self.alerts.has_fired(
                connection, CollectAlert.SUCCESS_RATE, SUBJECT
            ):
                # Too few tries to resolve the alert.
                holding.add((CollectAlert.SUCCESS_RATE, SUBJECT))
            for condition in found:
                await self.alerts.raise_alert(connection, condition, after=condition.after)
            await self.alerts.resolve_matching(connection, is_over)
            old = collect_minutes.c.minute <= queries.count_minutes(now - STATISTICS_KEPT)
            ahead = collect_minutes.c.minute > queries.count_minutes(now + CLOCK_TOLERANCE)
            await connection.execute(delete(collect_minutes).where(old | ahead))
        self.alerts.wake()

    async def record_end(self, ended: EndedExecution) -> None:
        """Raise the alert of a workflow that failed, or resolve it when an execution succeeds."""
        if ended.status is ExecutionStatus.FAILED:
            await self.report_failure(ended.workflow, ended.reason or "", execution_id=ended.execution_id)
        else:
            await self.judge_end(ended.workflow, ended.status)

    def _examine(self, snapshot: CollectSnapshot, *, at: datetime) -> Iterator[CollectCondition]:
        obstacles = {each.name: find_obstacle(each, at=at, keys=self.keys) for each in snapshot.cookies}
        for platform in sorted(snapshot.busy | {each.platform for each in snapshot.cookies}):
            mine = [obstacles[each.name] for each in snapshot.cookies if each.platform == platform]
            if all(mine) and self._asks_with_cookie(platform):
                yield conditions.describe_exhaustion(platform, [obstacle for obstacle in mine if obstacle])
        for cookie in snapshot.cookies:
            obstacle = obstacles[cookie.name]
            if obstacle is not None and obstacle != USED_UP:
                yield conditions.describe_rest(cookie, obstacle)
        for cookie in snapshot.cookies:
            if cookie.expires_at is not None and cookie.expires_at - at <= ENDS_SOON:
                yield conditions.describe_ending(cookie, at=at)
        yield from map(conditions.describe_pause, snapshot.pauses)
        if conditions.is_judged(snapshot.rate) and conditions.is_bad(snapshot.rate):
            yield conditions.describe_rate(snapshot.rate)
        if snapshot.pending > MOST_PENDING:
            yield conditions.describe_pending()
        for platform, counts in snapshot.skipped.items():
            yield conditions.describe_skipped(platform, counts)
        yield from conditions.describe_searches(snapshot.searches)

    def _asks_with_cookie(self, platform: str) -> bool:
        try:
            return self.needs_cookie(platform)
        except CrawlError:
            return False


async def _read_snapshot(connection: AsyncConnection, *, at: datetime) -> CollectSnapshot:
    return CollectSnapshot(
        waiting=await queries.list_waiting_platforms(connection),
        searches=[each for each in await list_keywords(connection) if each.enabled],
        cookies=await read_cookies(connection),
        rate=await queries.read_rate(connection, at=at, window=RATE_WINDOW),
        pending=await queries.count_pending(connection, most=MOST_PENDING + 1),
        skipped=await queries.count_failed_by(connection, _SKIPPED, at=at, window=SKIPPED_WINDOW),
        pauses=await queries.list_pauses(connection),
    )


def find_obstacle(cookie: Cookie, *, at: datetime, keys: KeyRing) -> str | None:
    """Why a cookie cannot be used now, in one or two words; None if it can."""
    state = settle_state(cookie.state, at=at)
    if state.status is not CookieStatus.ACTIVE:
        return state.status.value
    if state.daily_used >= cookie.daily_limit:
        return USED_UP
    try:
        open_cookie(cookie, keys=keys)
    except KeyRingError:
        return CookieStatus.UNREADABLE.value
    return None
