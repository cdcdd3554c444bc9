"""Numbers of collect for status and metrics: an index that counts candidates by status, and tries by error code."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import required

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_index("candidates_by_status", "tbl_candidate", ["platform", "status"])
    op.create_table(
        "collect_tries",
        *required(sa.Text, "platform", "code"),
        sa.Column("tries", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("platform", "code"),
    )


def downgrade() -> None:
    op.drop_table("collect_tries")
    op.drop_index("candidates_by_status", "tbl_candidate")
