"""That rows have changed, noted for the mirror in the transaction that changes them. What it does with that is its own
business."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.tables import mirror_outbox
from tidings.collect.write.leases import Key
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database


async def note_changes(
    connection: AsyncConnection, database: Database, table_name: str, keys: Sequence[Key], *, at: datetime
) -> None:
    """These rows of the table are no longer what they were."""
    if not keys:
        return
    common = {"table_name": table_name, "created_at": to_milliseconds(at)}
    rows = [common | {"platform": platform, "note_id": note_id} for platform, note_id in keys]
    await connection.execute(database.insert(mirror_outbox), rows)
