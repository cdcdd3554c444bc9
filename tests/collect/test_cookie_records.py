"""Setting cookies up: stored encrypted for their own row, listed, put back to work, removed, encrypted anew."""

import base64
from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.collect.cookie_stage import PLATFORM, add_cookies, change_row, find_cookie, record_outcome, value_of
from tests.fakes import FakeClock
from tidings.collect.crawl.cookies.states import CookieOutcome, CookieStatus
from tidings.collect.crawl.cookies.table import open_cookie
from tidings.collect.pasted_cookie import CookieError
from tidings.collect.write.cookies import CookieRecords, make_cookie
from tidings.core.clock import SystemClock
from tidings.core.db.database import Database
from tidings.core.secrets.keyring import DecryptionError, KeyRing, UnknownKeyError
from tidings.core.secrets.master_key import new_master_key
from tidings.core.secrets.secret import Secret

C9_FIELDS = (
    "cookie_name, platform, cookie_encrypted, encryption_key_id, status, priority, daily_used, daily_limit, "
    "consecutive_errors, total_errors, cooling_until, created_at, updated_at"
)


@pytest.fixture
def cookie_records(database: Database, keys: KeyRing, clock: FakeClock) -> CookieRecords:
    return CookieRecords(database, keys=keys, clock=clock)


async def test_the_table_has_the_fields_of_the_spec(cookie_records: CookieRecords, database: Database) -> None:
    """C9: by their names, with what a new cookie starts from."""
    await add_cookies(cookie_records, "one", priority=4, daily_limit=9)
    async with database.read() as connection:
        row = (await connection.execute(text(f"SELECT {C9_FIELDS} FROM tbl_cookie"))).one()
    assert (row.cookie_name, row.platform, row.encryption_key_id, row.status) == ("one", PLATFORM, "k1", "active")
    assert (row.priority, row.daily_used, row.daily_limit) == (4, 0, 9)
    assert (row.consecutive_errors, row.total_errors, row.cooling_until) == (0, 0, None)


async def test_a_cookie_opens_in_its_own_row_alone(
    cookie_records: CookieRecords, database: Database, keys: KeyRing
) -> None:
    """C7, C22: a ciphertext that is moved to another row is no cookie there."""
    await add_cookies(cookie_records, "one", "two")
    one, two = await cookie_records.list_all()
    assert [open_cookie(cookie, keys=keys).reveal() for cookie in (one, two)] == [value_of("one"), value_of("two")]
    await change_row(database, "two", cookie_encrypted=one.ciphertext)
    with pytest.raises(DecryptionError):
        open_cookie(await find_cookie(cookie_records, "two"), keys=keys)


async def test_a_cookie_opens_for_its_own_platform_alone(
    cookie_records: CookieRecords, database: Database, keys: KeyRing
) -> None:
    """C7, C22: whoever changes the row's platform does not get the cookie sent to another platform."""
    await add_cookies(cookie_records, "one")
    await change_row(database, "one", platform="weibo")
    with pytest.raises(DecryptionError):
        open_cookie(await find_cookie(cookie_records, "one"), keys=keys)


async def test_a_cookie_that_was_bound_to_its_name_alone_is_read_and_bound_to_its_platform(
    cookie_records: CookieRecords, database: Database, keys: KeyRing
) -> None:
    """C22: rows of earlier versions stay readable; `tidings keys rotate` binds them."""
    await add_cookies(cookie_records, "one", "two")
    blob, _ = keys.encrypt(value_of("one"), purpose="cookie", table="tbl_cookie", column="cookie_encrypted", row="one")
    await change_row(database, "one", cookie_encrypted=blob)
    assert open_cookie(await find_cookie(cookie_records, "one"), keys=keys).reveal() == value_of("one")
    assert [await cookie_records.rotate_keys(), await cookie_records.rotate_keys()] == [1, 0]
    assert open_cookie(await find_cookie(cookie_records, "one"), keys=keys).reveal() == value_of("one")
    await change_row(database, "one", platform="weibo")
    with pytest.raises(DecryptionError):
        open_cookie(await find_cookie(cookie_records, "one"), keys=keys)


async def test_a_cookie_that_is_added_again_is_replaced_and_its_uses_still_count(
    cookie_records: CookieRecords, database: Database, keys: KeyRing, clock: FakeClock
) -> None:
    """C9: the account is the same one, so its day goes on; its errors were the old cookie's."""
    await add_cookies(cookie_records, "one")
    for _ in range(3):
        async with database.write() as connection:
            await record_outcome(connection, "one", CookieOutcome.ERROR, clock.now())
    assert (await find_cookie(cookie_records, "one")).state.status is CookieStatus.COOLING
    created_at = clock.now()
    clock.advance(timedelta(minutes=1))
    again = make_cookie("one", platform=PLATFORM, secret=Secret("SESSDATA=new"), priority=2, daily_limit=3)
    assert await cookie_records.add(again)
    found = await find_cookie(cookie_records, "one")
    assert open_cookie(found, keys=keys).reveal() == "SESSDATA=new"
    assert (found.state.status, found.state.total_errors, found.state.daily_used) == (CookieStatus.ACTIVE, 0, 3)
    assert (found.priority, found.daily_limit, found.created_at) == (2, 3, created_at)
    with pytest.raises(CookieError, match="for bilibili; remove it"):
        await add_cookies(cookie_records, "one", platform="weibo")
    assert open_cookie(await find_cookie(cookie_records, "one"), keys=keys).reveal() == "SESSDATA=new"


