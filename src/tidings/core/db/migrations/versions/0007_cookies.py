"""Cookies of the user's accounts, encrypted."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import required

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "tbl_cookie",
        sa.Column("cookie_name", sa.Text, primary_key=True),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("cookie_encrypted", sa.LargeBinary, nullable=False),
        *required(sa.Text, "encryption_key_id", "status"),
        *required(sa.Integer, "priority", "daily_used", "daily_limit", "consecutive_errors", "total_errors"),
        sa.Column("cooling_until", sa.BigInteger),
        *required(sa.BigInteger, "created_at", "updated_at"),
        sa.Column("used_on", sa.Text, nullable=False),
        sa.Column("last_used_at", sa.BigInteger),
        sa.Column("enabled_at", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("tbl_cookie")
