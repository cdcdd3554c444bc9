"""Watched keywords: what to search for on which platform, refreshes and comments of its notes, and the last search."""

from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.comments import MOST_COMMENTS
from tidings.collect.crawl.platforms.protocol import check_search
from tidings.collect.errors import CrawlError, ErrorCode
from tidings.collect.tables import candidates, watched_keywords
from tidings.collect.write.comments.threads import begin_threads_of, end_threads_of
from tidings.core.clock import Clock, parse_duration, read_timestamp, to_milliseconds, write_duration
from tidings.core.db.database import Database

MOST_PAGES: Final = 20
_SHORTEST_REFRESH: Final = timedelta(minutes=10)
_LONGEST_REFRESH: Final = timedelta(days=365)
_PERIOD: Final = timedelta(days=7)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """How often and how long the notes of a keyword are read again."""

    # They are read again this often …
    every: timedelta
    # … for this long after each was collected.
    period: timedelta

    def __str__(self) -> str:
        return f"{write_duration(self.every)} / {write_duration(self.period)}"


# Ends the refreshes of a keyword.
NO_REFRESH: Final = RefreshPlan(timedelta(0), timedelta(0))


def parse_refresh(every: str, period: str | None) -> RefreshPlan:
    """The plan of these durations, such as `12h` and `7d`; a number alone means days. Raises CrawlError."""
    try:
        often = parse_duration(every, unit="d")
        plan = RefreshPlan(often, max(often, _PERIOD) if period is None else parse_duration(period, unit="d"))
    except ValueError as error:
        raise CrawlError(ErrorCode.INVALID_INPUT, f"the refresh: {error}") from None
    if not _SHORTEST_REFRESH <= plan.every <= plan.period <= _LONGEST_REFRESH:
        rule = "notes can be read again every 10 minutes or less often, for at least that long and at most 365 days"
        raise CrawlError(ErrorCode.INVALID_INPUT, rule)
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyword:
    """One keyword on one platform. Every `last_…` is None before its first search."""

    id: int
    platform: str
    keyword: str
    # How many pages of results a search reads.
    pages: int
    # None: its notes are read once.
    refresh: RefreshPlan | None
    # How many comments of each of its notes are collected; 0: none.
    comments: int
    # A disabled keyword is not searched, and its notes are not read again.
    enabled: bool
    last_run_at: datetime | None
    # Notes on all pages of the last search.
    last_found: int | None
    # Those of them that became new candidates.
    last_created: int | None
    last_error_code: str | None


@dataclass(frozen=True, slots=True)
class Keywords:
    """The table of watched keywords."""

    database: Database
    _: KW_ONLY
    clock: Clock

    async def add(
        self,
        platform: str,
        keyword: str,
        *,
        pages: int | None = None,
        refresh: RefreshPlan | None = None,
        comments: int | None = None,
    ) -> bool:
        """Watch a keyword. Returns False if it is watched already; then it is changed and enabled.

        `pages`: how many pages of results a search reads, 1 for a new keyword. `refresh`: NO_REFRESH ends the one that
        it has. `comments`: how many of each note, 0 for none. None keeps what the keyword has. Refresh and comments
        also hold for notes that were collected before. Raises CrawlError for an invalid keyword.
        """
        asked = check_search(keyword, page=1 if pages is None else pages, most_pages=MOST_PAGES)
        check_comments(comments)
        found, now = {"platform": platform, "keyword": asked}, self.clock.now()
        values: dict[str, Any] = {"enabled": True}
        values |= {} if pages is None else {"pages": pages}
        values |= {} if refresh is None else _describe_plan(refresh)
        values |= {} if comments is None else {"comments": comments or None}
        statement = self.database.insert(watched_keywords).values(
            **{"pages": 1} | found | values, created_at=to_milliseconds(now)
        )
        async with self.database.write() as connection:
            inserted = statement.on_conflict_do_nothing().returning(watched_keywords.c.id)
            new = (await connection.execute(inserted)).first() is not None
            if not new:
                await connection.execute(update(watched_keywords).filter_by(**found).values(values))
            if refresh is not None:
                await _replan_notes(connection, platform, asked, plan=refresh, at=now)
            if comments == 0:
                await end_threads_of(connection, **found, at=now)
            elif comments is not None:
                await begin_threads_of(connection, self.database, **found, wanted=comments, at=now)
        return new

    async def remove(self, platform: str, keyword: str) -> bool:
        """Stop watching a keyword; its candidates stay. Returns False if it is not watched."""
        asked = keyword.strip()
        statement = delete(watched_keywords).filter_by(platform=platform, keyword=asked)
        async with self.database.write() as connection:
            await _replan_notes(connection, platform, asked, plan=NO_REFRESH, at=self.clock.now())
            await end_threads_of(connection, platform=platform, keyword=asked, at=self.clock.now())
            return (await connection.execute(statement)).rowcount > 0

    async def set_enabled(self, platform: str, keyword: str, *, enabled: bool) -> bool:
        """Pause a keyword or resume it. Returns False if it is not watched."""
        statement = (
            update(watched_keywords)
            .where(watched_keywords.c.platform == platform, watched_keywords.c.keyword == keyword.strip())
            .values(enabled=enabled)
        )
        return await self.database.change(statement) > 0

    async def list_all(self) -> list[Keyword]:
        """By platform, then keyword."""
        async with self.database.read() as connection:
            return await list_keywords(connection)

    async def find(self, keyword_id: int) -> Keyword | None:
        """The keyword of this id."""
        statement = select(watched_keywords).where(watched_keywords.c.id == keyword_id)
        row = await self.database.fetch_row(statement)
        return None if row is None else _read_keyword(row)

    async def list_enabled(self) -> list[Keyword]:
        return [each for each in await self.list_all() if each.enabled]


