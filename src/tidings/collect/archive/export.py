"""Writes notes, their comments and their counts over time as JSONL, CSV or XLSX, block by block, so that memory does
not grow with their number.

JSONL holds the objects of the API. CSV and XLSX have one row for each note, comment or snapshot. With all contents,
XLSX has a sheet for each, and JSONL puts the comments and snapshots into the note. CSV has one table only. Dates are
ISO 8601. Cells are text that no spreadsheet runs as a formula.
"""

import asyncio
import csv
import io
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tidings.collect.archive.archive import NoteArchive, NoteFilter, NoteSnapshot, StoredNote
from tidings.collect.archive.comments import CommentArchive, NoteKey, StoredComment
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

# Limits of Excel: rows of a sheet without the titles, and characters of a cell.
_MOST_ROWS: Final = 1_048_575
_LONGEST_CELL: Final = 32_767
_CHUNK: Final = 65_536
# Notes whose comments are in memory at a time: each may have a thousand.
_NOTES_WITH_COMMENTS: Final = 10
# Excel shows accents and Chinese only in UTF-8 files that begin with this.
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# Excel may run a cell that begins with one of these, also in its full-width form.
_FORMULA_SIGNS: Final = tuple("=+-@\t\r＝＋－＠")

Rows = Mapping[str, Sequence[Sequence[Cell]]]


