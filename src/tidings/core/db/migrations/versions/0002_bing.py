"""Bing: the sites' keys, the quota of each day, keys that rest, and for which channels a sitemap file is done with."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import create_validators, drop_tables

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("sites", sa.Column("bing_key", sa.LargeBinary))
    # Created again, empty: each file is then read in full once.
    op.drop_table("sitemap_validators")
    create_validators(sa.Column("channels", sa.SmallInteger, nullable=False))
    op.create_table(
        "bing_quota",
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("used", sa.Integer, nullable=False),
        sa.Column("full", sa.Boolean, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("submitted_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("site", "day"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "bing_key_rests",
        sa.Column("key_fingerprint", sa.Text, primary_key=True),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    drop_tables("bing_key_rests", "bing_quota", "sitemap_validators")
    create_validators()
    op.drop_column("sites", "bing_key")
