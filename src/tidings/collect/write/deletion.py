"""Deletes a note everywhere, because somebody asked for it: all versions, the counts over time, the comments, the
full-text index and the candidate's text.

The candidate's key stays with the status `deleted`, so that no search brings the note back. An execution that has
leased the candidate no longer holds it, and its result is answered with `lost`.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.tables import CandidateStatus, candidates, note_snapshots, note_terms, sources
from tidings.collect.write.comments.threads import delete_comments
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database


async def delete_note(
    connection: AsyncConnection, database: Database, *, platform: str, note_id: str, at: datetime
) -> list[str] | None:
    """Delete a note and keep it from being collected again. Returns the idempotency keys of the versions that it had,
    or None if there is neither note nor candidate."""
    key = {"platform": platform, "note_id": note_id}
    # The candidate first: an execution that holds its row writes its note before we look for it.
    emptied = _describe_deleted(at)
    is_known = (await connection.execute(update(candidates).filter_by(**key).values(emptied))).rowcount > 0
    of_note = select(sources.c.id).filter_by(**key)
    await connection.execute(delete(note_terms).where(note_terms.c.source_id.in_(of_note)))
    await connection.execute(delete(note_snapshots).filter_by(**key))
    await delete_comments(connection, **key)
    removed = await connection.execute(delete(sources).filter_by(**key).returning(sources.c.idempotency_key))
    deleted = list(removed.scalars())
    if deleted and not is_known:
        new = database.insert(candidates).values(**key, **emptied, retry_count=0, created_at=emptied["updated_at"])
        await connection.execute(new.on_conflict_do_update(index_elements=list(key), set_=emptied))
    return deleted if is_known or deleted else None


def _describe_deleted(at: datetime) -> dict[str, Any]:
    now = to_milliseconds(at)
    return {
        "status": CandidateStatus.DELETED.value,
        "note_url": "",
        "title": "",
        "source_keyword": "",
        "processing_lock": None,
        "locked_at": None,
        "refresh_at": None,
        "last_error_code": None,
        "last_error": None,
        "exec_meta": "{}",
        "due_at": now,
        "updated_at": now,
    }
