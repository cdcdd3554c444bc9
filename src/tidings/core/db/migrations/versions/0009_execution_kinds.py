"""A column for the kind of an execution. Until now it followed from the result's first key or the workflow's name."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_VIEW = (
    "CREATE VIEW tbl_crawl_execution AS SELECT workflow_name, public_id AS execution_id, status, started_at, "
    "heartbeat_at, completed_at, items_processed, items_failed FROM executions WHERE "
)


def upgrade() -> None:
    op.execute("DROP VIEW tbl_crawl_execution")
    op.add_column("executions", sa.Column("kind", sa.Text, nullable=False, server_default=sa.text("''")))
    op.execute(
        "UPDATE executions SET kind = CASE "
        "WHEN workflow_name LIKE 'announce:%' AND result LIKE '{\"forgotten\"%' THEN 'correction' "
        "WHEN workflow_name LIKE 'announce:%' THEN 'announce' "
        "WHEN workflow_name = 'mirror' THEN 'mirror' ELSE 'collect' END"
    )
    op.execute(_VIEW + "kind = 'collect'")


def downgrade() -> None:
    op.execute("DROP VIEW tbl_crawl_execution")
    op.drop_column("executions", "kind")
    op.execute(_VIEW + "workflow_name NOT LIKE 'announce:%'")
