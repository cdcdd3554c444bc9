"""What the dashboard shows: alerts that ended, the verdict of a failed delivery, and indexes for its lists."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.database import RowId

revision = "0024"
down_revision = "0021"

COLLECTED = sa.text("status = 'collected'")


def upgrade() -> None:
    op.create_table(
        "past_alerts",
        sa.Column("id", RowId, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("past_alerts_age", "past_alerts", ["ended_at"])
    op.add_column("deliveries", sa.Column("verdict", sa.Text))
    op.drop_index("executions_history", "executions")
    op.create_index("executions_history", "executions", ["workflow_name", "id", "kind", "status"])
    op.create_index(
        "candidates_collected",
        "tbl_candidate",
        ["updated_at", "platform"],
        sqlite_where=COLLECTED,
        postgresql_where=COLLECTED,
    )


def downgrade() -> None:
    op.drop_index("candidates_collected", "tbl_candidate")
    op.drop_index("executions_history", "executions")
    op.create_index("executions_history", "executions", ["workflow_name", "id"])
    op.drop_column("deliveries", "verdict")
    op.drop_table("past_alerts")
