"""Real processes: two APIs on one PostgreSQL never hold one cookie at once, a killed one holds nothing, and a key
rotation that is killed anywhere leaves every cookie readable."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from tests.collect.cookie_stage import IMPATIENT, PLATFORM, SOON, add_cookies, make_pool, value_of
from tests.processes import FORKED
from tidings.collect.crawl.cookies.table import open_cookie
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.write.cookies import CookieRecords
from tidings.core.clock import SystemClock
from tidings.core.db.database import Database, open_database, open_read_only_database
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import new_master_key

pytestmark = pytest.mark.slow

REQUESTS = 120
PATIENCE = timedelta(seconds=SOON)


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator[Database]:
    opened = open_database(postgres_url)
    yield opened
    await opened.close()


def serve_requests(url: str, key: str, folder: Path, barrier: Any, counts: Any) -> None:
    """In another process: many requests at once, each of which makes a file that must not be there yet."""

    async def request(pool: Any) -> None:
        async with pool.lease(PLATFORM) as leased:
            witness = folder / leased.name
            witness.touch(exist_ok=False)
            await asyncio.sleep(0.002)
            witness.unlink()

    async def run() -> None:
        database = open_read_only_database(url)
        pool = make_pool(database, keys=KeyRing.parse(key), patience=PATIENCE, reread_after=timedelta(seconds=1))
        barrier.wait(SOON)
        answers = await asyncio.gather(*(request(pool) for _ in range(REQUESTS)), return_exceptions=True)
        counts.put([repr(answer) for answer in answers if answer is not None])
        await database.close()

    asyncio.run(run())


async def test_two_processes_on_postgresql_never_hold_one_cookie_at_once(
    postgres: Database, postgres_url: str, tmp_path: Path
) -> None:
    """C18: 240 requests over three cookies, all served, each cookie by one process at a time."""
    key = new_master_key()
    await add_cookies(
        CookieRecords(postgres, keys=KeyRing.parse(key), clock=SystemClock()), "a", "b", "c", daily_limit=999
    )
    barrier, counts = FORKED.Barrier(2), FORKED.Queue()
    processes = [
        FORKED.Process(target=serve_requests, args=(postgres_url, key, tmp_path, barrier, counts)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    troubles = [await asyncio.to_thread(counts.get, True, 2 * SOON) for _ in processes]
    join(*processes)
    assert troubles == [[], []]


def join(*processes: BaseProcess) -> None:
    for process in processes:
        process.join(SOON)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def hold_cookie(url: str, key: str, held: Any) -> None:
    """In another process: lend a cookie, say so, and never give it back."""

    async def run() -> None:
        pool = make_pool(open_read_only_database(url), keys=KeyRing.parse(key))
        async with pool.lease(PLATFORM):
            held.set()
            await asyncio.Event().wait()

    asyncio.run(run())


async def test_a_cookie_of_a_killed_process_is_free_at_once(postgres: Database, postgres_url: str) -> None:
    """C18: while the other process lives its cookie is busy here; the database frees it when that process dies."""
    keys = KeyRing.parse(key := new_master_key())
    await add_cookies(CookieRecords(postgres, keys=keys, clock=SystemClock()), "one")
    held = FORKED.Event()
    process = FORKED.Process(target=hold_cookie, args=(postgres_url, key, held))
    process.start()
    assert await asyncio.to_thread(held.wait, SOON)
    with pytest.raises(CrawlError) as caught:
        async with make_pool(postgres, keys=keys, patience=IMPATIENT).lease(PLATFORM):
            pass
    process.kill()
    async with make_pool(postgres, keys=keys, patience=PATIENCE).lease(PLATFORM) as leased:
        name = leased.name
    process.join(SOON)
    assert (caught.value.code, name) == (ErrorCode.TIMEOUT_ERROR, "one")


async def test_a_connection_that_breaks_during_a_lease_breaks_no_request(postgres: Database, keys: KeyRing) -> None:
    """C18: the answer is there all the same, an error of the request stays that error, and the cookie is lent again."""
    await add_cookies(CookieRecords(postgres, keys=keys, clock=SystemClock()), "one")
    pool = make_pool(postgres, keys=keys, patience=PATIENCE)
    async with pool.lease(PLATFORM) as leased:
        await break_other_connections(postgres)
        answer = leased.name

    async def fail() -> None:
        async with pool.lease(PLATFORM):
            await break_other_connections(postgres)
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    async with pool.lease(PLATFORM) as leased:
        assert leased.name == answer == "one"


async def break_other_connections(database: Database) -> None:
    async with database.write() as connection:
        result = await connection.exec_driver_sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid != pg_backend_pid()"
        )
        assert result.scalar_one() > 0


def rotate_keys(url: str, ring: str) -> None:
    """In another process: encrypt everything anew."""

    async def run() -> None:
        database = open_database(url)
        await CookieRecords(database, keys=KeyRing.parse(ring), clock=SystemClock()).rotate_keys()
        await database.close()

    asyncio.run(run())


async def test_a_rotation_that_is_killed_anywhere_leaves_every_cookie_readable(
    database: Database, database_url: str
) -> None:
    """C22: killed twice within, and finished the third time; after that the old key can go."""
    old, new = new_master_key(), new_master_key()
    names = [f"c{number:03}" for number in range(300)]
    before = CookieRecords(database, keys=KeyRing.parse(f"k1:{old}"), clock=SystemClock())
    await add_cookies(before, *names)
    ring = f"k2:{new},k1:{old}"
    both = CookieRecords(database, keys=KeyRing.parse(ring), clock=SystemClock())
    for enough in (1, 60):
        process = FORKED.Process(target=rotate_keys, args=(database_url, ring))
        process.start()
        await wait_until_rotated(both, enough)
        process.kill()
        process.join(SOON)
        assert await read_all(both, KeyRing.parse(ring)) == [value_of(name) for name in names]
        counts = await both.count_key_ids()
        assert counts.get("k1", 0) > 0, "it was too fast to be killed within"
    await both.rotate_keys()
    assert await read_all(both, KeyRing.parse(f"k2:{new}")) == [value_of(name) for name in names]


async def wait_until_rotated(records: CookieRecords, enough: int) -> None:
    async with asyncio.timeout(SOON):
        while (await records.count_key_ids()).get("k2", 0) < enough:
            pass


async def read_all(records: CookieRecords, keys: KeyRing) -> list[str]:
    return [open_cookie(cookie, keys=keys).reveal() for cookie in await records.list_all()]
