"""Counting what became of cookies: the writer's half, because the crawl API cannot write. It tells which cookie it used
and with what error; the workflow hands that on to here, in the transaction that records its own result.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.cookies.rows import cookies, describe_state, lock_cookie
from tidings.collect.cookies.states import CookieRules, CookieState, CookieStatus, Outcome, advance_state
from tidings.collect.errors import ErrorCode
from tidings.core.clock import to_milliseconds
from tidings.core.logs import get_logger

_DEFAULT_RULES: Final = CookieRules()

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
    """Count one use of a cookie; see `record_outcomes`."""
    return await record_outcomes(connection, cookie_name, [outcome], at, rules=rules)


async def record_outcomes(
    connection: AsyncConnection,
    cookie_name: str,
    outcomes: Sequence[Outcome],
    at: datetime,
    *,
    rules: CookieRules = _DEFAULT_RULES,
) -> CookieState | None:
    """Count the uses of a cookie and what came of each, in this order; `at` is when. None where the cookie is gone or
    unreadable.

    It stands or falls with the caller's transaction. Of two at once on one cookie, the second waits for the first.
    """
    cookie = await lock_cookie(connection, cookie_name)
    if cookie is None or cookie.state.status is CookieStatus.UNREADABLE:
        return None
    state = cookie.state
    for outcome in outcomes:
        state = advance_state(state, outcome, at=at, rules=rules)
    last_used_at = at if cookie.last_used_at is None else max(at, cookie.last_used_at)
    values = describe_state(state) | {
        "last_used_at": to_milliseconds(last_used_at),
        "updated_at": max(to_milliseconds(at), to_milliseconds(cookie.updated_at)),
    }
    await connection.execute(update(cookies).where(cookies.c.cookie_name == cookie_name).values(values))
    if state.status is not cookie.state.status:
        log.warning(
            "cookie.status", cookie_name=cookie_name, before=cookie.state.status.value, after=state.status.value
        )
    return state
