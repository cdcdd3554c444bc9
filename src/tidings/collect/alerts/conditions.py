"""Each condition of collect: its reason, its recommended action, and how long it must hold before an alert."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidings.collect.alerts.kinds import CollectAlert
from tidings.collect.crawl.cookies.states import CookieStatus
from tidings.collect.crawl.cookies.table import Cookie
from tidings.collect.errors import RULES, Action, ErrorCode
from tidings.collect.status.queries import PauseCause, PlatformPause, SuccessRate
from tidings.collect.write.keywords import Keyword
from tidings.core.alerts.events import Alert
from tidings.core.clock import to_text

SUBJECT: Final = "collect"
RATE_WINDOW: Final = timedelta(minutes=10)
RATE_LASTS: Final = timedelta(minutes=10)
LEAST_RATE: Final = 0.9
LEAST_TRIES: Final = 5
MOST_PENDING: Final = 500
PENDING_LASTS: Final = timedelta(minutes=30)
# If a search may succeed at the next discovery, the alert waits for a second failure.
SEARCH_LASTS: Final = timedelta(hours=2)
USED_UP: Final = "used up today"
_SPENT_ACTION: Final = (
    "The accounts are fine: their uses of today are spent. Wait until midnight UTC, raise the limit with "
    "`tidings cookies set NAME --daily-limit N`, or add a cookie of another account."
)


@dataclass(frozen=True, slots=True)
class CollectCondition(Alert):
    """A condition that holds now."""

    # How long it must hold before people are notified.
    after: timedelta = timedelta(0)


def is_bad(rate: SuccessRate) -> bool:
    return rate.succeeded < LEAST_RATE * rate.tries


def is_judged(rate: SuccessRate) -> bool:
    """Whether the success rate means anything: at least LEAST_TRIES tries, a few successes, or no try for a day."""
    if rate.tries == 0:
        return not rate.is_known
    return rate.tries >= LEAST_TRIES or not is_bad(rate)


def describe_exhaustion(platform: str, obstacles: Iterable[str]) -> CollectCondition:
    counts = Counter(obstacles)
    # The catalogue of Chinese texts has each of these parts.
    reasons = "; ".join(f"{count} × {obstacle}" for obstacle, count in counts.items()) or "there is none"
    return CollectCondition(
        kind=CollectAlert.NO_ACTIVE_COOKIE,
        subject=platform,
        reason=f"no cookie for {platform} can be used ({reasons}); nothing is collected there until one can",
        action=_SPENT_ACTION
        if set(counts) == {USED_UP}
        else (
            f"Log in with a browser and store the cookie: `tidings cookies add NAME --platform {platform}`. "
            "`tidings cookies list` shows the status of each cookie."
        ),
        count=counts.total(),
    )


def describe_rest(cookie: Cookie, obstacle: str) -> CollectCondition:
    state = cookie.state
    reasons = {
        CookieStatus.COOLING: "it cools, as it was refused {0.consecutive_errors:,} × in a row or asked for a captcha",
        CookieStatus.INVALID: "it is invalid after {0.total_errors:,} errors in all",
        CookieStatus.BANNED: "it is banned, because it failed again while it cooled",
        CookieStatus.UNREADABLE: "it cannot be decrypted: its row is damaged or its master key is missing",
    }
    until = "" if state.cooling_until is None else f"; until {to_text(state.cooling_until)}"
    return CollectCondition(
        kind=CollectAlert.COOKIE_RESTING,
        subject=cookie.name,
        reason=f"{cookie.platform}: {reasons[CookieStatus(obstacle)].format(state)}{until}",
        action=(
            f"Open {cookie.platform} in a browser with this account; solve the captcha if it asks for one, or log "
            f"in again. `tidings cookies add {cookie.name} --platform {cookie.platform}` replaces the cookie, "
            f"`tidings cookies enable {cookie.name}` uses it again unchanged."
        ),
    )


def describe_ending(cookie: Cookie, *, at: datetime) -> CollectCondition:
    assert cookie.expires_at is not None  # noqa: S101 - the caller has looked
    verb = "ended" if cookie.expires_at <= at else "ends"
    return CollectCondition(
        kind=CollectAlert.COOKIE_ENDING,
        subject=cookie.name,
        reason=f"{cookie.platform}: its session {verb} on {to_text(cookie.expires_at)}",
        action=(
            f"Log in to {cookie.platform} with a browser and store the new cookie: "
            f"`tidings cookies add {cookie.name} --platform {cookie.platform}`."
        ),
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


def describe_pause(pause: PlatformPause) -> CollectCondition:
    return CollectCondition(
        kind=CollectAlert.PLATFORM_PAUSED,
        subject=pause.platform,
        reason=(
            f"{pause.message}; nothing is asked until {to_text(pause.until)}, then one candidate tries again. "
            "No candidate is counted as failed"
        ),
        action=_PAUSE_ACTIONS[pause.cause].format(platform=pause.platform),
        count=pause.failures,
    )


def describe_rate(rate: SuccessRate) -> CollectCondition:
    minutes = RATE_WINDOW // timedelta(minutes=1)
    return CollectCondition(
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
        after=RATE_LASTS,
    )


def describe_pending() -> CollectCondition:
    return CollectCondition(
        kind=CollectAlert.MANY_PENDING,
        subject=SUBJECT,
        reason=f"more than {MOST_PENDING:,} candidates are pending",
        action=(
            "Check with `tidings collect status` that collecting runs. More cookies read more notes in parallel; "
            "fewer keywords or pages find fewer candidates."
        ),
        after=PENDING_LASTS,
    )


def describe_skipped(platform: str, counts: dict[str, int]) -> CollectCondition:
    total = sum(counts.values())
    reasons = ", ".join(f"{count:,} {code}" for code, count in counts.items())
    return CollectCondition(
        kind=CollectAlert.NOTES_SKIPPED,
        subject=platform,
        reason=f"{total:,} candidates failed within the last hour ({reasons})",
        action=(
            f"`tidings collect failed --platform {platform}` lists them with reasons; a deleted note needs no "
            "action. `tidings collect retry` tries them again."
        ),
        count=total,
    )


def describe_searches(searches: Sequence[Keyword]) -> Iterator[CollectCondition]:
    """One condition per platform with failed searches. A missing cookie has a condition of its own."""
    failed: dict[str, list[tuple[str, ErrorCode]]] = defaultdict(list)
    for search in searches:
        code = ErrorCode(search.last_error_code) if search.last_error_code in list(ErrorCode) else None
        if code is not None and RULES[code].action is not Action.PAUSE:
            failed[search.platform].append((search.keyword, code))
    for platform, keywords in failed.items():
        names = ", ".join(f"{keyword} ({code})" for keyword, code in keywords[:3])
        more = f" and {len(keywords) - 3:,} more" if len(keywords) > 3 else ""
        is_certain = any(RULES[code].alerts for _, code in keywords)
        yield CollectCondition(
            kind=CollectAlert.SEARCH_FAILED,
            subject=platform,
            reason=f"the last search for these keywords failed: {names}{more}",
            action=(
                "`tidings collect keywords list` shows all of them; `tidings collect discover` searches again now "
                "and prints the errors."
            ),
            count=len(keywords),
            after=timedelta(0) if is_certain else SEARCH_LASTS,
        )
