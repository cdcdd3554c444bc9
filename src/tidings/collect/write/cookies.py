"""Writes the table of cookies: add, list, enable, remove, encrypt with a new key, and record the outcome of each use.

The crawl API cannot write. It reports the cookie and the error of each request, and the writer records them here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import bindparam, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.crawl.cookies.states import (
    CookieOutcome,
    CookieRules,
    CookieState,
    CookieStatus,
    advance_state,
    settle_state,
    utc_day,
)
from tidings.collect.crawl.cookies.table import (
    Cookie,
    cookies,
    describe_state,
    lock_cookie,
    lock_cookies,
    needs_sealing,
    open_cookie,
    read_cookies,
    seal_cookie,
)
from tidings.collect.crawl.platforms.protocol import PLATFORM_NAME
from tidings.collect.pasted_cookie import CookieError, check_agent, read_pasted
from tidings.collect.write.recovery import update_free
from tidings.collect.write.values import COOKIE_NAME
from tidings.core.clock import CLOCK_TOLERANCE, Clock, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.logs.logger import get_logger
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import KeyRingError
from tidings.core.secrets.secret import Secret

DEFAULT_PRIORITY: Final = 0
# Five keywords with two pages each hour are 240 uses, which leaves as many for notes.
DEFAULT_DAILY_LIMIT: Final = 500

_MOST: Final = 1_000_000

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
# Built once: every batch runs it.
_write_state: Final = (
    update(cookies)
    .where(cookies.c.cookie_name == bindparam("of_name"))
    .values({name: bindparam(f"new_{name}") for name in _WRITTEN})
)

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NewCookie:
    """A cookie to be stored. `make_cookie` checks the rules."""

    name: str
    platform: str
    # The value of the Cookie header.
    secret: Secret
    # The highest is used first.
    priority: int = DEFAULT_PRIORITY
    # Uses in one UTC day.
    daily_limit: int = DEFAULT_DAILY_LIMIT
    # The User-Agent of the browser that it came from; requests with this cookie send it.
    user_agent: str | None = None
    # The latest end of its session, if known.
    expires_at: datetime | None = None


def make_cookie(
    name: str,
    *,
    platform: str,
    secret: Secret,
    priority: int = DEFAULT_PRIORITY,
    daily_limit: int = DEFAULT_DAILY_LIMIT,
    user_agent: str | None = None,
) -> NewCookie:
    """Check and build a cookie. `secret` is a Cookie header, a cookies.txt file, or a request copied as cURL, whose
    User-Agent is kept unless another is given. Raises CookieError."""
    if not COOKIE_NAME.fullmatch(name):
        raise CookieError("the name must have 1 to 64 letters, digits, dots, dashes or underscores")
    if not PLATFORM_NAME.fullmatch(platform):
        raise CookieError("the platform must be a name such as bilibili")
    _check_numbers(priority, daily_limit)
    pasted = read_pasted(secret, platform=platform)
    agent = check_agent(user_agent) or pasted.user_agent
    return NewCookie(name, platform, pasted.secret, priority, daily_limit, agent, pasted.expires_at)


def _check_numbers(priority: int, daily_limit: int) -> None:
    if not -_MOST <= priority <= _MOST:
        raise CookieError(f"the priority must be a whole number from {-_MOST:,} to {_MOST:,}")
    if not 1 <= daily_limit <= _MOST:
        raise CookieError(f"the daily limit must be a whole number from 1 to {_MOST:,}")


@dataclass(frozen=True, slots=True)
class CookieRecords:
    """The cookies of this installation."""

    database: Database
    _: KW_ONLY
    keys: KeyRing
    clock: Clock

    async def add(self, new: NewCookie) -> bool:
        """Store a cookie as active. Returns True if it replaced one of the same name.

        A replaced cookie keeps its uses of today, because the account is the same. Raises CookieError if the name
        belongs to another platform.
        """
        now = self.clock.now()
        async with self.database.write() as connection:
            replaced = not await self._insert(connection, new, now=now)
            if replaced:
                await self._replace(connection, new, now=now)
        log.info("cookie.stored", cookie_name=new.name, platform=new.platform, replaced=replaced)
        return replaced

    async def list_all(self) -> list[Cookie]:
        """Every cookie by name, with its present state."""
        now = self.clock.now()
        async with self.database.read() as connection:
            found = await read_cookies(connection)
        return [replace(cookie, state=settle_state(cookie.state, at=now)) for cookie in found]

    async def enable(self, name: str) -> bool:
        """Make a cookie active and forget its errors. Returns False if there is none of this name."""
        now = self.clock.now()
        async with self.database.write() as connection:
            cookie = await lock_cookie(connection, name)
            if cookie is not None:
                await _update(connection, name, _describe_start(cookie.state, now=now))
        log.info("cookie.enabled", cookie_name=name, found=cookie is not None)
        return cookie is not None

    async def change(self, name: str, *, priority: int | None = None, daily_limit: int | None = None) -> bool:
        """Change priority or daily limit without entering the cookie again. Raises CookieError.

        Returns False if there is none of this name.
        """
        _check_numbers(priority or 0, 1 if daily_limit is None else daily_limit)
        values = {"priority": priority, "daily_limit": daily_limit}
        given = {column: value for column, value in values.items() if value is not None}
        now = to_milliseconds(self.clock.now())
        statement = update(cookies).where(cookies.c.cookie_name == name).values(**given, updated_at=now)
        found = await self.database.change(statement) > 0
        log.info("cookie.changed_limits", cookie_name=name, found=found, **given)
        return found

    async def remove(self, name: str) -> bool:
        """Delete a cookie. Returns False if there is none of this name."""
        removed = await self.database.change(delete(cookies).where(cookies.c.cookie_name == name)) > 0
        log.info("cookie.removed", cookie_name=name, found=removed)
        return removed

    async def rotate_keys(self) -> int:
        """Encrypt cookies of older master keys or formats with the newest key. Returns how many.

        Safe to repeat: each cookie and its key id change in one transaction. A cookie that cannot be decrypted stays
        unchanged, and its KeyRingError is raised after all others are done.
        """
        rotated, failure = 0, None
        async with self.database.read() as connection:
            found = await read_cookies(connection)
        for cookie in found:
            try:
                rotated += needs_sealing(cookie, keys=self.keys) and await self._rotate(cookie.name)
            except KeyRingError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return rotated

    async def count_key_ids(self) -> dict[str, int]:
        """The number of cookies that each master key encrypted."""
        column = cookies.c.encryption_key_id
        rows = await self.database.fetch(select(column, func.count()).group_by(column).order_by(column))
        return {row[0]: row[1] for row in rows}

    async def _insert(self, connection: AsyncConnection, new: NewCookie, *, now: datetime) -> bool:
        values = self._describe(new) | _describe_start(CookieState(day=utc_day(now)), now=now)
        statement = self.database.insert(cookies).values(
            cookie_name=new.name, created_at=to_milliseconds(now), last_used_at=None, **values
        )
        inserted = statement.on_conflict_do_nothing().returning(cookies.c.cookie_name)
        return (await connection.execute(inserted)).first() is not None

    async def _replace(self, connection: AsyncConnection, new: NewCookie, *, now: datetime) -> None:
        before = await lock_cookie(connection, new.name)
        if before is None:
            # Removed between insert and lock: treat it as removed after us.
            return
        if before.platform != new.platform:
            raise CookieError(f"there is a cookie {new.name} for {before.platform}; remove it, or choose another name")
        await _update(connection, new.name, self._describe(new) | _describe_start(before.state, now=now))

    def _describe(self, new: NewCookie) -> dict[str, Any]:
        return {
            "platform": new.platform,
            "priority": new.priority,
            "daily_limit": new.daily_limit,
            "user_agent": new.user_agent,
            "expires_at": None if new.expires_at is None else to_milliseconds(new.expires_at),
            **seal_cookie(new, new.secret, keys=self.keys),
        }

    async def _rotate(self, name: str) -> bool:
        async with self.database.write() as connection:
            cookie = await lock_cookie(connection, name)
            if cookie is None or not needs_sealing(cookie, keys=self.keys):
                return False
            values = seal_cookie(cookie, open_cookie(cookie, keys=self.keys), keys=self.keys)
            await _update(connection, name, values)
            return True


async def record_outcomes(
    connection: AsyncConnection,
    outcomes: Mapping[str, Sequence[CookieOutcome]],
    at: datetime,
    *,
    rules: CookieRules,
) -> dict[str, CookieState]:
    """Record the outcomes of uses by cookie name, in order. Returns the new states, without missing and unreadable
    cookies.

    Part of the caller's transaction. Two transactions on one cookie run one after the other.
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
                "cookie.changed",
                cookie_name=each.name,
                before=each.state.status.value,
                after=after[each.name].status.value,
            )
    return after


