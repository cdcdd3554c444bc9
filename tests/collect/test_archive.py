"""Collected notes for their readers: list, search, export and delete, on the path from the writer to the file."""

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import openpyxl  # type: ignore[import-untyped]
import pytest
from sqlalchemy import text

from tests.collect.writer_stage import begin, make_candidates, make_note, read_outbox, store_notes
from tests.fakes import FakeClock
from tidings.collect.archive.archive import CursorError, NoteArchive, NoteFilter, StoredNote
from tidings.collect.archive.comments import CommentArchive
from tidings.collect.archive.export import COLUMNS, Exporter, ExportFormat
from tidings.collect.notes import Author, Counts, Note, NoteKind
from tidings.collect.write.values import Collected, SettledAction
from tidings.collect.write.writer import Writer
from tidings.core.db.database import Database
from tidings.core.db.revisions import downgrade_database, prepare_database

DAY = datetime(2026, 11, 1, tzinfo=UTC)


def write_note(note_id: str, **fields: Any) -> Note:
    return replace(make_note(note_id, platform=fields.pop("platform", "bilibili")), **fields)


NOTES = [
    write_note(
        "n1", title="喝咖啡的人越来越多", text="早上一杯手冲咖啡。", author=Author(author_id="7", name="茶小姐")
    ),
    write_note("n2", title="咖喱和啡色", text="没有那个词", kind=NoteKind.TEXT, published_at=DAY),
    write_note("n3", title="iPhone15Pro手机壳", text="Café AU lait，ＡＢＣ１２", tags=("数码", "开箱")),
    write_note("n4", title="咖啡馆", text="老舍的茶馆", platform="weibo", published_at=DAY + timedelta(days=3)),
    write_note("n5", title="", text="한국어 커피, コーヒー豆 and 𠮷野家", author=Author(name='O\'Neil "x"')),
]


async def list_ids(archive: NoteArchive, **wanted: Any) -> list[str]:
    page = await archive.list_page(NoteFilter(**wanted), limit=100)
    assert await archive.count(NoteFilter(**wanted)) == len(page.notes)
    return [each.note.note_id for each in page.notes]


async def test_search_finds_words_of_every_script(writer: Writer, database: Database) -> None:
    """C28: two-character Chinese words, one character, several words, Latin words with digits, other scripts."""
    await store_notes(writer, NOTES)
    archive = NoteArchive(database)
    expected = {
        "咖啡": ["n4", "n1"],
        "手冲咖啡": ["n1"],
        "咖啡手冲": [],
        "喝": ["n1"],
        "多": ["n1"],
        "咖啡 茶馆": ["n4"],
        "茶小姐": ["n1"],
        "开箱": ["n3"],
        "iphone": ["n3"],
        "IPHONE15": ["n3"],
        "15pro手机": ["n3"],
        "15pro手": ["n3"],
        "5pro手": [],
        "手机壳ｐｒｏ": [],
        "café": ["n3"],
        "abc12": ["n3"],
        "커피": ["n5"],
        "コーヒー": ["n5"],
        "𠮷野": ["n5"],
        "o'neil": ["n5"],
        '"': [],
        "咖啡 OR 没有": [],
        "' | '咖啡": ["n4", "n1"],
        "* AND": ["n5"],
        "* NOT": [],
    }
    assert {words: await list_ids(archive, text=words) for words in expected} == expected


async def test_notes_are_filtered_by_every_field(writer: Writer, database: Database) -> None:
    """C28: platform, keyword, author (name or id), kind, time; conditions add up."""
    await store_notes(writer, NOTES[:3], keyword="coffee")
    await store_notes(writer, NOTES[3:])
    archive = NoteArchive(database)
    assert await list_ids(archive) == ["n5", "n4", "n3", "n2", "n1"]
    assert await list_ids(archive, platform="weibo") == ["n4"]
    assert await list_ids(archive, keyword="coffee") == ["n3", "n2", "n1"]
    assert await list_ids(archive, author="茶小姐") == await list_ids(archive, author="7") == ["n1"]
    assert await list_ids(archive, kind=NoteKind.TEXT) == ["n2"]
    assert await list_ids(archive, since=DAY, until=DAY + timedelta(days=3)) == ["n2"]
    assert await list_ids(archive, until=DAY + timedelta(days=4)) == ["n4", "n2"]
    assert await list_ids(archive, text="咖啡", platform="bilibili", keyword="coffee") == ["n1"]


async def test_pages_do_not_shift_while_notes_arrive(writer: Writer, database: Database) -> None:
    """C28: cursor paging; a foreign cursor is refused."""
    await store_notes(writer, [write_note(f"a{number}") for number in range(5)])
    archive, seen = NoteArchive(database), []
    cursor: str | None = None
    for turn in range(3):
        page = await archive.list_page(NoteFilter(), limit=2, cursor=cursor)
        seen += [each.note.note_id for each in page.notes]
        cursor = page.next
        await store_notes(writer, [write_note(f"late{turn}")])
    assert (seen, cursor) == (["a4", "a3", "a2", "a1", "a0"], None)
    for foreign in ("x", "-1", "1; DROP TABLE", "9" * 30, "१"):
        with pytest.raises(CursorError):
            await archive.list_page(NoteFilter(), limit=1, cursor=foreign)


