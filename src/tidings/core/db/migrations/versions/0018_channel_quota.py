"""Channels with a quota beside Bing: one table of quotas and one of resting keys for all of them, and Baidu's token."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import required

revision = "0018"
down_revision = "0016"

BING = 2


def upgrade() -> None:
    op.add_column("sites", sa.Column("baidu_token", sa.LargeBinary))
    move_rests("bing_key_rests", "key_rests")
    op.create_table(
        "channel_quota",
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("channel", sa.SmallInteger, nullable=False),
        sa.Column("day", sa.Text, nullable=False),
        sa.Column("used", sa.Integer, nullable=False),
        sa.Column("allowed", sa.Integer),
        *required(sa.Integer, "in_flight", "sequence"),
        sa.Column("full", sa.Boolean, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("submitted_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("site", "channel", "day"),
        sqlite_with_rowid=False,
    )
    op.execute(
        'INSERT INTO channel_quota (site, channel, day, used, in_flight, sequence, "full", updated_at, submitted_at) '
        f'SELECT site, {BING}, day, used, 0, 0, "full", updated_at, submitted_at FROM bing_quota'
    )
    op.drop_table("bing_quota")


def downgrade() -> None:
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
    op.execute(
        'INSERT INTO bing_quota (site, day, used, "full", updated_at, submitted_at) '
        f'SELECT site, day, used, "full", updated_at, submitted_at FROM channel_quota WHERE channel = {BING}'
    )
    op.drop_table("channel_quota")
    move_rests("key_rests", "bing_key_rests")
    op.drop_column("sites", "baidu_token")


def move_rests(old: str, new: str) -> None:
    """A new table with the rows of the old one: a renamed one would keep the old name in its constraints."""
    op.create_table(
        new,
        sa.Column("key_fingerprint", sa.Text, primary_key=True),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    # Both names are constants of this file.
    op.execute(f"INSERT INTO {new} SELECT key_fingerprint, until, reason FROM {old}")
    op.drop_table(old)
