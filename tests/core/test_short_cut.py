"""Looking something up: one statement by itself, the same on both databases."""

import asyncio

from sqlalchemy import bindparam, select

from tidings.core.db.database import Database
from tidings.core.secrets.tokens import tokens

_BY_NAME = select(tokens.c.place, tokens.c.site.label("number")).where(
    tokens.c.name == bindparam("name"), tokens.c.scope == "site"
)


async def _store(database: Database, *, name: str, site: int) -> None:
    values = {"place": f"site:{site}", "digest": f"d{site}", "scope": "site", "site": site, "name": name}
    async with database.write() as connection:
        await connection.execute(database.insert(tokens).values(created_at=0, **values))


async def test_a_statement_finds_what_was_committed_before_it_and_names_its_columns(database: Database) -> None:
    """A36: what a request reads is what the last transaction left, on either database."""
    assert await database.look_up(_BY_NAME, {"name": "one"}) == []
    await _store(database, name="one", site=1)
    await _store(database, name="two", site=2)
    found = await database.look_up(_BY_NAME, {"name": "two"})
    assert [(row.place, row.number) for row in found] == [("site:2", 2)]


async def test_many_at_once_share_one_way(database: Database) -> None:
    """A36: requests that arrive together are all answered."""
    await _store(database, name="one", site=1)
    answers = await asyncio.gather(*(database.look_up(_BY_NAME, {"name": "one"}) for _ in range(50)))
    assert [len(answer) for answer in answers] == [1] * 50


async def test_nothing_uncommitted_is_seen_and_no_writer_is_held_up(database: Database) -> None:
    """A36: a look beside an open transaction sees the state before it, and does not wait for it."""
    async with asyncio.timeout(20), database.write() as connection:
        values = {"place": "site:1", "digest": "d", "scope": "site", "site": 1, "name": "one", "created_at": 0}
        await connection.execute(database.insert(tokens).values(values))
        assert await database.look_up(_BY_NAME, {"name": "one"}) == []
    assert len(await database.look_up(_BY_NAME, {"name": "one"})) == 1


async def test_a_look_that_is_given_up_leaves_the_way_open(database: Database) -> None:
    """A36: a client that goes away costs the next one nothing."""
    await database.look_up(_BY_NAME, {"name": "one"})
    looking = asyncio.create_task(database.look_up(_BY_NAME, {"name": "one"}))
    await asyncio.sleep(0)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    await _store(database, name="one", site=1)
    assert len(await database.look_up(_BY_NAME, {"name": "one"})) == 1
