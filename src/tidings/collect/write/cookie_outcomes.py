"""Counting what became of cookies: the writer's half, because the crawl API cannot write. It tells which cookie it used
and with what error; the workflow hands that on to here, in the transaction that records its own result.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import bindparam, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.crawl.cookies.states import CookieRules, CookieState, CookieStatus, Outcome, advance_state
from tidings.collect.crawl.cookies.table import Cookie, cookies, describe_state, lock_cookies
from tidings.collect.errors import ErrorCode
from tidings.core.clock import to_milliseconds
from tidings.core.logs.logger import get_logger

_DEFAULT_RULES: Final = CookieRules()
_UNREADABLE: Final = CookieStatus.UNREADABLE
_WRITTEN: Final = (
    "status",
    "consecutive_errors",
    "total_errors",
    "cooling_until",
    "daily_used",
    "used_on",
    "last_used_at",
    "updated_at",
)
# Made once: it is part of every batch that is written.
_write_state: Final = (
    update(cookies)
    .where(cookies.c.cookie_name == bindparam("of_name"))
    .values({name: bindparam(f"new_{name}") for name in _WRITTEN})
)

log = get_logger(__name__)


def judge_code(code: ErrorCode | None, *, captcha: bool = False) -> Outcome:
    """What an answer's error, its `code` and `captcha`, says about the cookie it was asked with; None is success."""
    if code is None:
        return Outcome.SUCCESS
    if captcha:
        return Outcome.CAPTCHA
    return Outcome.ERROR if code is ErrorCode.COOKIE_INVALID else Outcome.UNRELATED


async def record_outcome(
    connection: AsyncConnection,
    cookie_name: str,
    outcome: Outcome,
    at: datetime,
    *,
    rules: CookieRules = _DEFAULT_RULES,
) -> CookieState | None:
    """Count one use of a cookie; None where it is gone or unreadable. See `record_outcomes`."""
    states = await record_outcomes(connection, {cookie_name: [outcome]}, at, rules=rules)
    return states.get(cookie_name)


async def record_outcomes(
    connection: AsyncConnection,
    outcomes: Mapping[str, Sequence[Outcome]],
    at: datetime,
    *,
    rules: CookieRules = _DEFAULT_RULES,
) -> dict[str, CookieState]:
    """Count the uses of cookies, by name, and what came of each use in its order; `at` is when. The answer is how they
    stand now; one that is gone or unreadable is not in it.

    It stands or falls with the caller's transaction. Of two at once on one cookie, the second waits for the first.
    """
    if not outcomes:
        return {}
    before = [each for each in await lock_cookies(connection, outcomes) if each.state.status is not _UNREADABLE]
    after = {each.name: _advance(each.state, outcomes[each.name], at=at, rules=rules) for each in before}
    if before:
        await connection.execute(_write_state, [_describe_use(each, after[each.name], at=at) for each in before])
    for each in before:
        if after[each.name].status is not each.state.status:
            log.warning(
                "cookie.status",
                cookie_name=each.name,
                before=each.state.status.value,
                after=after[each.name].status.value,
            )
    return after


def _advance(state: CookieState, outcomes: Sequence[Outcome], *, at: datetime, rules: CookieRules) -> CookieState:
    for outcome in outcomes:
        state = advance_state(state, outcome, at=at, rules=rules)
    return state


def _describe_use(cookie: Cookie, state: CookieState, *, at: datetime) -> dict[str, Any]:
    last_used_at = at if cookie.last_used_at is None else max(at, cookie.last_used_at)
    values = describe_state(state) | {
        "last_used_at": to_milliseconds(last_used_at),
        "updated_at": max(to_milliseconds(at), to_milliseconds(cookie.updated_at)),
    }
    return {f"new_{name}": value for name, value in values.items()} | {"of_name": cookie.name}
