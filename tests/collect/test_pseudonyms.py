"""People's data: with COLLECT_PSEUDONYMS=on nothing that is stored names a note's author."""

import base64
import os
from dataclasses import replace

import pytest
from sqlalchemy import text

from tests.collect.writer_stage import make_note, store_notes
from tests.fakes import FakeClock
from tidings.collect.archive.archive import NoteArchive, NoteFilter
from tidings.collect.notes import Author, Note
from tidings.collect.pseudonyms import Pseudonyms
from tidings.collect.write.writer import Writer
from tidings.core.db.database import Database
from tidings.core.executions import Executions
from tidings.core.secrets.keyring import KeyRing

pytestmark = pytest.mark.one_database

AUTHOR = Author(author_id="1234567890", name="山间小屋")
OLD, NEW = (f"{name}:{base64.b64encode(os.urandom(32)).decode()}" for name in ("k1", "k2"))


def write_note(note_id: str, *, platform: str = "weibo") -> Note:
    return replace(make_note(note_id, platform=platform), author=AUTHOR)


async def test_no_table_holds_the_author(database: Database, executions: Executions, clock: FakeClock) -> None:
    """C32: not in the columns, the note itself or the search. Notes of one author still belong together."""
    pseudonyms = Pseudonyms(KeyRing.parse(OLD).derive_key("pseudonyms"))
    writer = Writer(database, executions=executions, clock=clock, pseudonyms=pseudonyms)
    await store_notes(writer, [write_note("n1"), write_note("n2"), write_note("n1", platform="bilibili")])
    archive = NoteArchive(database)
    found = await archive.list_page(NoteFilter(platform="weibo"), limit=10)
    [hidden] = {each.note.author for each in found.notes}
    assert hidden.name == "山***"
    assert await archive.count(NoteFilter(author=hidden.author_id)) == 2
    assert await archive.count(NoteFilter(text=AUTHOR.name)) == 0
    async with database.read() as connection:
        for table in ("tbl_source", "tbl_candidate", "note_terms"):
            rows = (await connection.execute(text(f"SELECT * FROM {table}"))).all()
            assert rows
            assert not any(AUTHOR.author_id in str(row) or AUTHOR.name in str(row) for row in rows)


def test_a_new_master_key_changes_no_pseudonym() -> None:
    """C32: while the old key is kept, as a rotation does."""
    hidden = [Pseudonyms(KeyRing.parse(keys).derive_key("pseudonyms")) for keys in (OLD, f"{NEW},{OLD}", NEW)]
    before, rotated, other = (each.hide_author(write_note("n1")).author for each in hidden)
    assert before == rotated
    assert before.author_id != other.author_id
