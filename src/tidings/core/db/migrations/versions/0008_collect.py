"""Collected content: keywords, candidates, sources, the view of executions, the mirror's outbox, and due jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

RowId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    create_candidates()
    create_sources()
    op.create_table(
        "watched_keywords",
        sa.Column("id", RowId, primary_key=True),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("keyword", sa.Text, nullable=False),
        sa.Column("pages", sa.Integer, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("last_run_at", sa.BigInteger),
        sa.Column("last_found", sa.Integer),
        sa.Column("last_created", sa.Integer),
        sa.Column("last_error_code", sa.Text),
        sa.UniqueConstraint("platform", "keyword"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "collect_minutes",
        sa.Column("minute", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("succeeded", sa.Integer, nullable=False),
        sa.Column("failed", sa.Integer, nullable=False),
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
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("note_id", sa.Text, nullable=False),
        sa.Column("note_url", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("processing_lock", sa.Text),
        sa.Column("locked_at", sa.BigInteger),
        sa.Column("retry_count", sa.Integer, nullable=False),
        sa.Column("source_keyword", sa.Text, nullable=False),
        sa.Column("exec_meta", sa.Text, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("last_error_code", sa.Text),
        sa.Column("last_error", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("platform", "note_id"),
    )
    create_partial_index("candidates_due", "tbl_candidate", ["platform", "due_at"], "status = 'pending'")
    create_partial_index("candidates_held", "tbl_candidate", ["processing_lock"], "status = 'processing'")
    create_partial_index("candidates_failed", "tbl_candidate", ["updated_at"], "status = 'failed'")


def create_sources() -> None:
    op.create_table(
        "tbl_source",
        sa.Column("id", RowId, primary_key=True),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("note_id", sa.Text, nullable=False),
        sa.Column("idempotency_key", sa.Text, nullable=False),
        sa.Column("note_url", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("author_name", sa.Text, nullable=False),
        sa.Column("published_at", sa.BigInteger),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("processing_lock", sa.Text),
        sa.Column("locked_at", sa.BigInteger),
        sa.Column("retry_count", sa.Integer, nullable=False),
        sa.Column("last_error_code", sa.Text),
        sa.Column("exec_meta", sa.Text, nullable=False),
        sa.Column("collected_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("platform", "idempotency_key"),
        sqlite_autoincrement=True,
    )
    create_partial_index("sources_held", "tbl_source", ["locked_at"], "processing_lock IS NOT NULL")


def create_mirror() -> None:
    op.create_table(
        "mirror_outbox",
        sa.Column("id", RowId, primary_key=True),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("note_id", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("in_doubt", sa.Boolean),
        sqlite_autoincrement=True,
    )
    op.create_index("mirror_outbox_order", "mirror_outbox", ["table_name", "id"])
    op.create_index("mirror_outbox_rows", "mirror_outbox", ["table_name", "platform", "note_id"])
    op.create_table(
        "mirror_records",
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("note_id", sa.Text, nullable=False),
        sa.Column("record_id", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("table_name", "platform", "note_id"),
    )
    op.create_table(
        "mirror_intents",
        sa.Column("table_name", sa.Text, primary_key=True),
        sa.Column("client_token", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "mirror_failures",
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("note_id", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("failed_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("table_name", "platform", "note_id"),
    )
    op.create_table(
        "mirror_state",
        sa.Column("table_name", sa.Text, primary_key=True),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("signature", sa.Text, nullable=False),
        sa.Column("delivered_at", sa.BigInteger),
        sa.Column("last_error", sa.Text),
        sa.Column("failed_at", sa.BigInteger),
    )


def create_partial_index(name: str, table: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    op.execute("DROP VIEW tbl_crawl_execution")
    for name in (
        "mirror_state",
        "mirror_failures",
        "mirror_intents",
        "mirror_records",
        "mirror_outbox",
        "due_jobs",
        "collect_minutes",
        "watched_keywords",
        "tbl_source",
        "tbl_candidate",
    ):
        op.drop_table(name)
