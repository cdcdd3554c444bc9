"""Sessions of the dashboard."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import required

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "web_sessions",
        sa.Column("digest", sa.Text, primary_key=True),
        *required(sa.Text, "token_digest", "form_key"),
        *required(sa.BigInteger, "created_at", "expires_at"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("web_sessions")
