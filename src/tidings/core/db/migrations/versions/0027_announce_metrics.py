"""Counters of all executions of announce, for Prometheus."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.create_table(
        "announce_metrics",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("value", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", "labels"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("announce_metrics")
