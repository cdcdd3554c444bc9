"""The conditions of collect that people are notified of. A monitor checks them every minute, raises an alert for each
that holds and resolves those that no longer do. `core.alerts` makes sure that each is notified once.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.alert_kinds import CollectAlert
from tidings.collect.crawl.cookies.states import CookieStatus, settle_state
from tidings.collect.crawl.cookies.table import Cookie, open_cookie, read_cookies
from tidings.collect.errors import RULES, Action, CrawlError, ErrorCode
from tidings.collect.run.report import EndedExecution
from tidings.collect.status import (
    PauseCause,
    PlatformPause,
    SuccessRate,
    WatchedSearch,
    count_failed_by,
    count_minutes,
    count_pending,
    list_pauses,
    list_searches,
    list_waiting_platforms,
    read_rate,
)
from tidings.collect.tables import collect_minutes
from tidings.core.alerts import Alert, Alerts
from tidings.core.clock import Clock, to_text
from tidings.core.db.database import Database
from tidings.core.executions import ExecutionStatus
from tidings.core.secrets.escapes import escape_controls
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import KeyRingError

# The kinds that `CollectMonitor.check` raises and resolves.
_MONITORED: Final = frozenset(CollectAlert) - {CollectAlert.WORKFLOW_FAILED, CollectAlert.MIRROR_FAILED}
SUBJECT: Final = "collect"
RATE_WINDOW: Final = timedelta(minutes=10)
RATE_LASTS: Final = timedelta(minutes=10)
LEAST_RATE: Final = 0.9
LEAST_TRIES: Final = 5
MOST_PENDING: Final = 500
PENDING_LASTS: Final = timedelta(minutes=30)
SKIPPED_WINDOW: Final = timedelta(hours=1)
# A search that may succeed at the next discovery is notified after two failures.
SEARCH_LASTS: Final = timedelta(hours=2)
# A cookie that ends within this time needs a new one.
ENDS_SOON: Final = timedelta(days=3)
STATISTICS_KEPT: Final = timedelta(days=1)
RECOVER: Final = "recover"

_SKIPPED: Final = tuple(code for code, rule in RULES.items() if rule.action is Action.SKIP and rule.alerts)
_USED_UP: Final = "used up today"
_SPENT_ACTION: Final = (
    "The accounts are fine: their uses of today are spent. Wait until midnight UTC, raise the limit with "
    "`tidings cookies set NAME --daily-limit N`, or add a cookie of another account."
)
_FAILURE_ACTION: Final = "look at this execution where the workflow runs; its leased candidates are tried again"
# `partial` is about single candidates, which have conditions of their own.
_WELL: Final = frozenset({ExecutionStatus.SUCCEEDED, ExecutionStatus.PARTIAL})


@dataclass(frozen=True, slots=True)
class CollectCondition:
    """A condition that holds now."""

    alert: Alert
    # How long it must hold before people are notified.
    after: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSnapshot:
    """Everything that the conditions depend on, read at one time."""

    # Platforms with pending or processing candidates.
    waiting: set[str]
    searches: Sequence[WatchedSearch]
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
        """Whether a workflow has nothing to do, so that no execution of it will resolve its alert."""
        name, _, platform = workflow.partition(":")
        if name == "discover":
            return not self.searches
        return name == "collect" and (platform not in self.waiting if platform else not self.waiting)


class CollectMonitor:
    """Checks the conditions. `needs_cookie` tells whether a platform needs one, and raises CrawlError if the platform
    does not exist."""

    def __init__(
        self,
        database: Database,
        *,
        alerts: Alerts,
        keys: KeyRing,
        clock: Clock,
        needs_cookie: Callable[[str], bool],
    ) -> None:
        self._database = database
        self._alerts = alerts
        self._keys = keys
        self._clock = clock
        self._needs_cookie = needs_cookie

    async def check(self) -> None:
        """Raise and resolve the alerts of all conditions, and delete statistics older than a day."""
        now = self._clock.now()
        async with self._database.read() as connection:
            snapshot = await _read_snapshot(connection, at=now)
        conditions = list(self._examine(snapshot, at=now))
        holding = {(each.alert.kind, escape_controls(each.alert.subject)) for each in conditions}

        def is_over(kind: str, subject: str) -> bool:
            if kind == CollectAlert.WORKFLOW_FAILED:
                return snapshot.is_idle(subject)
            return kind in _MONITORED and (kind, subject) not in holding

        async with self._database.write() as connection:
            if not is_judged(snapshot.rate) and await self._alerts.has_fired(
                connection, CollectAlert.SUCCESS_RATE, SUBJECT
            ):
                # Too few tries to say that the rate is good again.
                holding.add((CollectAlert.SUCCESS_RATE, SUBJECT))
            for condition in conditions:
                await self._alerts.raise_alert(connection, condition.alert, after=condition.after)
            await self._alerts.resolve_matching(connection, is_over)
            old = collect_minutes.c.minute <= count_minutes(now - STATISTICS_KEPT)
            await connection.execute(delete(collect_minutes).where(old))
        self._alerts.wake()

    async def record_end(self, ended: EndedExecution) -> None:
        """Raise the alert of a workflow that failed, or resolve it when an execution succeeds."""
        database, alerts = self._database, self._alerts
        if ended.status is ExecutionStatus.FAILED:
            await report_failure(
                ended.workflow, ended.reason or "", execution_id=ended.execution_id, database=database, alerts=alerts
            )
        else:
            await record_end(ended.workflow, ended.status, database=database, alerts=alerts)

    async def record_recovery(self) -> None:
        """Resolve the alert of a failed recovery, which has no execution of its own."""
        await record_end(RECOVER, ExecutionStatus.SUCCEEDED, database=self._database, alerts=self._alerts)

    def _examine(self, snapshot: CollectSnapshot, *, at: datetime) -> Iterator[CollectCondition]:
        obstacles = {each.name: find_obstacle(each, at=at, keys=self._keys) for each in snapshot.cookies}
        for platform in sorted(snapshot.busy | {each.platform for each in snapshot.cookies}):
            mine = [obstacles[each.name] for each in snapshot.cookies if each.platform == platform]
            if all(mine) and self._asks_with_cookie(platform):
                yield _describe_exhaustion(platform, [obstacle for obstacle in mine if obstacle])
        for cookie in snapshot.cookies:
            obstacle = obstacles[cookie.name]
            if obstacle is not None and obstacle != _USED_UP:
                yield _describe_rest(cookie, obstacle)
        for cookie in snapshot.cookies:
            if cookie.expires_at is not None and cookie.expires_at - at <= ENDS_SOON:
                yield _describe_ending(cookie, at=at)
        yield from map(_describe_pause, snapshot.pauses)
        if is_judged(snapshot.rate) and is_bad(snapshot.rate):
            yield _describe_rate(snapshot.rate)
        if snapshot.pending > MOST_PENDING:
            yield _describe_pending()
        for platform, counts in snapshot.skipped.items():
            yield _describe_skipped(platform, counts)
        yield from _describe_searches(snapshot.searches)

    def _asks_with_cookie(self, platform: str) -> bool:
        try:
            return self._needs_cookie(platform)
        except CrawlError:
            return False


async def report_failure(
    workflow_name: str, message: str, *, execution_id: str | None, database: Database, alerts: Alerts
) -> None:
    """Raise the alert of a workflow that failed as a whole. `execution_id` is the driver's own."""
    where = "" if execution_id is None else f"execution {execution_id}: "
    alert = Alert(
        kind=CollectAlert.WORKFLOW_FAILED,
        subject=workflow_name,
        reason=f"{where}{message or 'no reason was given'}",
        action=_FAILURE_ACTION,
    )
    async with database.write() as connection:
        await alerts.raise_alert(connection, alert)
    alerts.wake()


