"""Tokens in the database: shown once, kept as a hash, replaced and revoked; on both databases."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from multiprocessing.pool import Pool
from typing import Any

import pytest
from sqlalchemy import Executable, text

from tests.fakes import FakeClock
from tests.processes import open_pool, wait_at_line
from tidings.core.clock import SystemClock
from tidings.core.db.database import Database, open_database
from tidings.core.secrets.scopes import Grant, Scope
from tidings.core.secrets.tokens import FIRST_NAME, Tokens, digest_token

SOON = 30.0
PROCESSES = 4


@pytest.fixture
def tokens(database: Database, clock: FakeClock) -> Tokens:
    return Tokens(database, clock=clock)


@pytest.fixture
async def elsewhere(database_url: str, clock: FakeClock) -> AsyncIterator[Tokens]:
    """The same table, as another process sees it."""
    opened = open_database(database_url)
    yield Tokens(opened, clock=clock)
    await opened.close()


class SlowReads:
    """A database whose answers to reads come late: the rows are read, and the reader hears of it when it may."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.insert, self.write, self.change = database.insert, database.write, database.change
        self.reset()

    def reset(self) -> None:
        self.has_read, self.may_answer = asyncio.Event(), asyncio.Event()

    async def fetch_row(self, statement: Executable) -> Any:
        row = await self._database.fetch_row(statement)
        self.has_read.set()
        await self.may_answer.wait()
        return row


async def read_everything(database: Database) -> str:
    async with database.read() as connection:
        return str((await connection.execute(text("SELECT * FROM tokens"))).all())


async def test_a_token_is_strong_and_only_its_hash_is_kept(tokens: Tokens, database: Database) -> None:
    """Design 8: 256 bits behind `tid_`; the table gives nobody a token, and no two are alike."""
    made = [(await tokens.make(Scope.CRAWL, name=str(number))).reveal() for number in range(20)]
    assert len(set(made)) == 20
    assert all(token.startswith("tid_") and len(token) == 4 + 43 for token in made)
    kept = await read_everything(database)
    assert not any(token in kept or token[4:] in kept for token in made)
    assert "tid_" not in kept


@pytest.mark.parametrize("scope", [Scope.ADMIN, Scope.CRAWL, Scope.WORKFLOW, Scope.METRICS])
async def test_a_token_grants_its_scope_until_it_is_revoked(
    tokens: Tokens, elsewhere: Tokens, clock: FakeClock, scope: Scope
) -> None:
    """Design 8: revoked here it is over at once, and in every other process within five seconds."""
    token = (await tokens.make(scope, name="n8n")).reveal()
    grant = Grant(scope=scope, name="n8n")
    assert [await tokens.find(token), await tokens.find(token), await elsewhere.find(token)] == [grant] * 3
    assert await tokens.revoke(scope, name="n8n")
    assert await tokens.find(token) is None
    clock.advance(timedelta(seconds=5))
    assert await elsewhere.find(token) is None
    assert not await tokens.revoke(scope, name="n8n")


async def test_a_new_token_for_a_site_replaces_the_old_one(tokens: Tokens) -> None:
    """A35: one token for a site; the other sites' stay."""
    other = (await tokens.make(Scope.SITE, site=8, name="hook")).reveal()
    old = (await tokens.make(Scope.SITE, site=7, name="hook")).reveal()
    assert await tokens.find(old) == Grant(scope=Scope.SITE, name="hook", site=7)
    new = (await tokens.make(Scope.SITE, site=7, name="another hook")).reveal()
    assert await tokens.find(old) is None
    assert await tokens.find(new) == Grant(scope=Scope.SITE, name="another hook", site=7)
    assert await tokens.revoke(Scope.SITE, site=7)
    assert [await tokens.find(token) is None for token in (new, other)] == [True, False]


async def test_a_token_that_is_revoked_while_it_is_looked_up_is_not_kept(tokens: Tokens) -> None:
    """Design 8: in whichever order the two get through, the next look finds nothing."""
    for _ in range(20):
        token = (await tokens.make(Scope.CRAWL, name="n8n")).reveal()
        await asyncio.gather(tokens.find(token), tokens.revoke(Scope.CRAWL, name="n8n"), tokens.find(token))
        assert await tokens.find(token) is None


async def test_a_look_that_the_revocation_overtakes_is_not_kept(database: Database, clock: FakeClock) -> None:
    """Design 8: the row was read before the token was revoked, and its answer comes after; twice in a row."""
    slow = SlowReads(database)
    tokens = Tokens(slow, clock=clock)  # type: ignore[arg-type] # the same methods
    for _ in range(2):
        token = (await tokens.make(Scope.CRAWL, name="n8n")).reveal()
        looking = asyncio.create_task(tokens.find(token))
        await slow.has_read.wait()
        await tokens.revoke(Scope.CRAWL, name="n8n")
        slow.may_answer.set()
        assert await looking is not None
        assert await tokens.find(token) is None
        slow.reset()


