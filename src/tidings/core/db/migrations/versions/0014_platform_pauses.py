"""Pauses of platforms that are down or block this machine."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "platform_pauses",
        sa.Column("platform", sa.Text, primary_key=True),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("paused_at", sa.BigInteger, nullable=False),
        sa.Column("paused_until", sa.BigInteger, nullable=False),
        sa.Column("probed_at", sa.BigInteger),
    )


def downgrade() -> None:
    op.drop_table("platform_pauses")