@pytest.mark.parametrize("status", [CookieStatus.COOLING, CookieStatus.INVALID, CookieStatus.BANNED])
async def test_a_cookie_that_a_person_enables_is_active_with_no_errors(
    cookie_records: CookieRecords, database: Database, clock: FakeClock, status: CookieStatus
) -> None:
    """C9: from every state there is a way back, by hand; a name that is not there is reported."""
    await add_cookies(cookie_records, "one")
    await change_row(
        database,
        "one",
        status=status.value,
        consecutive_errors=3,
        total_errors=10,
        daily_used=4,
        cooling_until=int((clock.now() + timedelta(hours=1)).timestamp() * 1000) if status == "cooling" else None,
    )
    assert (await find_cookie(cookie_records, "one")).state.status is status
    assert await cookie_records.enable("one")
    state = (await find_cookie(cookie_records, "one")).state
    assert (state.status, state.cooling_until, state.daily_used) == (CookieStatus.ACTIVE, None, 4)
    assert (state.consecutive_errors, state.total_errors) == (0, 0)
    assert not await cookie_records.enable("two")


async def test_a_removed_cookie_is_gone(cookie_records: CookieRecords) -> None:
    """C9: the row with its ciphertext; removing it again is reported."""
    await add_cookies(cookie_records, "one", "two")
    assert [await cookie_records.remove("one"), await cookie_records.remove("one")] == [True, False]
    assert [cookie.name for cookie in await cookie_records.list_all()] == ["two"]


BROKEN_ANYWHERE = ["used_on = 'yesterday'", "status = 'resting'", "enabled_at = 9000000000000000000"]
BROKEN_ON_SQLITE = ["daily_limit = 'many'", "priority = x'00'", "created_at = 'now'", "cooling_until = 'later'"]


@pytest.mark.parametrize("change", [*BROKEN_ANYWHERE, *BROKEN_ON_SQLITE])
async def test_a_row_with_a_broken_value_is_listed_as_unreadable_beside_the_others(
    database: Database, cookie_records: CookieRecords, change: str
) -> None:
    """C9: it hides no other cookie, and it can be removed, or set up anew."""
    if database.dialect != "sqlite" and change in BROKEN_ON_SQLITE:
        # PostgreSQL itself refuses these: that is the promise there.
        with pytest.raises(DBAPIError):
            await break_row(database, change)
        return
    await add_cookies(cookie_records, "one", "two")
    await break_row(database, change)
    listed = [(cookie.name, cookie.platform, cookie.state.status) for cookie in await cookie_records.list_all()]
    assert listed == [("one", PLATFORM, CookieStatus.UNREADABLE), ("two", PLATFORM, CookieStatus.ACTIVE)]
    assert await cookie_records.remove("one")
    await add_cookies(cookie_records, "one")
    assert (await find_cookie(cookie_records, "one")).state.status is CookieStatus.ACTIVE


async def break_row(database: Database, change: str) -> None:
    async with database.write() as connection:
        await connection.execute(text(f"UPDATE tbl_cookie SET {change} WHERE cookie_name = 'one'"))


