"""Alerts: the conditions that hold, and the events on their way to people."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import ROW_ID, create_partial_index, drop_tables, required

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    create_conditions()
    create_outbox()


def create_conditions() -> None:
    op.create_table(
        "alert_conditions",
        sa.Column("id", ROW_ID, primary_key=True),
        *required(sa.Text, "kind", "subject", "reason", "action"),
        sa.Column("count", sa.BigInteger),
        *required(sa.BigInteger, "since", "fires_at"),
        sa.Column("fired_at", sa.BigInteger),
        sa.UniqueConstraint("kind", "subject"),
        sqlite_autoincrement=True,
    )
    create_partial_index("alert_conditions_waiting", "alert_conditions", ["fires_at"], "fired_at IS NULL")


def create_outbox() -> None:
    op.create_table(
        "alert_outbox",
        sa.Column("id", ROW_ID, primary_key=True),
        *required(sa.Text, "event_id", "destination", "type", "kind", "subject", "reason", "action"),
        sa.Column("count", sa.BigInteger),
        *required(sa.BigInteger, "since", "occurred_at"),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("waited", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("failure", sa.Text),
        sa.Column("finished_at", sa.BigInteger),
        sa.UniqueConstraint("event_id", "destination"),
        sqlite_autoincrement=True,
    )
    columns = ["destination", "kind", "subject", "id"]
    create_partial_index("alert_outbox_pending", "alert_outbox", columns, "state = 'pending'")


def downgrade() -> None:
    drop_tables("alert_outbox", "alert_conditions")
