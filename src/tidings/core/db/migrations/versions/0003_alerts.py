"""Alerts: the conditions that hold, and the events on their way to people."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    create_conditions()
    create_outbox()


def create_conditions() -> None:
    op.create_table(
        "alert_conditions",
        sa.Column("id", ROW_ID, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("count", sa.BigInteger),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("fires_at", sa.BigInteger, nullable=False),
        sa.Column("fired_at", sa.BigInteger),
        sa.UniqueConstraint("kind", "subject"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "alert_conditions_waiting",
        "alert_conditions",
        ["fires_at"],
        sqlite_where=sa.text("fired_at IS NULL"),
        postgresql_where=sa.text("fired_at IS NULL"),
    )


def create_outbox() -> None:
    op.create_table(
        "alert_outbox",
        sa.Column("id", ROW_ID, primary_key=True),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("destination", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("count", sa.BigInteger),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("occurred_at", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("waited", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("failure", sa.Text),
        sa.Column("finished_at", sa.BigInteger),
        sa.UniqueConstraint("event_id", "destination"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "alert_outbox_pending",
        "alert_outbox",
        ["destination", "kind", "subject", "id"],
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )


def downgrade() -> None:
    op.drop_table("alert_outbox")
    op.drop_table("alert_conditions")
