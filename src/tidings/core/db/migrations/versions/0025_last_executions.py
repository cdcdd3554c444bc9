"""The last execution of each workflow and kind, so that a list of many sites need not search the history."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import required

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.create_table(
        "last_executions",
        *required(sa.Text, "workflow_name", "kind"),
        sa.Column("execution", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("workflow_name", "kind"),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO last_executions (workflow_name, kind, execution, status) "
        "SELECT workflow_name, kind, id, status FROM executions WHERE id IN "
        "(SELECT max(id) FROM executions WHERE status <> 'running' GROUP BY workflow_name, kind)"
    )
    op.drop_index("executions_history", "executions")
    op.create_index("executions_history", "executions", ["workflow_name", "id"])


def downgrade() -> None:
    op.drop_index("executions_history", "executions")
    op.create_index("executions_history", "executions", ["workflow_name", "id", "kind", "status"])
    op.drop_table("last_executions")
