"""Comments of notes: keywords that ask for them, the threads that are read page by page, and the comments."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import ROW_ID, drop_tables, optional, required

revision = "0032"
down_revision = "0031"

IS_PENDING = sa.text("status = 'pending'")
IS_PROCESSING = sa.text("status = 'processing'")
IS_OPEN = sa.text("status <> 'done'")
# Each index of the threads: its columns, and the rows that it holds.
INDEXES = {
    "threads_due": (["platform", "due_at"], IS_PENDING),
    "threads_held": (["processing_lock"], IS_PROCESSING),
    "threads_open": (["platform", "status"], IS_OPEN),
    "threads_by_keyword": (["platform", "source_keyword"], None),
}


def upgrade() -> None:
    op.add_column("watched_keywords", sa.Column("comments", sa.Integer))
    op.create_table(
        "comment_threads",
        *required(sa.Text, "platform", "note_id", "note_url", "source_keyword"),
        *required(sa.Integer, "wanted", "found"),
        *required(sa.Text, "cursor", "status"),
        sa.Column("processing_lock", sa.Text),
        sa.Column("locked_at", sa.BigInteger),
        sa.Column("retry_count", sa.Integer, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        *optional(sa.Text, "last_error_code", "last_error"),
        sa.Column("exec_meta", sa.Text, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("platform", "note_id"),
    )
    for name, (columns, rows) in INDEXES.items():
        op.create_index(name, "comment_threads", columns, sqlite_where=rows, postgresql_where=rows)
    op.create_table(
        "tbl_comment",
        sa.Column("id", ROW_ID, primary_key=True),
        *required(sa.Text, "platform", "note_id", "comment_id", "parent_id"),
        *required(sa.Text, "author_id", "author_name", "text"),
        *optional(sa.BigInteger, "likes", "replies"),
        *required(sa.Text, "images", "place"),
        sa.Column("published_at", sa.BigInteger),
        sa.Column("exec_meta", sa.Text, nullable=False),
        *required(sa.BigInteger, "collected_at", "updated_at"),
        sa.UniqueConstraint("platform", "note_id", "comment_id"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    drop_tables("tbl_comment", "comment_threads")
    op.drop_column("watched_keywords", "comments")
