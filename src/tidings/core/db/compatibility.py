"""Which releases may work on the same tables at the same time, so that one machine after the other can be upgraded.

A migration may add, and drops only what the release before it no longer touches. Beside their own revision, the tables
store the oldest revision whose release can still work on them. A release that is older than that refuses to start, and
one that runs ends.
"""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

# The value for the newest tables. A migration that breaks an older release raises it, here and by `compatibility`.
OLDEST_REVISION: Final = "0030"


def compatibility(oldest_revision: str) -> str:
    """The statement by which a migration says that only releases with `oldest_revision` can work on these tables."""
    return f"UPDATE alembic_version SET oldest_revision = '{oldest_revision}'"


async def read_oldest_revision(connection: AsyncConnection) -> str | None:
    """The oldest revision whose release can work on these tables, which are newer than this release. None: unknown."""
    return (await connection.exec_driver_sql("SELECT oldest_revision FROM alembic_version")).scalar_one_or_none()
