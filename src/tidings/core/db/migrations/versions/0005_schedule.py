"""The schedules of sites."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("site", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("cron", sa.Text, nullable=False),
        sa.Column("next_at", sa.BigInteger),
        sa.Column("late_at", sa.BigInteger),
        sa.Column("late_after", sa.BigInteger),
        sa.Column("claimed_until", sa.BigInteger),
        sa.Column("last_run_at", sa.BigInteger),
        sa.Column("paused_at", sa.BigInteger),
        sqlite_with_rowid=False,
    )
    create_partial_index("schedules_due", "next_at")
    create_partial_index("schedules_late", "late_at")


def create_partial_index(name: str, column: str) -> None:
    condition = sa.text(f"{column} IS NOT NULL AND paused_at IS NULL")
    op.create_index(name, "schedules", [column], sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    op.drop_table("schedules")