async def record_end(workflow_name: str, status: ExecutionStatus, *, database: Database, alerts: Alerts) -> None:
    """Resolve that alert when an execution of the workflow succeeds, in full or in part."""
    if status not in _WELL:
        return
    async with database.write() as connection:
        await alerts.resolve_alert(connection, CollectAlert.WORKFLOW_FAILED, workflow_name)
    alerts.wake()


async def _read_snapshot(connection: AsyncConnection, *, at: datetime) -> CollectSnapshot:
    return CollectSnapshot(
        waiting=await list_waiting_platforms(connection),
        searches=await list_searches(connection),
        cookies=await read_cookies(connection),
        rate=await read_rate(connection, at=at, window=RATE_WINDOW),
        pending=await count_pending(connection, most=MOST_PENDING + 1),
        skipped=await count_failed_by(connection, _SKIPPED, since=at - SKIPPED_WINDOW),
        pauses=await list_pauses(connection),
    )


def find_obstacle(cookie: Cookie, *, at: datetime, keys: KeyRing) -> str | None:
    """Why a cookie cannot be used now, in a word or two; None if it can."""
    state = settle_state(cookie.state, at=at)
    if state.status is not CookieStatus.ACTIVE:
        return state.status.value
    if state.daily_used >= cookie.daily_limit:
        return _USED_UP
    try:
        open_cookie(cookie, keys=keys)
    except KeyRingError:
        return CookieStatus.UNREADABLE.value
    return None


