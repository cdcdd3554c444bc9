"""What is remembered of a site between executions, apart from the ledger.

Four small tables: the validators of files whose pages were all accepted (so that a 304 saves the rest), the pages of
sites that announce removals (so that a page that is gone can be noticed), the engines that refuse a site's key for
good (so that they are left alone until the key is another one), and the keys that Bing wants to rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    case,
    delete,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.due.pages import Listing, Page, Pages, hash_urls
from tidings.announce.ledger.ledger import Channel
from tidings.announce.site.site import Site
from tidings.announce.sitemap.crawl import Remembered, Validators
from tidings.core.clock import from_milliseconds, to_milliseconds
from tidings.core.db.database import Database, metadata
from tidings.core.secrets.secret import Secret

_BEFORE_ALL = -(1 << 63)

sitemap_validators = Table(
    "sitemap_validators",
    metadata,
    Column("site", BigInteger, nullable=False),
    Column("sitemap", BigInteger, nullable=False),
    Column("etag", Text),
    Column("last_modified", Text),
    Column("pages", BigInteger, nullable=False),
    Column("oldest", BigInteger, nullable=False),
    Column("channels", SmallInteger, nullable=False),
    PrimaryKeyConstraint("site", "sitemap"),
    sqlite_with_rowid=False,
)

site_pages = Table(
    "site_pages",
    metadata,
    Column("site", BigInteger, nullable=False),
    Column("url_hash", BigInteger, nullable=False),
    Column("url", Text, nullable=False),
    Column("sitemap", BigInteger, nullable=False),
    Column("seen_in", BigInteger, nullable=False),
    PrimaryKeyConstraint("site", "url_hash", "sitemap"),
    sqlite_with_rowid=False,
)

broken_engines = Table(
    "broken_engines",
    metadata,
    Column("site", BigInteger, nullable=False),
    Column("channel", SmallInteger, nullable=False),
    Column("engine", Text, nullable=False),
    Column("key_fingerprint", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
    PrimaryKeyConstraint("site", "channel", "engine"),
    sqlite_with_rowid=False,
)

bing_key_rests = Table(
    "bing_key_rests",
    metadata,
    Column("key_fingerprint", Text, primary_key=True),
    Column("until", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    sqlite_with_rowid=False,
)


class SitemapMemory:
    """The validators of one site's sitemap files."""

    def __init__(self, database: Database, *, site: int) -> None:
        self._database = database
        self._site = site

    async def recall(self, url: str, *, expired_before: int, channels: int) -> Remembered | None:
        """What to ask again with, where nothing in that file can be due before the server says that it has changed.

        A file in which an entry of before `expired_before` stands has pages that are due again, and so has one whose
        pages were not all accepted on each of `channels` (a sum of channels).
        """
        statement = select(sitemap_validators).where(
            sitemap_validators.c.site == self._site,
            sitemap_validators.c.sitemap == hash_sitemap(url),
            sitemap_validators.c.oldest >= expired_before,
            sitemap_validators.c.channels.bitwise_and(channels) == channels,
        )
        async with self._database.read() as connection:
            row = (await connection.execute(statement)).first()
        return None if row is None else Remembered(Validators(row.etag, row.last_modified), pages=row.pages)

    async def remember(
        self, connection: AsyncConnection, url: str, *, validators: Validators, pages: int, oldest: int, channels: int
    ) -> None:
        """All pages of this file are accepted on `channels` (a sum of them), the first of them at `oldest`."""
        values = {
            "etag": validators.etag,
            "last_modified": validators.last_modified,
            "pages": pages,
            "oldest": oldest,
            "channels": channels,
        }
        statement = (
            self._database.insert(sitemap_validators)
            .values(site=self._site, sitemap=hash_sitemap(url), **values)
            .on_conflict_do_update(index_elements=["site", "sitemap"], set_=values)
        )
        await connection.execute(statement)

    async def add_channel(
        self, connection: AsyncConnection, url: str, *, validators: Validators, oldest: int | None, channel: Channel
    ) -> None:
        """All pages of this file, in the state it is remembered in, are accepted on one more channel."""
        columns = sitemap_validators.c
        statement = (
            update(sitemap_validators)
            .where(
                columns.site == self._site,
                columns.sitemap == hash_sitemap(url),
                columns.etag.is_not_distinct_from(validators.etag),
                columns.last_modified.is_not_distinct_from(validators.last_modified),
            )
            .values(channels=columns.channels.bitwise_or(channel.value))
        )
        if oldest is not None:
            older = case((columns.oldest > oldest, oldest), else_=columns.oldest)
            statement = statement.values(oldest=older)
        await connection.execute(statement)

    async def forget(self, connection: AsyncConnection) -> None:
        """Read every file in full next time."""
        await connection.execute(delete(sitemap_validators).where(sitemap_validators.c.site == self._site))


