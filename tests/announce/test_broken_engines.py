"""Engines that refuse a site's key: left alone until there is another key."""

from dataclasses import replace

import pytest

from tidings.announce.channels.broken_engines import BrokenEngine, BrokenEngines
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.site import Site, make_site
from tidings.core.clock import from_milliseconds
from tidings.core.db.database import Database
from tidings.core.secrets.secret import Secret

NEWS = "https://example.com/news.xml"
ALPHA, BETA = "https://alpha.example/indexnow", "https://beta.example/indexnow"
NOON = 1_800_000_000_000


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
    """A22: the latest refusal counts; the key of before would have to be tried again."""
    rotated = replace(site, key=Secret("other-key-12345678"))
    await break_engine(database, site, ALPHA)
    await break_engine(database, site, BETA)
    await break_engine(database, rotated, ALPHA, reason="HTTP 403: again", at=NOON + 1)
    assert await list_broken(database, rotated) == [BrokenEngine(ALPHA, "HTTP 403: again", from_milliseconds(NOON + 1))]
    assert [engine.engine for engine in await list_broken(database, site)] == [BETA]
