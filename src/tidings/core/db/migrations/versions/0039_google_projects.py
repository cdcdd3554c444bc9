"""The Cloud project of a site's Google credentials: sites of one project share the Indexing API's quota."""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"


def upgrade() -> None:
    op.add_column("sites", sa.Column("google_project", sa.Text))
    op.create_index("sites_by_google_project", "sites", ["google_project"])


def downgrade() -> None:
    op.drop_index("sites_by_google_project", "sites")
    op.drop_column("sites", "google_project")
