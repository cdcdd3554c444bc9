"""Deploy hooks that came while their site ran, hooks that were seen, and pages that wait for a quota."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import create_partial_index, drop_tables

revision = "0038"
down_revision = "0032"


def upgrade() -> None:
    op.add_column("schedules", sa.Column("follow_up_at", sa.BigInteger))
    create_partial_index("schedules_follow_up", "schedules", ["follow_up_at"], "follow_up_at IS NOT NULL")
    op.create_table(
        "seen_hooks",
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.Column("execution", sa.Text, nullable=False),
        sa.Index("seen_hooks_by_time", "seen_at"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "channel_backlogs",
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("channel", sa.SmallInteger, nullable=False),
        sa.Column("pages", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("site", "channel"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    drop_tables("channel_backlogs", "seen_hooks")
    op.drop_index("schedules_follow_up", "schedules")
    op.drop_column("schedules", "follow_up_at")
