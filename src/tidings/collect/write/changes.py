"""Which rows changed, for the mirror: recorded in the transaction that changes them."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.mirror_tables import mirror_outbox
from tidings.collect.write.leases import Key
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database


class ChangeLog:
    """Records changes of the tables in `mirrored`, and ignores other tables."""

    def __init__(self, database: Database, *, mirrored: Collection[str]) -> None:
        self._database = database
        self._mirrored = frozenset(mirrored)

    async def record(self, connection: AsyncConnection, table_name: str, keys: Sequence[Key], *, at: datetime) -> None:
        """These rows changed. A source is named by its platform and idempotency key."""
        if table_name in self._mirrored and keys:
            common = {"table_name": table_name, "created_at": to_milliseconds(at)}
            rows = [common | {"platform": platform, "note_id": note_id} for platform, note_id in keys]
            await connection.execute(self._database.insert(mirror_outbox), rows)
