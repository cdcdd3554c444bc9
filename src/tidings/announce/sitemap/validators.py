"""Validators of sitemap files (ETag, Last-Modified), so that an unchanged file costs one request and nothing else.

They are stored once every page of the file is on record on a channel: in the ledger, or waiting in the outbox.
"""

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, SmallInteger, Table, Text, case, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.due.pages import hash_urls
from tidings.announce.ledger.ledger import Channel
from tidings.announce.sitemap.events import Remembered, SitemapFile, Validators
from tidings.core.db.database import Database, metadata

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
    # The checksum of the file's content.
    Column("digest", BigInteger),
    PrimaryKeyConstraint("site", "sitemap"),
    sqlite_with_rowid=False,
)


class SitemapValidators:
    """The validators of one site's sitemap files."""

    def __init__(self, database: Database, *, site: int) -> None:
        self._database = database
        self._site = site

    async def recall(self, url: str, *, expired_before: int, channels: int) -> Remembered | None:
        """The validators to ask with, or None if the file must be read in full.

        A file is read in full if its oldest entry is from before `expired_before` (milliseconds), or if its pages are
        not on record on each of `channels` (a sum of channels).
        """
        statement = select(sitemap_validators).where(
            sitemap_validators.c.site == self._site,
            sitemap_validators.c.sitemap == hash_sitemap(url),
            sitemap_validators.c.oldest >= expired_before,
            sitemap_validators.c.channels.bitwise_and(channels) == channels,
        )
        row = await self._database.fetch_row(statement)
        if row is None:
            return None
        return Remembered(Validators(row.etag, row.last_modified), pages=row.pages, digest=row.digest or 0)

    async def store(
        self, connection: AsyncConnection, file: SitemapFile, *, pages: int, oldest: int, channels: int
    ) -> None:
        """All pages of this file are on record on `channels` (a sum), the oldest entry at `oldest` (milliseconds)."""
        values = {
            "etag": file.validators.etag,
            "last_modified": file.validators.last_modified,
            "pages": pages,
            "digest": file.digest,
            "oldest": oldest,
            "channels": channels,
        }
        key = {"site": self._site, "sitemap": hash_sitemap(file.url)}
        await self._database.store(connection, sitemap_validators, key=key, values=values)

    async def add_channel(
        self, connection: AsyncConnection, url: str, *, validators: Validators, oldest: int, channel: Channel
    ) -> None:
        """All pages of this file, in the state that the validators name, are on record on one more channel."""
        columns = sitemap_validators.c
        statement = (
            update(sitemap_validators)
            .where(
                columns.site == self._site,
                columns.sitemap == hash_sitemap(url),
                columns.etag.is_not_distinct_from(validators.etag),
                columns.last_modified.is_not_distinct_from(validators.last_modified),
            )
            .values(
                channels=columns.channels.bitwise_or(channel.value),
                oldest=case((columns.oldest > oldest, oldest), else_=columns.oldest),
            )
        )
        await connection.execute(statement)

    async def forget(self, connection: AsyncConnection) -> None:
        """Delete all of them: every file is read in full next time."""
        await connection.execute(delete(sitemap_validators).where(sitemap_validators.c.site == self._site))


def hash_sitemap(url: str) -> int:
    """The number of a sitemap file in the tables."""
    return hash_urls([url.encode()])[0]
