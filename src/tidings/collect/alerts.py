"""What a person is told about collecting: conditions that are looked for once a minute and held or ended. What holds is
kept, told once and told to be over once by `core.alerts`; here is only what it takes for a condition to hold.
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
    SuccessRate,
    WatchedSearch,
    count_failed_by,
    count_minutes,
    count_pending,
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

# The kinds that `Watch.look` raises and resolves.
_WATCHED: Final = frozenset(CollectAlert) - {CollectAlert.WORKFLOW_FAILED, CollectAlert.MIRROR_FAILED}
SUBJECT: Final = "collect"
RATE_WINDOW: Final = timedelta(minutes=10)
RATE_LASTS: Final = timedelta(minutes=10)
LEAST_RATE: Final = 0.9
LEAST_TRIES: Final = 5
MOST_PENDING: Final = 500
PENDING_LASTS: Final = timedelta(minutes=30)
SKIPPED_WINDOW: Final = timedelta(hours=1)
# What may go well at the next discovery is told when it did not, twice.
SEARCH_LASTS: Final = timedelta(hours=2)
STATISTICS_KEPT: Final = timedelta(days=1)
RECOVER: Final = "recover"

_SKIPPED: Final = tuple(code for code, rule in RULES.items() if rule.action is Action.SKIP and rule.alerts)
_USED_UP: Final = "used up today"
_FAILURE_ACTION: Final = "look at this execution where the workflow runs; its leased candidates are tried again"
# `partial` is about single candidates, which have conditions of their own.
_WELL: Final = frozenset({ExecutionStatus.SUCCEEDED, ExecutionStatus.PARTIAL})


@dataclass(frozen=True, slots=True)
class CollectCondition:
    """A condition that holds now, and how long it has to before people are told."""

    alert: Alert
    after: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectSnapshot:
    """All that is looked at."""

    waiting: set[str]
    searches: Sequence[WatchedSearch]
    cookies: Sequence[Cookie]
    rate: SuccessRate
    pending: int
    skipped: dict[str, dict[str, int]]

    @property
    def busy(self) -> set[str]:
        """The platforms that there is something to do at."""
        return self.waiting | {search.platform for search in self.searches}

    def is_idle(self, workflow: str) -> bool:
        """Whether a workflow has nothing to do, so that it will not come to an end that could be told of."""
        name, _, platform = workflow.partition(":")
        if name == "discover":
            return not self.searches
        return name == "collect" and (platform not in self.waiting if platform else not self.waiting)


class CollectMonitor:
    """Looks. `needs_cookie` says of a platform whether it does; it raises CrawlError for one that there is not."""

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
        """Hold what holds, end what no longer does, and forget the figures of yesterday."""
        now = self._clock.now()
        async with self._database.read() as connection:
            standing = await _read_standing(connection, at=now)
        findings = list(self._examine(standing, at=now))
        told = {(each.alert.kind, escape_controls(each.alert.subject)) for each in findings}

        def is_over(kind: str, subject: str) -> bool:
            if kind == CollectAlert.WORKFLOW_FAILED:
                return standing.is_idle(subject)
            return kind in _WATCHED and (kind, subject) not in told

        async with self._database.write() as connection:
            if not is_judged(standing.rate) and await self._alerts.has_fired(
                connection, CollectAlert.SUCCESS_RATE, SUBJECT
            ):
                # Too little was tried to say that it is well again.
                told.add((CollectAlert.SUCCESS_RATE, SUBJECT))
            for finding in findings:
                await self._alerts.raise_alert(connection, finding.alert, after=finding.after)
            await self._alerts.resolve_matching(connection, is_over)
            old = collect_minutes.c.minute <= count_minutes(now - STATISTICS_KEPT)
            await connection.execute(delete(collect_minutes).where(old))
        self._alerts.wake()

    async def record_end(self, ended: EndedExecution) -> None:
        """Tell of a workflow that broke as a whole, once; it is over when it next comes to its end."""
        database, alerts = self._database, self._alerts
        if ended.status is ExecutionStatus.FAILED:
            await report_failure(
                ended.workflow, ended.reason or "", execution_id=ended.execution_id, database=database, alerts=alerts
            )
        else:
            await record_end(ended.workflow, ended.status, database=database, alerts=alerts)

    async def record_recovery(self) -> None:
        """The recovery was done, which has no execution to tell of it."""
        await record_end(RECOVER, ExecutionStatus.SUCCEEDED, database=self._database, alerts=self._alerts)

    def _examine(self, standing: CollectSnapshot, *, at: datetime) -> Iterator[CollectCondition]:
        obstacles = {each.name: find_obstacle(each, at=at, keys=self._keys) for each in standing.cookies}
        for platform in sorted(standing.busy | {each.platform for each in standing.cookies}):
            mine = [obstacles[each.name] for each in standing.cookies if each.platform == platform]
            if all(mine) and self._asks_with_cookie(platform):
                yield _describe_exhaustion(platform, [obstacle for obstacle in mine if obstacle])
        for cookie in standing.cookies:
            obstacle = obstacles[cookie.name]
            if obstacle is not None and obstacle != _USED_UP:
                yield _describe_rest(cookie, obstacle)
        if is_judged(standing.rate) and is_bad(standing.rate):
            yield _describe_rate(standing.rate)
        if standing.pending > MOST_PENDING:
            yield _describe_pending()
        for platform, counts in standing.skipped.items():
            yield _describe_skipped(platform, counts)
        yield from _describe_searches(standing.searches)

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


async def _read_standing(connection: AsyncConnection, *, at: datetime) -> CollectSnapshot:
    return CollectSnapshot(
        waiting=await list_waiting_platforms(connection),
        searches=await list_searches(connection),
        cookies=await read_cookies(connection),
        rate=await read_rate(connection, at=at, window=RATE_WINDOW),
        pending=await count_pending(connection, most=MOST_PENDING + 1),
        skipped=await count_failed_by(connection, _SKIPPED, since=at - SKIPPED_WINDOW),
    )


def find_obstacle(cookie: Cookie, *, at: datetime, keys: KeyRing) -> str | None:
    """Why a cookie cannot be used now, in a word or two."""
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
    """Whether the rate says anything. A few tries that all went well do; where nothing was tried for a day, there is
    nothing left to be told of."""
    if rate.tries == 0:
        return not rate.is_known
    return rate.tries >= LEAST_TRIES or not is_bad(rate)


def _describe_exhaustion(platform: str, obstacles: Iterable[str]) -> CollectCondition:
    counts = Counter(obstacles)
    told = ", ".join(f"{count} {obstacle}" for obstacle, count in counts.items()) or "there is none"
    return CollectCondition(
        Alert(
            kind=CollectAlert.NO_ACTIVE_COOKIE,
            subject=platform,
            reason=f"no cookie for {platform} can be used ({told}); nothing is collected there meanwhile",
            action=(
                f"Log in with a browser and store the cookie: `tidings cookies add NAME --platform {platform}`. "
                "`tidings cookies list` shows how those that are there stand."
            ),
            count=counts.total(),
        )
    )


def _describe_rest(cookie: Cookie, obstacle: str) -> CollectCondition:
    state = cookie.state
    reasons = {
        CookieStatus.COOLING: "it rests after {0.consecutive_errors:,} errors in a row, or a captcha",
        CookieStatus.INVALID: "it was given up after {0.total_errors:,} errors in all",
        CookieStatus.BANNED: "it was given up, since it failed again while it rested",
        CookieStatus.UNREADABLE: "it cannot be read: its row or its master key is not the one it was stored with",
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
                f"`tidings cookies enable {cookie.name}` puts it back to work as it is."
            ),
        )
    )


def _describe_rate(rate: SuccessRate) -> CollectCondition:
    minutes = RATE_WINDOW // timedelta(minutes=1)
    return CollectCondition(
        Alert(
            kind=CollectAlert.SUCCESS_RATE,
            subject=SUBJECT,
            reason=(
                f"{rate.succeeded:,} of {rate.tries:,} tries went well within {minutes} minutes "
                f"({rate.succeeded / rate.tries:.0%})"
            ),
            action=(
                "`tidings collect status` shows where it fails, `tidings collect failed` why; "
                "`tidings collect retry` tries again what was given up."
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
            reason=f"more than {MOST_PENDING:,} candidates wait to be collected",
            action=(
                "Check with `tidings collect status` that collecting runs. More cookies read more at a time; fewer "
                "keywords, or fewer pages of each, find less."
            ),
        ),
        after=PENDING_LASTS,
    )


def _describe_skipped(platform: str, counts: dict[str, int]) -> CollectCondition:
    total = sum(counts.values())
    told = ", ".join(f"{count:,} {code}" for code, count in counts.items())
    return CollectCondition(
        Alert(
            kind=CollectAlert.NOTES_SKIPPED,
            subject=platform,
            reason=f"{total:,} candidates were given up within the last hour ({told})",
            action=(
                f"`tidings collect failed --platform {platform}` lists them and why; one that was deleted "
                "needs nothing. `tidings collect retry` tries them again."
            ),
            count=total,
        )
    )


def _describe_searches(searches: Sequence[WatchedSearch]) -> Iterator[CollectCondition]:
    """Keywords whose last search failed, by platform. A want of cookies is told as such."""
    failed: dict[str, list[tuple[str, ErrorCode]]] = defaultdict(list)
    for search in searches:
        if search.code is not None and RULES[search.code].action is not Action.PAUSE:
            failed[search.platform].append((search.keyword, search.code))
    for platform, keywords in failed.items():
        told = ", ".join(f"{keyword} ({code})" for keyword, code in keywords[:3])
        more = f" and {len(keywords) - 3:,} more" if len(keywords) > 3 else ""
        is_certain = any(RULES[code].alerts for _, code in keywords)
        yield CollectCondition(
            Alert(
                kind=CollectAlert.SEARCH_FAILED,
                subject=platform,
                reason=f"the last search for these keywords failed: {told}{more}",
                action=(
                    "`tidings collect keywords list` shows all of them; `tidings collect discover` tries again now and "
                    "says what is wrong."
                ),
                count=len(keywords),
            ),
            after=timedelta(0) if is_certain else SEARCH_LASTS,
        )
