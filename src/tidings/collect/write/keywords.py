"""Watched keywords: what to search for on which platform, and the result of the last search."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.crawl.platforms.protocol import check_search
from tidings.collect.errors import ErrorCode
from tidings.collect.tables import watched_keywords
from tidings.core.clock import Clock, read_timestamp, to_milliseconds
from tidings.core.db.database import Database

MOST_PAGES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyword:
    """One keyword on one platform. Every `last_…` is None before its first search."""

    id: int
    platform: str
    keyword: str
    # How many pages of results a search reads.
    pages: int
    # A disabled keyword is not searched.
    enabled: bool
    last_run_at: datetime | None
    # Notes on all pages of the last search.
    last_found: int | None
    # Those of them that became new candidates.
    last_created: int | None
    last_error_code: str | None


class Keywords:
    """The table of watched keywords."""

    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, platform: str, keyword: str, *, pages: int = 1) -> bool:
        """Watch a keyword. Returns False if it is watched already; then it is enabled with this number of pages.

        Raises CrawlError for an invalid keyword.
        """
        asked = check_search(keyword, page=pages, most_pages=MOST_PAGES)
        found = {"platform": platform, "keyword": asked}
        statement = self._database.insert(watched_keywords).values(
            **found, pages=pages, enabled=True, created_at=to_milliseconds(self._clock.now())
        )
        async with self._database.write() as connection:
            inserted = statement.on_conflict_do_nothing().returning(watched_keywords.c.id)
            new = (await connection.execute(inserted)).first() is not None
            if not new:
                change = update(watched_keywords).filter_by(**found).values(pages=pages, enabled=True)
                await connection.execute(change)
        return new

    async def remove(self, platform: str, keyword: str) -> bool:
        """Stop watching a keyword; its candidates stay. Returns False if it is not watched."""
        statement = delete(watched_keywords).where(
            watched_keywords.c.platform == platform, watched_keywords.c.keyword == keyword.strip()
        )
        async with self._database.write() as connection:
            return (await connection.execute(statement)).rowcount > 0

    async def set_enabled(self, platform: str, keyword: str, *, enabled: bool) -> bool:
        """Pause a keyword or resume it. Returns False if it is not watched."""
        statement = (
            update(watched_keywords)
            .where(watched_keywords.c.platform == platform, watched_keywords.c.keyword == keyword.strip())
            .values(enabled=enabled)
        )
        async with self._database.write() as connection:
            return (await connection.execute(statement)).rowcount > 0

    async def list_all(self) -> list[Keyword]:
        """By platform, then keyword."""
        statement = select(watched_keywords).order_by(watched_keywords.c.platform, watched_keywords.c.keyword)
        async with self._database.read() as connection:
            return [_read_keyword(row) for row in await connection.execute(statement)]

    async def find(self, keyword_id: int) -> Keyword | None:
        """The keyword of this id."""
        statement = select(watched_keywords).where(watched_keywords.c.id == keyword_id)
        async with self._database.read() as connection:
            row = (await connection.execute(statement)).first()
        return None if row is None else _read_keyword(row)

    async def list_enabled(self) -> list[Keyword]:
        return [each for each in await self.list_all() if each.enabled]


async def record_search(
    connection: AsyncConnection,
    keyword_id: int,
    *,
    found: int,
    created: int,
    code: ErrorCode | None,
    at: datetime,
    continued: bool = False,
) -> None:
    """Record the result of a search in the transaction that stores its candidates.

    `continued`: more pages of the search that was recorded last; the counts are added to it.
    """
    before, new_code = watched_keywords.c, None if code is None else code.value
    result: dict[str, Any] = {"last_found": found, "last_created": created, "last_error_code": new_code}
    if continued:
        result = {
            "last_found": func.coalesce(before.last_found, 0) + found,
            "last_created": func.coalesce(before.last_created, 0) + created,
            "last_error_code": before.last_error_code if new_code is None else new_code,
        }
    await connection.execute(
        update(watched_keywords)
        .where(watched_keywords.c.id == keyword_id)
        .values(last_run_at=to_milliseconds(at), **result)
    )


def _read_keyword(row: Any) -> Keyword:
    return Keyword(
        id=row.id,
        platform=row.platform,
        keyword=row.keyword,
        pages=row.pages,
        enabled=row.enabled,
        last_run_at=read_timestamp(row.last_run_at),
        last_found=row.last_found,
        last_created=row.last_created,
        last_error_code=row.last_error_code,
    )
