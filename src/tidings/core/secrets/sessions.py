"""Sessions of people who signed in to the dashboard with a token. The table keeps digests only.

A session names the token that opened it, so it ends when that token is revoked or changed. It also ends after
`LIFETIME`, and when the person signs out.
"""

import hmac
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import BigInteger, Column, Table, Text, delete, select

from tidings.core.clock import Clock, from_milliseconds, to_milliseconds
from tidings.core.db.columns import required
from tidings.core.db.database import Database, metadata
from tidings.core.secrets.secret import Secret
from tidings.core.secrets.tokens import digest_token

LIFETIME: Final = timedelta(hours=12)

_BYTES: Final = 32

web_sessions = Table(
    "web_sessions",
    metadata,
    Column("digest", Text, primary_key=True),
    *required(Text, "token_digest", "form_key"),
    *required(BigInteger, "created_at", "expires_at"),
    sqlite_with_rowid=False,
)


@dataclass(frozen=True, slots=True)
class WebSession:
    """One signed-in browser."""

    # SHA-256 of the session id; the id itself is only in the browser's cookie.
    digest: str
    # SHA-256 of the token that opened the session.
    token_digest: str
    # The value that every form of this session must carry (protection against cross-site request forgery).
    form_key: str = field(repr=False)
    expires_at: datetime

    def accepts(self, form_key: str) -> bool:
        """Whether a form with this key was rendered for this session."""
        return hmac.compare_digest(self.form_key.encode(), form_key.encode("utf-8", "replace"))


class Sessions:
    """Opens, finds and closes sessions."""

    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def open(self, token: Secret) -> Secret:
        """Store a new session of this token; returns its id for the cookie. Expired sessions are deleted."""
        session_id = Secret(secrets.token_urlsafe(_BYTES))
        now = self._clock.now()
        values = {
            "digest": digest_token(session_id.reveal()),
            "token_digest": digest_token(token.reveal()),
            "form_key": secrets.token_urlsafe(_BYTES),
            "created_at": to_milliseconds(now),
            "expires_at": to_milliseconds(now + LIFETIME),
        }
        async with self._database.write() as connection:
            await connection.execute(delete(web_sessions).where(web_sessions.c.expires_at <= to_milliseconds(now)))
            await connection.execute(self._database.insert(web_sessions).values(values))
        return session_id

    async def find(self, session_id: str) -> WebSession | None:
        """The session of this id; None when it does not exist or has expired."""
        statement = select(web_sessions).where(
            web_sessions.c.digest == digest_token(session_id),
            web_sessions.c.expires_at > to_milliseconds(self._clock.now()),
        )
        row = await self._database.fetch_row(statement)
        if row is None:
            return None
        return WebSession(row.digest, row.token_digest, row.form_key, from_milliseconds(row.expires_at))

    async def close(self, session: WebSession) -> None:
        """End this session."""
        await self._database.change(delete(web_sessions).where(web_sessions.c.digest == session.digest))
