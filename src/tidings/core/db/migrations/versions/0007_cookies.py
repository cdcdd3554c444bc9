"""Cookies of the user's accounts, encrypted."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "tbl_cookie",
        sa.Column("cookie_name", sa.Text, primary_key=True),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("cookie_encrypted", sa.LargeBinary, nullable=False),
        sa.Column("encryption_key_id", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("daily_used", sa.Integer, nullable=False),
        sa.Column("daily_limit", sa.Integer, nullable=False),
        sa.Column("consecutive_errors", sa.Integer, nullable=False),
        sa.Column("total_errors", sa.Integer, nullable=False),
        sa.Column("cooling_until", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("used_on", sa.Text, nullable=False),
        sa.Column("last_used_at", sa.BigInteger),
        sa.Column("enabled_at", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("tbl_cookie")
