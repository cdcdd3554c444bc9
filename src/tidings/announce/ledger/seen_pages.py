"""The pages of a site's sitemap, so that pages which leave it can be announced as removed (opt-in per site)."""

from collections.abc import Sequence

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, Table, Text, text
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.due.pages import Listing, Page, Pages
from tidings.announce.sitemap.validators import hash_sitemap
from tidings.core.db.database import Database, metadata

_BEFORE_ALL = -(1 << 63)

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


class SeenPages:
    """The pages of one site's sitemap, as one execution sees them."""

    def __init__(self, database: Database, *, site: int, execution: int) -> None:
        self._database = database
        self._site = site
        self._execution = execution

    async def record_seen(self, connection: AsyncConnection, listing: Listing, *, sitemap: str) -> None:
        """Record that these pages stand in `sitemap` now."""
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

        Pages of `unchanged` files, which were not read, count as seen. A page may stand in several files.
        """
        statement = text(
            "SELECT page.url_hash, min(page.url) AS url FROM site_pages AS page JOIN "
            # When each file was last read: pages that it listed before, but not then, have left it.
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
        rows = await self._database.fetch(statement, values)
        return Pages.gather((Page(row.url_hash, row.url) for row in rows), removed=True)

    async def forget(self, connection: AsyncConnection, hashes: Sequence[int], *, planned_in: int) -> list[int]:
        """Forget pages whose removal, planned in execution `planned_in`, was announced.

        Returns those that have not come back to the sitemap since.
        """
        numbers = self._database.numbers_sql("hashes", column="url_hash")
        values = {"site": self._site, "planned_in": planned_in, "hashes": self._database.bind_numbers(hashes)}
        back = await connection.execute(
            text(
                "SELECT url_hash FROM site_pages "
                f"WHERE site = :site AND seen_in > :planned_in AND url_hash IN {numbers}"
            ),
            values,
        )
        returned = set(back.scalars())
        gone = [url_hash for url_hash in hashes if url_hash not in returned]
        statement = text(f"DELETE FROM site_pages WHERE site = :site AND url_hash IN {numbers}")
        await connection.execute(statement, {"site": self._site, "hashes": self._database.bind_numbers(gone)})
        return gone