def is_bad(rate: SuccessRate) -> bool:
    return rate.succeeded < LEAST_RATE * rate.tries


def is_judged(rate: SuccessRate) -> bool:
    """Whether the rate can be judged: at least LEAST_TRIES tries, a few good ones, or none for a whole day."""
    if rate.tries == 0:
        return not rate.is_known
    return rate.tries >= LEAST_TRIES or not is_bad(rate)


def _describe_exhaustion(platform: str, obstacles: Iterable[str]) -> CollectCondition:
    counts = Counter(obstacles)
    reasons = ", ".join(f"{count} {obstacle}" for obstacle, count in counts.items()) or "there is none"
    return CollectCondition(
        Alert(
            kind=CollectAlert.NO_ACTIVE_COOKIE,
            subject=platform,
            reason=f"no cookie for {platform} can be used ({reasons}); nothing is collected there until one can",
            action=_SPENT_ACTION
            if set(counts) == {_USED_UP}
            else (
                f"Log in with a browser and store the cookie: `tidings cookies add NAME --platform {platform}`. "
                "`tidings cookies list` shows the status of each cookie."
            ),
            count=counts.total(),
        )
    )


def _describe_rest(cookie: Cookie, obstacle: str) -> CollectCondition:
    state = cookie.state
    reasons = {
        CookieStatus.COOLING: "it cools after {0.consecutive_errors:,} errors in a row, or a captcha",
        CookieStatus.INVALID: "it is invalid after {0.total_errors:,} errors in all",
        CookieStatus.BANNED: "it is banned, because it failed again while it cooled",
        CookieStatus.UNREADABLE: "it cannot be decrypted: its row is damaged or its master key is missing",
    }
    until = "" if state.cooling_until is None else f"; until {to_text(state.cooling_until)}"
    return CollectCondition(
        Alert(
            kind=CollectAlert.COOKIE_RESTING,
            subject=cookie.name,
            reason=f"{cookie.platform}: {reasons[CookieStatus(obstacle)].format(state)}{until}",
            action=(
                f"Open {cookie.platform} in a browser with this account; solve the captcha if it asks for one, or log "
                f"in again. `tidings cookies add {cookie.name} --platform {cookie.platform}` replaces the cookie, "
                f"`tidings cookies enable {cookie.name}` uses it again unchanged."
            ),
        )
    )


def _describe_ending(cookie: Cookie, *, at: datetime) -> CollectCondition:
    assert cookie.expires_at is not None  # noqa: S101 - the caller has looked
    verb = "ended" if cookie.expires_at <= at else "ends"
    return CollectCondition(
        Alert(
            kind=CollectAlert.COOKIE_ENDING,
            subject=cookie.name,
            reason=f"{cookie.platform}: its session {verb} on {to_text(cookie.expires_at)}",
            action=(
                f"Log in to {cookie.platform} with a browser and store the new cookie: "
                f"`tidings cookies add {cookie.name} --platform {cookie.platform}`."
            ),
        )
    )


