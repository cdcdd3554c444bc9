"""Where sites are stored: their keys are never there in clear, and rotation may stop anywhere without loss."""

import base64
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, text, update

from tests.fakes import FakeClock
from tidings.announce.site.site import Site, SubmitMethod, make_site
from tidings.announce.site.table import Origin, SiteRecords, sites
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database
from tidings.core.secrets.keyring import DecryptionError, KeyRing, UnknownKeyError
from tidings.core.secrets.master_key import new_master_key
from tidings.core.secrets.secret import Secret

KEY = "c0ffee00-Feed-4bad-8Bad-F00dDecafBad"


def make(host: str = "example.com", *, key: str = KEY) -> Site:
    return make_site(sitemap_urls=[f"https://{host}/sitemap.xml"], key=key)


def list_spellings(key: Secret) -> Iterator[bytes]:
    """The key as it stands, in hexadecimal, and in base64 wherever it begins in a longer text; all in lower case."""
    plain = key.reveal().encode()
    yield plain.lower()
    yield plain.hex().encode()
    for shift in range(3):
        # The first and the last characters depend on what stands around the key.
        yield base64.b64encode(b"x" * shift + plain)[4 if shift else 0 : -4].lower()


async def read_everything(database: Database) -> bytes:
    """All that the database holds of its sites: on SQLite whole files, on PostgreSQL the rows as text."""
    if database.dialect == "sqlite":
        path = Path(str(database.url.database))
        return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
    async with database.read() as connection:
        return "\n".join((await connection.execute(text("SELECT CAST(sites AS text) FROM sites"))).scalars()).encode()


async def read_blobs(database: Database) -> dict[str, tuple[bytes, str]]:
    async with database.read() as connection:
        rows = await connection.execute(select(sites.c.id, sites.c.indexnow_key, sites.c.encryption_key_id))
        return {row.id: (row.indexnow_key, row.encryption_key_id) for row in rows}


async def write_blob(database: Database, site_id: str, blob: bytes) -> None:
    async with database.write() as connection:
        await connection.execute(update(sites).where(sites.c.id == site_id).values(indexnow_key=blob))


async def test_a_site_comes_back_as_it_was_saved(records: SiteRecords) -> None:
    """A2: every setting, with a number for the tables."""
    site = make_site(
        sitemap_urls=["https://example.com/de.xml", "https://example.com/en.xml"],
        key=KEY,
        host="example.com:8443",
        site_id="shop",
        engines=["api.indexnow.org", "http://127.0.0.1:8801/indexnow"],
        key_location="https://example.com:8443/catalog/proof.txt",
        backup_sitemap_urls=["https://backup.example.org/sitemap.xml"],
        submit_method=SubmitMethod.GET,
        schedule="*/15 6-22 * * 1-5",
        announce_removed=True,
        enabled=False,
    )
    saved = await records.save(site, origin=Origin.API)
    assert saved == replace(site, number=saved.number)
    assert saved.number > 0
    assert await records.find("shop") == saved
    assert await records.list_all() == [saved]


KEY_FILES = [
    "{key}.txt",
    "catalog/{key}.txt",
    "{key}",
    "indexnow-{key}.txt",
    "{key}.txt?version=2",
    "{key}/key.txt",
    "{key}/{key}.txt",
    "proof.txt",
]


async def test_the_key_is_nowhere_in_the_database_in_clear(database: Database, records: SiteRecords) -> None:
    """A4: neither in its column nor in the address of its file, in no usual encoding; it comes back all the same."""
    saved = {}
    for number, file in enumerate(KEY_FILES):
        host, key = f"host{number}.example", f"{KEY}-{number}"
        location = f"https://{host}/{file.format(key=key)}"
        site = make_site(sitemap_urls=[f"https://{host}/sitemap.xml"], key=key, key_location=location)
        saved[file] = await records.save(site, origin=Origin.API)
        assert await records.find(host) == saved[file]
        assert saved[file].key_location == location
    stored = (await read_everything(database)).lower()
    assert b"https://host0.example" in stored
    found = {file: [word for word in list_spellings(site.key) if word in stored] for file, site in saved.items()}
    assert found == {file: [] for file in KEY_FILES}


async def test_one_key_is_encrypted_differently_each_time(database: Database, records: SiteRecords) -> None:
    """A4: nobody sees from the table which sites share a key."""
    for host in ("a.example", "b.example"):
        await records.save(make(host), origin=Origin.API)
    blobs = await read_blobs(database)
    assert blobs["a.example"][0] != blobs["b.example"][0]


async def test_keys_that_change_places_do_not_open(database: Database, records: SiteRecords) -> None:
    """A4: who can write to the table still cannot give one site another's key."""
    await records.save(make("a.example"), origin=Origin.API)
    await records.save(make("b.example", key="another-key-1234"), origin=Origin.API)
    blobs = await read_blobs(database)
    await write_blob(database, "a.example", blobs["b.example"][0])
    await write_blob(database, "b.example", blobs["a.example"][0])
    for site_id in blobs:
        with pytest.raises(DecryptionError) as caught:
            await records.find(site_id)
        assert KEY not in str(caught.value)
    for site_id, (blob, _) in blobs.items():
        await write_blob(database, site_id, blob)
    assert [site.key.reveal() for site in await records.list_all()] == [KEY, "another-key-1234"]


