"""Executions, pace, and the tables of announce."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import (
    ROW_ID,
    create_partial_index,
    create_undelivered,
    create_validators,
    drop_tables,
    optional,
    required,
)

revision = "0001"
down_revision = None

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
        *required(sa.Text, "workflow_name", "status", "holder"),
        *required(sa.BigInteger, "started_at", "heartbeat_at"),
        sa.Column("completed_at", sa.BigInteger),
        sa.Column("items_processed", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("items_failed", sa.BigInteger, nullable=False, server_default="0"),
        *optional(sa.Text, "progress", "result"),
        sqlite_autoincrement=True,
    )
    create_partial_index("executions_one_running", "executions", ["workflow_name"], "status = 'running'", unique=True)
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
        *required(sa.Text, "origin", "host", "settings"),
        sa.Column("indexnow_key", sa.LargeBinary),
        sa.Column("encryption_key_id", sa.Text),
        sa.Column("enabled", sa.Boolean, nullable=False),
        *optional(sa.BigInteger, "removed_at", "purged_at"),
        *required(sa.BigInteger, "created_at", "updated_at"),
        sqlite_autoincrement=True,
    )


def create_ledger() -> None:
    op.create_table(
        "ledger",
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("channel", sa.SmallInteger, nullable=False),
        *required(sa.BigInteger, "url_hash", "submitted_at"),
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


def create_site_memory() -> None:
    create_validators()
    op.create_table(
        "site_pages",
        *required(sa.BigInteger, "site", "url_hash"),
        sa.Column("url", sa.Text, nullable=False),
        *required(sa.BigInteger, "sitemap", "seen_in"),
        sa.PrimaryKeyConstraint("site", "url_hash", "sitemap"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "broken_engines",
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("channel", sa.SmallInteger, nullable=False),
        *required(sa.Text, "engine", "key_fingerprint", "reason"),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("site", "channel", "engine"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    drop_tables("broken_engines", "site_pages", "sitemap_validators", "undelivered")
    drop_tables("ledger", "sites", "pace", "executions")
