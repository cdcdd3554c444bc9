"""Bing: the sites' keys, the quota of each day, keys that rest, and for which channels a sitemap file is done with."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("sites", sa.Column("bing_key", sa.LargeBinary))
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
    op.drop_table("bing_key_rests")
    op.drop_table("bing_quota")
    create_validators()
    op.drop_column("sites", "bing_key")


def create_validators(*added: sa.Column[int]) -> None:
    """Create the table again, empty: each file is then read in full once."""
    op.drop_table("sitemap_validators")
    op.create_table(
        "sitemap_validators",
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("sitemap", sa.BigInteger, nullable=False),
        sa.Column("etag", sa.Text),
        sa.Column("last_modified", sa.Text),
        sa.Column("pages", sa.BigInteger, nullable=False),
        sa.Column("oldest", sa.BigInteger, nullable=False),
        *added,
        sa.PrimaryKeyConstraint("site", "sitemap"),
        sqlite_with_rowid=False,
    )
