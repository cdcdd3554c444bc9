"""The way from a row for each page and engine to the outbox, and back: nothing that was open is lost."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from tidings.announce.ledger.failed_pages import FailedPages
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.outbox import Outbox
from tidings.core.db.database import Database, open_database
from tidings.core.db.revisions import downgrade_database, upgrade_database

BEFORE, AFTER = "0009", "head"
ALPHA, BETA = "https://alpha.example/indexnow", "https://beta.example/indexnow"
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
NAMES = (
    *("site", "channel", "engine", "url_hash", "url", "lastmod", "removed"),
    *("reason", "attempts", "failed_at", "created_in", "attempted_in", "delivered_in"),
)


@pytest.fixture
async def older(empty_url: str) -> AsyncIterator[Database]:
    """A database with the tables of before."""
    database = open_database(empty_url)
    await upgrade_database(database, revision=BEFORE)
    yield database
    await database.close()


def make_row(url_hash: int, engine: str = ALPHA, **values: Any) -> dict[str, Any]:
    """A page that has yet to be sent, unless `values` say otherwise."""
    row: dict[str, Any] = {
        **dict.fromkeys(NAMES),
        "site": 1,
        "channel": Channel.INDEXNOW.value,
        "engine": engine,
        "url_hash": url_hash,
        "url": f"https://example.com/{url_hash}?页=1",
        "removed": False,
        "attempts": 0,
        "created_in": 7,
    }
    return {**row, **values}


def make_failed(url_hash: int, engine: str = ALPHA, **values: Any) -> dict[str, Any]:
    failure = {"reason": "HTTP 503", "attempts": 4, "failed_at": 1_800_000_000_000, "attempted_in": 7}
    return make_row(url_hash, engine, **{**failure, **values})


ROWS = [
    make_failed(LOWEST),
    make_failed(LOWEST, BETA, reason="HTTP 422", attempts=9),
    make_failed(-1, lastmod=5),
    make_row(-1, BETA, lastmod=5),
    make_failed(3, failed_at=1_700_000_000_000),
    make_row(HIGHEST, BETA),
    make_failed(8, removed=True),
    make_failed(3, site=2),
    *(make_failed(number, "bing", channel=Channel.BING.value) for number in range(250)),
]


async def insert(database: Database, table: str, rows: list[dict[str, Any]]) -> None:
    names = list(rows[0])
    statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"
    async with database.write() as connection:
        await connection.execute(text(statement), rows)


async def read_rows(database: Database) -> list[dict[str, Any]]:
    statement = text(f"SELECT {', '.join(NAMES)} FROM undelivered ORDER BY site, channel, url_hash, engine")
    async with database.write() as connection:
        rows = [dict(row._mapping) for row in await connection.execute(statement)]
    return [{**row, "removed": bool(row["removed"])} for row in rows]


def order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["site"], row["channel"], row["url_hash"], row["engine"]))


@pytest.mark.thorough
async def test_everything_that_was_open_is_in_the_outbox(older: Database) -> None:
    """A13, A18, A41: by site, channel and engine, with reason, attempts and time; what was delivered is not."""
    delivered = make_row(99, delivered_in=7)
    await insert(older, "undelivered", [*ROWS, delivered])
    await insert(older, "ledger", [{"site": 1, "channel": 1, "url_hash": -1, "submitted_at": 5, "lastmod": None}])
    await upgrade_database(older, revision=AFTER)
    for site, channel in {(row["site"], row["channel"]) for row in ROWS}:
        ours = [row for row in ROWS if (row["site"], row["channel"]) == (site, channel)]
        outbox = Outbox(older, site=site, channel=Channel(channel), execution=8)
        failed = {
            (page.url, page.engine, page.reason, page.attempts, int(page.failed_at.timestamp() * 1000))
            for page in await FailedPages(older, site=site, channel=Channel(channel)).list(limit=10_000)
        }
        fields = ("url", "engine", "reason", "attempts", "failed_at")
        assert failed == {tuple(row[name] for name in fields) for row in ours if row["reason"]}
        engines = {row["engine"] for row in ours}
        opened = await outbox.list_open(engines)
        for engine in engines:
            for removed in (False, True):
                found = set(opened[removed].get(engine, ()))
                expected = {row["url_hash"] for row in ours if (row["engine"], row["removed"]) == (engine, removed)}
                assert found == expected
    claimed = await Outbox(older, site=1, channel=Channel.INDEXNOW, execution=8).claim(ALPHA, failed=True, limit=10)
    assert claimed is not None
    assert (claimed.keys.hashes[0], claimed.repeated) == (3, 3)
    assert list(claimed.keys.lastmods)[list(claimed.keys.hashes).index(-1)] == 5


@pytest.mark.thorough
async def test_a_page_that_another_engine_took_is_known_as_entered(older: Database) -> None:
    """A11, A37: taken by the slower engine after the migration, it is not counted as new."""
    await insert(older, "undelivered", ROWS)
    await insert(older, "ledger", [{"site": 1, "channel": 1, "url_hash": -1, "submitted_at": 5, "lastmod": None}])
    await upgrade_database(older, revision=AFTER)
    outbox = Outbox(older, site=1, channel=Channel.INDEXNOW, execution=8)
    claimed = await outbox.claim(BETA, failed=False, limit=10)
    assert claimed is not None
    async with older.write() as connection:
        states = [await outbox.read_state(connection, segment) for segment in claimed.segments]
    assert [bin(state.entered).count("1") for state in states] == [1]


@pytest.mark.thorough
async def test_the_way_back_restores_every_row(older: Database) -> None:
    """A41: the release of before goes on where this one stopped; files are read in full once, as it expects."""
    await insert(older, "undelivered", ROWS)
    validators = {"site": 1, "sitemap": 1, "pages": 1, "oldest": 1, "channels": 1}
    await insert(older, "sitemap_validators", [validators])
    await upgrade_database(older, revision=AFTER)
    await downgrade_database(older, revision=BEFORE)
    restored = await read_rows(older)
    assert restored == order(ROWS)
    async with older.write() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM sitemap_validators"))).scalar_one() == 0
    await upgrade_database(older, revision=AFTER)
    assert len(await FailedPages(older, site=1, channel=Channel.BING).list(limit=1_000)) == 250
