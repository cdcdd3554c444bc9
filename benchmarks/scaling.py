"""What many rows cost on PostgreSQL, before and after the migration for many machines, on generated data.

    python -m benchmarks.scaling [--rows N]

Needs no service: it starts a PostgreSQL of its own, and 200 bytes of disk for each row. `docs/scaling.md` has figures.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from benchmarks.postgresql import start_server, tidy_tables
from tidings.core.db.database import Database, open_database
from tidings.core.db.revisions import upgrade_database

BEFORE, AFTER = "0029", "0030"
PAGES = 10_000
SITES = 100_000
DAYS = 30
EXECUTIONS = 500_000
TIMES = 7

_LEDGER = (
    "INSERT INTO ledger (site, channel, url_hash, submitted_at, lastmod) "
    "SELECT 1 + n % :sites, 1, hashint8extended(n, 7), 1800000000000 + n % 1000000, 1700000000000 + n % 1000000 "
    "FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS n"
)
_STATISTICS = (
    "INSERT INTO daily_stats (day, site, channel, total, successful) "
    "SELECT to_char(date '2030-01-01' + day, 'YYYY-MM-DD'), site, 1, 12, 11 "
    "FROM generate_series(1, :days) AS day CROSS JOIN generate_series(1, :sites) AS site"
)
_EXECUTIONS = (
    "INSERT INTO executions (public_id, workflow_name, kind, status, holder, started_at, heartbeat_at) "
    "SELECT 'exec-' || n, 'announce:site-' || n % 1000, 'announce', 'succeeded', 'x', n, n "
    "FROM generate_series(1, :count) AS n"
)
# The look-up of a block, as the ledger asks it.
_LOOK_UP = (
    "SELECT min(known.submitted_at), array_agg(asked.url_hash) "
    "FILTER (WHERE known.url_hash IS NULL OR known.submitted_at < 1700000000000) "
    "FROM (SELECT unnest(CAST(:hashes AS bigint[])) AS url_hash) AS asked LEFT JOIN ledger AS known "
    "ON known.site = 5 AND known.channel = 1 AND known.url_hash = asked.url_hash"
)
_DAY_BEFORE = "SELECT channel, sum(total), sum(successful) FROM daily_stats WHERE day = '2030-01-31' GROUP BY channel"
_MONTH_BEFORE = (
    "SELECT day, channel, sum(total), sum(successful) FROM daily_stats WHERE day >= '2030-01-02' GROUP BY day, channel"
)
_SITE_MONTH = "SELECT * FROM daily_stats WHERE site = 77 AND day >= '2030-01-02'"
_DAY_AFTER = "SELECT * FROM daily_stats WHERE site = 0 AND day = '2030-01-31'"
_MONTH_AFTER = "SELECT * FROM daily_stats WHERE site = 0 AND day >= '2030-01-02'"
_COLLECT = "SELECT * FROM executions WHERE kind = 'collect' ORDER BY id DESC LIMIT 20"


async def measure(url: str, *, rows: int) -> None:
    database = open_database(url)
    await upgrade_database(database, revision=BEFORE)
    await _fill(database, rows=rows)
    await _report(database, "before", day=_DAY_BEFORE, month=_MONTH_BEFORE)
    began = time.perf_counter()
    await upgrade_database(database, revision=AFTER)
    print(f"the migration took {time.perf_counter() - began:.0f} s")
    await _report(database, "after", day=_DAY_AFTER, month=_MONTH_AFTER)
    await database.close()


async def _fill(database: Database, *, rows: int) -> None:
    """All rows; the ledger's key is built once they are there."""
    async with database.write() as connection:
        await connection.execute(text("SET LOCAL synchronous_commit = off"))
        await connection.execute(text("ALTER TABLE ledger DROP CONSTRAINT ledger_pkey"))
        sites = max(1, rows // PAGES)
        for first in range(0, rows, 1_000_000):
            values = {"sites": sites, "first": first, "last": min(rows, first + 1_000_000) - 1}
            await connection.execute(text(_LEDGER), values)
            print(f"{values['last'] + 1:,} rows", flush=True)
        await connection.execute(text("ALTER TABLE ledger ADD PRIMARY KEY (site, channel, url_hash)"))
        await connection.execute(text(_STATISTICS), {"days": DAYS, "sites": SITES})
        await connection.execute(text(_EXECUTIONS), {"count": EXECUTIONS})


async def _report(database: Database, name: str, *, day: str, month: str) -> None:
    await asyncio.to_thread(tidy_tables, database.url.render_as_string(hide_password=False))
    async with database.read() as connection:
        sizes = (await connection.execute(text(_SIZES))).one()
        print(f"## {name}\nledger {int(sizes.tables) / 1e6:,.0f} MB, its key {int(sizes.keys) / 1e6:,.0f} MB")
        hashes = list((await connection.execute(text("SELECT url_hash FROM ledger WHERE site = 5"))).scalars())
        hashes.sort()
        questions: dict[str, tuple[str, dict[str, Any]]] = {
            f"look up {len(hashes):,} pages of a site": (_LOOK_UP, {"hashes": hashes}),
            "pages of today, all sites": (day, {}),
            f"pages of {DAYS} days, all sites": (month, {}),
            f"pages of {DAYS} days, one site": (_SITE_MONTH, {}),
            f"collect's latest of {EXECUTIONS:,} executions": (_COLLECT, {}),
        }
        for question, (statement, values) in questions.items():
            milliseconds, pages = await _explain(connection, statement, values)
            print(f"| {question} | {milliseconds:.1f} ms | {pages:,} pages |", flush=True)


_SIZES = (
    "SELECT sum(pg_relation_size(inhrelid)) AS tables, sum(pg_indexes_size(inhrelid)) AS keys "
    "FROM pg_inherits WHERE inhparent = 'ledger'::regclass"
)


async def _explain(connection: AsyncConnection, statement: str, values: dict[str, Any]) -> tuple[float, int]:
    """Median time within the database, and the pages of tables and indexes that it read."""
    found = []
    for _ in range(TIMES):
        explained = text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}")
        [plan] = (await connection.execute(explained, values)).scalar_one()
        buffers = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
        found.append((plan["Execution Time"], buffers))
    return statistics.median(time for time, _ in found), found[-1][1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder, start_server(Path(folder)) as server:
        asyncio.run(measure(server.make_database(), rows=rows))


if __name__ == "__main__":
    main()