class PageMemory:
    """The pages that stood in one site's sitemap, for noticing those that left it."""

    def __init__(self, database: Database, *, site: int, execution: int) -> None:
        self._database = database
        self._site = site
        self._execution = execution

    async def note_seen(self, connection: AsyncConnection, listing: Listing, *, sitemap: str) -> None:
        """These stand in `sitemap` now."""
        number = hash_sitemap(sitemap)
        statement = self._database.insert(site_pages)
        await connection.execute(
            statement.on_conflict_do_update(
                index_elements=["site", "url_hash", "sitemap"],
                set_={"seen_in": statement.excluded.seen_in},
            ),
            [
                {"site": self._site, "url_hash": h, "url": u.decode(), "sitemap": number, "seen_in": self._execution}
                for h, u in dict(zip(listing.hashes, listing.urls, strict=True)).items()
            ],
        )

    async def list_gone(self, *, unchanged: Sequence[str], after: int | None, limit: int) -> Pages:
        """The next pages that were not seen in this execution, in the order of the hash.

        Pages of `unchanged` files, which were not read, still stand. A page may stand in several files.
        """
        statement = text(
            "SELECT page.url_hash, min(page.url) AS url FROM site_pages AS page JOIN "
            # When each file was last read: what it listed before that and not then has left it.
            "(SELECT sitemap, max(seen_in) AS read_in FROM site_pages WHERE site = :site GROUP BY sitemap) AS file "
            "ON file.sitemap = page.sitemap WHERE page.site = :site AND page.url_hash > :after "
            "GROUP BY page.url_hash HAVING max(CASE WHEN page.seen_in = :execution OR (page.seen_in = file.read_in AND "
            f"page.sitemap IN {self._database.numbers_sql('unchanged', column='sitemap')}) THEN 1 ELSE 0 END) = 0 "
            "ORDER BY page.url_hash LIMIT :limit"
        )
        values = {
            "site": self._site,
            "execution": self._execution,
            "unchanged": self._database.bind_numbers([hash_sitemap(url) for url in unchanged]),
            "after": _BEFORE_ALL if after is None else after,
            "limit": limit,
        }
        async with self._database.read() as connection:
            rows = await connection.execute(statement, values)
            return Pages.gather((Page(row.url_hash, row.url) for row in rows), removed=True)

    async def forget(self, connection: AsyncConnection, hashes: Sequence[int]) -> list[int]:
        """Their removal has been announced. Returns those that have not come back in this execution."""
        numbers = self._database.numbers_sql("hashes", column="url_hash")
        values = {"site": self._site, "execution": self._execution, "hashes": self._database.bind_numbers(hashes)}
        back = await connection.execute(
            text(
                f"SELECT url_hash FROM site_pages WHERE site = :site AND seen_in = :execution AND url_hash IN {numbers}"
            ),
            values,
        )
        returned = set(back.scalars())
        gone = [url_hash for url_hash in hashes if url_hash not in returned]
        statement = text(f"DELETE FROM site_pages WHERE site = :site AND url_hash IN {numbers}")
        await connection.execute(statement, {"site": self._site, "hashes": self._database.bind_numbers(gone)})
        return gone


@dataclass(frozen=True, slots=True)
class BrokenEngine:
    """An engine that refuses the site's key for good, and why."""

    engine: str
    reason: str
    since: datetime


class BrokenEngines:
    """The engines that are left alone until the site has another key for this channel."""

    def __init__(self, database: Database, *, site: Site, channel: Channel) -> None:
        self._database = database
        self._site = site
        self._channel = channel
        key = site.key if channel is Channel.INDEXNOW else site.bing.key
        self._fingerprint = "" if key is None else key.fingerprint

    async def list_broken(self) -> list[BrokenEngine]:
        """Those that refused the present key."""
        statement = select(broken_engines).where(
            broken_engines.c.site == self._site.number,
            broken_engines.c.channel == self._channel.value,
            broken_engines.c.key_fingerprint == self._fingerprint,
        )
        async with self._database.read() as connection:
            return [
                BrokenEngine(row.engine, row.reason, from_milliseconds(row.since))
                for row in await connection.execute(statement)
            ]

    async def mark(self, connection: AsyncConnection, engine: str, *, reason: str, at: int) -> None:
        """This engine refuses the present key."""
        values: dict[str, Any] = {"key_fingerprint": self._fingerprint, "reason": reason, "since": at}
        statement = (
            self._database.insert(broken_engines)
            .values(site=self._site.number, channel=self._channel.value, engine=engine, **values)
            .on_conflict_do_update(index_elements=["site", "channel", "engine"], set_=values)
        )
        await connection.execute(statement)

    async def free(self, connection: AsyncConnection) -> int:
        """Try them all again, with the same key; returns how many there were."""
        statement = delete(broken_engines).where(
            broken_engines.c.site == self._site.number, broken_engines.c.channel == self._channel.value
        )
        return (await connection.execute(statement)).rowcount


@dataclass(frozen=True, slots=True)
class Rest:
    """Until when a key is not to be used, and why."""

    until: datetime
    reason: str


class KeyRests:
    """The keys that Bing wants to rest, each for all sites that use it. Only its fingerprint is kept."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, key: Secret, *, now: datetime) -> Rest | None:
        """The rest that this key has, unless it is over."""
        statement = select(bing_key_rests).where(
            bing_key_rests.c.key_fingerprint == key.fingerprint, bing_key_rests.c.until > to_milliseconds(now)
        )
        async with self._database.read() as connection:
            row = (await connection.execute(statement)).first()
        return None if row is None else Rest(from_milliseconds(row.until), row.reason)

    async def begin(self, connection: AsyncConnection, key: Secret, *, until: datetime, reason: str) -> None:
        """This key rests until then."""
        values = {"until": to_milliseconds(until), "reason": reason}
        statement = (
            self._database.insert(bing_key_rests)
            .values(key_fingerprint=key.fingerprint, **values)
            .on_conflict_do_update(index_elements=["key_fingerprint"], set_=values)
        )
        await connection.execute(statement)


def hash_sitemap(url: str) -> int:
    """A sitemap's short name in the tables."""
    return hash_urls([url.encode()])[0]
