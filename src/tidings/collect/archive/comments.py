"""Reads collected comments: a page of those of a note, or those of several notes at once."""

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, tuple_

from tidings.collect.archive.archive import read_cursor
from tidings.collect.comments import Comment
from tidings.collect.notes import Author
from tidings.collect.tables import comments
from tidings.core.clock import from_milliseconds, read_timestamp, to_text
from tidings.core.db.database import Database

# Platform and note id.
NoteKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredComment:
    """A collected comment, as it was read last."""

    # The row's number; comments that were read later have higher ones.
    id: int
    platform: str
    note_id: str
    comment: Comment
    # When it was read first.
    collected_at: datetime

    def describe(self) -> dict[str, object]:
        """The comment as a JSON object."""
        named = {"platform": self.platform, "note_id": self.note_id}
        return {**named, **self.comment.describe(), "collected_at": to_text(self.collected_at)}


@dataclass(frozen=True, slots=True)
class StoredCommentPage:
    """A page of the comments of a note."""

    comments: Sequence[StoredComment]
    # The cursor of the next page; None at the end.
    next: str | None


class CommentArchive:
    """The collected comments."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_page(
        self, platform: str, note_id: str, *, limit: int, cursor: str | None = None
    ) -> StoredCommentPage:
        """At most `limit` comments of a note in the platform's order, from the cursor on. Raises CursorError."""
        statement = select(comments).filter_by(platform=platform, note_id=note_id)
        if cursor is not None:
            statement = statement.where(comments.c.id > read_cursor(cursor))
        rows = await self._database.fetch(statement.order_by(comments.c.id).limit(limit + 1))
        found = [_read_row(row) for row in rows[:limit]]
        return StoredCommentPage(found, str(found[-1].id) if len(rows) > limit else None)

    async def count(self, platform: str, note_id: str) -> int:
        """How many comments of a note are stored."""
        statement = select(func.count()).select_from(comments).filter_by(platform=platform, note_id=note_id)
        return int(await self._database.fetch_value(statement))

    async def read_all(self, notes: Collection[NoteKey]) -> dict[NoteKey, list[StoredComment]]:
        """All comments of these notes, in the platform's order."""
        is_wanted = tuple_(comments.c.platform, comments.c.note_id).in_(list(notes))
        found: dict[NoteKey, list[StoredComment]] = defaultdict(list)
        for row in await self._database.fetch(select(comments).where(is_wanted).order_by(comments.c.id)):
            found[row.platform, row.note_id].append(_read_row(row))
        return found


def _read_row(row: Any) -> StoredComment:
    return StoredComment(
        id=row.id,
        platform=row.platform,
        note_id=row.note_id,
        comment=Comment(
            comment_id=row.comment_id,
            parent_id=row.parent_id,
            text=row.text,
            author=Author(author_id=row.author_id, name=row.author_name),
            published_at=read_timestamp(row.published_at),
            likes=row.likes,
            replies=row.replies,
            images=tuple(json.loads(row.images)),
            place=row.place,
        ),
        collected_at=from_milliseconds(row.collected_at),
    )
