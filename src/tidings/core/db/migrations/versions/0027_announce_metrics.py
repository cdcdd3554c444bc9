"""Counters of all executions of announce, for Prometheus."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import required

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.create_table(
        "announce_metrics",
        *required(sa.Text, "name", "labels"),
        sa.Column("value", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", "labels"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("announce_metrics")
