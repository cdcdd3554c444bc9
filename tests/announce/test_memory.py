"""What is remembered of a site: validators as long as they are good, its pages, and engines that refuse its key."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tidings.announce.due.pages import Listing, Page, hash_urls
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.site import Site, make_site
from tidings.announce.sitemap.crawl import Remembered, Validators
from tidings.announce.sitemap.memory import BrokenEngine, BrokenEngines, PageMemory, SitemapMemory, hash_sitemap
from tidings.core.clock import from_milliseconds
from tidings.core.db.database import Database
from tidings.core.secrets.secret import Secret

NEWS, SHOP = "https://example.com/news.xml", "https://example.com/shop.xml"
ALPHA, BETA = "https://alpha.example/indexnow", "https://beta.example/indexnow"
NOON = 1_800_000_000_000


def list_urls(*names: str) -> Listing:
    urls = [f"https://example.com/{name}".encode() for name in names]
    return Listing(urls, hash_urls(urls), [b""] * len(urls))


async def remember(
    database: Database,
    memory: SitemapMemory,
    url: str,
    *,
    validators: Validators,
    pages: int = 3,
    oldest: int = NOON,
    channels: int = Channel.INDEXNOW,
) -> None:
    async with database.write() as connection:
        await memory.remember(connection, url, validators=validators, pages=pages, oldest=oldest, channels=channels)


async def recall(
    memory: SitemapMemory, url: str, *, expired_before: int, channels: int = Channel.INDEXNOW
) -> Remembered | None:
    return await memory.recall(url, expired_before=expired_before, channels=channels)


async def test_validators_are_recalled_only_until_a_page_expires(database: Database) -> None:
    """A9: from then on the file has to be read again, whatever the server says."""
    memory = SitemapMemory(database, site=1)
    for validators in (Validators('"v1"', "yesterday"), Validators('W/"v1"'), Validators(last_modified="today")):
        await remember(database, memory, NEWS, validators=validators)
        assert await recall(memory, NEWS, expired_before=NOON) == Remembered(validators, pages=3)
        assert await recall(memory, NEWS, expired_before=NOON + 1) is None
    assert await recall(memory, SHOP, expired_before=NOON) is None
    assert await recall(SitemapMemory(database, site=2), NEWS, expired_before=NOON) is None


async def test_newer_validators_take_the_place_of_older_ones(database: Database) -> None:
    """A9: with all that belongs to them; one that the server gives no more is not sent again."""
    memory = SitemapMemory(database, site=1)
    await remember(database, memory, NEWS, validators=Validators('"v1"', "yesterday"))
    await remember(database, memory, NEWS, validators=Validators('"v2"'), pages=4, oldest=NOON + 9)
    assert await recall(memory, NEWS, expired_before=NOON + 9) == Remembered(Validators('"v2"', None), pages=4)


async def test_forgetting_validators_is_for_one_site(database: Database) -> None:
    """A9: every file of the site is read in full next time; other sites are not touched."""
    mine, other = SitemapMemory(database, site=1), SitemapMemory(database, site=2)
    for memory in (mine, other):
        for url in (NEWS, SHOP):
            await remember(database, memory, url, validators=Validators('"v1"'))
    async with database.write() as connection:
        await mine.forget(connection)
    assert [await recall(mine, url, expired_before=0) for url in (NEWS, SHOP)] == [None, None]
    assert None not in [await recall(other, url, expired_before=0) for url in (NEWS, SHOP)]


async def test_a_file_counts_for_a_channel_once_all_its_pages_were_accepted_there(database: Database) -> None:
    """A9, A10: IndexNow alone does not spare the read that Bing needs; the older of both submissions limits it."""
    memory, validators = SitemapMemory(database, site=1), Validators('"v1"', "yesterday")
    both = Channel.INDEXNOW + Channel.BING
    await remember(database, memory, NEWS, validators=validators)
    assert await recall(memory, NEWS, expired_before=NOON, channels=both) is None
    async with database.write() as connection:
        for old in (Validators('"v0"', "yesterday"), Validators('"v1"')):
            await memory.add_channel(connection, NEWS, validators=old, oldest=None, channel=Channel.BING)
    assert await recall(memory, NEWS, expired_before=NOON, channels=both) is None
    async with database.write() as connection:
        await memory.add_channel(connection, NEWS, validators=validators, oldest=NOON - 5, channel=Channel.BING)
    assert await recall(memory, NEWS, expired_before=NOON - 5, channels=both) == Remembered(validators, pages=3)
    assert await recall(memory, NEWS, expired_before=NOON - 4, channels=both) is None


class Crawled:
    """One execution's crawl of a site."""

    def __init__(self, database: Database, *, execution: int, site: int = 1) -> None:
        self.database = database
        self.memory = PageMemory(database, site=site, execution=execution)

    async def see(self, sitemap: str, *names: str) -> None:
        async with self.database.write() as connection:
            await self.memory.note_seen(connection, list_urls(*names), sitemap=sitemap)

    async def find_gone(self, *, unchanged: Sequence[str] = ()) -> set[str]:
        pages = await self.memory.list_gone(unchanged=unchanged, after=None, limit=1_000)
        assert pages.removed
        return {page.url.rpartition("/")[2] for page in pages}


