"""The ledger: what is entered is known, for one site and one channel, until it expires; nothing else is."""

import random
from collections.abc import Iterable, Mapping
from datetime import timedelta

import pytest
from sqlalchemy import text

from tidings.announce.due.pages import Page, Pages
from tidings.announce.due.rules import DueRules
from tidings.announce.ledger.ledger import PARTITIONS, Channel, Entry, Ledger
from tidings.core.db.database import Database, open_database

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
EDGES = [LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST - 1, HIGHEST]
NOON = 1_800_000_000_000
DAY = 24 * 60 * 60 * 1_000


def make_pages(lastmods: Mapping[int, int | None]) -> Pages:
    return Pages.gather(Page(url_hash, f"https://example.com/{url_hash}", at) for url_hash, at in lastmods.items())


async def enter(
    database: Database, ledger: Ledger, hashes: Iterable[int], *, at: int, lastmod: int | None = None
) -> None:
    async with database.write() as connection:
        await ledger.enter(connection, make_pages(dict.fromkeys(hashes, lastmod)), at=at)


@pytest.fixture
def ledger(database: Database) -> Ledger:
    return Ledger(database, site=1, channel=Channel.INDEXNOW)


async def test_nothing_is_known_of_an_empty_ledger(database: Database, ledger: Ledger) -> None:
    """A11: only what was entered is known, and entering no pages enters nothing."""
    await enter(database, ledger, [], at=NOON)
    look = await ledger.look_up(EDGES, older_than=0)
    assert (sorted(look.suspects), look.oldest) == (EDGES, None)
    assert await ledger.find_entries(EDGES) == {}
    empty = await ledger.look_up([], older_than=NOON)
    assert (empty.suspects, empty.oldest) == ([], None)


async def test_an_entry_counts_for_its_own_site_and_channel_only(database: Database, ledger: Ledger) -> None:
    """A10: sent over IndexNow, still due for Bing; and what one takes out or forgets, the other keeps."""
    await enter(database, ledger, EDGES, at=NOON)
    for site, channel in [(1, Channel.BING), (2, Channel.INDEXNOW), (-1, Channel.INDEXNOW), (HIGHEST, Channel.BING)]:
        other = Ledger(database, site=site, channel=channel)
        assert sorted((await other.look_up(EDGES, older_than=0)).suspects) == EDGES
        assert await other.find_entries(EDGES) == {}
        await enter(database, other, EDGES, at=NOON + 1)
        async with database.write() as connection:
            await other.remove(connection, [0])
            assert await other.forget(connection, since=NOON + 1) == len(EDGES) - 1
            assert await other.purge(connection, before=HIGHEST) == 0
        assert await ledger.find_entries(EDGES) == dict.fromkeys(EDGES, Entry(NOON, None))


async def test_expiry_follows_the_time_to_live_of_today(database: Database, ledger: Ledger) -> None:
    """A11: an entry has no expiry of its own, so another CACHE_TTL_DAYS takes effect at once."""
    await enter(database, ledger, [7], at=NOON)

    async def is_due(days: int, *, now: int) -> bool:
        rules = DueRules(time_to_live=timedelta(days=days))
        return bool((await ledger.look_up([7], older_than=rules.expired_before(now))).suspects)

    assert not await is_due(30, now=NOON + 30 * DAY)
    assert await is_due(30, now=NOON + 30 * DAY + 1)
    assert await is_due(29, now=NOON + 30 * DAY)
    assert not await is_due(31, now=NOON + 30 * DAY + 1)


async def test_a_page_that_is_entered_again_counts_from_then_on(database: Database, ledger: Ledger) -> None:
    """A11: an expired entry is replaced, time and lastmod, not left as it was."""
    await enter(database, ledger, [1, 2], at=NOON - 90 * DAY, lastmod=5)
    await enter(database, ledger, [2, 3], at=NOON, lastmod=None)
    look = await ledger.look_up([1, 2, 3], older_than=NOON - 30 * DAY)
    assert (look.suspects, look.oldest) == ([1], NOON - 90 * DAY)
    expected = {1: Entry(NOON - 90 * DAY, 5), 2: Entry(NOON, None), 3: Entry(NOON, None)}
    assert await ledger.find_entries([1, 2, 3]) == expected
    await enter(database, ledger, [2], at=NOON + 1, lastmod=9)
    assert await ledger.find_entries([2]) == {2: Entry(NOON + 1, 9)}


