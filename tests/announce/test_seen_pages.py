"""Pages of the sitemap of a site that announces removals: which of them have left it."""

from collections.abc import Sequence

from tidings.announce.due.pages import Listing, Page, hash_urls
from tidings.announce.ledger.seen_pages import SeenPages
from tidings.core.db.database import Database

NEWS, SHOP = "https://example.com/news.xml", "https://example.com/shop.xml"


def list_urls(*names: str) -> Listing:
    urls = [f"https://example.com/{name}".encode() for name in names]
    return Listing(urls, hash_urls(urls), [b""] * len(urls))


class Crawled:
    """One execution's crawl of a site."""

    def __init__(self, database: Database, *, execution: int, site: int = 1) -> None:
        self.database = database
        self.seen = SeenPages(database, site=site, execution=execution)

    async def see(self, sitemap: str, *names: str) -> None:
        async with self.database.write() as connection:
            await self.seen.record_seen(connection, list_urls(*names), sitemap=sitemap)

    async def find_gone(self, *, unchanged: Sequence[str] = ()) -> set[str]:
        pages = await self.seen.list_gone(unchanged=unchanged, after=None, limit=1_000)
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
        gone = await second.seen.forget(connection, list_urls("a", "b").hashes, planned_in=1)
    assert gone == list(list_urls("b").hashes)
    assert await Crawled(database, execution=3).find_gone() == {"a"}


async def test_a_page_listed_twice_in_one_block_is_recorded_once(database: Database) -> None:
    """A8, A14: PostgreSQL would refuse to write one row twice in a statement."""
    await Crawled(database, execution=1).see(NEWS, "a", "a", "b", "a")
    assert await Crawled(database, execution=2).find_gone() == {"a", "b"}


async def test_a_removal_that_was_announced_is_forgotten(database: Database) -> None:
    """A14: each is announced once; the others are still to be announced."""
    await Crawled(database, execution=1).see(NEWS, "a", "b")
    second, other = Crawled(database, execution=2), Crawled(database, execution=1, site=2)
    await other.see(NEWS, "a")
    async with database.write() as connection:
        await second.seen.forget(connection, list_urls("a").hashes, planned_in=2)
    assert await second.find_gone() == {"b"}
    assert await Crawled(database, execution=2, site=2).find_gone() == {"a"}


async def test_gone_pages_come_in_portions_without_loss(database: Database) -> None:
    """A14: in the order of the hash, below zero too, each once."""
    names = [str(number) for number in range(50)]
    await Crawled(database, execution=1).see(NEWS, *names)
    seen = SeenPages(database, site=1, execution=2)
    found: list[Page] = []
    for _ in range(len(names)):
        after = found[-1].url_hash if found else None
        found += await seen.list_gone(unchanged=[], after=after, limit=7)
    assert [page.url_hash for page in found] == sorted(list_urls(*names).hashes)
    assert found[0].url_hash < 0 < found[-1].url_hash
    assert {page.url for page in found} == {f"https://example.com/{name}" for name in names}
