"""The tables of the Feishu mirror. `write` records changes in the outbox; `feishu` and its requests write the others.

They name a row by `platform` and `note_id`. For rows that are no candidates the second is the idempotency key, the
cookie's name or the execution's id, and an execution's first is its kind. Timestamps are milliseconds since 1970.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, PrimaryKeyConstraint, Table, Text

from tidings.core.db.columns import required
from tidings.core.db.database import RowId, metadata

# Rows that changed. The mirror reads the present row when it sends.
mirror_outbox = Table(
    "mirror_outbox",
    metadata,
    Column("id", RowId, primary_key=True),
    *required(Text, "table_name", "platform", "note_id"),
    Column("created_at", BigInteger, nullable=False),
    # A request for this row was sent with an unknown result: the mirror must look the record up first.
    Column("in_doubt", Boolean),
    Index("mirror_outbox_order", "table_name", "id"),
    Index("mirror_outbox_rows", "table_name", "platform", "note_id"),
    sqlite_autoincrement=True,
)

# The mirror's record of each row.
mirror_records = Table(
    "mirror_records",
    metadata,
    *required(Text, "table_name", "platform", "note_id", "record_id", "digest"),
    PrimaryKeyConstraint("table_name", "platform", "note_id"),
)

# The create in progress for a table, until its outcome is known. `body` holds the rows as they were sent.
mirror_intents = Table(
    "mirror_intents",
    metadata,
    Column("table_name", Text, primary_key=True),
    *required(Text, "client_token", "body"),
    Column("created_at", BigInteger, nullable=False),
)

# Rows that the mirror did not take. A row that changes is tried again.
mirror_failures = Table(
    "mirror_failures",
    metadata,
    *required(Text, "table_name", "platform", "note_id", "reason", "action"),
    Column("failed_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("table_name", "platform", "note_id"),
)

# Each mirrored table: the fingerprint of its target, the owner's name that our records carry, the signature of its
# fields there, its last delivery and its last error.
mirror_state = Table(
    "mirror_state",
    metadata,
    Column("table_name", Text, primary_key=True),
    *required(Text, "target", "owner", "signature"),
    Column("delivered_at", BigInteger),
    Column("last_error", Text),
    Column("failed_at", BigInteger),
)

# The rows of the keyword table in Feishu that were read: each becomes a keyword once.
mirror_requests = Table(
    "mirror_requests",
    metadata,
    *required(Text, "table_id", "record_id"),
    Column("read_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("table_id", "record_id"),
)
