"""The schedules of sites."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import create_partial_index, optional

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("site", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("cron", sa.Text, nullable=False),
        *optional(sa.BigInteger, "next_at", "late_at", "late_after", "claimed_until", "last_run_at", "paused_at"),
        sqlite_with_rowid=False,
    )
    create_partial_index("schedules_due", "schedules", ["next_at"], "next_at IS NOT NULL AND paused_at IS NULL")
    create_partial_index("schedules_late", "schedules", ["late_at"], "late_at IS NOT NULL AND paused_at IS NULL")


def downgrade() -> None:
    op.drop_table("schedules")
