"""Stores notes that were read: a first version, a further one when title or text changed, and the counts as a snapshot.

A version stays as it was written, except for its counts, which are those of the last reading. All in the caller's
guarded transaction; the candidate's lock keeps others from the same note.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.archive.search import make_terms
from tidings.collect.notes import Counts, Note
from tidings.collect.tables import StageStatus, note_snapshots, note_terms, sources
from tidings.collect.write.leases import Settling
from tidings.collect.write.values import Collected, make_storable, write_meta
from tidings.core.clock import from_milliseconds, to_milliseconds

_set_counts = update(sources).where(sources.c.id == bindparam("of_id")).values(content=bindparam("new_content"))

# The order in which the next stage locks sources: two transactions cannot deadlock. Because of the empty text SQLite
# sorts the few that are found, instead of reading all of the platform in the order of their index.
LOCK_ORDER: Final = sources.c.idempotency_key.concat("")


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """The latest version of a note in the table."""

    id: int
    version: int
    # The note as JSON.
    content: str
    # When the first version was collected.
    first_at: datetime

    def has_text_of(self, content: str) -> bool:
        """Whether title and text are those of this content."""
        mine, other = json.loads(self.content), json.loads(content)
        return all(mine.get(name) == other[name] for name in ("title", "text"))


@dataclass(frozen=True, slots=True)
class StoredNotes:
    """The result of storing notes, by note id."""

    # The versions that were there before; without notes that are new.
    latest: Mapping[str, StoredVersion]

    # The row ids of new versions.
    created: Mapping[str, int]
    # The idempotency keys of new versions, and of those with other counts.
    changed: Mapping[str, str]


def make_key(note_id: str, version: int = 1) -> str:
    """The idempotency key of a version of a note."""
    return f"{note_id}_v{version}"


async def find_latest(step: Settling, note_ids: Sequence[str], *, lock: bool = False) -> dict[str, StoredVersion]:
    """The latest versions of these notes by note id. `lock`: they stay as they are until the transaction ends."""
    columns = (sources.c[name] for name in ("id", "note_id", "version", "content", "collected_at"))
    statement = select(*columns).where(sources.c.platform == step.platform, sources.c.note_id.in_(note_ids))
    if lock:
        statement = statement.order_by(LOCK_ORDER).with_for_update()
    rows = (await step.connection.execute(statement)).all() if note_ids else []
    found: dict[str, StoredVersion] = {}
    for row in sorted(rows, key=lambda each: each.version):
        first = found.get(row.note_id)
        first_at = from_milliseconds(row.collected_at) if first is None else first.first_at
        found[row.note_id] = StoredVersion(row.id, row.version, row.content, first_at)
    return found


async def store_notes(step: Settling, collected: Sequence[Collected]) -> StoredNotes:
    """Store the notes whose candidates the execution holds."""
    mine = [each for each in collected if each.note_id in step.held]
    rows = {each.note_id: _describe_source(step, each) for each in mine}
    # Nearly every note is new, so only for the others the versions are read.
    created = await _insert_sources(step, list(rows.values()))
    others = [each.note_id for each in collected if each.note_id not in created]
    latest = await find_latest(step, others, lock=True)
    contents = {note_id: rows[note_id]["content"] for note_id in others if note_id in rows and note_id in latest}
    changed = [name for name, content in contents.items() if not latest[name].has_text_of(content)]
    for name in changed:
        rows[name] |= _name_version(name, latest[name].version + 1)
    await _retire(step.connection, [latest[name].id for name in changed])
    created |= await _insert_sources(step, [rows[name] for name in changed])
    same = {name: latest[name] for name in contents.keys() - changed}
    updated = await _replace_counts(step.connection, same, contents)
    await _insert_terms(step, {created[each.note_id]: each.note for each in mine if each.note_id in created})
    await _take_snapshots(step, mine)
    keys = {name: rows[name]["idempotency_key"] for name in created}
    return StoredNotes(latest, created, keys | {name: make_key(name, latest[name].version) for name in updated})


def _name_version(note_id: str, version: int) -> dict[str, Any]:
    return {"version": version, "is_latest": True, "idempotency_key": make_key(note_id, version)}


async def _retire(connection: AsyncConnection, row_ids: Sequence[int]) -> None:
    """Mark these versions as no longer the latest, and remove them from the search."""
    if row_ids:
        await connection.execute(update(sources).where(sources.c.id.in_(row_ids)).values(is_latest=False))
        await connection.execute(delete(note_terms).where(note_terms.c.source_id.in_(row_ids)))


async def _insert_sources(step: Settling, rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Insert sources. Returns the row ids of the new ones by note id."""
    statement = step.database.insert_new(sources, sources.c.id, sources.c.note_id)
    return {row.note_id: row.id for row in await statement.run_each(step.connection, rows)}


async def _insert_terms(step: Settling, notes: Mapping[int, Note]) -> None:
    """Add new sources to the full-text index, in the transaction that stores them."""
    rows = [{"source_id": row_id, "terms": make_terms(note)} for row_id, note in notes.items()]
    await step.database.insert_new(note_terms).run_each(step.connection, rows)


async def _replace_counts(
    connection: AsyncConnection, same: Mapping[str, StoredVersion], contents: Mapping[str, str]
) -> list[str]:
    """Give versions whose text did not change the counts of this reading. Returns the note ids of those that differ."""
    rows = {}
    for note_id, before in same.items():
        stored, counts = json.loads(before.content), json.loads(contents[note_id])["counts"]
        if stored.get("counts") != counts:
            content = json.dumps({**stored, "counts": counts}, ensure_ascii=False)
            rows[note_id] = {"of_id": before.id, "new_content": content}
    if rows:
        await connection.execute(_set_counts, list(rows.values()))
    return list(rows)


async def _take_snapshots(step: Settling, collected: Sequence[Collected]) -> None:
    """Store the counts of this reading as a snapshot, unless all are unknown."""
    rows = [
        {"platform": step.platform, "note_id": each.note_id, "taken_at": step.now, **each.note.counts.describe()}
        for each in collected
        if each.note.counts != Counts()
    ]
    await step.database.insert_new(note_snapshots).run_each(step.connection, rows)


def _describe_source(step: Settling, collected: Collected) -> dict[str, Any]:
    note = collected.note
    published_at = None if note.published_at is None else to_milliseconds(note.published_at)
    return {
        "platform": step.platform,
        "note_id": collected.note_id,
        "note_url": make_storable(note.url),
        "content": make_storable(json.dumps(note.describe(), ensure_ascii=False)),
        "kind": note.kind.value,
        "title": make_storable(note.title),
        "author_id": make_storable(note.author.author_id),
        "author_name": make_storable(note.author.name),
        "source_keyword": step.held[collected.note_id].source_keyword,
        "published_at": published_at,
        "dated_at": step.now if published_at is None else published_at,
        **_name_version(collected.note_id, 1),
        "status": StageStatus.PENDING.value,
        "retry_count": 0,
        "due_at": step.now,
        "exec_meta": write_meta(step.execution, cookie_used=collected.cookie_used),
        "collected_at": step.now,
    }
