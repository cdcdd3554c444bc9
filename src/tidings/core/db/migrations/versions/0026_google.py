"""Google: its credentials for a site, the sitemaps that were submitted, and checksums of sitemap files."""

import sqlalchemy as sa
from alembic import op

from tidings.core.db.migration_steps import optional, required

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("sites", sa.Column("google_credentials", sa.LargeBinary))
    op.add_column("sitemap_validators", sa.Column("digest", sa.BigInteger))
    op.create_table(
        "google_sitemaps",
        sa.Column("site", sa.BigInteger, nullable=False),
        sa.Column("sitemap", sa.Text, nullable=False),
        sa.Column("identity", sa.Text),
        *optional(sa.BigInteger, "fingerprint", "submitted_at"),
        sa.Column("asked_at", sa.BigInteger, nullable=False),
        sa.Column("downloaded_at", sa.BigInteger),
        sa.Column("pending", sa.Boolean, nullable=False),
        *required(sa.Integer, "warnings", "errors"),
        sa.Column("failure", sa.Text),
        sa.PrimaryKeyConstraint("site", "sitemap"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("google_sitemaps")
    op.drop_column("sitemap_validators", "digest")
    op.drop_column("sites", "google_credentials")