async def test_a_transaction_that_fails_enters_nothing(database: Database, ledger: Ledger) -> None:
    """A11: success is entered with everything else that belongs to it, or not at all."""

    async def enter_and_fail() -> None:
        async with database.write() as connection:
            await ledger.enter(connection, make_pages({1: None}), at=NOON)
            raise LookupError

    with pytest.raises(LookupError):
        await enter_and_fail()
    assert await ledger.find_entries([1]) == {}


@pytest.mark.thorough
async def test_random_use_agrees_with_a_dictionary(database: Database, ledger: Ledger) -> None:
    """A10, A11: thousands of hashes over the whole 64 bits, entered, looked up, taken out, forgotten and purged."""
    chance = random.Random(10)
    pool = EDGES + [chance.randint(LOWEST, HIGHEST) for _ in range(6_000)]
    model: dict[int, Entry] = {}
    fresh = 0
    for turn in range(12):
        at = NOON + turn * DAY
        entered = {url_hash: chance.choice([None, 0, at - 1, HIGHEST]) for url_hash in chance.sample(pool, 1_000)}
        taken_out = chance.sample(pool, 100)
        async with database.write() as connection:
            await ledger.enter(connection, make_pages(entered), at=at)
            await ledger.remove(connection, taken_out)
        model |= {url_hash: Entry(at, lastmod) for url_hash, lastmod in entered.items()}
        model = {url_hash: entry for url_hash, entry in model.items() if url_hash not in taken_out}
        if turn % 5 == 4:
            model = await forget_and_purge(database, ledger, model, since=at, before=NOON + (turn - 3) * DAY)
        asked = EDGES + chance.choices(pool, k=4_000)
        fresh += await check_against(
            model, ledger, asked, older_than=NOON + chance.randint(0, turn) * DAY + chance.choice([0, 1])
        )
    assert fresh > 1_000


async def forget_and_purge(
    database: Database, ledger: Ledger, model: dict[int, Entry], *, since: int, before: int
) -> dict[int, Entry]:
    left = {url_hash: entry for url_hash, entry in model.items() if before <= entry.submitted_at < since}
    async with database.write() as connection:
        gone = await ledger.forget(connection, since=since) + await ledger.purge(connection, before=before)
    assert gone == len(model) - len(left) > 0
    return left


async def check_against(model: dict[int, Entry], ledger: Ledger, asked: list[int], *, older_than: int) -> int:
    look = await ledger.look_up(asked, older_than=older_than)
    known = {url_hash: model[url_hash] for url_hash in asked if url_hash in model}
    unknown_or_old = {h for h in asked if h not in known or known[h].submitted_at < older_than}
    assert set(look.suspects) == unknown_or_old
    assert look.oldest == min((entry.submitted_at for entry in known.values()), default=None)
    assert await ledger.find_entries(asked) == known
    return len(set(asked) - unknown_or_old)


async def test_forgetting_undoes_what_was_entered_since_and_nothing_before(database: Database, ledger: Ledger) -> None:
    """A11: a bad run is undone to the millisecond; the pages it entered are due again."""
    for offset in (-1, 0, 1):
        await enter(database, ledger, [offset], at=NOON + offset)
    async with database.write() as connection:
        assert await ledger.forget(connection, since=NOON) == 2
    assert list(await ledger.find_entries([-1, 0, 1])) == [-1]
    assert sorted((await ledger.look_up([-1, 0, 1], older_than=0)).suspects) == [0, 1]


async def test_purging_deletes_what_is_older_and_nothing_else(database: Database, ledger: Ledger) -> None:
    """A11: the clean-up takes what expired long ago."""
    for offset in (-1, 0, 1):
        await enter(database, ledger, [offset], at=NOON + offset)
    async with database.write() as connection:
        assert await ledger.purge(connection, before=NOON) == 1
    assert sorted(await ledger.find_entries([-1, 0, 1])) == [0, 1]


async def test_sites_are_spread_over_partitions_and_a_site_lies_in_one(postgres_url: str) -> None:
    """A10: on PostgreSQL, so that one site's millions do not slow another's look-ups."""
    database = open_database(postgres_url)
    for site in range(1, 65):
        await enter(database, Ledger(database, site=site, channel=Channel.INDEXNOW), EDGES, at=NOON)
    async with database.read() as connection:
        placed = await connection.execute(text("SELECT DISTINCT site, CAST(tableoid AS regclass)::text FROM ledger"))
        rows = placed.all()
    await database.close()
    assert sorted(row[0] for row in rows) == list(range(1, 65))
    partitions = {row[1] for row in rows}
    assert partitions <= {f"ledger_{number}" for number in range(PARTITIONS)}
    assert len(partitions) > PARTITIONS // 2
