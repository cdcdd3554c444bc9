"""What an engine has yet to take: pages that failed at it, and pages that another engine took first.

A row belongs to a URL and an engine. It appears with a reason when the engine failed, and without one in the same
transaction in which another engine's success was entered, so that a crash in between cannot lose the slower engine's
copy. The next execution sends these first, each to its own engine. While an execution runs, a row also says that this
engine has been seen to for this page, so that nothing goes to it twice.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Executable,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    delete,
    func,
    select,
    text,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.due.pages import Page, Pages
from tidings.announce.ledger.ledger import Channel
from tidings.core.clock import from_milliseconds
from tidings.core.db.database import Database, metadata

undelivered = Table(
    "undelivered",
    metadata,
    Column("site", BigInteger, nullable=False),
    Column("channel", SmallInteger, nullable=False),
    Column("engine", Text, nullable=False),
    Column("url_hash", BigInteger, nullable=False),
    Column("url", Text, nullable=False),
    Column("lastmod", BigInteger),
    Column("removed", Boolean, nullable=False),
    Column("reason", Text),
    Column("attempts", Integer, nullable=False),
    Column("failed_at", BigInteger),
    Column("created_in", BigInteger, nullable=False),
    Column("attempted_in", BigInteger),
    Column("delivered_in", BigInteger),
    PrimaryKeyConstraint("site", "channel", "engine", "url_hash"),
    sqlite_with_rowid=False,
)

_columns = undelivered.c
_PORTION = 1_000


@dataclass(frozen=True, slots=True)
class FailedPage:
    """One failure, for people."""

    url: str
    engine: str
    reason: str
    attempts: int
    failed_at: datetime


class Undelivered:
    """The rows of one site and channel, as one execution sees them."""

    def __init__(self, database: Database, *, site: int, channel: Channel, execution: int) -> None:
        self._database = database
        self._names = {"site": site, "channel": channel.value}
        self._execution = execution
        self._ours = (_columns.site == site, _columns.channel == channel.value)

    async def sweep(self, connection: AsyncConnection) -> None:
        """Delete what has been delivered."""
        await connection.execute(delete(undelivered).where(*self._ours, _columns.delivered_in.is_not(None)))

    async def count_failed(self, connection: AsyncConnection, *, expired_before: int) -> int:
        """How many different pages failed in this execution and are not in the ledger: no engine took them."""
        statement = text(
            "SELECT count(DISTINCT failed.url_hash) FROM undelivered AS failed LEFT JOIN ledger AS known "
            "ON known.site = failed.site AND known.channel = failed.channel AND known.url_hash = failed.url_hash "
            "AND known.submitted_at >= :expired_before "
            "WHERE failed.site = :site AND failed.channel = :channel AND failed.attempted_in = :execution "
            "AND failed.delivered_in IS NULL AND known.url_hash IS NULL"
        )
        values = {**self._names, "execution": self._execution, "expired_before": expired_before}
        return int((await connection.execute(statement, values)).scalar_one())

    async def find_engines(self, hashes: Sequence[int], *, engines: Sequence[str]) -> dict[int, frozenset[str]]:
        """For those of `hashes` that have rows: which of `engines` need nothing more in this execution."""
        statement = text(
            "SELECT url_hash FROM undelivered WHERE site = :site AND channel = :channel AND engine = :engine "
            f"AND url_hash IN {self._database.numbers_sql('hashes', column='url_hash')}"
        )
        found: defaultdict[int, set[str]] = defaultdict(set)
        values = {**self._names, "hashes": self._database.bind_numbers(hashes)}
        async with self._database.read() as connection:
            for engine in engines:
                for (url_hash,) in await connection.execute(statement, {**values, "engine": engine}):
                    found[url_hash].add(engine)
        return {url_hash: frozenset(engines) for url_hash, engines in found.items()}

    async def list_open(
        self, engine: str, *, removed: bool, earlier_only: bool, after: int | None, limit: int
    ) -> Pages:
        """The next pages that `engine` has yet to take and was not sent in this execution, in the order of the hash.

        `earlier_only` leaves out what this execution itself put here.
        """
        statement = (
            select(_columns.url_hash, _columns.url, _columns.lastmod)
            .where(
                *self._ours,
                _columns.engine == engine,
                _columns.removed.is_(removed),
                _columns.delivered_in.is_(None),
                func.coalesce(_columns.attempted_in, 0) != self._execution,
            )
            .order_by(_columns.url_hash)
            .limit(limit)
        )
        if earlier_only:
            statement = statement.where(_columns.created_in < self._execution)
        if after is not None:
            statement = statement.where(_columns.url_hash > after)
        async with self._database.read() as connection:
            rows = await connection.execute(statement)
            return Pages.gather((Page(*row) for row in rows), removed=removed)

    async def owe(self, connection: AsyncConnection, pages: Pages, *, engines: Sequence[str]) -> None:
        """Note that these engines have yet to be sent `pages`."""
        statement = self._database.insert(undelivered).on_conflict_do_nothing()
        for engine in engines:
            await self._write(connection, statement, pages, engine=engine, attempts=0)

    async def fail(
        self, connection: AsyncConnection, pages: Pages, *, engine: str, reason: str, attempts: int, at: int
    ) -> None:
        """Note that `engine` did not take `pages` in so many attempts; a repeated failure adds to them."""
        statement = self._database.insert(undelivered)
        repeated = statement.on_conflict_do_update(
            index_elements=["site", "channel", "engine", "url_hash"],
            set_={
                "reason": statement.excluded.reason,
                "attempts": _columns.attempts + statement.excluded.attempts,
                "failed_at": statement.excluded.failed_at,
                "attempted_in": statement.excluded.attempted_in,
                "lastmod": statement.excluded.lastmod,
            },
        )
        await self._write(
            connection,
            repeated,
            pages,
            engine=engine,
            reason=reason,
            attempts=attempts,
            failed_at=at,
            attempted_in=self._execution,
        )

    async def settle(self, connection: AsyncConnection, hashes: Sequence[int], *, engine: str) -> None:
        """`engine` took them. What this execution itself put here goes; the rest is kept, as taken, until its end."""
        values = {
            **self._names,
            "engine": engine,
            "execution": self._execution,
            "hashes": self._database.bind_numbers(hashes),
        }
        those = (
            "WHERE site = :site AND channel = :channel AND engine = :engine "
            f"AND url_hash IN {self._database.numbers_sql('hashes', column='url_hash')}"
        )
        await connection.execute(text(f"DELETE FROM undelivered {those} AND created_in = :execution"), values)
        await connection.execute(text(f"UPDATE undelivered SET delivered_in = :execution {those}"), values)

    async def list_failed(self, *, limit: int = 100) -> list[FailedPage]:
        """The newest failures first."""
        statement = (
            select(_columns.url, _columns.engine, _columns.reason, _columns.attempts, _columns.failed_at)
            .where(*self._ours, _columns.reason.is_not(None), _columns.delivered_in.is_(None))
            .order_by(_columns.failed_at.desc(), _columns.url)
            .limit(limit)
        )
        async with self._database.read() as connection:
            return [
                FailedPage(row.url, row.engine, row.reason, row.attempts, from_milliseconds(row.failed_at))
                for row in await connection.execute(statement)
            ]

    async def _write(
        self, connection: AsyncConnection, statement: Executable, pages: Pages, **values: str | int
    ) -> None:
        """One row for each page. In portions: as rows for the driver, pages take ten times the memory."""
        same = {**self._names, "removed": pages.removed, "created_in": self._execution, **values}
        for start in range(0, len(pages), _PORTION):
            part = pages.cut(start, start + _PORTION)
            await connection.execute(
                statement,
                [{**same, "url_hash": page.url_hash, "url": page.url, "lastmod": page.lastmod} for page in part],
            )
