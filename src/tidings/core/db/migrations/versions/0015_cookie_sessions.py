"""The browser that a cookie came from, and the latest end of its session."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("tbl_cookie", sa.Column("user_agent", sa.Text))
    op.add_column("tbl_cookie", sa.Column("expires_at", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("tbl_cookie", "expires_at")
    op.drop_column("tbl_cookie", "user_agent")
