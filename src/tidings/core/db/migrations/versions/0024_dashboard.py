"""What the dashboard shows: alerts that ended, the verdict of a failed delivery, and indexes for its lists."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import ROW_ID, create_partial_index, required

revision = "0024"
down_revision = "0021"


def upgrade() -> None:
    op.create_table(
        "past_alerts",
        sa.Column("id", ROW_ID, primary_key=True),
        *required(sa.Text, "kind", "subject", "reason"),
        *required(sa.BigInteger, "since", "ended_at"),
        sqlite_autoincrement=True,
    )
    op.create_index("past_alerts_age", "past_alerts", ["ended_at"])
    op.add_column("deliveries", sa.Column("verdict", sa.Text))
    op.drop_index("executions_history", "executions")
    op.create_index("executions_history", "executions", ["workflow_name", "id", "kind", "status"])
    columns = ["updated_at", "platform"]
    create_partial_index("candidates_collected", "tbl_candidate", columns, "status = 'collected'")


def downgrade() -> None:
    op.drop_index("candidates_collected", "tbl_candidate")
    op.drop_index("executions_history", "executions")
    op.create_index("executions_history", "executions", ["workflow_name", "id"])
    op.drop_column("deliveries", "verdict")
    op.drop_table("past_alerts")
