"""Collected content: keywords, candidates, sources, the view of executions, the mirror's outbox, and due jobs."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import (
    ROW_ID,
    create_first_sources,
    create_partial_index,
    drop_tables,
    optional,
    required,
)

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    create_candidates()
    create_first_sources()
    op.create_table(
        "watched_keywords",
        sa.Column("id", ROW_ID, primary_key=True),
        *required(sa.Text, "platform", "keyword"),
        sa.Column("pages", sa.Integer, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("last_run_at", sa.BigInteger),
        *optional(sa.Integer, "last_found", "last_created"),
        sa.Column("last_error_code", sa.Text),
        sa.UniqueConstraint("platform", "keyword"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "collect_minutes",
        sa.Column("minute", sa.BigInteger, primary_key=True, autoincrement=False),
        *required(sa.Integer, "succeeded", "failed"),
    )
    op.create_table(
        "due_jobs",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("next_at", sa.BigInteger, nullable=False),
    )
    create_mirror()
    op.execute(
        "CREATE VIEW tbl_crawl_execution AS SELECT workflow_name, public_id AS execution_id, status, started_at, "
        "heartbeat_at, completed_at, items_processed, items_failed FROM executions "
        "WHERE workflow_name NOT LIKE 'announce:%'"
    )


def create_candidates() -> None:
    op.create_table(
        "tbl_candidate",
        *required(sa.Text, "platform", "note_id", "note_url", "title", "status"),
        sa.Column("processing_lock", sa.Text),
        sa.Column("locked_at", sa.BigInteger),
        sa.Column("retry_count", sa.Integer, nullable=False),
        *required(sa.Text, "source_keyword", "exec_meta"),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        *optional(sa.Text, "last_error_code", "last_error"),
        *required(sa.BigInteger, "created_at", "updated_at"),
        sa.PrimaryKeyConstraint("platform", "note_id"),
    )
    create_partial_index("candidates_due", "tbl_candidate", ["platform", "due_at"], "status = 'pending'")
    create_partial_index("candidates_held", "tbl_candidate", ["processing_lock"], "status = 'processing'")
    create_partial_index("candidates_failed", "tbl_candidate", ["updated_at"], "status = 'failed'")


def create_mirror() -> None:
    op.create_table(
        "mirror_outbox",
        sa.Column("id", ROW_ID, primary_key=True),
        *required(sa.Text, "table_name", "platform", "note_id"),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("in_doubt", sa.Boolean),
        sqlite_autoincrement=True,
    )
    op.create_index("mirror_outbox_order", "mirror_outbox", ["table_name", "id"])
    op.create_index("mirror_outbox_rows", "mirror_outbox", ["table_name", "platform", "note_id"])
    op.create_table(
        "mirror_records",
        *required(sa.Text, "table_name", "platform", "note_id", "record_id", "digest"),
        sa.PrimaryKeyConstraint("table_name", "platform", "note_id"),
    )
    op.create_table(
        "mirror_intents",
        sa.Column("table_name", sa.Text, primary_key=True),
        *required(sa.Text, "client_token", "body"),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "mirror_failures",
        *required(sa.Text, "table_name", "platform", "note_id", "reason", "action"),
        sa.Column("failed_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("table_name", "platform", "note_id"),
    )
    op.create_table(
        "mirror_state",
        sa.Column("table_name", sa.Text, primary_key=True),
        *required(sa.Text, "target", "owner", "signature"),
        sa.Column("delivered_at", sa.BigInteger),
        sa.Column("last_error", sa.Text),
        sa.Column("failed_at", sa.BigInteger),
    )


def downgrade() -> None:
    op.execute("DROP VIEW tbl_crawl_execution")
    drop_tables("mirror_state", "mirror_failures", "mirror_intents", "mirror_records", "mirror_outbox")
    drop_tables("due_jobs", "collect_minutes", "watched_keywords", "tbl_source", "tbl_candidate")
