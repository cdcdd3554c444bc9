"""The first tables: executions, pace, sites and the ledger, Bing's quota, alerts, tokens, schedules, statistics by day,
cookies, candidates, notes and the mirror."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import (
    ROW_ID,
    create_daily_stats,
    create_first_sources,
    create_partial_index,
    create_undelivered,
    drop_tables,
    optional,
    required,
)

revision = "0008"
down_revision = None

LEDGER_PARTITIONS = 16


def upgrade() -> None:
    create_executions()
    create_pace()
    create_sites()
    create_ledger()
    create_undelivered()
    create_site_memory()
    create_bing()
    create_alert_conditions()
    create_alert_outbox()
    create_tokens()
    create_schedules()
    create_daily_stats("day", "site", "channel")
    create_cookies()
    create_candidates()
    create_first_sources()
    create_collect()
    create_mirror()
    create_crawl_executions()


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
        sa.Column("bing_key", sa.LargeBinary),
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
    op.create_table(
        "sitemap_validators",
        *required(sa.BigInteger, "site", "sitemap"),
        *optional(sa.Text, "etag", "last_modified"),
        *required(sa.BigInteger, "pages", "oldest"),
        sa.Column("channels", sa.SmallInteger, nullable=False),
        sa.PrimaryKeyConstraint("site", "sitemap"),
        sqlite_with_rowid=False,
    )
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


def create_bing() -> None:
    op.create_table(
        "bing_quota",
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("used", sa.Integer, nullable=False),
        sa.Column("full", sa.Boolean, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("submitted_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("site", "day"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "bing_key_rests",
        sa.Column("key_fingerprint", sa.Text, primary_key=True),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )


def create_alert_conditions() -> None:
    op.create_table(
        "alert_conditions",
        sa.Column("id", ROW_ID, primary_key=True),
        *required(sa.Text, "kind", "subject", "reason", "action"),
        sa.Column("count", sa.BigInteger),
        *required(sa.BigInteger, "since", "fires_at"),
        sa.Column("fired_at", sa.BigInteger),
        sa.UniqueConstraint("kind", "subject"),
        sqlite_autoincrement=True,
    )
    create_partial_index("alert_conditions_waiting", "alert_conditions", ["fires_at"], "fired_at IS NULL")


def create_alert_outbox() -> None:
    op.create_table(
        "alert_outbox",
        sa.Column("id", ROW_ID, primary_key=True),
        *required(sa.Text, "event_id", "destination", "type", "kind", "subject", "reason", "action"),
        sa.Column("count", sa.BigInteger),
        *required(sa.BigInteger, "since", "occurred_at"),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("waited", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("failure", sa.Text),
        sa.Column("finished_at", sa.BigInteger),
        sa.UniqueConstraint("event_id", "destination"),
        sqlite_autoincrement=True,
    )
    columns = ["destination", "kind", "subject", "id"]
    create_partial_index("alert_outbox_pending", "alert_outbox", columns, "state = 'pending'")


def create_tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("place", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False, unique=True),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("site", sa.BigInteger),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )


def create_schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("site", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("cron", sa.Text, nullable=False),
        *optional(sa.BigInteger, "next_at", "late_at", "late_after", "claimed_until", "last_run_at", "paused_at"),
        sqlite_with_rowid=False,
    )
    create_partial_index("schedules_due", "schedules", ["next_at"], "next_at IS NOT NULL AND paused_at IS NULL")
    create_partial_index("schedules_late", "schedules", ["late_at"], "late_at IS NOT NULL AND paused_at IS NULL")


def create_cookies() -> None:
    op.create_table(
        "tbl_cookie",
        sa.Column("cookie_name", sa.Text, primary_key=True),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("cookie_encrypted", sa.LargeBinary, nullable=False),
        *required(sa.Text, "encryption_key_id", "status"),
        *required(sa.Integer, "priority", "daily_used", "daily_limit", "consecutive_errors", "total_errors"),
        sa.Column("cooling_until", sa.BigInteger),
        *required(sa.BigInteger, "created_at", "updated_at"),
        sa.Column("used_on", sa.Text, nullable=False),
        sa.Column("last_used_at", sa.BigInteger),
        sa.Column("enabled_at", sa.BigInteger, nullable=False),
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


def create_collect() -> None:
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


def create_crawl_executions() -> None:
    op.execute(
        "CREATE VIEW tbl_crawl_execution AS SELECT workflow_name, public_id AS execution_id, status, started_at, "
        "heartbeat_at, completed_at, items_processed, items_failed FROM executions "
        "WHERE workflow_name NOT LIKE 'announce:%'"
    )


def downgrade() -> None:
    op.execute("DROP VIEW tbl_crawl_execution")
    drop_tables("mirror_state", "mirror_failures", "mirror_intents", "mirror_records", "mirror_outbox")
    drop_tables("due_jobs", "collect_minutes", "watched_keywords", "tbl_source", "tbl_candidate", "tbl_cookie")
    drop_tables(
        "daily_stats", "schedules", "tokens", "alert_outbox", "alert_conditions", "bing_key_rests", "bing_quota"
    )
    drop_tables("broken_engines", "site_pages", "sitemap_validators", "undelivered")
    drop_tables("ledger", "sites", "pace", "executions")