async def test_saving_again_replaces_all_but_the_number(
    database: Database, records: SiteRecords, clock: FakeClock
) -> None:
    """A2: the ledger goes by the number, so a changed site keeps what it has announced."""
    created = to_milliseconds(clock.now())
    other = await records.save(make("other.example"), origin=Origin.API)
    first = await records.save(make(), origin=Origin.COMMAND)
    clock.advance(timedelta(hours=1))
    changed = replace(make(key="another-key-1234"), schedule="5 5 * * *", enabled=False)
    second = await records.save(changed, origin=Origin.API)
    assert second == replace(changed, number=first.number)
    assert await records.find("example.com") == second
    assert await records.find("other.example") == other
    async with database.read() as connection:
        row = (await connection.execute(select(sites).where(sites.c.number == first.number))).one()
    assert (row.origin, row.created_at, row.updated_at) == ("api", created, created + 3_600_000)


async def test_sites_are_listed_by_id_and_found_by_id_alone(records: SiteRecords) -> None:
    """A2: list, read and delete; another's are left as they are."""
    for host in ("b.example", "a.example", "c.example"):
        await records.save(make(host), origin=Origin.API)
    assert [site.id for site in await records.list_all()] == ["a.example", "b.example", "c.example"]
    assert await records.find("A.example") is None
    assert await records.remove("b.example")
    assert not await records.remove("b.example")
    assert await records.find("b.example") is None
    assert [site.id for site in await records.list_all()] == ["a.example", "c.example"]


async def test_a_site_that_comes_back_has_its_number_and_no_other_site_gets_it(records: SiteRecords) -> None:
    """A2, A10: its ledger goes by the number, so nothing is sent twice; another site does not inherit it."""
    gone = await records.save(make(), origin=Origin.API)
    assert await records.remove("example.com")
    assert not await records.remove("example.com")
    assert (await records.find("example.com"), await records.list_all()) == (None, [])
    other = await records.save(make("other.example"), origin=Origin.API)
    assert other.number != gone.number
    assert await records.save(make(), origin=Origin.API) == gone


async def test_a_removed_sites_key_is_deleted(database: Database, records: SiteRecords) -> None:
    """A4: what is not needed any more is not kept."""
    await records.save(make(), origin=Origin.API)
    await records.remove("example.com")
    async with database.read() as connection:
        row = (await connection.execute(text("SELECT indexnow_key, encryption_key_id FROM sites"))).one()
    assert tuple(row) == (None, None)


async def test_adopting_a_stored_site_changes_nothing_of_it(records: SiteRecords) -> None:
    """A2: announced once by hand with other settings, it gets its number and stays as it was."""
    stored = await records.save(make(), origin=Origin.API)
    by_hand = make(key="another-key-1234")
    assert await records.adopt(by_hand) == replace(by_hand, number=stored.number)
    assert await records.find("example.com") == stored


async def test_adopting_an_unknown_site_stores_it_as_given_by_hand(database: Database, records: SiteRecords) -> None:
    """A2: so that its ledger is there the next time; the same number then."""
    first = await records.adopt(make())
    assert await records.adopt(make()) == first == await records.find("example.com")
    async with database.read() as connection:
        assert (await connection.execute(select(sites.c.origin))).scalars().all() == ["command"]


class Rings:
    """The same table, seen with the old ring, with both keys, and with the new one alone."""

    def __init__(self, database: Database, clock: FakeClock) -> None:
        old, new = f"k1:{new_master_key()}", f"k2:{new_master_key()}"
        self.old, self.both, self.new = (
            SiteRecords(database, keys=KeyRing.parse(ring), clock=clock) for ring in (old, f"{new},{old}", new)
        )

    async def save_three(self) -> list[Site]:
        return [await self.old.save(make(f"{name}.example"), origin=Origin.API) for name in "abc"]


@pytest.fixture
def rings(database: Database, clock: FakeClock) -> Rings:
    return Rings(database, clock)


async def test_rotation_moves_every_key_to_the_newest_master_key(database: Database, rings: Rings) -> None:
    """A4: afterwards the old one is not needed, and repeating it does nothing."""
    stored = await rings.save_three()
    with pytest.raises(UnknownKeyError):
        await rings.new.list_all()
    assert await rings.both.list_all() == stored
    assert await rings.both.count_key_ids() == {"k1": 3}
    assert await rings.both.rotate_keys() == 3
    assert await rings.both.count_key_ids() == {"k2": 3}
    assert await rings.new.list_all() == stored
    blobs = await read_blobs(database)
    assert await rings.both.rotate_keys() == 0
    assert await read_blobs(database) == blobs
    with pytest.raises(UnknownKeyError):
        await rings.old.list_all()


async def test_rotation_that_breaks_off_leaves_every_key_readable(database: Database, rings: Rings) -> None:
    """A4: one row cannot be opened; what is done stays done, the rest stays as it was, and a repetition ends it."""
    stored = await rings.save_three()
    blob = (await read_blobs(database))["b.example"][0]
    await write_blob(database, "b.example", blob[:-1] + bytes([blob[-1] ^ 1]))
    with pytest.raises(DecryptionError):
        await rings.both.rotate_keys()
    assert [await rings.both.find(f"{name}.example") for name in "ac"] == [stored[0], stored[2]]
    await write_blob(database, "b.example", blob)
    waiting = (await rings.both.count_key_ids())["k1"]
    assert await rings.both.list_all() == stored
    assert await rings.both.rotate_keys() == waiting > 0
    assert await rings.new.list_all() == stored


async def test_half_rotated_sites_are_read_and_the_rest_is_rotated(rings: Rings) -> None:
    """A4: a site saved meanwhile is under the new key already and is not counted."""
    stored = await rings.save_three()
    stored[1] = await rings.both.save(replace(stored[1], key=Secret("another-key-1234")), origin=Origin.API)
    assert await rings.both.count_key_ids() == {"k1": 2, "k2": 1}
    assert await rings.both.list_all() == stored
    assert await rings.both.rotate_keys() == 2
    assert await rings.new.list_all() == stored
