"""Executions, pace, and the tables of announce."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
LEDGER_PARTITIONS = 16


def upgrade() -> None:
    create_executions()
    create_pace()
    create_sites()
    create_ledger()
    create_undelivered()
    create_site_memory()


def create_executions() -> None:
    op.create_table(
        "executions",
        sa.Column("id", ROW_ID, primary_key=True),
        sa.Column("public_id", sa.Text, nullable=False, unique=True),
        sa.Column("workflow_name", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger, nullable=False),
        sa.Column("completed_at", sa.BigInteger),
        sa.Column("items_processed", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("items_failed", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("progress", sa.Text),
        sa.Column("result", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "executions_one_running",
        "executions",
        ["workflow_name"],
        unique=True,
        sqlite_where=sa.text("status = 'running'"),
        postgresql_where=sa.text("status = 'running'"),
    )
    op.create_index("executions_history", "executions", ["workflow_name", "id"])


def create_pace() -> None:
    op.create_table(
        "pace",
        sa.Column("host", sa.Text, primary_key=True),
        sa.Column("next_at", sa.BigInteger, nullable=False),
        sa.Column("slowed_to", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("accepted_in_row", sa.Integer, nullable=False, server_default="0"),
    )


def create_sites() -> None:
    op.create_table(
        "sites",
        sa.Column("number", ROW_ID, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("indexnow_key", sa.LargeBinary),
        sa.Column("encryption_key_id", sa.Text),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("removed_at", sa.BigInteger),
        sa.Column("purged_at", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )


def create_ledger() -> None:
    op.create_table(
        "ledger",
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("channel", sa.SmallInteger, nullable=False),
        sa.Column("url_hash", sa.BigInteger, nullable=False),
        sa.Column("submitted_at", sa.BigInteger, nullable=False),
        sa.Column("lastmod", sa.BigInteger),
        sa.PrimaryKeyConstraint("site", "channel", "url_hash"),
        sqlite_with_rowid=False,
        postgresql_partition_by="HASH (site)",
    )
    if op.get_context().dialect.name == "postgresql":
        for number in range(LEDGER_PARTITIONS):
            op.execute(
                f"CREATE TABLE ledger_{number} PARTITION OF ledger "
                f"FOR VALUES WITH (MODULUS {LEDGER_PARTITIONS}, REMAINDER {number})"
            )


def create_undelivered() -> None:
    op.create_table(
        "undelivered",
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("channel", sa.SmallInteger, nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("url_hash", sa.BigInteger, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("lastmod", sa.BigInteger),
        sa.Column("removed", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("failed_at", sa.BigInteger),
        sa.Column("created_in", sa.BigInteger, nullable=False),
        sa.Column("attempted_in", sa.BigInteger),
        sa.Column("delivered_in", sa.BigInteger),
        sa.PrimaryKeyConstraint("site", "channel", "engine", "url_hash"),
        sqlite_with_rowid=False,
    )


def create_site_memory() -> None:
    op.create_table(
        "sitemap_validators",
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("sitemap", sa.BigInteger, nullable=False),
        sa.Column("etag", sa.Text),
        sa.Column("last_modified", sa.Text),
        sa.Column("pages", sa.BigInteger, nullable=False),
        sa.Column("oldest", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("site", "sitemap"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "site_pages",
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("url_hash", sa.BigInteger, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("sitemap", sa.BigInteger, nullable=False),
        sa.Column("seen_in", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("site", "url_hash", "sitemap"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "broken_engines",
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("channel", sa.SmallInteger, nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("key_fingerprint", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("site", "channel", "engine"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    for table in (
        "broken_engines",
        "site_pages",
        "sitemap_validators",
        "undelivered",
        "ledger",
        "sites",
        "pace",
        "executions",
    ):
        op.drop_table(table)
