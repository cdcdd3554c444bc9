"""Pages that are due on a channel with a quota and were not sent: one number per site and channel, for metrics."""

from collections.abc import Mapping

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, SmallInteger, Table
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.ledger.ledger import Channel
from tidings.core.db.database import Database, metadata

channel_backlogs = Table(
    "channel_backlogs",
    metadata,
    Column("site", BigInteger, nullable=False),
    Column("channel", SmallInteger, nullable=False),
    # As the site's last execution left it.
    Column("pages", BigInteger, nullable=False),
    PrimaryKeyConstraint("site", "channel"),
    sqlite_with_rowid=False,
)


async def store_backlogs(
    connection: AsyncConnection, backlogs: Mapping[Channel, int], *, database: Database, site: int
) -> None:
    """Store how many pages of the site wait for these channels, in the caller's transaction."""
    if not backlogs:
        return
    insert = database.insert(channel_backlogs).values(
        [{"site": site, "channel": channel.value, "pages": pages} for channel, pages in sorted(backlogs.items())]
    )
    values = {"pages": insert.excluded.pages}
    await connection.execute(insert.on_conflict_do_update(index_elements=["site", "channel"], set_=values))
