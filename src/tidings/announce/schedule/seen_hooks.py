"""Deploy hooks that were carried out, in the database: a repeated one starts nothing, in any process and after a
restart."""

from datetime import timedelta
from typing import Final

from sqlalchemy import BigInteger, Column, Index, LargeBinary, Table, Text, delete, select, update

from tidings.core.clock import Clock, to_milliseconds
from tidings.core.db.database import Database, metadata

# A hook that is repeated within this time starts nothing.
REMEMBERED: Final = timedelta(hours=24)

seen_hooks = Table(
    "seen_hooks",
    metadata,
    # SHA-256 of site and signature.
    Column("digest", LargeBinary, primary_key=True),
    # Milliseconds since the epoch.
    Column("seen_at", BigInteger, nullable=False),
    # The execution that it started; empty if a follow-up was stored instead.
    Column("execution", Text, nullable=False),
    Index("seen_hooks_by_time", "seen_at"),
    sqlite_with_rowid=False,
)


class SeenHooks:
    """The hooks of the last day, by digest."""

    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def claim(self, digest: bytes) -> str | None:
        """Store a hook. None if it is new; then this caller carries it out. Otherwise the execution that it started."""
        now = self._clock.now()
        insert = self._database.insert(seen_hooks).values(digest=digest, seen_at=to_milliseconds(now), execution="")
        async with self._database.write() as connection:
            await connection.execute(delete(seen_hooks).where(seen_hooks.c.seen_at < to_milliseconds(now - REMEMBERED)))
            if (await connection.execute(insert.on_conflict_do_nothing().returning(seen_hooks.c.digest))).first():
                return None
            known = await connection.execute(select(seen_hooks.c.execution).where(seen_hooks.c.digest == digest))
            return str(known.scalar() or "")

    async def record_execution(self, digest: bytes, execution: str) -> None:
        """The claimed hook began this execution."""
        await self._database.change(update(seen_hooks).where(seen_hooks.c.digest == digest).values(execution=execution))

    async def forget(self, digest: bytes) -> None:
        """The claimed hook could not be carried out: it may be repeated."""
        await self._database.change(delete(seen_hooks).where(seen_hooks.c.digest == digest))