class ExportFormat(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    XLSX = "xlsx"


class ExportContent(StrEnum):
    """What an export writes for the matching notes."""

    NOTES = NOTES
    COMMENTS = COMMENTS
    SNAPSHOTS = SNAPSHOTS
    ALL = "all"

    @property
    def tables(self) -> tuple[str, ...]:
        return (NOTES, COMMENTS, SNAPSHOTS) if self is ExportContent.ALL else (self.value,)


class ExportError(ValueError):
    """The format cannot hold this content."""

    def __init__(self) -> None:
        super().__init__("a CSV file has one table: choose notes, comments or snapshots")


MEDIA_TYPES: Final = {
    ExportFormat.JSONL: "application/x-ndjson",
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.XLSX: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def check_export(form: ExportFormat, content: ExportContent) -> None:
    """Raises ExportError."""
    if form is ExportFormat.CSV and content is ExportContent.ALL:
        raise ExportError


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


@dataclass(frozen=True, slots=True)
class NoteBlock:
    """Some notes, with their comments and snapshots if these are exported."""

    notes: Sequence[StoredNote]
    comments: Mapping[NoteKey, Sequence[StoredComment]] = field(default_factory=dict)
    snapshots: Mapping[NoteKey, Sequence[NoteSnapshot]] = field(default_factory=dict)

    def make_rows(self, tables: Sequence[str]) -> Rows:
        """The rows of these tables."""
        rows: dict[str, list[list[Cell]]] = {NOTES: [], COMMENTS: [], SNAPSHOTS: []}
        for note in self.notes:
            rows[NOTES].append(make_note_row(note))
            rows[COMMENTS] += map(make_comment_row, self.comments.get(_name(note), ()))
            rows[SNAPSHOTS] += (make_snapshot_row(note, each) for each in self.snapshots.get(_name(note), ()))
        return {name: rows[name] for name in tables}

    def describe(self, content: ExportContent) -> Iterator[dict[str, Any]]:
        """The JSON objects of the content."""
        for note in self.notes:
            platform, note_id = key = _name(note)
            comments, snapshots = self.comments.get(key, ()), self.snapshots.get(key, ())
            match content:
                case ExportContent.NOTES:
                    yield note.describe()
                case ExportContent.COMMENTS:
                    yield from (each.describe() for each in comments)
                case ExportContent.SNAPSHOTS:
                    yield from ({"platform": platform, "note_id": note_id, **each.describe()} for each in snapshots)
                case ExportContent.ALL:
                    described = {COMMENTS: [each.comment.describe() for each in comments]}
                    yield {**note.describe(), **described, SNAPSHOTS: [each.describe() for each in snapshots]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """Writes exports."""

    notes: NoteArchive
    comments: CommentArchive

    async def export(
        self,
        wanted: NoteFilter,
        form: ExportFormat,
        *,
        content: ExportContent = ExportContent.NOTES,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> AsyncIterator[bytes]:
        """The file's content in pieces. `on_progress` gets how many notes are done. Raises ExportError.

        An XLSX file is written to a temporary file first, because its table of contents stands at the end.
        """
        check_export(form, content)
        blocks = self._read_blocks(wanted, content, on_progress=on_progress)
        if form is ExportFormat.XLSX:
            async for piece in _export_xlsx(blocks, content.tables):
                yield piece
            return
        if form is ExportFormat.CSV:
            yield _BYTE_ORDER_MARK + _write_csv([COLUMNS[content.value]])
        render = _render_jsonl if form is ExportFormat.JSONL else _render_csv
        async for block in blocks:
            # In a thread, because long texts would block the event loop.
            yield await asyncio.to_thread(render, block, content)

    async def _read_blocks(
        self, wanted: NoteFilter, content: ExportContent, *, on_progress: Callable[[int], None]
    ) -> AsyncIterator[NoteBlock]:
        """The notes, the oldest collected first, with the rest of the content."""
        done, tables = 0, content.tables
        async for notes in self.notes.stream(wanted):
            size = _NOTES_WITH_COMMENTS if COMMENTS in tables else len(notes)
            for start in range(0, len(notes), size):
                some = notes[start : start + size]
                keys = [_name(each) for each in some]
                comments = await self.comments.read_all(keys) if COMMENTS in tables else {}
                snapshots = await self.notes.read_snapshots(keys) if SNAPSHOTS in tables else {}
                yield NoteBlock(some, comments, snapshots)
                done += len(some)
                on_progress(done)


def make_harmless(cell: Cell) -> Cell:
    """The cell of a CSV file. A text that a spreadsheet would run as a formula gets an apostrophe in front."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA_SIGNS) else cell


def _name(stored: StoredNote) -> NoteKey:
    return stored.note.platform, stored.note.note_id


def _render_jsonl(block: NoteBlock, content: ExportContent) -> bytes:
    return "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in block.describe(content)).encode()


def _render_csv(block: NoteBlock, content: ExportContent) -> bytes:
    rows = block.make_rows(content.tables)[content.value]
    return _write_csv([[make_harmless(cell) for cell in row] for row in rows])


def _write_csv(rows: Sequence[Sequence[Cell]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


async def _export_xlsx(blocks: AsyncIterator[NoteBlock], tables: Sequence[str]) -> AsyncIterator[bytes]:
    with tempfile.TemporaryDirectory(prefix="tidings-export-") as folder:
        path = Path(folder) / "notes.xlsx"
        book = _NoteBook(path, tables)
        try:
            async for block in blocks:
                await asyncio.to_thread(book.add, block.make_rows(tables))
        finally:
            # Also after an error: `close` removes the temporary files.
            await asyncio.to_thread(book.close)
        with path.open("rb") as file:
            while piece := await asyncio.to_thread(file.read, _CHUNK):
                yield piece


class _NoteBook:
    """An XLSX file in the making, with a sheet for each table. Each row goes to a temporary file at once."""

    def __init__(self, path: Path, tables: Sequence[str]) -> None:
        # Imported here, because most commands and requests write no XLSX.
        from xlsxwriter import Workbook  # type: ignore[import-untyped]

        self._book = Workbook(str(path), {"constant_memory": True, "tmpdir": str(path.parent)})
        # For each table: its current sheet, its number of sheets, and the next row.
        self._sheets: dict[str, Any] = {}
        self._counts = dict.fromkeys(tables, 0)
        self._rows = dict.fromkeys(tables, 0)
        for name in tables:
            self._begin_sheet(name)

    def add(self, rows: Rows) -> None:
        for name, cells in rows.items():
            for row in cells:
                if self._rows[name] > _MOST_ROWS:
                    self._begin_sheet(name)
                self._write(name, row)

    def close(self) -> None:
        self._book.close()

    def _begin_sheet(self, name: str) -> None:
        self._counts[name] += 1
        number = self._counts[name]
        self._sheets[name] = self._book.add_worksheet(name if number == 1 else f"{name} {number}")
        self._sheets[name].freeze_panes(1, 0)
        self._rows[name] = 0
        self._write(name, COLUMNS[name])

    def _write(self, name: str, row: Sequence[Cell]) -> None:
        sheet, at = self._sheets[name], self._rows[name]
        for column, cell in enumerate(row):
            if not cell and cell != 0:
                continue
            if isinstance(cell, str):
                # Always as a string: never a formula or a link.
                sheet.write_string(at, column, cell[:_LONGEST_CELL])
            else:
                sheet.write_number(at, column, cell)
        self._rows[name] = at + 1