async def test_a_page_that_left_the_sitemap_is_gone(database: Database) -> None:
    """A14: gone are those that stood there before and do not now; new ones are none of them."""
    await Crawled(database, execution=1).see(NEWS, "a", "b", "c")
    second = Crawled(database, execution=2)
    await second.see(NEWS, "b", "d")
    assert await second.find_gone() == {"a", "c"}
    assert await Crawled(database, execution=2, site=2).find_gone() == set()


async def test_pages_of_an_unchanged_file_still_stand(database: Database) -> None:
    """A9, A14: a file answered 304 was not read, so nothing of it was seen and nothing of it is gone."""
    first = Crawled(database, execution=1)
    await first.see(NEWS, "a", "b")
    await first.see(SHOP, "c", "d")
    second = Crawled(database, execution=2)
    await second.see(NEWS, "a")
    assert await second.find_gone(unchanged=[SHOP]) == {"b"}
    assert await second.find_gone() == {"b", "c", "d"}
    # Had it not been announced then, it would be now, although neither file has changed since.
    assert await Crawled(database, execution=3).find_gone(unchanged=[SHOP, NEWS]) == {"b"}


async def test_a_page_that_moved_to_another_file_goes_with_that_file(database: Database) -> None:
    """A14: it belongs to the file that it was last seen in, and is not gone for having left the first."""
    await Crawled(database, execution=1).see(NEWS, "a", "b")
    second = Crawled(database, execution=2)
    await second.see(NEWS, "b")
    await second.see(SHOP, "a")
    assert await second.find_gone() == set()
    third = Crawled(database, execution=3)
    assert await third.find_gone(unchanged=[SHOP]) == {"b"}
    assert await third.find_gone(unchanged=[NEWS]) == {"a"}


async def test_a_page_in_two_files_is_gone_only_when_it_has_left_both(database: Database) -> None:
    """A14: one of them may be gone, and the other unchanged and therefore not read."""
    first = Crawled(database, execution=1)
    await first.see(NEWS, "a")
    await first.see(SHOP, "a")
    assert await Crawled(database, execution=2).find_gone(unchanged=[SHOP]) == set()
    assert await Crawled(database, execution=3).find_gone() == {"a"}


async def test_a_page_that_came_back_is_not_forgotten(database: Database) -> None:
    """A14: its removal was still on its way when the crawl saw it again."""
    await Crawled(database, execution=1).see(NEWS, "a", "b")
    second = Crawled(database, execution=2)
    await second.see(NEWS, "a")
    async with database.write() as connection:
        gone = await second.memory.forget(connection, list_urls("a", "b").hashes)
    assert gone == list(list_urls("b").hashes)
    assert await Crawled(database, execution=3).find_gone() == {"a"}


