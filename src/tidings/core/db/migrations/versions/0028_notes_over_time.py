"""Notes over time: keywords that ask to see their notes again, and the counts of a note at each reading."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import create_partial_index, optional, required

revision = "0028"
down_revision = "0027"

REFRESHED = "status = 'collected' AND refresh_at IS NOT NULL"
COUNTS = ("views", "likes", "comments", "shares", "favorites", "coins", "danmaku")


def upgrade() -> None:
    op.add_column("watched_keywords", sa.Column("refresh_every", sa.BigInteger))
    op.add_column("watched_keywords", sa.Column("refresh_for", sa.BigInteger))
    op.add_column("tbl_candidate", sa.Column("refresh_at", sa.BigInteger))
    create_partial_index("candidates_refreshed", "tbl_candidate", ["refresh_at"], REFRESHED)
    op.create_table(
        "note_snapshots",
        *required(sa.Text, "platform", "note_id"),
        sa.Column("taken_at", sa.BigInteger, nullable=False),
        *optional(sa.BigInteger, *COUNTS),
        sa.PrimaryKeyConstraint("platform", "note_id", "taken_at"),
    )


def downgrade() -> None:
    op.drop_table("note_snapshots")
    op.drop_index("candidates_refreshed", "tbl_candidate")
    op.drop_column("tbl_candidate", "refresh_at")
    op.drop_column("watched_keywords", "refresh_for")
    op.drop_column("watched_keywords", "refresh_every")
