"""What the mirror keeps beside the outbox and the map of `collect.tables`: the create that is under way, what was not
taken, and how each table fares. Definitions only; `ledger` reads and writes them. Moments are milliseconds since 1970.
"""

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, Table, Text

from tidings.core.db.database import metadata

# The create that is under way for a table, until it is known what came of it. `body` is what was sent, to be repeated.
mirror_intents = Table(
    "mirror_intents",
    metadata,
    Column("table_name", Text, primary_key=True),
    Column("client_token", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

# Rows that Feishu does not take as they are. A row that changes is tried again.
mirror_failures = Table(
    "mirror_failures",
    metadata,
    Column("table_name", Text, nullable=False),
    Column("platform", Text, nullable=False),
    Column("note_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("failed_at", BigInteger, nullable=False),
    PrimaryKeyConstraint("table_name", "platform", "note_id"),
)

# Where a table is mirrored to (a fingerprint), by whom (what our records carry), with which fields (a digest of them),
# and how it went last.
mirror_state = Table(
    "mirror_state",
    metadata,
    Column("table_name", Text, primary_key=True),
    Column("target", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("signature", Text, nullable=False),
    Column("delivered_at", BigInteger),
    Column("last_error", Text),
    Column("failed_at", BigInteger),
)