async def test_deleted_note_is_gone_everywhere_and_not_collected_again(writer: Writer, database: Database) -> None:
    """C28: note, index and mirror; a later search does not bring it back, and a lease under way is lost."""
    archive = NoteArchive(database)
    await store_notes(writer, NOTES)
    before = len(await read_outbox(database))
    assert await writer.corrections.delete_note("bilibili", "n1")
    assert await archive.find("bilibili", "n1") is None
    assert await list_ids(archive, text="咖啡") == ["n4"]
    assert (await read_outbox(database))[before:] == [("tbl_candidate", "n1"), ("tbl_source", "n1_v1")]
    async with database.read() as connection:
        for table in ("tbl_source", "tbl_candidate", "note_terms"):
            rows = [str(tuple(row)) for row in await connection.execute(text(f"SELECT * FROM {table}"))]
            assert not [row for row in rows if "手冲" in row or "About n1" in row]
    execution = await begin(writer)
    assert (await writer.add_candidates(execution, make_candidates("n1"))).created == 0
    assert await writer.lease(execution) == []
    await writer.add_candidates(execution, make_candidates("n9"))
    assert len(await writer.lease(execution)) == 1
    assert await writer.corrections.delete_note("bilibili", "n9")
    [settled] = await writer.settle(execution, "bilibili", [Collected(note_id="n9", note=write_note("n9"))])
    assert settled.action is SettledAction.LOST
    assert await archive.find("bilibili", "n9") is None
    assert not await writer.corrections.delete_note("bilibili", "never")


async def export(database: Database, archive: NoteArchive, form: ExportFormat, **wanted: Any) -> bytes:
    exporter = Exporter(notes=archive, comments=CommentArchive(database))
    return b"".join([piece async for piece in exporter.export(NoteFilter(**wanted), form)])


@pytest.mark.one_database
async def test_exports_hold_every_note_and_no_formula(writer: Writer, database: Database, tmp_path: Path) -> None:
    """C28: JSONL, CSV with BOM, XLSX; dates as ISO 8601; a cell that begins like a formula is text."""
    nasty = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1", 'a,"b"\nc', "https://example.com", "x" * 40_000]
    notes = [write_note(f"x{number}", title=title) for number, title in enumerate(nasty)]
    whole = write_note(
        "whole",
        text="第一行\n第二行",
        published_at=DAY,
        counts=Counts(likes=12_000, views=0),
        tags=("a", "b"),
        duration=timedelta(seconds=61),
    )
    await store_notes(writer, [*notes, whole])
    archive = NoteArchive(database)
    lines = (await export(database, archive, ExportFormat.JSONL)).decode().splitlines()
    assert [json.loads(line)["title"] for line in lines[:-1]] == nasty
    raw = await export(database, archive, ExportFormat.CSV)
    assert raw.startswith(b"\xef\xbb\xbfplatform,note_id")
    rows = list(csv.DictReader(io.StringIO(raw.decode("utf-8-sig"), newline="")))
    assert [row["title"] for row in rows[:7]] == [f"'{title}" for title in nasty[:7]]
    assert [row["title"] for row in rows[7:10]] == nasty[7:]
    path = tmp_path / "notes.xlsx"
    path.write_bytes(await export(database, archive, ExportFormat.XLSX))
    sheet = openpyxl.load_workbook(path)["notes"]
    titles, *cells = sheet.iter_rows()
    assert [cell.value for cell in titles] == list(COLUMNS["notes"])
    shown = [dict(zip(COLUMNS["notes"], row, strict=True)) for row in cells]
    written = [title.replace("\r", "_x000D_")[:32_767] for title in nasty]
    assert [row["title"].value for row in shown[:-1]] == written
    assert {row["title"].data_type for row in shown} == {"s"}
    assert {cell.hyperlink for row in cells for cell in row} == {None}
    last = {name: cell.value for name, cell in shown[-1].items() if cell.value is not None}
    assert last | {"collected_at": ""} == {
        "platform": "bilibili",
        "note_id": "whole",
        "url": "https://bilibili.example/whole",
        "kind": "video",
        "title": "About whole",
        "text": "第一行\n第二行",
        "published_at": "2026-11-01T00:00:00.000Z",
        "likes": 12_000,
        "views": 0,
        "tags": "a, b",
        "duration_seconds": 61,
        "keyword": "tea",
        "version": 1,
        "collected_at": "",
    }


async def test_stream_ends_although_notes_arrive(writer: Writer, database: Database) -> None:
    """C28: an export has the notes of its beginning, each once, in blocks."""
    await store_notes(writer, [write_note(f"a{number}") for number in range(3)])
    seen: list[StoredNote] = []
    async for block in NoteArchive(database).stream(NoteFilter()):
        seen += block
        await store_notes(writer, [write_note(f"late{len(seen)}")])
    assert [each.note.note_id for each in seen] == ["a0", "a1", "a2"]


async def test_notes_of_an_older_release_are_found_after_the_upgrade(
    writer: Writer, database: Database, clock: FakeClock
) -> None:
    """C28: the migration fills the index and the new columns; the way back and forth keeps notes and deletions."""
    await store_notes(writer, NOTES)
    await writer.corrections.delete_note("weibo", "n4")
    before = [each async for block in NoteArchive(database).stream(NoteFilter()) for each in block]
    await downgrade_database(database, revision="0011")
    async with database.read() as connection:
        statuses = await connection.execute(text("SELECT DISTINCT status FROM tbl_candidate"))
        assert list(statuses.scalars()) == ["collected"]
    await prepare_database(database)
    archive = NoteArchive(database)
    assert [each async for block in archive.stream(NoteFilter()) for each in block] == before
    assert await list_ids(archive, text="咖啡") == ["n1"]
    assert await list_ids(archive, author="7", keyword="tea") == ["n1"]
    assert await writer.corrections.delete_note("bilibili", "n1")
    assert await list_ids(archive, text="咖啡") == []
