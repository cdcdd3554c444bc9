"""An index of the executions that had trouble: a list of them reads no others."""

from alembic import op

from tidings.core.db.migration_steps import create_partial_index

revision = "0040"
down_revision = "0039"


def upgrade() -> None:
    create_partial_index("executions_with_trouble", "executions", ["id"], "status NOT IN ('running', 'succeeded')")


def downgrade() -> None:
    op.drop_index("executions_with_trouble", "executions")
