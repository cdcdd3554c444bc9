"""API tokens: made here, shown once, and stored only as SHA-256. A token has a place: a site, or a scope and a name. A
new token for a place replaces the old one. `tidings.web.middleware.auth` has the rights of scopes and the tokens of the
settings.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Table, Text, delete, exists, literal, select

from tidings.core.clock import Clock, from_milliseconds, to_milliseconds
from tidings.core.db.database import Database, metadata
from tidings.core.secrets.scopes import Grant, Scope
from tidings.core.secrets.secret import Secret

PREFIX: Final = "tid_"
FIRST_NAME: Final = "first start"

# A token that another process has revoked works here for at most this long.
_CACHED_FOR: Final = timedelta(seconds=3)
_BYTES: Final = 32
_SHAPE: Final = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")

tokens = Table(
    "tokens",
    metadata,
    Column("place", Text, primary_key=True),
    Column("digest", Text, nullable=False, unique=True),
    Column("scope", Text, nullable=False),
    Column("site", BigInteger),
    Column("name", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("group_name", Text),
    sqlite_with_rowid=False,
)


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as a list shows it: everything but the token."""

    scope: Scope
    site: int | None
    name: str
    created_at: datetime
    # The only group that a viewer sees; None: all.
    group: str | None = None


class Tokens:
    """The table of tokens, with a short cache."""

    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._found: dict[str, tuple[Grant, float]] = {}
        self._changes = 0

    async def make(self, scope: Scope, *, site: int | None = None, name: str, group: str | None = None) -> Secret:
        """Make a token, which only the caller will ever see. The previous token of its place stops working at once."""
        token = _draw_token()
        if group is not None and scope is not Scope.VIEWER:
            raise ValueError("a group belongs to a token of scope viewer, and to no other")
        values = {**self._describe(token, scope=scope, site=site, name=name), "group_name": group}
        statement = self._database.insert(tokens).values(values)
        await self._database.change(statement.on_conflict_do_update(index_elements=["place"], set_=values))
        self._forget_found()
        return token

    async def ensure_admin(self) -> Secret | None:
        """Make the first admin token; None where there is one. Of several processes at once, one makes it."""
        token = _draw_token()
        values = self._describe(token, scope=Scope.ADMIN, site=None, name=FIRST_NAME)
        missing = ~exists().where(tokens.c.scope == Scope.ADMIN.value)
        row = select(*(literal(value, tokens.c[name].type) for name, value in values.items())).where(missing)
        # Two that both find none have the same place, so the second insert does nothing.
        statement = self._database.insert(tokens).from_select(list(values), row).on_conflict_do_nothing()
        async with self._database.write() as connection:
            made = (await connection.execute(statement.returning(tokens.c.place))).first()
        return None if made is None else token

    async def revoke(self, scope: Scope, *, site: int | None = None, name: str | None = None) -> bool:
        """Revoke a site's token, or the token of this scope and name. False if there was none."""
        statement = delete(tokens).where(tokens.c.place == _name_place(scope, site=site, name=name))
        removed = await self._database.change(statement) > 0
        self._forget_found()
        return removed

    async def find(self, token: str) -> Grant | None:
        """What this token grants; None for one that is not, or no longer, known."""
        return await self.find_digest(digest_token(token)) if is_made_token(token) else None

    async def find_digest(self, digest: str) -> Grant | None:
        """What the token with this digest grants."""
        now = self._clock.monotonic()
        grant, until = self._found.get(digest, (None, now))
        return grant if now < until else await self._look_up(digest, now=now)

    async def list_all(self) -> list[TokenRecord]:
        """Every token, by place."""
        return [
            TokenRecord(Scope(row.scope), row.site, row.name, from_milliseconds(row.created_at), row.group_name)
            for row in await self._database.fetch(select(tokens).order_by(tokens.c.place))
        ]

    async def _look_up(self, digest: str, *, now: float) -> Grant | None:
        changes = self._changes
        statement = select(tokens).where(tokens.c.digest == digest)
        row = await self._database.fetch_row(statement)
        grant = None if row is None else Grant(Scope(row.scope), row.name, site=row.site, group=row.group_name)
        if grant is None:
            self._found.pop(digest, None)
        elif changes == self._changes:
            # If a token was revoked meanwhile, it may be this one, so it is not cached.
            self._found[digest] = grant, now + _CACHED_FOR.total_seconds()
        return grant

    def _forget_found(self) -> None:
        self._changes += 1
        self._found.clear()

    def _describe(self, token: Secret, *, scope: Scope, site: int | None, name: str) -> dict[str, Any]:
        return {
            "place": _name_place(scope, site=site, name=name),
            "digest": digest_token(token.reveal()),
            "scope": scope.value,
            "site": site,
            "name": name,
            "created_at": to_milliseconds(self._clock.now()),
        }


def digest_token(token: str) -> str:
    """The stored digest of a token. A fast hash is enough, because 256 random bits cannot be guessed."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def is_made_token(token: str) -> bool:
    """Whether a token has the form of those made here: 256 random bits."""
    return _SHAPE.fullmatch(token) is not None


def _draw_token() -> Secret:
    return Secret(PREFIX + secrets.token_urlsafe(_BYTES))


def _name_place(scope: Scope, *, site: int | None, name: str | None) -> str:
    if (scope is Scope.SITE) != (site is not None):
        raise ValueError("a site's number belongs to a token of scope site, and to no other")
    if scope is Scope.SITE:
        return f"site:{site}"
    if not name:
        raise ValueError("a token needs a name")
    return f"{scope}:{name}"
