"""How many pages were attempted and taken on each day."""

from alembic import op

from tidings.core.db.migration_steps import create_daily_stats

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    create_daily_stats("day", "site", "channel")


def downgrade() -> None:
    op.drop_table("daily_stats")
