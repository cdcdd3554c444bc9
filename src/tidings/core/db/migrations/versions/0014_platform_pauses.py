"""Pauses of platforms that are down or block this machine."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import required

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "platform_pauses",
        sa.Column("platform", sa.Text, primary_key=True),
        *required(sa.Text, "cause", "message"),
        sa.Column("failures", sa.Integer, nullable=False),
        *required(sa.BigInteger, "paused_at", "paused_until"),
        sa.Column("probed_at", sa.BigInteger),
    )


def downgrade() -> None:
    op.drop_table("platform_pauses")
