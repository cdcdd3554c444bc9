"""The canary: a cookie that is looked for in the database and its files, in logs, errors and everything's repr."""

import asyncio
import base64
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.collect.cookie_stage import PLATFORM, change_row, make_pool, record_outcome
from tests.fakes import FakeClock
from tidings.collect.crawl.cookies.pool import CookiePool
from tidings.collect.crawl.cookies.states import CookieOutcome
from tidings.collect.crawl.cookies.table import open_cookie
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.write.cookies import CookieRecords, make_cookie
from tidings.core.db.database import Database, open_read_only_database
from tidings.core.logs.logger import LogFormat, configure_logging, get_logger
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.master_key import KeyRingError, new_master_key
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.secret import Secret

CANARY = "040069b1kanarienvogel%2C7f3b9c=="
COOKIE = f"web_session={CANARY}; a1={CANARY[::-1]}; plain=1"


def find_traces(reported: str | bytes) -> set[str]:
    """The spellings in which a value of the cookie, whole or cut in half, stands in there."""
    data = reported.encode("utf-8", "surrogatepass") if isinstance(reported, str) else reported
    halves = [half for value in (CANARY, CANARY[::-1]) for half in (value[:14], value[-14:])]
    return {name for half in halves for name, form in spell(half) if form.encode() in data}


def spell(value: str) -> Iterator[tuple[str, str]]:
    yield "clear", value
    yield "URL-encoded", quote(value, safe="")
    yield "hex", value.encode().hex()
    for before in range(3):
        whole = base64.b64encode(bytes(before) + value.encode() + bytes(2)).decode()
        yield f"base64, {before}", whole[-(-8 * before // 6) : 8 * (before + len(value)) // 6]


def test_the_search_finds_the_cookie_in_every_spelling() -> None:
    """A control."""
    for form in (COOKIE, quote(COOKIE), COOKIE.encode().hex(), base64.b64encode(b"x" + COOKIE.encode()).decode()):
        assert find_traces(f"before {form} after")
    assert find_traces(f"{Secret(COOKIE)} {Secret(COOKIE).fingerprint}") == set()


@pytest.fixture
def redactor() -> Redactor:
    """The one that the pool and the logs share, as in the service."""
    return Redactor()


@pytest.fixture
def log(redactor: Redactor, tmp_path: Path) -> Iterator[StringIO]:
    """All that is logged, down to what the libraries say."""
    stream = StringIO()
    configure_logging(format=LogFormat.JSON, level="debug", redactor=redactor, stream=stream, file=tmp_path / "t.log")
    yield stream
    configure_logging(format=LogFormat.JSON, level="info", redactor=Redactor(), quiet=True)


async def live_a_life(database: Database, pool: CookiePool, records: CookieRecords, clock: FakeClock) -> list[str]:
    """Every way a cookie goes, with every error on it; returns what was said and shown on the way."""
    reported = [repr(records), repr(pool)]
    new = make_cookie("one", platform=PLATFORM, secret=Secret(COOKIE))
    reported += [repr(new), repr(asdict(new))]
    await records.add(new)
    await records.add(new)
    reported += [repr(await records.list_all()), repr(await records.rotate_keys())]
    async with pool.lease(PLATFORM) as leased:
        reported += [repr(leased), str(leased), repr(asdict(leased)), repr(vars(pool))]
        get_logger("test").info("request.sent", cookie=leased.secret, header=f"Cookie: {leased.secret.reveal()}")
        get_logger("test").info("answer.strange", body=f"<p>{CANARY}</p>", url=f"/?next={quote(CANARY[::-1])}")
    reported += [await fail(pool, CrawlError(ErrorCode.COOKIE_INVALID, "refused"))]
    reported += [await fail(pool, ValueError(f"the platform answered {COOKIE}"))]
    async with database.write() as connection:
        reported += [repr(await record_outcome(connection, "one", CookieOutcome.ERROR, clock.now()))]
    return reported


async def fail(pool: CookiePool, error: Exception) -> str:
    """What the log would get of a request that ends like this."""
    try:
        async with pool.lease(PLATFORM):
            raise error
    except (CrawlError, ValueError) as caught:
        get_logger("test").error("request.failed", exc_info=caught)
        return "" if isinstance(caught, ValueError) else "".join(traceback.format_exception(caught))


async def test_no_cookie_in_clear_anywhere(
    database: Database,
    database_url: str,
    keys: KeyRing,
    clock: FakeClock,
    redactor: Redactor,
    log: StringIO,
    tmp_path: Path,
) -> None:
    """C7: not in a row, the file, its WAL, a log, an error or a repr; and yet the cookie is there to be used."""
    records = CookieRecords(database, keys=keys, clock=clock)
    reading = open_read_only_database(database_url)
    reported = await live_a_life(
        database, make_pool(reading, keys=keys, clock=clock, redactor=redactor), records, clock
    )
    async with database.read() as connection:
        rows = repr((await connection.execute(text("SELECT * FROM tbl_cookie"))).all())
    files = await asyncio.to_thread(read_files, tmp_path)
    await reading.close()
    assert open_cookie((await records.list_all())[0], keys=keys).reveal() == COOKIE
    assert "request.failed" in log.getvalue()
    assert [find_traces(part) for part in ("\n".join(reported), rows, log.getvalue(), files)] == [set()] * 4
    assert (b"SQLite format 3" in files) == (database.dialect == "sqlite")


def read_files(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def test_an_error_about_a_cookie_does_not_show_it(database: Database, keys: KeyRing, clock: FakeClock) -> None:
    """C7: neither where it cannot be decrypted nor where the database refuses the row; causes and values included."""
    records = CookieRecords(database, keys=keys, clock=clock)
    new = make_cookie("one", platform=PLATFORM, secret=Secret(COOKIE))
    await records.add(new)
    cookie = (await records.list_all())[0]
    with pytest.raises(KeyRingError) as unreadable:
        open_cookie(cookie, keys=KeyRing.parse(new_master_key()))
    with pytest.raises(CrawlError) as exhausted:
        await lend_once(make_pool(database, keys=KeyRing.parse(new_master_key()), clock=clock))
    with pytest.raises(DBAPIError) as refused:
        await change_row(database, "one", cookie_encrypted=cookie.ciphertext, platform=None)
    reported = [
        "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
        for caught in (unreadable, exhausted, refused)
    ]
    assert find_traces("\n".join(reported)) == set()


async def lend_once(pool: CookiePool) -> None:
    async with pool.lease(PLATFORM):
        pass
