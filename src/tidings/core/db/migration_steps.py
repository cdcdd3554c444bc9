"""What several migrations share. A released migration must always do the same: add functions here, never change one."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db import columns

# SQLite numbers rows by itself only in a column that is declared INTEGER.
ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
# So these two must always do the same, too.
required, optional = columns.required, columns.optional


def create_partial_index(name: str, table: str, columns: list[str], condition: str, *, unique: bool = False) -> None:
    """An index over the rows for which the condition holds."""
    where = sa.text(condition)
    op.create_index(name, table, columns, unique=unique, sqlite_where=where, postgresql_where=where)


def drop_tables(*names: str) -> None:
    for name in names:
        op.drop_table(name)


def create_undelivered() -> sa.Table:
    """A row for each open page and engine, until the outbox."""
    return op.create_table(
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
        *optional(sa.BigInteger, "attempted_in", "delivered_in"),
        sa.PrimaryKeyConstraint("site", "channel", "engine", "url_hash"),
        sqlite_with_rowid=False,
    )


def create_daily_stats(*key: str) -> None:
    """Pages by day. Later releases have the columns of the key in another order."""
    op.create_table(
        "daily_stats",
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("channel", sa.SmallInteger, nullable=False),
        *required(sa.BigInteger, "total", "successful"),
        sa.PrimaryKeyConstraint(*key),
        sqlite_with_rowid=False,
    )


def create_first_sources() -> None:
    """Collected notes, before they could be listed and searched."""
    op.create_table(
        "tbl_source",
        sa.Column("id", ROW_ID, primary_key=True),
        *required(sa.Text, "platform", "note_id", "idempotency_key", "note_url", "kind", "title", "author_name"),
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
