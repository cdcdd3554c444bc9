"""Reads collected notes: one, a page of a filtered list, or all of them in blocks. The newest collected come first.

Each read is short: a long list is many small transactions, so readers never hold up a writer or the database's upkeep.
"""

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, or_, select, tuple_

from tidings.collect.archive.search import match_text
from tidings.collect.notes import Counts, Note, NoteKind, read_note
from tidings.collect.tables import note_snapshots, sources
from tidings.core.clock import from_milliseconds, to_milliseconds, to_text
from tidings.core.db.database import Database

MOST_IN_PAGE: Final = 500
# The pattern of a cursor.
CURSOR: Final = "^[0-9]{1,18}$"
_BLOCK: Final = 200

_columns = tuple(
    sources.c[name] for name in ("id", "content", "source_keyword", "version", "idempotency_key", "collected_at")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFilter:
    """Which notes are wanted. Every condition that is not None must hold."""

    platform: str | None = None
    # The keyword that found the note first.
    keyword: str | None = None
    # The author's name or id, as the platform writes it.
    author: str | None = None
    kind: NoteKind | None = None
    # Published at this time or later, and before that time. If the date is unknown, the time of collection counts.
    since: datetime | None = None
    until: datetime | None = None
    # Words that the note has in title, author, tags or text.
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNote:
    """A version of a collected note, usually the latest."""

    # The row's number; later notes have higher ones.
    id: int
    note: Note
    # The keyword that found it first.
    keyword: str
    # Begins with 1, and grows with each change of title or text.
    version: int
    idempotency_key: str
    # When this version was collected.
    collected_at: datetime

    def describe(self) -> dict[str, object]:
        """The note as a JSON object: the fields of the crawl API, and how it was collected."""
        return {
            **self.note.describe(),
            "keyword": self.keyword,
            "version": self.version,
            "idempotency_key": self.idempotency_key,
            "collected_at": to_text(self.collected_at),
        }


@dataclass(frozen=True, slots=True)
class NoteSnapshot:
    """The counts of a note at one reading."""

    taken_at: datetime
    counts: Counts

    def describe(self) -> dict[str, object]:
        """The snapshot as a JSON object."""
        return {"taken_at": to_text(self.taken_at), **self.counts.describe()}


@dataclass(frozen=True, slots=True)
class NotePage:
    """A page of a list."""

    notes: Sequence[StoredNote]
    # The cursor of the next page; None at the end.
    next: str | None


class CursorError(ValueError):
    """The cursor is not one that a page gave."""

    def __init__(self) -> None:
        super().__init__("the cursor must be the `next` of a page")


class NoteArchive:
    """The collected notes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_page(self, wanted: NoteFilter, *, limit: int, cursor: str | None = None) -> NotePage:
        """At most `limit` notes, the newest collected first, from the cursor on. Raises CursorError.

        Notes that are collected meanwhile do not shift the following pages.
        """
        statement = self._select(wanted, *_columns).order_by(sources.c.id.desc()).limit(limit + 1)
        if cursor is not None:
            statement = statement.where(sources.c.id < read_cursor(cursor))
        rows = await self._database.fetch(statement)
        notes = [_read_row(row) for row in rows[:limit]]
        return NotePage(notes, str(notes[-1].id) if len(rows) > limit else None)

    async def find(self, platform: str, note_id: str) -> StoredNote | None:
        """The latest version of a note."""
        statement = select(*_columns).where(
            sources.c.platform == platform, sources.c.note_id == note_id, sources.c.is_latest
        )
        row = await self._database.fetch_row(statement)
        return None if row is None else _read_row(row)

    async def list_versions(self, platform: str, note_id: str) -> list[StoredNote]:
        """All versions of a note, the oldest first: one, and one more for each change of title or text."""
        statement = select(*_columns).where(sources.c.platform == platform, sources.c.note_id == note_id)
        return [_read_row(row) for row in await self._database.fetch(statement.order_by(sources.c.version))]

    async def list_snapshots(self, platform: str, note_id: str) -> list[NoteSnapshot]:
        """The counts of a note over time, the oldest first: one snapshot for each time that it was read."""
        return (await self.read_snapshots([(platform, note_id)])).get((platform, note_id), [])

    async def read_snapshots(self, notes: Collection[tuple[str, str]]) -> dict[tuple[str, str], list[NoteSnapshot]]:
        """The snapshots of these notes, by platform and note id."""
        is_wanted = tuple_(note_snapshots.c.platform, note_snapshots.c.note_id).in_(list(notes))
        statement = select(note_snapshots).where(is_wanted).order_by(note_snapshots.c.taken_at)
        found: dict[tuple[str, str], list[NoteSnapshot]] = defaultdict(list)
        for row in await self._database.fetch(statement):
            counts = Counts(**{name: getattr(row, name) for name in Counts.__slots__})
            found[row.platform, row.note_id].append(NoteSnapshot(from_milliseconds(row.taken_at), counts))
        return found

    async def count(self, wanted: NoteFilter, *, most: int | None = None) -> int:
        """How many notes match; counting ends at `most`."""
        statement = self._select(wanted, func.count())
        if most is not None:
            some = self._select(wanted, sources.c.id).limit(most).subquery()
            statement = select(func.count()).select_from(some)
        return int(await self._database.fetch_value(statement))

    async def stream(self, wanted: NoteFilter) -> AsyncIterator[Sequence[StoredNote]]:
        """All notes that match, the oldest collected first, in blocks: constant memory for any number.

        Notes that are collected after the start are left out, so it ends.
        """
        newest = await self._database.fetch_value(select(func.max(sources.c.id))) or 0
        last, is_more = 0, True
        statement = self._select(wanted, *_columns).order_by(sources.c.id).limit(_BLOCK)
        while is_more:
            rows = await self._database.fetch(statement.where(sources.c.id > last, sources.c.id <= newest))
            is_more = len(rows) == _BLOCK
            if rows:
                yield [_read_row(row) for row in rows]
                last = rows[-1].id

    def _select(self, wanted: NoteFilter, *columns: Any) -> Select[Any]:
        return select(*columns).select_from(sources).where(sources.c.is_latest, *self._list_conditions(wanted))

    def _list_conditions(self, wanted: NoteFilter) -> list[ColumnElement[bool]]:
        conditions: list[ColumnElement[bool] | None] = [
            None if wanted.platform is None else sources.c.platform == wanted.platform,
            None if wanted.keyword is None else sources.c.source_keyword == wanted.keyword,
            None
            if wanted.author is None
            else or_(sources.c.author_name == wanted.author, sources.c.author_id == wanted.author),
            None if wanted.kind is None else sources.c.kind == wanted.kind.value,
            None if wanted.since is None else sources.c.dated_at >= to_milliseconds(wanted.since),
            None if wanted.until is None else sources.c.dated_at < to_milliseconds(wanted.until),
            match_text(wanted.text, dialect=self._database.dialect) if wanted.text else None,
        ]
        return [condition for condition in conditions if condition is not None]


def read_cursor(cursor: str) -> int:
    """The row number of a cursor. Raises CursorError."""
    if re.fullmatch(CURSOR, cursor) is None:
        raise CursorError
    return int(cursor)


def _read_row(row: Any) -> StoredNote:
    return StoredNote(
        id=row.id,
        note=read_note(json.loads(row.content)),
        keyword=row.source_keyword,
        version=row.version,
        idempotency_key=row.idempotency_key,
        collected_at=from_milliseconds(row.collected_at),
    )
