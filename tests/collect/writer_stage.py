"""What the tests of the writer share: candidates and notes that are quickly made, and a look into the tables."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import select

from tidings.collect.mirror_tables import mirror_outbox
from tidings.collect.notes import Note, NoteKind
from tidings.collect.tables import candidates, sources
from tidings.collect.write.values import Collected, LeasedCandidate, NewCandidate
from tidings.collect.write.writer import Writer
from tidings.core.db.database import Database
from tidings.core.executions import Execution

PLATFORM = "bilibili"


def make_candidates(*note_ids: str, platform: str = PLATFORM) -> list[NewCandidate]:
    return [
        NewCandidate(
            platform=platform,
            note_id=note_id,
            note_url=f"https://{platform}.example/{note_id}",
            title=f"About {note_id}",
            source_keyword="tea",
        )
        for note_id in note_ids
    ]


def make_note(note_id: str, *, platform: str = PLATFORM, title: str = "") -> Note:
    return Note(
        platform=platform,
        note_id=note_id,
        url=f"https://{platform}.example/{note_id}",
        kind=NoteKind.VIDEO,
        title=title or f"About {note_id}",
    )


def collect(leased: Sequence[LeasedCandidate], *, cookie_used: str | None = None) -> list[Collected]:
    return [
        Collected(note_id=each.note_id, note=make_note(each.note_id, platform=each.platform), cookie_used=cookie_used)
        for each in leased
    ]


async def begin(writer: Writer, name: str = "collect") -> Execution:
    """The right to run, which nobody else has."""
    acquired = await writer.acquire(name)
    assert acquired.execution is not None
    return acquired.execution


async def store_notes(writer: Writer, notes: Sequence[Note], *, keyword: str = "tea") -> None:
    """Collect these notes, as the runner does."""
    execution = await begin(writer, "store_notes")
    for note in notes:
        [candidate] = make_candidates(note.note_id, platform=note.platform)
        await writer.add_candidates(execution, [replace(candidate, source_keyword=keyword)])
        await writer.lease(execution, platform=note.platform)
        await writer.settle(execution, note.platform, [Collected(note_id=note.note_id, note=note)])
    await writer.finish(execution)


async def read_candidates(database: Database) -> dict[str, Any]:
    """The rows by note id."""
    async with database.read() as connection:
        return {row.note_id: row for row in await connection.execute(select(candidates))}


async def read_sources(database: Database) -> list[Any]:
    async with database.read() as connection:
        return list(await connection.execute(select(sources).order_by(sources.c.id)))


async def read_outbox(database: Database) -> list[tuple[str, str]]:
    """Table and note id of what the mirror has yet to learn, in order."""
    async with database.read() as connection:
        rows = await connection.execute(select(mirror_outbox).order_by(mirror_outbox.c.id))
        return [(row.table_name, row.note_id) for row in rows]
