"""Engines that refuse a site's key for good. They get no requests until the site has another key for the channel."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, SmallInteger, Table, Text, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.channels.quota.kinds import identify_key
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.site import Site
from tidings.core.clock import from_milliseconds
from tidings.core.db.database import Database, metadata

broken_engines = Table(
    "broken_engines",
    metadata,
    Column("site", BigInteger, nullable=False),
    Column("channel", SmallInteger, nullable=False),
    Column("engine", Text, nullable=False),
    Column("key_fingerprint", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
    PrimaryKeyConstraint("site", "channel", "engine"),
    sqlite_with_rowid=False,
)


@dataclass(frozen=True, slots=True)
class BrokenEngine:
    """An engine that refuses the site's key for good."""

    # The endpoint, or the name of a channel with a quota.
    engine: str
    # What the engine answered.
    reason: str
    since: datetime


class BrokenEngines:
    """The broken engines of one site and channel."""

    def __init__(self, database: Database, *, site: Site, channel: Channel) -> None:
        self._database = database
        self._site = site
        self._channel = channel
        self._fingerprint = identify_key(site, channel)

    async def list_broken(self) -> list[BrokenEngine]:
        """The engines that refused the present key."""
        statement = select(broken_engines).where(
            broken_engines.c.site == self._site.number,
            broken_engines.c.channel == self._channel.value,
            broken_engines.c.key_fingerprint == self._fingerprint,
        )
        return [
            BrokenEngine(row.engine, row.reason, from_milliseconds(row.since))
            for row in await self._database.fetch(statement)
        ]

    async def mark(self, connection: AsyncConnection, engine: str, *, reason: str, at: int) -> None:
        """Record that this engine refuses the present key. `at` is in milliseconds."""
        key = {"site": self._site.number, "channel": self._channel.value, "engine": engine}
        values = {"key_fingerprint": self._fingerprint, "reason": reason, "since": at}
        await self._database.store(connection, broken_engines, key=key, values=values)

    async def free(self, connection: AsyncConnection) -> int:
        """Use them all again, with the same key. Returns how many there were."""
        statement = delete(broken_engines).where(
            broken_engines.c.site == self._site.number, broken_engines.c.channel == self._channel.value
        )
        return (await connection.execute(statement)).rowcount
