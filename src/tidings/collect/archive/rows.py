"""The rows of an export: the columns of notes, comments and snapshots, and the cells of each. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidings.collect.archive.archive import NoteSnapshot, StoredNote
from tidings.collect.archive.comments import StoredComment
from tidings.collect.notes import Counts
from tidings.core.clock import to_text

NOTES: Final = "notes"
COMMENTS: Final = "comments"
SNAPSHOTS: Final = "snapshots"

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        NOTES: (
            *("platform", "note_id", "url", "kind", "title", "text", "author_id", "author", "published_at"),
            *("updated_at", *Counts.__slots__, "tags", "images", "duration_seconds", "place", "keyword", "version"),
            "collected_at",
        ),
        COMMENTS: (
            *("platform", "note_id", "comment_id", "parent_id", "text", "author_id", "author", "published_at"),
            *("likes", "replies", "images", "place", "collected_at"),
        ),
        SNAPSHOTS: ("platform", "note_id", "taken_at", *Counts.__slots__),
    }
)

Cell = str | int | float | None


def make_note_row(stored: StoredNote) -> list[Cell]:
    """The cells of a note, in the order of its columns."""
    note = stored.note
    return [
        *(note.platform, note.note_id, note.url, note.kind.value, note.title, note.text),
        *(note.author.author_id, note.author.name),
        None if note.published_at is None else to_text(note.published_at),
        None if note.updated_at is None else to_text(note.updated_at),
        *(getattr(note.counts, name) for name in Counts.__slots__),
        *(", ".join(note.tags), " ".join(note.images)),
        None if note.duration is None else note.duration.total_seconds(),
        *(note.place, stored.keyword, stored.version, to_text(stored.collected_at)),
    ]


def make_comment_row(stored: StoredComment) -> list[Cell]:
    """The cells of a comment, in the order of its columns."""
    comment = stored.comment
    return [
        *(stored.platform, stored.note_id, comment.comment_id, comment.parent_id, comment.text),
        *(comment.author.author_id, comment.author.name),
        None if comment.published_at is None else to_text(comment.published_at),
        *(comment.likes, comment.replies, " ".join(comment.images), comment.place, to_text(stored.collected_at)),
    ]


def make_snapshot_row(stored: StoredNote, snapshot: NoteSnapshot) -> list[Cell]:
    """The cells of a snapshot, in the order of its columns."""
    counts = (getattr(snapshot.counts, name) for name in Counts.__slots__)
    return [stored.note.platform, stored.note.note_id, to_text(snapshot.taken_at), *counts]
