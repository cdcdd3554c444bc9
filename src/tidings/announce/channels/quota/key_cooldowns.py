"""Keys that rest after a channel throttled them, on all sites that use them. Only a fingerprint of a key is stored."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, Column, Table, Text, select
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.core.clock import from_milliseconds, to_milliseconds
from tidings.core.db.database import Database, metadata
from tidings.core.secrets.secret import Secret

key_rests = Table(
    "key_rests",
    metadata,
    Column("key_fingerprint", Text, primary_key=True),
    Column("until", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    sqlite_with_rowid=False,
)


@dataclass(frozen=True, slots=True)
class KeyRest:
    """Until when a key must not be used."""

    until: datetime
    # What the channel answered.
    reason: str


class KeyRests:
    """The keys that rest now."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, key: Secret, *, now: datetime) -> KeyRest | None:
        """The rest of this key, or None if it may be used."""
        statement = select(key_rests).where(
            key_rests.c.key_fingerprint == key.fingerprint, key_rests.c.until > to_milliseconds(now)
        )
        row = await self._database.fetch_row(statement)
        return None if row is None else KeyRest(from_milliseconds(row.until), row.reason)

    async def begin(self, connection: AsyncConnection, key: Secret, *, until: datetime, reason: str) -> None:
        """Let this key rest."""
        values = {"until": to_milliseconds(until), "reason": reason}
        await self._database.store(connection, key_rests, key={"key_fingerprint": key.fingerprint}, values=values)
