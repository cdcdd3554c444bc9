"""Changes that a person asks for, on the command line, over HTTP, in the dashboard or in Feishu: try failed candidates
again, add a note by its address, delete a note. They need no execution."""

from collections.abc import Collection
from typing import Final

from tidings.collect.tables import candidates, sources
from tidings.collect.write.changes import ChangeLog
from tidings.collect.write.comments.threads import requeue_threads
from tidings.collect.write.deletion import delete_note
from tidings.collect.write.leases import insert_candidates, requeue_failed
from tidings.collect.write.values import NewCandidate
from tidings.core.clock import Clock
from tidings.core.db.database import Database
from tidings.core.logs.logger import get_logger

# Rows changed in one transaction.
_BLOCK: Final = 1_000

_log = get_logger(__name__)


class CollectCorrections:
    """Each change records the changed rows for the mirror."""

    def __init__(self, database: Database, *, clock: Clock, changes: ChangeLog) -> None:
        self._database = database
        self._clock = clock
        self._changes = changes

    async def requeue(self, platform: str | None = None, *, note_ids: Collection[str] | None = None) -> int:
        """Make failed candidates due again: all, those of a platform, or these of a platform. Returns how many.

        Without `note_ids` failed threads of comments are due again too.
        """
        count, freed = 0, _BLOCK
        if note_ids is None:
            async with self._database.write() as connection:
                await requeue_threads(connection, platform=platform, at=self._clock.now())
        while freed == _BLOCK:
            at = self._clock.now()
            async with self._database.write() as connection:
                keys = await requeue_failed(connection, at=at, limit=_BLOCK, platform=platform, note_ids=note_ids)
                await self._changes.record(connection, candidates.name, keys, at=at)
            freed = len(keys)
            count += freed
        _log.info("candidates.requeued", platform=platform, count=count)
        return count

    async def add_candidate(self, new: NewCandidate) -> bool:
        """Add a note as a candidate. False if it is known already, also as deleted."""
        at = self._clock.now()
        async with self._database.write() as connection:
            created = await insert_candidates(connection, self._database, [new], execution=None, at=at)
            await self._changes.record(connection, candidates.name, created, at=at)
        _log.info("candidate.given", platform=new.platform, note_id=new.note_id, created=len(created))
        return bool(created)

    async def delete_note(self, platform: str, note_id: str) -> bool:
        """Delete a note everywhere, also in the mirror, and never collect it again. False if it is not known."""
        at = self._clock.now()
        async with self._database.write() as connection:
            versions = await delete_note(connection, self._database, platform=platform, note_id=note_id, at=at)
            if versions is None:
                return False
            await self._changes.record(connection, candidates.name, [(platform, note_id)], at=at)
            await self._changes.record(connection, sources.name, [(platform, key) for key in versions], at=at)
        _log.info("note.deleted", platform=platform, note_id=note_id)
        return True