async def test_a_page_listed_twice_in_one_block_is_noted_once(database: Database) -> None:
    """A8, A14: PostgreSQL would refuse to write one row twice in a statement."""
    await Crawled(database, execution=1).see(NEWS, "a", "a", "b", "a")
    assert await Crawled(database, execution=2).find_gone() == {"a", "b"}


async def test_a_removal_that_was_announced_is_forgotten(database: Database) -> None:
    """A14: each is announced once; the others are still to be announced."""
    await Crawled(database, execution=1).see(NEWS, "a", "b")
    second, other = Crawled(database, execution=2), Crawled(database, execution=1, site=2)
    await other.see(NEWS, "a")
    async with database.write() as connection:
        await second.memory.forget(connection, list_urls("a").hashes)
    assert await second.find_gone() == {"b"}
    assert await Crawled(database, execution=2, site=2).find_gone() == {"a"}


async def test_gone_pages_come_in_portions_without_loss(database: Database) -> None:
    """A14: in the order of the hash, below zero too, each once."""
    names = [str(number) for number in range(50)]
    await Crawled(database, execution=1).see(NEWS, *names)
    memory = PageMemory(database, site=1, execution=2)
    found: list[Page] = []
    for _ in range(len(names)):
        after = found[-1].url_hash if found else None
        found += await memory.list_gone(unchanged=[], after=after, limit=7)
    assert [page.url_hash for page in found] == sorted(list_urls(*names).hashes)
    assert found[0].url_hash < 0 < found[-1].url_hash
    assert {page.url for page in found} == {f"https://example.com/{name}" for name in names}


@pytest.fixture
def site() -> Site:
    return replace(make_site(sitemap_urls=[NEWS], key="first-key-12345678"), number=1)


async def break_engine(
    database: Database, site: Site, engine: str, *, reason: str = "HTTP 403", at: int = NOON
) -> None:
    async with database.write() as connection:
        await BrokenEngines(database, site=site, channel=Channel.INDEXNOW).mark(
            connection, engine, reason=reason, at=at
        )


async def list_broken(database: Database, site: Site, channel: Channel = Channel.INDEXNOW) -> list[BrokenEngine]:
    return await BrokenEngines(database, site=site, channel=channel).list_broken()


async def test_an_engine_is_broken_for_the_key_that_it_refused(database: Database, site: Site) -> None:
    """A22: with reason and time, for this site and channel; with another key it is asked again."""
    await break_engine(database, site, ALPHA, reason="HTTP 403: UserForbiddedToAccessSite")
    broken = BrokenEngine(ALPHA, "HTTP 403: UserForbiddedToAccessSite", from_milliseconds(NOON))
    assert await list_broken(database, site) == [broken]
    assert await list_broken(database, replace(site, number=2)) == []
    assert await list_broken(database, site, Channel.BING) == []
    assert await list_broken(database, replace(site, key=Secret("other-key-12345678"))) == []


async def test_a_new_key_that_is_refused_too_breaks_the_engine_again(database: Database, site: Site) -> None:
    """A22: the latest refusal counts; the key of before would have to be tried anew."""
    rotated = replace(site, key=Secret("other-key-12345678"))
    await break_engine(database, site, ALPHA)
    await break_engine(database, site, BETA)
    await break_engine(database, rotated, ALPHA, reason="HTTP 403: again", at=NOON + 1)
    assert await list_broken(database, rotated) == [BrokenEngine(ALPHA, "HTTP 403: again", from_milliseconds(NOON + 1))]
    assert [engine.engine for engine in await list_broken(database, site)] == [BETA]


def test_a_sitemap_is_named_by_its_whole_url() -> None:
    """A9: a query makes another file of it; the name is the same on every machine."""
    assert hash_sitemap(NEWS) == hash_urls([NEWS.encode()])[0] == hash_sitemap(NEWS)
    assert len({hash_sitemap(url) for url in (NEWS, SHOP, f"{NEWS}?page=2", NEWS.replace("https", "http"))}) == 4