@pytest.mark.parametrize("change", ["used_on = 'yesterday'", "status = 'resting'"])
async def test_a_cookie_whose_state_is_broken_is_mended_by_enabling_it(
    database: Database, cookie_records: CookieRecords, keys: KeyRing, change: str
) -> None:
    """C9, C22: its value was never touched, and gets a new key like any other in the meantime."""
    await add_cookies(cookie_records, "one")
    await break_row(database, change)
    newer = KeyRing.parse(f"k2:{new_master_key()},k1:{keys.secrets[0].reveal()}")
    records = CookieRecords(database, keys=newer, clock=SystemClock())
    assert await records.rotate_keys() == 1
    assert await records.enable("one")
    found = await find_cookie(records, "one")
    assert (found.state.status, open_cookie(found, keys=newer).reveal()) == (CookieStatus.ACTIVE, value_of("one"))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"name": ""}, "the name"),
        ({"name": "a=b"}, "the name"),
        ({"name": "x" * 65}, "the name"),
        ({"name": "one\n"}, "the name"),
        ({"platform": "Bili Bili"}, "the platform"),
        ({"daily_limit": 0}, "the daily limit"),
        ({"daily_limit": 2**31}, "the daily limit"),
        ({"priority": 2**31}, "the priority"),
        ({"secret": Secret("")}, "pairs"),
        ({"secret": Secret("  \n ")}, "pairs"),
        ({"secret": Secret("canary-without-a-pair")}, "pairs"),
        ({"secret": Secret("=canary")}, "pairs"),
        ({"secret": Secret("canary=1;" * 2_000)}, "pairs"),
        ({"secret": Secret("canary=1\r\nHost: canary")}, "one line"),
        ({"secret": Secret("canary=\x00")}, "one line"),
        ({"secret": Secret("canary=值")}, "one line"),
    ],
)
def test_what_breaks_a_rule_is_refused_without_repeating_the_cookie(changes: dict[str, object], rule: str) -> None:
    """C7: the message names the rule; a cookie that would add a header is no cookie."""
    given = {"name": "one", "platform": PLATFORM, "secret": Secret("SESSDATA=1"), **changes}
    with pytest.raises(CookieError, match=rule) as caught:
        make_cookie(given.pop("name"), **given)  # type: ignore[arg-type]
    assert "canary" not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.parametrize("text", [" a=1; b=2\n", "Cookie: a=1; b=2", "cookie:a=1; b=2\r\n"])
def test_a_pasted_header_is_the_same_as_its_value(text: str) -> None:
    """C9: people copy the whole line out of their browser."""
    assert make_cookie("one", platform=PLATFORM, secret=Secret(text)).secret.reveal() == "a=1; b=2"


async def test_keys_are_rotated_and_the_old_one_can_go(database: Database, clock: FakeClock) -> None:
    """C22: what k1 encrypted opens with k2 alone afterwards; a second rotation finds nothing to do."""
    old, new = new_master_key(), new_master_key()
    before = CookieRecords(database, keys=KeyRing.parse(f"k1:{old}"), clock=clock)
    await add_cookies(before, "one", "two")
    both = CookieRecords(database, keys=KeyRing.parse(f"k2:{new},k1:{old}"), clock=clock)
    await add_cookies(both, "three")
    assert await both.count_key_ids() == {"k1": 2, "k2": 1}
    assert [await both.rotate_keys(), await both.rotate_keys()] == [2, 0]
    assert await both.count_key_ids() == {"k2": 3}
    only_new, only_old = KeyRing.parse(f"k2:{new}"), KeyRing.parse(f"k1:{old}")
    for cookie in await both.list_all():
        assert open_cookie(cookie, keys=only_new).reveal() == value_of(cookie.name)
        with pytest.raises(UnknownKeyError):
            open_cookie(cookie, keys=only_old)


@pytest.mark.parametrize("as_text", [False, True], ids=["bytes", "text"])
async def test_a_fernet_token_is_read_and_rotated_into_a_blob(
    database: Database, clock: FakeClock, as_text: bool
) -> None:
    """C22: as another program wrote it, also where SQLite took it for text."""
    material = base64.urlsafe_b64decode((key := new_master_key()) + "=" * (-len(key) % 4))
    token = Fernet(base64.urlsafe_b64encode(material)).encrypt(b"SESSDATA=from-elsewhere")
    keys = KeyRing.parse(key)
    records = CookieRecords(database, keys=keys, clock=clock)
    await add_cookies(records, "one", "two")
    if as_text and database.dialect == "sqlite":
        async with database.write() as connection:
            statement = text("UPDATE tbl_cookie SET cookie_encrypted = :token WHERE cookie_name = 'one'")
            await connection.execute(statement, {"token": token.decode()})
    else:
        await change_row(database, "one", cookie_encrypted=token)
    assert open_cookie(await find_cookie(records, "one"), keys=keys).reveal() == "SESSDATA=from-elsewhere"
    assert await records.rotate_keys() == 1
    found = await find_cookie(records, "one")
    assert found.ciphertext[:1] == b"\x01"
    assert open_cookie(found, keys=keys).reveal() == "SESSDATA=from-elsewhere"


async def test_one_unreadable_cookie_does_not_keep_the_others_from_a_new_key(
    database: Database, clock: FakeClock
) -> None:
    """C22: it is reported in the end, and stays as it was."""
    old, new = new_master_key(), new_master_key()
    await add_cookies(CookieRecords(database, keys=KeyRing.parse(f"k1:{old}"), clock=clock), "one", "two", "three")
    await change_row(database, "one", encryption_key_id="lost")
    both = CookieRecords(database, keys=KeyRing.parse(f"k2:{new},k1:{old}"), clock=clock)
    with pytest.raises(UnknownKeyError, match="lost"):
        await both.rotate_keys()
    assert await both.count_key_ids() == {"k2": 2, "lost": 1}
