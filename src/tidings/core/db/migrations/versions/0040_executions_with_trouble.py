"""An index of the executions that had trouble: a list of them reads no others."""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"

TROUBLE = sa.text("status NOT IN ('running', 'succeeded')")


def upgrade() -> None:
    op.create_index("executions_with_trouble", "executions", ["id"], sqlite_where=TROUBLE, postgresql_where=TROUBLE)


def downgrade() -> None:
    op.drop_index("executions_with_trouble", "executions")
