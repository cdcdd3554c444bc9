"""Many sites with a long past, made at once: as if every one of them had run every day. Sites are stored by Tidings
itself, with keys of their own; of the past, which nobody could make row by row, each table gets its share in one
statement.
"""

import asyncio
from datetime import UTC, datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.schema import CreateIndex, DropIndex

from tidings.announce.site.channel_settings import BingSettings
from tidings.announce.site.site import make_site
from tidings.announce.site.table import Origin
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database
from tidings.core.execution_table import executions, store_outcomes
from tidings.core.secrets.redaction import Redactor
from tidings.settings.settings import read_settings
from tidings.wiring.opening import open_installation

_DAYS = (
    "WITH RECURSIVE days(day) AS "
    "(SELECT CAST(:first AS BIGINT) UNION ALL SELECT day + 1 FROM days WHERE day + 1 < :last) "
)
_EXECUTIONS = (
    "INSERT INTO executions (public_id, workflow_name, kind, status, holder, started_at, heartbeat_at, completed_at, "
    f"items_processed, items_failed, progress, result) {_DAYS}"
    "SELECT 'exec-' || CAST(:now - day * 86400000 AS TEXT) || '-' || CAST(number AS TEXT), 'announce:' || id, "
    "'announce', 'succeeded', 'elsewhere/1', :now - day * 86400000, :now - day * 86400000, :now - day * 86400000 "
    '+ 4000, 12, 0, NULL, \'{"status": "succeeded", "total": 3000, "submitted": 12}\' FROM days CROSS JOIN sites '
    "WHERE sites.id LIKE 'many-%' ORDER BY day DESC"
)
_QUOTAS = (
    'INSERT INTO channel_quota (site, channel, day, used, in_flight, sequence, "full", updated_at, submitted_at) '
    f"{_DAYS}SELECT number, 2, {{date}}, 12, 0, 0, {{no}}, :now - day * 86400000, :now - day * 86400000 "
    "FROM days CROSS JOIN sites "
    "WHERE sites.id LIKE 'many-%' ORDER BY number, day DESC"
)
_STATISTICS = (
    f"INSERT INTO daily_stats (day, site, channel, total, successful) {_DAYS}"
    "SELECT {date}, number, channel, 12 + (number + day) % 90, 12 + (number + day) % 90 - (number + day) % 7 / 6 "
    "FROM days CROSS JOIN sites CROSS JOIN (SELECT 1 AS channel UNION ALL SELECT 2) AS channels "
    "WHERE sites.id LIKE 'many-%' ORDER BY 1, number, channel"
)
_TOTALS = (
    "INSERT INTO daily_stats (day, site, channel, total, successful) "
    "SELECT day, 0, channel, sum(total), sum(successful) FROM daily_stats WHERE site <> 0 GROUP BY day, channel "
    # The past is made in two steps, and both end with this.
    "ON CONFLICT (site, day, channel) DO UPDATE SET total = excluded.total, successful = excluded.successful"
)
# Not all is well everywhere: of the last executions one in 40 was partial, and one in 200 failed.
_TROUBLES = (
    "UPDATE executions SET status = CASE WHEN id % 200 = 0 THEN 'failed' ELSE 'partial' END "
    "WHERE id % 40 = 0 AND started_at = :now"
)


def name_site(number: int) -> str:
    return f"many-{number:05}"


def fill_sites(environment: dict[str, str], *, sites: int) -> None:
    """Store so many sites; half a day passes before any of them is due."""
    asyncio.run(_fill_sites(environment, sites=sites))


async def _fill_sites(environment: dict[str, str], *, sites: int) -> None:
    schedule = f"0 {(datetime.now(UTC).hour + 12) % 24} * * *"
    async with (
        open_installation(read_settings(environment), redactor=Redactor()) as installation,
        installation.database.write() as connection,
    ):
        for number in range(sites):
            site = make_site(
                site_id=name_site(number),
                sitemap_urls=[f"https://site-{number}.example.com/sitemap.xml"],
                key=f"benchmark-key-{number:08}",
                schedule=schedule,
                bing=BingSettings.make(enabled=True, key=f"benchmark-bing-{number:08}"),
            )
            # What `save` does, in one transaction for all: the disk would be asked ten thousand times otherwise.
            await installation.sites._store(connection, site, origin=Origin.API)


def add_past(environment: dict[str, str], *, first: int, last: int) -> None:
    """Let every site have run on each of the days from `first` to before `last`, counted back from today."""
    asyncio.run(_add_past(environment, first=first, last=last))


async def _add_past(environment: dict[str, str], *, first: int, last: int) -> None:
    async with open_installation(read_settings(environment), redactor=Redactor()) as installation:
        async with installation.database.write() as connection:
            await _insert(connection, installation.database, first=first, last=last)
        if installation.database.dialect == "postgresql":
            await _analyze(installation.database)


async def _insert(connection: AsyncConnection, database: Database, *, first: int, last: int) -> None:
    values = {"first": first, "last": last, "now": to_milliseconds(datetime.now(UTC))}
    lite = database.dialect == "sqlite"
    date = (
        "date('now', '-' || day || ' days')"
        if lite
        else "to_char(now() AT TIME ZONE 'UTC' - day * interval '1 day', 'YYYY-MM-DD')"
    )
    # The index is left out while the rows are made, and built in one go after that.
    [history] = [index for index in executions.indexes if index.name == "executions_history"]
    await connection.execute(DropIndex(history))
    await connection.execute(text(_EXECUTIONS), values)
    await connection.execute(CreateIndex(history))
    await connection.execute(text(_QUOTAS.format(date=date, no="0" if lite else "false")), values)
    await connection.execute(text(_STATISTICS.format(date=date)), values)
    await connection.execute(text(_TOTALS))
    await connection.execute(text(_TROUBLES), values)
    await store_outcomes(database, connection, executions.c.started_at == values["now"])


async def _analyze(database: Database) -> None:
    """What a server does by itself after a while."""
    async with database.write() as connection:
        await connection.execute(text("ANALYZE"))