_PAUSE_ACTIONS: Final = {
    PauseCause.BLOCKED: (
        "The accounts are fine. Wait, and ask less often: raise PLATFORM_INTERVAL_SECONDS and COOKIE_INTERVAL_SECONDS, "
        "or watch fewer keywords and pages."
    ),
    PauseCause.CAPTCHA: (
        "Open {platform} in a browser with these accounts and solve the captcha, then "
        "`tidings cookies enable NAME` and `tidings collect resume {platform}`."
    ),
    PauseCause.NETWORK: (
        "Check the network, the proxy and the DNS of this machine. When {platform} can be reached again: "
        "`tidings collect resume {platform}`."
    ),
    PauseCause.PLATFORM: (
        "Open {platform} in a browser. If it works there, its answers have changed: look for a newer Tidings."
    ),
}


def _describe_pause(pause: PlatformPause) -> CollectCondition:
    return CollectCondition(
        Alert(
            kind=CollectAlert.PLATFORM_PAUSED,
            subject=pause.platform,
            reason=(
                f"{pause.message}; nothing is asked until {to_text(pause.until)}, then one candidate tries again. "
                "No candidate is counted as failed"
            ),
            action=_PAUSE_ACTIONS[pause.cause].format(platform=pause.platform),
            count=pause.failures,
        )
    )


def _describe_rate(rate: SuccessRate) -> CollectCondition:
    minutes = RATE_WINDOW // timedelta(minutes=1)
    return CollectCondition(
        Alert(
            kind=CollectAlert.SUCCESS_RATE,
            subject=SUBJECT,
            reason=(
                f"{rate.succeeded:,} of {rate.tries:,} tries succeeded within {minutes} minutes "
                f"({rate.succeeded / rate.tries:.0%})"
            ),
            action=(
                "`tidings collect status` shows the platforms that fail, `tidings collect failed` the reasons; "
                "`tidings collect retry` tries failed candidates again."
            ),
            count=rate.failed,
        ),
        after=RATE_LASTS,
    )


def _describe_pending() -> CollectCondition:
    return CollectCondition(
        Alert(
            kind=CollectAlert.MANY_PENDING,
            subject=SUBJECT,
            reason=f"more than {MOST_PENDING:,} candidates are pending",
            action=(
                "Check with `tidings collect status` that collecting runs. More cookies read more notes in parallel; "
                "fewer keywords or pages find fewer candidates."
            ),
        ),
        after=PENDING_LASTS,
    )


def _describe_skipped(platform: str, counts: dict[str, int]) -> CollectCondition:
    total = sum(counts.values())
    reasons = ", ".join(f"{count:,} {code}" for code, count in counts.items())
    return CollectCondition(
        Alert(
            kind=CollectAlert.NOTES_SKIPPED,
            subject=platform,
            reason=f"{total:,} candidates failed within the last hour ({reasons})",
            action=(
                f"`tidings collect failed --platform {platform}` lists them with reasons; a deleted note needs no "
                "action. `tidings collect retry` tries them again."
            ),
            count=total,
        )
    )


def _describe_searches(searches: Sequence[WatchedSearch]) -> Iterator[CollectCondition]:
    """One condition per platform with failed searches. A missing cookie has a condition of its own."""
    failed: dict[str, list[tuple[str, ErrorCode]]] = defaultdict(list)
    for search in searches:
        if search.code is not None and RULES[search.code].action is not Action.PAUSE:
            failed[search.platform].append((search.keyword, search.code))
    for platform, keywords in failed.items():
        names = ", ".join(f"{keyword} ({code})" for keyword, code in keywords[:3])
        more = f" and {len(keywords) - 3:,} more" if len(keywords) > 3 else ""
        is_certain = any(RULES[code].alerts for _, code in keywords)
        yield CollectCondition(
            Alert(
                kind=CollectAlert.SEARCH_FAILED,
                subject=platform,
                reason=f"the last search for these keywords failed: {names}{more}",
                action=(
                    "`tidings collect keywords list` shows all of them; `tidings collect discover` searches again now "
                    "and prints the errors."
                ),
                count=len(keywords),
            ),
            after=timedelta(0) if is_certain else SEARCH_LASTS,
        )
