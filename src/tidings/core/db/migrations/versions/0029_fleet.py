"""Groups of sites, tokens that see one group, and the secret of a site's deploy hooks."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.add_column("sites", sa.Column("hook_secret", sa.LargeBinary))
    op.add_column("sites", sa.Column("group_name", sa.Text))
    op.add_column("tokens", sa.Column("group_name", sa.Text))


def downgrade() -> None:
    op.drop_column("tokens", "group_name")
    op.drop_column("sites", "group_name")
    op.drop_column("sites", "hook_secret")
