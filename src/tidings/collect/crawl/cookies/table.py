"""The table of cookies and its rows. `pool` reads it; `write.cookies` writes it. Only `open_cookie` decrypts a cookie.

Other programs may write the table too, and SQLite takes any value in any column. A row with a broken value is read as
an unreadable cookie: it does not affect the others, and a person can see and remove it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, Row, Table, Text, bindparam, cast, select
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.crawl.cookies.states import CookieState, CookieStatus
from tidings.core.clock import from_milliseconds, read_timestamp, to_milliseconds
from tidings.core.db.columns import required
from tidings.core.db.database import ReadableDatabase, metadata
from tidings.core.secrets.keyring import DecryptionError, KeyRing
from tidings.core.secrets.master_key import KeyRingError
from tidings.core.secrets.secret import Secret

cookies = Table(
    "tbl_cookie",
    metadata,
    Column("cookie_name", Text, primary_key=True),
    Column("platform", Text, nullable=False),
    Column("cookie_encrypted", LargeBinary, nullable=False),
    *required(Text, "encryption_key_id", "status"),
    *required(Integer, "priority", "daily_used", "daily_limit", "consecutive_errors", "total_errors"),
    Column("cooling_until", BigInteger),
    *required(BigInteger, "created_at", "updated_at"),
    # The UTC day that daily_used belongs to, as 2026-11-15.
    Column("used_on", Text, nullable=False),
    Column("last_used_at", BigInteger),
    # When a person last added or enabled the cookie: errors before that no longer count.
    Column("enabled_at", BigInteger, nullable=False),
    # The User-Agent of the browser that it came from; the platform may have bound the session to it.
    Column("user_agent", Text),
    # The latest end of its session, if known.
    Column("expires_at", BigInteger),
)

# Read as bytes: another program may have stored a Fernet token as text, and text that is not UTF-8 would break the
# whole query.
_ciphertext: Final = cast(cookies.c.cookie_encrypted, LargeBinary).label("ciphertext")
_columns: Final = (*(column for column in cookies.c if column is not cookies.c.cookie_encrypted), _ciphertext)
_lock_named: Final = (
    select(*_columns)
    .where(cookies.c.cookie_name.in_(bindparam("names", expanding=True)))
    .order_by(cookies.c.cookie_name)
    .with_for_update()
)
_NEVER: Final = from_milliseconds(0)

Value = TypeVar("Value")


class NamedCookie(Protocol):
    """The name and platform to which its encryption binds a cookie."""

    @property
    def name(self) -> str: ...
    @property
    def platform(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cookie:
    """One row. An unreadable cookie has only its name, platform and ciphertext from the row."""

    name: str
    platform: str
    # The highest is used first.
    priority: int = 0
    # Uses in one UTC day.
    daily_limit: int = 0
    # As stored; `settle_state` returns the present state.
    state: CookieState
    # The master key that encrypted it.
    encryption_key_id: str
    created_at: datetime = _NEVER
    updated_at: datetime = _NEVER
    # When a person last added or enabled it.
    enabled_at: datetime = _NEVER
    last_used_at: datetime | None = None
    # The User-Agent of the browser that it came from.
    user_agent: str | None = None
    # The latest end of its session; it may end earlier.
    expires_at: datetime | None = None
    ciphertext: bytes = field(repr=False)


async def read_cookies(connection: AsyncConnection) -> list[Cookie]:
    """Every cookie, by name."""
    rows = await connection.execute(select(*_columns).order_by(cookies.c.cookie_name))
    return [_read_cookie(row) for row in rows]


async def lock_cookie(connection: AsyncConnection, name: str) -> Cookie | None:
    """The cookie of this name, locked until the transaction ends."""
    found = await lock_cookies(connection, [name])
    return found[0] if found else None


async def lock_cookies(connection: AsyncConnection, names: Iterable[str]) -> list[Cookie]:
    """The existing cookies of these names, locked in the order of their names, so that two callers cannot deadlock."""
    return [_read_cookie(row) for row in await connection.execute(_lock_named, {"names": list(names)})]


def open_cookie(cookie: Cookie, *, keys: KeyRing) -> Secret:
    """Decrypt a cookie. Raises KeyRingError if it was altered or moved, or its key is missing."""
    try:
        return keys.decrypt(cookie.ciphertext, key_id=cookie.encryption_key_id, **_name_place(cookie))
    except DecryptionError as error:
        earlier = _open_unbound(cookie, keys=keys)
        if earlier is None:
            raise error from None
        return earlier


def needs_sealing(cookie: Cookie, *, keys: KeyRing) -> bool:
    """Whether a cookie should be encrypted again: with a newer key, not by Fernet, and bound to its platform."""
    if keys.needs_rotation(cookie.encryption_key_id, blob=cookie.ciphertext):
        return True
    return _open_unbound(cookie, keys=keys) is not None


def _open_unbound(cookie: Cookie, *, keys: KeyRing) -> Secret | None:
    """A cookie that an earlier release encrypted for its name alone; None if this one was not."""
    place = _name_place(cookie) | {"row": cookie.name}
    try:
        return keys.decrypt(cookie.ciphertext, key_id=cookie.encryption_key_id, **place)
    except KeyRingError:
        return None


async def check_cookie_keys(database: ReadableDatabase, *, keys: KeyRing) -> None:
    """Check that some cookie of each master key can be opened. Raises KeyRingError."""
    async with database.read() as connection:
        found = await read_cookies(connection)
    opened: set[str] = set()
    errors: dict[str, KeyRingError] = {}
    for cookie in found:
        if cookie.encryption_key_id in opened:
            continue
        try:
            open_cookie(cookie, keys=keys)
            opened.add(cookie.encryption_key_id)
        except KeyRingError as error:
            errors[cookie.encryption_key_id] = error
    for key_id, reason in errors.items():
        if key_id not in opened:
            raise reason


def seal_cookie(cookie: NamedCookie, secret: Secret, *, keys: KeyRing) -> dict[str, Any]:
    """Encrypt a cookie for its row and platform. Returns its columns."""
    blob, key_id = keys.encrypt(secret, **_name_place(cookie))
    return {"cookie_encrypted": blob, "encryption_key_id": key_id}


def describe_state(state: CookieState) -> dict[str, Any]:
    """The columns of a state."""
    return {
        "status": state.status.value,
        "consecutive_errors": state.consecutive_errors,
        "total_errors": state.total_errors,
        "cooling_until": None if state.cooling_until is None else to_milliseconds(state.cooling_until),
        "daily_used": state.daily_used,
        "used_on": state.day.isoformat(),
    }


def _name_place(cookie: NamedCookie) -> dict[str, str]:
    """The associated data: with another name or platform, the cookie does not open. Neither has a slash."""
    row = f"{cookie.platform}/{cookie.name}"
    return {"purpose": "cookie", "table": "tbl_cookie", "column": "cookie_encrypted", "row": row}


def _read_cookie(row: Row[Any]) -> Cookie:
    try:
        return _read_whole(row)
    except (TypeError, ValueError, OverflowError):
        return _read_broken(row)


def _read_broken(row: Row[Any]) -> Cookie:
    return Cookie(
        name=str(row.cookie_name),
        platform=str(row.platform),
        state=CookieState(day=_NEVER.date(), status=CookieStatus.UNREADABLE),
        encryption_key_id=str(row.encryption_key_id),
        ciphertext=row.ciphertext,
    )


def _read_whole(row: Row[Any]) -> Cookie:
    """Raises TypeError, ValueError or OverflowError for a broken value."""
    return Cookie(
        name=_require(str, row.cookie_name),
        platform=_require(str, row.platform),
        priority=_require(int, row.priority),
        daily_limit=_require(int, row.daily_limit),
        state=_read_state(row),
        encryption_key_id=_require(str, row.encryption_key_id),
        created_at=from_milliseconds(row.created_at),
        updated_at=from_milliseconds(row.updated_at),
        enabled_at=from_milliseconds(row.enabled_at),
        last_used_at=read_timestamp(row.last_used_at),
        user_agent=row.user_agent,
        expires_at=read_timestamp(row.expires_at),
        ciphertext=row.ciphertext,
    )


def _read_state(row: Row[Any]) -> CookieState:
    return CookieState(
        day=date.fromisoformat(row.used_on),
        status=CookieStatus(row.status),
        consecutive_errors=_require(int, row.consecutive_errors),
        total_errors=_require(int, row.total_errors),
        cooling_until=read_timestamp(row.cooling_until),
        daily_used=_require(int, row.daily_used),
    )


def _require(kind: type[Value], value: object) -> Value:
    if not isinstance(value, kind):
        raise TypeError(f"not a {kind.__name__}")
    return value
