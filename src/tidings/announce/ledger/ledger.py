"""The ledger: when each page was last accepted, for each site and channel. Only success is entered.

A page is kept as a 64-bit hash of its URL with the time of its submission and the lastmod it had then. An entry counts
until the resubmission interval has passed since `submitted_at`, so that a changed setting takes effect at once. Reading
is optimised for millions of pages, most of them known: one pass over the index finds the pages of a block that need a
closer look.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import itemgetter
from typing import NamedTuple

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    delete,
    event,
    func,
    select,
    text,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.announce.due.pages import NO_LASTMOD, PageKeys, Pages
from tidings.core.db.database import Database, metadata
from tidings.core.db.postgresql_options import set_on_postgresql

ledger = Table(
    "ledger",
    metadata,
    Column("site", BigInteger, nullable=False),
    Column("channel", SmallInteger, nullable=False),
    Column("url_hash", BigInteger, nullable=False),
    Column("submitted_at", BigInteger, nullable=False),
    Column("lastmod", BigInteger),
    PrimaryKeyConstraint("site", "channel", "url_hash"),
    sqlite_with_rowid=False,
)
# With the time in the key, PostgreSQL answers the look-up of a block from the index alone. On SQLite the key is the
# table.
set_on_postgresql(ledger.primary_key, include=["submitted_at"])
set_on_postgresql(ledger, partition_by="HASH (site)")

PARTITIONS = 16

for _number in range(PARTITIONS):
    event.listen(
        ledger,
        "after_create",
        DDL(  # type: ignore[no-untyped-call]
            f"CREATE TABLE ledger_{_number} PARTITION OF ledger "
            f"FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {_number})"
        ).execute_if(dialect="postgresql"),
    )


class Channel(IntEnum):
    """The way a page reaches search engines. Powers of two, so that a sum names several."""

    INDEXNOW = 1
    BING = 2
    BAIDU = 4
    GOOGLE = 8

    def __str__(self) -> str:
        return self.name.lower()

    @property
    def has_quota(self) -> bool:
        """Whether it has a daily quota."""
        return self is not Channel.INDEXNOW


class Entry(NamedTuple):
    """When a page was last accepted, and the lastmod it had then (milliseconds)."""

    submitted_at: int
    lastmod: int | None


@dataclass(frozen=True, slots=True)
class Look:
    """A first look at a block: which hashes are unknown or old enough to be looked at closely, and the oldest entry."""

    suspects: list[int]
    oldest: int | None


_GATHER = {"sqlite": "json_group_array(asked.url_hash)", "postgresql": "array_agg(asked.url_hash)"}
# Milliseconds. An entry further in the future was made while the clock was wrong.
MOST_AHEAD = 24 * 60 * 60 * 1000
_ENTER_CONFLICT = (
    "ON CONFLICT (site, channel, url_hash) "
    "DO UPDATE SET submitted_at = excluded.submitted_at, lastmod = excluded.lastmod "
    "WHERE excluded.submitted_at >= ledger.submitted_at "
    f"OR ledger.submitted_at > excluded.submitted_at + {MOST_AHEAD}"
)


class Ledger:
    """The ledger of one site and channel."""

    def __init__(self, database: Database, *, site: int, channel: Channel) -> None:
        self._database = database
        self._names = {"site": site, "channel": channel.value}
        self._ours = (ledger.c.site == site, ledger.c.channel == channel.value)
        self._asked = database.numbers_sql("hashes", column="url_hash")

    async def is_empty(self) -> bool:
        """Whether no page of this site was ever accepted on this channel."""
        return not await self._database.fetch(select(ledger.c.url_hash).where(*self._ours).limit(1))

    async def look_up(self, hashes: Sequence[int], *, older_than: int) -> Look:
        """One pass over `hashes`, best in order: those unknown, or submitted before `older_than`."""
        statement = text(
            f"SELECT min(known.submitted_at), {_GATHER[self._database.dialect]} "
            "FILTER (WHERE known.url_hash IS NULL OR known.submitted_at < :older_than) "
            f"FROM {self._asked} AS asked LEFT JOIN ledger AS known "
            "ON known.site = :site AND known.channel = :channel AND known.url_hash = asked.url_hash"
        )
        values = {**self._names, "hashes": self._database.bind_numbers(hashes), "older_than": older_than}
        oldest, suspects = await self._database.fetch_row(statement, values)
        return Look(suspects=_read_numbers(suspects), oldest=oldest)

    async def find_entries(self, hashes: Sequence[int]) -> dict[int, Entry]:
        """The entries of those that are known, expired ones too."""
        async with self._database.read() as connection:
            return await self.read_entries(connection, hashes)

    async def read_entries(self, connection: AsyncConnection, hashes: Sequence[int]) -> dict[int, Entry]:
        """The same within the caller's transaction."""
        statement = text(
            # CROSS JOIN keeps SQLite from walking the ledger and searching the list for every row of it.
            "SELECT known.url_hash, known.submitted_at, known.lastmod "
            f"FROM {self._asked} AS asked CROSS JOIN ledger AS known "
            "WHERE known.site = :site AND known.channel = :channel AND known.url_hash = asked.url_hash"
        )
        rows = await connection.execute(statement, {**self._names, "hashes": self._database.bind_numbers(hashes)})
        return {row[0]: Entry(row[1], row[2]) for row in rows}

    async def list_entries(self, *, since: int, most: int) -> dict[int, Entry] | None:
        """All entries from `since` on; None where there are more than `most`."""
        statement = (
            select(ledger.c.url_hash, ledger.c.submitted_at, ledger.c.lastmod)
            .where(*self._ours, ledger.c.submitted_at >= since)
            .limit(most + 1)
        )
        found = {row[0]: Entry(row[1], row[2]) for row in await self._database.fetch(statement)}
        return found if len(found) <= most else None

    async def enter(self, connection: AsyncConnection, pages: Pages | PageKeys, *, at: int) -> None:
        """Record that these were accepted at `at` (milliseconds); an earlier entry is replaced, a later one stays.

        One that is later by more than a day is replaced too: the clock was ahead when it was made.
        """
        if not pages:
            return
        lastmods = [None if lastmod == NO_LASTMOD else lastmod for lastmod in pages.lastmods]
        if self._database.dialect == "sqlite":
            # In the order of the key: a batch then touches each page of the index once. Numbers that all rows share
            # stand in the statement, which is cheaper than to bind them for each.
            site, channel = self._names.values()
            rows = sorted(zip(pages.hashes, lastmods, strict=True), key=itemgetter(0))
            await connection.exec_driver_sql(
                f"INSERT INTO ledger VALUES ({site:d}, {channel:d}, ?, {at:d}, ?) {_ENTER_CONFLICT}", rows
            )
            return
        await connection.execute(
            text(
                "INSERT INTO ledger SELECT :site, :channel, page.url_hash, :at, page.lastmod FROM "
                "unnest(CAST(:hashes AS bigint[]), CAST(:lastmods AS bigint[])) AS page (url_hash, lastmod) "
                f"{_ENTER_CONFLICT}"
            ),
            {
                **self._names,
                "at": at,
                "hashes": list(pages.hashes),
                "lastmods": lastmods,
            },
        )

    async def remove(self, connection: AsyncConnection, hashes: Sequence[int]) -> int:
        """Delete these entries: if the pages come back, they are new. Returns how many there were."""
        result = await connection.execute(
            text(f"DELETE FROM ledger WHERE site = :site AND channel = :channel AND url_hash IN {self._asked}"),
            {**self._names, "hashes": self._database.bind_numbers(hashes)},
        )
        return result.rowcount

    async def forget(self, connection: AsyncConnection, *, since: int) -> int:
        """Undo what was entered at or after `since`; those pages are due again. Returns how many."""
        return (await connection.execute(delete(ledger).where(*self._ours, ledger.c.submitted_at >= since))).rowcount

    async def count(self, *, since: int) -> int:
        """How many pages were entered at or after `since` (milliseconds)."""
        return int(
            await self._database.fetch_value(select(func.count()).where(*self._ours, ledger.c.submitted_at >= since))
        )

    async def purge(self, connection: AsyncConnection, *, before: int) -> int:
        """Delete entries that expired long ago. Returns how many."""
        return (await connection.execute(delete(ledger).where(*self._ours, ledger.c.submitted_at < before))).rowcount


def _read_numbers(value: str | list[int] | None) -> list[int]:
    if isinstance(value, str):
        numbers: list[int] = json.loads(value)
        return numbers
    return value or []