async def _update(connection: AsyncConnection, name: str, values: dict[str, Any]) -> None:
    await connection.execute(update(cookies).where(cookies.c.cookie_name == name).values(values))


def _describe_start(state: CookieState, *, now: datetime) -> dict[str, Any]:
    """The columns of a new start without errors; the uses of today stay."""
    settled = settle_state(state, at=now)
    timestamp = to_milliseconds(now)
    fresh = CookieState(day=settled.day, daily_used=settled.daily_used)
    return {**describe_state(fresh), "enabled_at": timestamp, "updated_at": timestamp}


async def clamp_future_states(connection: AsyncConnection, *, at: datetime, rules: CookieRules) -> int:
    """End cooling times and days of use in the future, which a wrong clock wrote. Returns how many."""
    latest = to_milliseconds(at + CLOCK_TOLERANCE + rules.cooling)
    tomorrow = utc_day(at) + timedelta(days=1)
    cooling = update_free(cookies, cookies.c.cooling_until > latest).values(cooling_until=to_milliseconds(at))
    used = update_free(cookies, cookies.c.used_on > tomorrow.isoformat())
    used = used.values(used_on=utc_day(at).isoformat(), daily_used=0)
    return sum([(await connection.execute(statement)).rowcount for statement in (cooling, used)])


def _advance(state: CookieState, outcomes: Sequence[CookieOutcome], *, at: datetime, rules: CookieRules) -> CookieState:
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
