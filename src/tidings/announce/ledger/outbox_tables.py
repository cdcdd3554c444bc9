"""The tables of the outbox: batches of pages, and a delivery for each engine that has not taken all of them."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, SmallInteger, Table, Text, func

from tidings.core.db.database import RowId, metadata

batches = Table(
    "batches",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("site", BigInteger, nullable=False),
    Column("channel", SmallInteger, nullable=False),
    # Whether the pages left the sitemap; otherwise they are new or changed.
    Column("removed", Boolean, nullable=False),
    # How many pages.
    Column("size", Integer, nullable=False),
    # Hashes and lastmods as they are, then the URLs, compressed; see `encode_pages`.
    Column("pages", LargeBinary, nullable=False),
    # Bitmap: pages that at least one engine took, so they are in the ledger.
    Column("entered", LargeBinary, nullable=False),
    # UTC day of the two bitmaps after it: pages tried on that day, and pages taken on it.
    Column("day", Text, nullable=False),
    Column("tried", LargeBinary, nullable=False),
    Column("taken", LargeBinary, nullable=False),
    # Milliseconds since the epoch.
    Column("created_at", BigInteger, nullable=False),
    # Id of the execution that planned it.
    Column("created_in", BigInteger, nullable=False),
    Index("batches_of_site", "site", "channel"),
    sqlite_autoincrement=True,
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("batch", BigInteger, nullable=False),
    # As in the batch, so that the next delivery of an engine is found by one index.
    Column("site", BigInteger, nullable=False),
    Column("channel", SmallInteger, nullable=False),
    Column("engine", Text, nullable=False),
    # Bitmap: open pages of the batch, which the engine did not take so far.
    Column("pending", LargeBinary, nullable=False),
    # How many pages that are.
    Column("size", Integer, nullable=False),
    # Requests made so far, over all executions.
    Column("attempts", Integer, nullable=False),
    # The last failure: why, when (milliseconds since the epoch), and in which execution. All null before the first.
    Column("reason", Text),
    Column("failed_at", BigInteger),
    Column("attempted_in", BigInteger),
    # The name of its verdict, such as `bad_urls`. Null for failures from before this column.
    Column("verdict", Text),
    Index("deliveries_next", "site", "channel", "engine", "failed_at", "id"),
    Index("deliveries_of_batch", "batch"),
    sqlite_autoincrement=True,
)

# The hashes at the beginning of a batch's pages, so that the URLs stay where they are.
HASHES = func.substr(batches.c.pages, 1, 8 * batches.c.size).label("hashes")