async def test_a_token_that_was_just_found_costs_the_database_nothing(database: Database, clock: FakeClock) -> None:
    """Design 8: for three seconds no request with it waits for a read; after that the table decides again."""
    slow = SlowReads(database)
    tokens = Tokens(slow, clock=clock)  # type: ignore[arg-type] # the same methods
    token = (await tokens.make(Scope.CRAWL, name="n8n")).reveal()
    slow.may_answer.set()
    found = await tokens.find(token)
    assert found is not None
    slow.reset()
    clock.advance(timedelta(seconds=2.9))
    async with asyncio.timeout(SOON):
        assert await tokens.find(token) == found
    assert not slow.has_read.is_set()
    clock.advance(timedelta(seconds=0.2))
    slow.may_answer.set()
    assert await tokens.find(token) == found
    assert slow.has_read.is_set()


@pytest.mark.parametrize(
    "token", ["", "tid_", "tid_" + "A" * 43, "tid_" + "A" * 42, "A" * 47, "tid_\x00" + "A" * 42, "\ud800"]
)
async def test_what_is_no_token_grants_nothing(tokens: Tokens, token: str) -> None:
    """Attack cases "API": no error either, also where every text that was sent is compared by its digest."""
    await tokens.make(Scope.ADMIN, name="ops")
    assert await tokens.find(token) is None
    assert await tokens.find_digest(digest_token(token)) is None


@pytest.mark.parametrize(
    ("scope", "site", "name"), [(Scope.SITE, None, "hook"), (Scope.CRAWL, 7, "n8n"), (Scope.CRAWL, None, "")]
)
async def test_a_token_without_its_place_is_refused(tokens: Tokens, scope: Scope, site: int | None, name: str) -> None:
    """Design 8: a site belongs to the scope site, a name to every other."""
    needs = r"a site's number belongs to a token of scope site, and to no other|a token needs a name"
    with pytest.raises(ValueError, match=rf"^({needs})$"):
        await tokens.make(scope, site=site, name=name)
    assert await tokens.list_all() == []


async def test_a_viewer_s_token_may_be_limited_to_a_group_and_no_other_token_may(tokens: Tokens) -> None:
    """Design 8: the grant and the list name the group; the one that sees all has none."""
    limited = await tokens.make(Scope.VIEWER, name="acme", group="clients")
    free = await tokens.make(Scope.VIEWER, name="boss")
    assert await tokens.find(limited.reveal()) == Grant(scope=Scope.VIEWER, name="acme", group="clients")
    assert await tokens.find(free.reveal()) == Grant(scope=Scope.VIEWER, name="boss", group=None)
    with pytest.raises(ValueError, match=r"^a group belongs to a token of scope viewer, and to no other$"):
        await tokens.make(Scope.ADMIN, name="ops", group="clients")
    assert [(each.name, each.group) for each in await tokens.list_all()] == [("acme", "clients"), ("boss", None)]


async def test_the_list_tells_everything_but_the_tokens(tokens: Tokens, clock: FakeClock) -> None:
    """Design 8: by place, so that the order stays."""
    await tokens.make(Scope.SITE, site=7, name="hook")
    await tokens.make(Scope.CRAWL, name="n8n")
    listed = await tokens.list_all()
    assert [(each.scope, each.site, each.name) for each in listed] == [
        (Scope.CRAWL, None, "n8n"),
        (Scope.SITE, 7, "hook"),
    ]
    assert {each.created_at for each in listed} == {clock.now()}


async def test_the_first_start_makes_an_admin_token_and_no_later_one_does(tokens: Tokens, elsewhere: Tokens) -> None:
    """Design 8: it is shown once; one that got lost can be made again under its name."""
    first = await tokens.ensure_admin()
    assert first is not None
    assert await tokens.find(first.reveal()) == Grant(scope=Scope.ADMIN, name=FIRST_NAME)
    assert [await tokens.ensure_admin(), await elsewhere.ensure_admin()] == [None, None]
    second = await tokens.make(Scope.ADMIN, name=FIRST_NAME)
    assert await tokens.find(first.reveal()) is None
    assert await tokens.find(second.reveal()) is not None


async def test_no_first_token_is_made_beside_another_admin_s(tokens: Tokens) -> None:
    """Design 8: but beside tokens of other scopes it is, for they open no door to more."""
    await tokens.make(Scope.CRAWL, name="n8n")
    await tokens.make(Scope.ADMIN, name="ops")
    assert await tokens.ensure_admin() is None
    await tokens.revoke(Scope.ADMIN, name="ops")
    assert await tokens.ensure_admin() is not None


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Other processes that can start from one line."""
    with open_pool(PROCESSES) as made:
        yield made


def ensure_in_process(url: str) -> str | None:
    async def run() -> str | None:
        database = open_database(url)
        try:
            async with database.read() as connection:
                await connection.execute(text("SELECT 1"))
            wait_at_line(SOON)
            made = await Tokens(database, clock=SystemClock()).ensure_admin()
            return None if made is None else made.reveal()
        finally:
            await database.close()

    return asyncio.run(run())


def test_of_several_processes_that_start_at_once_one_makes_the_token(pool: Pool, database_url: str) -> None:
    """Design 8: the one that is printed is the one that works."""
    made = [token for token in pool.map(ensure_in_process, [database_url] * PROCESSES, chunksize=1) if token]
    assert len(made) == 1
    assert asyncio.run(find_once(database_url, made[0])) == Grant(scope=Scope.ADMIN, name=FIRST_NAME)


async def find_once(url: str, token: str) -> Grant | None:
    database = open_database(url)
    try:
        assert len(await Tokens(database, clock=SystemClock()).list_all()) == 1
        return await Tokens(database, clock=SystemClock()).find(token)
    finally:
        await database.close()
