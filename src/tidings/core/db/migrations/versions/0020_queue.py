"""Executions that wait for a worker, requests to stop them, and the workers."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import required

revision = "0020"
down_revision = "0018"


def upgrade() -> None:
    op.add_column("executions", sa.Column("request", sa.Text))
    op.add_column("executions", sa.Column("stop_requested_at", sa.BigInteger))
    op.create_table(
        "workers",
        sa.Column("process", sa.Text, primary_key=True),
        *required(sa.Text, "name", "machine", "release", "queues"),
        *required(sa.BigInteger, "places", "started_at"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("workers")
    # An earlier release does not know the holder `queue`, and would wait half an hour for it.
    op.execute(
        "UPDATE executions SET status = 'interrupted', completed_at = started_at "
        "WHERE status = 'running' AND holder = 'queue'"
    )
    op.drop_column("executions", "stop_requested_at")
    op.drop_column("executions", "request")
