"""What the tests of the cookie pool share: cookies that are quickly made, and pools and processes that use them."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.crawl.cookies.pool import CookiePool
from tidings.collect.crawl.cookies.states import CookieOutcome, CookieRules, CookieState
from tidings.collect.crawl.cookies.table import Cookie, cookies
from tidings.collect.write.cookies import CookieRecords, make_cookie, record_outcomes
from tidings.core.clock import Clock, SystemClock
from tidings.core.db.database import Database, ReadableDatabase
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

PLATFORM = "bilibili"
SOON = 30.0
# Long enough for a lease of a free cookie on a busy machine.
IMPATIENT = timedelta(seconds=1)


def value_of(name: str) -> str:
    return f"SESSDATA=a-long-value-of-{name}; bili_jct=another-value-of-{name}"


async def add_cookies(records: CookieRecords, *names: str, platform: str = PLATFORM, **options: Any) -> None:
    for name in names:
        await records.add(make_cookie(name, platform=platform, secret=Secret(value_of(name)), **options))


async def change_row(database: Database, name: str, **values: Any) -> None:
    """Write columns as they are, past all rules."""
    async with database.write() as connection:
        await connection.execute(update(cookies).where(cookies.c.cookie_name == name).values(values))


async def record_outcome(
    connection: AsyncConnection, name: str, outcome: CookieOutcome, at: datetime, *, rules: CookieRules | None = None
) -> CookieState | None:
    """Record one use; the new state, or None where the cookie is gone or unreadable."""
    return (await record_outcomes(connection, {name: [outcome]}, at, rules=rules or CookieRules())).get(name)


async def find_cookie(records: CookieRecords, name: str) -> Cookie:
    return next(cookie for cookie in await records.list_all() if cookie.name == name)


def make_pool(database: ReadableDatabase, *, keys: KeyRing, clock: Clock | None = None, **options: Any) -> CookiePool:
    """A pool that reads the table for every lease, by default."""
    chosen = {"reread_after": timedelta(0), "redactor": Redactor(), **options}
    return CookiePool(database, keys=keys, clock=clock or SystemClock(), **chosen)


def without_times(cookie: Cookie) -> Cookie:
    """A cookie to be compared by all but when its row was written."""
    return replace(cookie, updated_at=cookie.created_at, ciphertext=b"")
