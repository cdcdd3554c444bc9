"""Changes that people ask for in commands, the API, the dashboard or Feishu: try failed candidates again, add a note by
its address, delete a note. They need no execution.

A deleted note is gone everywhere: all versions, the counts over time, the comments, the full-text index and the
candidate's text. The candidate's key stays with the status `deleted`, so that no search brings the note back. An
execution that has leased the candidate no longer holds it, and its result is answered with `lost`.
"""

from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.tables import CandidateStatus, candidates, note_snapshots, note_terms, sources
from tidings.collect.write.changes import ChangeLog
from tidings.collect.write.comments.threads import delete_comments, requeue_threads
from tidings.collect.write.leases import insert_candidates, requeue_failed
from tidings.collect.write.values import NewCandidate
from tidings.collect.write.versions import LOCK_ORDER
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.logs.logger import get_logger

# Rows changed in one transaction.
_BLOCK: Final = 1_000

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CollectCorrections:
    """Each change records the changed rows for the mirror."""

    database: Database
    _: KW_ONLY
    clock: Clock
    changes: ChangeLog

    async def requeue(self, platform: str | None = None, *, note_ids: Collection[str] | None = None) -> int:
        """Make failed candidates due again: all, those of a platform, or these of a platform. Returns how many.

        Without `note_ids` failed threads of comments are due again too.
        """
        count, freed = 0, _BLOCK
        if note_ids is None:
            async with self.database.write() as connection:
                await requeue_threads(connection, platform=platform, at=self.clock.now())
        while freed == _BLOCK:
            at = self.clock.now()
            async with self.database.write() as connection:
                keys = await requeue_failed(connection, at=at, limit=_BLOCK, platform=platform, note_ids=note_ids)
                await self.changes.record(connection, candidates.name, keys, at=at)
            freed = len(keys)
            count += freed
        _log.info("candidates.requeued", platform=platform, count=count)
        return count

    async def add_candidate(self, new: NewCandidate) -> bool:
        """Add a note as a candidate. False if it is known already, also as deleted."""
        at = self.clock.now()
        async with self.database.write() as connection:
            created = await insert_candidates(connection, self.database, [new], execution=None, at=at)
            await self.changes.record(connection, candidates.name, created, at=at)
        _log.info("candidate.given", platform=new.platform, note_id=new.note_id, created=len(created))
        return bool(created)

    async def delete_note(self, platform: str, note_id: str) -> bool:
        """Delete a note everywhere, also in the mirror, and never collect it again. False if it is not known."""
        at = self.clock.now()
        async with self.database.write() as connection:
            versions = await _delete_note(connection, self.database, platform=platform, note_id=note_id, at=at)
            if versions is None:
                return False
            await self.changes.record(connection, candidates.name, [(platform, note_id)], at=at)
            await self.changes.record(connection, sources.name, [(platform, key) for key in versions], at=at)
        _log.info("note.deleted", platform=platform, note_id=note_id)
        return True


async def _delete_note(
    connection: AsyncConnection, database: Database, *, platform: str, note_id: str, at: datetime
) -> list[str] | None:
    """Delete a note and keep it from being collected again. Returns the idempotency keys of the versions that it had,
    or None if there is neither note nor candidate."""
    key = {"platform": platform, "note_id": note_id}
    # Change the candidate first: an execution that has locked its row then stores its note before we delete it.
    emptied = _describe_deleted(at)
    is_known = (await connection.execute(update(candidates).filter_by(**key).values(emptied))).rowcount > 0
    versions = select(sources.c.id).filter_by(**key).order_by(LOCK_ORDER).with_for_update()
    of_note = list((await connection.execute(versions)).scalars())
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
