"""How many pages were attempted and taken on each day."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "daily_stats",
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("channel", sa.SmallInteger, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("successful", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("day", "site", "channel"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("daily_stats")
