"""Validators of sitemap files: recalled as long as every page of the file is on record and none has expired."""

from tidings.announce.due.pages import hash_urls
from tidings.announce.ledger.ledger import Channel
from tidings.announce.sitemap.events import Remembered, SitemapFile, Validators
from tidings.announce.sitemap.validators import SitemapValidators, hash_sitemap
from tidings.core.db.database import Database

NEWS, SHOP = "https://example.com/news.xml", "https://example.com/shop.xml"
NOON = 1_800_000_000_000


async def store(
    database: Database,
    stored: SitemapValidators,
    url: str,
    *,
    validators: Validators,
    pages: int = 3,
    oldest: int = NOON,
    channels: int = Channel.INDEXNOW,
) -> None:
    async with database.write() as connection:
        file = SitemapFile(url, validators=validators)
        await stored.store(connection, file, pages=pages, oldest=oldest, channels=channels)


async def recall(
    stored: SitemapValidators, url: str, *, expired_before: int, channels: int = Channel.INDEXNOW
) -> Remembered | None:
    return await stored.recall(url, expired_before=expired_before, channels=channels)


async def test_validators_are_recalled_only_until_a_page_expires(database: Database) -> None:
    """A9: from then on the file has to be read again, no matter what the server says."""
    stored = SitemapValidators(database, site=1)
    for validators in (Validators('"v1"', "yesterday"), Validators('W/"v1"'), Validators(last_modified="today")):
        await store(database, stored, NEWS, validators=validators)
        assert await recall(stored, NEWS, expired_before=NOON) == Remembered(validators, pages=3)
        assert await recall(stored, NEWS, expired_before=NOON + 1) is None
    assert await recall(stored, SHOP, expired_before=NOON) is None
    assert await recall(SitemapValidators(database, site=2), NEWS, expired_before=NOON) is None


async def test_newer_validators_take_the_place_of_older_ones(database: Database) -> None:
    """A9: with all that belongs to them; one that the server gives no more is not sent again."""
    stored = SitemapValidators(database, site=1)
    await store(database, stored, NEWS, validators=Validators('"v1"', "yesterday"))
    await store(database, stored, NEWS, validators=Validators('"v2"'), pages=4, oldest=NOON + 9)
    assert await recall(stored, NEWS, expired_before=NOON + 9) == Remembered(Validators('"v2"', None), pages=4)


async def test_forgetting_validators_is_for_one_site(database: Database) -> None:
    """A9: every file of the site is read in full next time; other sites are not touched."""
    mine, other = SitemapValidators(database, site=1), SitemapValidators(database, site=2)
    for stored in (mine, other):
        for url in (NEWS, SHOP):
            await store(database, stored, url, validators=Validators('"v1"'))
    async with database.write() as connection:
        await mine.forget(connection)
    assert [await recall(mine, url, expired_before=0) for url in (NEWS, SHOP)] == [None, None]
    assert None not in [await recall(other, url, expired_before=0) for url in (NEWS, SHOP)]


async def test_a_file_counts_for_a_channel_once_all_its_pages_were_accepted_there(database: Database) -> None:
    """A9, A10: IndexNow alone does not spare the read that Bing needs; the older of both submissions limits it."""
    stored, validators = SitemapValidators(database, site=1), Validators('"v1"', "yesterday")
    both = Channel.INDEXNOW + Channel.BING
    await store(database, stored, NEWS, validators=validators)
    assert await recall(stored, NEWS, expired_before=NOON, channels=both) is None
    async with database.write() as connection:
        for old in (Validators('"v0"', "yesterday"), Validators('"v1"')):
            await stored.add_channel(connection, NEWS, validators=old, oldest=NOON, channel=Channel.BING)
    assert await recall(stored, NEWS, expired_before=NOON, channels=both) is None
    async with database.write() as connection:
        await stored.add_channel(connection, NEWS, validators=validators, oldest=NOON - 5, channel=Channel.BING)
    assert await recall(stored, NEWS, expired_before=NOON - 5, channels=both) == Remembered(validators, pages=3)
    assert await recall(stored, NEWS, expired_before=NOON - 4, channels=both) is None


def test_a_sitemap_is_named_by_its_whole_url() -> None:
    """A9: a query makes another file of it; the name is the same on every machine."""
    assert hash_sitemap(NEWS) == hash_urls([NEWS.encode()])[0] == hash_sitemap(NEWS)
    assert len({hash_sitemap(url) for url in (NEWS, SHOP, f"{NEWS}?page=2", NEWS.replace("https", "http"))}) == 4