async def list_keywords(connection: AsyncConnection) -> list[Keyword]:
    """Every keyword, by platform, then keyword."""
    statement = select(watched_keywords).order_by(watched_keywords.c.platform, watched_keywords.c.keyword)
    return [_read_keyword(row) for row in await connection.execute(statement)]


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


def check_comments(wanted: int | None) -> None:
    """Raises CrawlError for a number of comments that no keyword can ask for."""
    if wanted is not None and not 0 <= wanted <= MOST_COMMENTS:
        rule = f"the number of comments must be from 0 to {MOST_COMMENTS:,}"
        raise CrawlError(ErrorCode.INVALID_INPUT, rule)


async def _replan_notes(
    connection: AsyncConnection, platform: str, keyword: str, *, plan: RefreshPlan, at: datetime
) -> None:
    """Apply a plan to the collected notes of a keyword: only those that are recent enough are read again."""
    of_keyword = update(candidates).where(
        text("tbl_candidate.status = 'collected'"),
        candidates.c.platform == platform,
        candidates.c.source_keyword == keyword,
    )
    await connection.execute(of_keyword.where(candidates.c.refresh_at.is_not(None)).values(refresh_at=None))
    if plan != NO_REFRESH:
        recent = candidates.c.updated_at > to_milliseconds(at - plan.period)
        next_at = candidates.c.updated_at + plan.every // _MILLISECOND
        await connection.execute(of_keyword.where(recent).values(refresh_at=next_at))


def _describe_plan(plan: RefreshPlan) -> dict[str, int | None]:
    if plan == NO_REFRESH:
        return {"refresh_every": None, "refresh_for": None}
    return {"refresh_every": plan.every // _MILLISECOND, "refresh_for": plan.period // _MILLISECOND}


def read_plan(row: Any) -> RefreshPlan | None:
    """The plan of a keyword, or of the keyword of a held candidate; None if it is not watched."""
    if row.refresh_every is None:
        return None
    return RefreshPlan(row.refresh_every * _MILLISECOND, (row.refresh_for or row.refresh_every) * _MILLISECOND)


def _read_keyword(row: Any) -> Keyword:
    return Keyword(
        id=row.id,
        platform=row.platform,
        keyword=row.keyword,
        pages=row.pages,
        refresh=read_plan(row),
        comments=row.comments or 0,
        enabled=row.enabled,
        last_run_at=read_timestamp(row.last_run_at),
        last_found=row.last_found,
        last_created=row.last_created,
        last_error_code=row.last_error_code,
    )
