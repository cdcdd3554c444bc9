"""Writes notes as JSONL, CSV or XLSX, block by block, so that memory does not grow with their number.

JSONL holds the objects of the API. CSV and XLSX have one row for each note, with the columns of `COLUMNS`. Dates are
ISO 8601. Cells are text that no spreadsheet runs as a formula.
"""

import asyncio
import csv
import io
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from tidings.collect.archive.archive import StoredNote
from tidings.collect.notes import Counts
from tidings.core.clock import to_text

COLUMNS: Final = (
    *("platform", "note_id", "url", "kind", "title", "text", "author_id", "author", "published_at", "updated_at"),
    *Counts.__slots__,
    *("tags", "images", "duration_seconds", "place", "keyword", "version", "collected_at"),
)
# A row of a sheet beside the titles, and characters of a cell: limits of Excel.
_MOST_ROWS: Final = 1_048_575
_LONGEST_CELL: Final = 32_767
_CHUNK: Final = 65_536
# Excel shows accents and Chinese only in UTF-8 files that begin with this.
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# Excel runs a cell that begins with one of these, also in its wide form.
_FORMULA_SIGNS: Final = tuple("=+-@\t\r＝＋－＠")

Cell = str | int | float | None
Blocks = AsyncIterator[Sequence[StoredNote]]


class ExportFormat(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    XLSX = "xlsx"


MEDIA_TYPES: Final = {
    ExportFormat.JSONL: "application/x-ndjson",
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.XLSX: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def _ignore(_count: int) -> None:
    pass


async def export_notes(
    blocks: Blocks, form: ExportFormat, *, on_progress: Callable[[int], None] = _ignore
) -> AsyncIterator[bytes]:
    """The file's content in pieces. `on_progress` gets how many notes are written.

    An XLSX file is written to a temporary file first, because its table of contents stands at the end.
    """
    if form is ExportFormat.XLSX:
        async for piece in _export_xlsx(blocks, on_progress=on_progress):
            yield piece
        return
    render = _render_jsonl if form is ExportFormat.JSONL else _render_csv
    done = 0
    if form is ExportFormat.CSV:
        yield _BYTE_ORDER_MARK + _write_csv([COLUMNS])
    async for block in blocks:
        # In a thread, because long texts would block the event loop.
        yield await asyncio.to_thread(render, block)
        done += len(block)
        on_progress(done)


def make_row(stored: StoredNote) -> list[Cell]:
    """The cells of a note, in the order of COLUMNS."""
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


def make_harmless(cell: Cell) -> Cell:
    """The cell of a CSV file. A text that a spreadsheet would run as a formula gets an apostrophe in front."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA_SIGNS) else cell


def _render_jsonl(block: Sequence[StoredNote]) -> bytes:
    return "".join(f"{json.dumps(each.describe(), ensure_ascii=False)}\n" for each in block).encode()


def _render_csv(block: Sequence[StoredNote]) -> bytes:
    return _write_csv([[make_harmless(cell) for cell in make_row(each)] for each in block])


def _write_csv(rows: Sequence[Sequence[Cell]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


async def _export_xlsx(blocks: Blocks, *, on_progress: Callable[[int], None]) -> AsyncIterator[bytes]:
    with tempfile.TemporaryDirectory(prefix="tidings-export-") as folder:
        path, done = Path(folder) / "notes.xlsx", 0
        book = _NoteBook(path)
        try:
            async for block in blocks:
                await asyncio.to_thread(book.add, [make_row(each) for each in block])
                done += len(block)
                on_progress(done)
        finally:
            # Also after an error: it removes the parts that it wrote so far.
            await asyncio.to_thread(book.close)
        with path.open("rb") as file:
            while piece := await asyncio.to_thread(file.read, _CHUNK):
                yield piece


class _NoteBook:
    """An XLSX file in the making. Each row goes to a temporary file at once."""

    def __init__(self, path: Path) -> None:
        # Loaded when it is used: most commands and requests write no XLSX.
        from xlsxwriter import Workbook  # type: ignore[import-untyped]

        self._book = Workbook(str(path), {"constant_memory": True, "tmpdir": str(path.parent)})
        self._sheets = 0
        self._begin_sheet()

    def add(self, rows: Sequence[Sequence[Cell]]) -> None:
        for row in rows:
            if self._row > _MOST_ROWS:
                self._begin_sheet()
            self._write(row)

    def close(self) -> None:
        self._book.close()

    def _begin_sheet(self) -> None:
        self._sheets += 1
        self._sheet = self._book.add_worksheet("notes" if self._sheets == 1 else f"notes {self._sheets}")
        self._sheet.freeze_panes(1, 0)
        self._row = 0
        self._write(COLUMNS)

    def _write(self, row: Sequence[Cell]) -> None:
        for column, cell in enumerate(row):
            if not cell and cell != 0:
                continue
            if isinstance(cell, str):
                # Always as a string: never a formula or a link.
                self._sheet.write_string(self._row, column, cell[:_LONGEST_CELL])
            else:
                self._sheet.write_number(self._row, column, cell)
        self._row += 1
