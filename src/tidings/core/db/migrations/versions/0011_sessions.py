"""Sessions of the dashboard."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "web_sessions",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("token_digest", sa.Text, nullable=False),
        sa.Column("form_key", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("web_sessions")
