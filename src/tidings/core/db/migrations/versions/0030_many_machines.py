"""For many machines: the ledger's look-up reads its index alone, statistics by site and totals by day, executions by
kind, and which releases may work side by side.

On PostgreSQL the ledger cannot be written while its key is built, about a minute for each ten million rows.
"""

from alembic import op

from tidings.core.db.compatibility import compatibility
from tidings.core.db.migration_steps import create_daily_stats

revision = "0030"
down_revision = "0029"

# The site number that stands for all sites.
EVERYTHING = 0


def upgrade() -> None:
    change_ledger_key("INCLUDE (submitted_at)")
    change_statistics_key("site", "day", "channel")
    op.execute(
        "INSERT INTO daily_stats (day, site, channel, total, successful) "
        f"SELECT day, {EVERYTHING}, channel, sum(total), sum(successful) FROM daily_stats GROUP BY day, channel"
    )
    op.create_index("executions_by_kind", "executions", ["kind", "id"])
    op.execute("ALTER TABLE alembic_version ADD COLUMN oldest_revision VARCHAR(32)")
    op.execute(compatibility(revision))


def downgrade() -> None:
    op.execute("ALTER TABLE alembic_version DROP COLUMN oldest_revision")
    op.drop_index("executions_by_kind", "executions")
    op.execute(f"DELETE FROM daily_stats WHERE site = {EVERYTHING}")
    change_statistics_key("day", "site", "channel")
    change_ledger_key("")


def change_ledger_key(include: str) -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE ledger DROP CONSTRAINT ledger_pkey")
        op.execute(f"ALTER TABLE ledger ADD PRIMARY KEY (site, channel, url_hash) {include}")


def change_statistics_key(*columns: str) -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("ALTER TABLE daily_stats DROP CONSTRAINT daily_stats_pkey")
        op.execute(f"ALTER TABLE daily_stats ADD PRIMARY KEY ({', '.join(columns)})")
        return
    op.rename_table("daily_stats", "old_daily_stats")
    create_daily_stats(*columns)
    op.execute("INSERT INTO daily_stats SELECT * FROM old_daily_stats")
    op.drop_table("old_daily_stats")
