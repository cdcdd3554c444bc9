"""Leases and results of comment threads. A lease is for one page. One guarded transaction stores its comments and the
cursor of the next page, so an execution that dies costs at most the page that it was reading.

Same locks, fencing, retries, pauses and recovery as for candidates; the rules are in `leases`, `values` and `pauses`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.comments import Comment
from tidings.collect.errors import ErrorCode
from tidings.collect.pseudonyms import Pseudonyms
from tidings.collect.tables import StageStatus, comments
from tidings.collect.write.batches import store_progress
from tidings.collect.write.leases import THREADS, Settling, begin_settling, find_due_platforms, lease_records
from tidings.collect.write.results import count_minute, count_tries, find_error, is_pause, log_settled
from tidings.collect.write.values import (
    LONGEST_NOTE_ID,
    Failed,
    StageAction,
    judge_failure,
    list_uses,
    make_storable,
    write_meta,
)
from tidings.collect.write.writer import Writer
from tidings.core.clock import to_milliseconds
from tidings.core.executions import Execution
from tidings.core.logs.logger import get_logger

# The waits after a page that could not be read. They are long, because a platform's comments may fail for a while
# although its notes can be read, and comments are not urgent.
WAITS: Final = (timedelta(minutes=1), timedelta(minutes=15), timedelta(minutes=60))
_PAGE_READ: Final = frozenset({StageAction.MORE, StageAction.DONE})
_PAGE_FAILED: Final = frozenset({StageAction.RETRY, StageAction.FAILED})

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedThread:
    """The comments of a note, leased to an execution for one page."""

    platform: str
    note_id: str
    note_url: str
    # The platform's cursor of the page; empty for the first.
    cursor: str
    # How many comments of the note are wanted, and how many the earlier pages had.
    wanted: int
    found: int
    # Failed attempts so far.
    retry_count: int
    # The keyword that found the note first.
    source_keyword: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadComments:
    """A page of comments was read."""

    note_id: str
    comments: Sequence[Comment]
    # The platform's cursor of the next page; None at the end.
    cursor: str | None
    cookie_used: str | None = None


ThreadResult = ReadComments | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledThread:
    """The result of one page."""

    note_id: str
    action: StageAction
    # Comments of the page that are stored, and those among them that are new.
    stored: int = 0
    created: int = 0
    # Failed attempts so far.
    retry_count: int | None = None
    # When the thread is due again.
    retry_at: datetime | None = None

    @property
    def status(self) -> StageStatus | None:
        """The thread's new status; None if this execution no longer holds it."""
        return self.action.status


@dataclass(frozen=True, slots=True)
class CommentStage:
    """Threads of comments. Every method raises ExecutionLostError."""

    writer: Writer
    # Replaces the authors of comments before they are stored; None stores them as the platform gives them.
    pseudonyms: Pseudonyms | None

    async def lease(self, execution: Execution, *, limit: int = 1, platform: str | None = None) -> list[LeasedThread]:
        """Lease threads of one platform, each for its next page: of the named one, or of the one that waits longest.

        A platform that is paused, or that has no cookie left for this execution, is skipped. After a pause it is one
        thread: the probe.
        """
        at = self.writer.clock.now()
        async with self.writer.executions.guard_progress(execution) as (connection, progress):
            due = [platform] if platform else await find_due_platforms(connection, at=at, of=THREADS)
            leased: list[LeasedThread] = []
            for name in due:
                if name not in progress.get("paused", ()) and not leased:
                    leased = await self._lease(connection, execution, name, limit=limit, at=at)
        if leased:
            _log.info("comments.leased", platform=leased[0].platform, count=len(leased), execution=execution.public_id)
        return leased

    async def _lease(
        self, connection: AsyncConnection, execution: Execution, platform: str, *, limit: int, at: datetime
    ) -> list[LeasedThread]:
        pauses = self.writer.pauses
        pause = await pauses.lock(connection, platform)
        if pause is not None and pause.is_closed(at=at):
            return []
        most = limit if pause is None else 1
        rows = await lease_records(connection, THREADS, execution, platform=platform, limit=most, at=at)
        if rows and pause is not None:
            await pauses.claim_probe(connection, platform, at=at)
        return [LeasedThread(**{name: getattr(row, name) for name in LeasedThread.__slots__}) for row in rows]

    async def settle(self, execution: Execution, platform: str, results: Sequence[ThreadResult]) -> list[SettledThread]:
        """Write the results of leased threads in one transaction; of two results for one note the first counts.

        Give them in the order of the platform's answers, as for notes. Repeating the same results changes nothing: a
        thread that is no longer held is answered with `lost`.
        """
        at = self.writer.clock.now()
        first: dict[str, ThreadResult] = {}
        for result in results:
            first.setdefault(result.note_id, result)
        async with self.writer.executions.guard_progress(execution) as (connection, progress):
            step = await begin_settling(
                connection, self.writer.database, execution, platform=platform, ids=first, at=at, of=THREADS
            )
            settled = [await self._settle(step, each) for each in first.values()]
            mine = [each for note_id, each in first.items() if note_id in step.held]
            errors = [find_error(each) for each in mine]
            uses = [use for each in mine for use in list_uses(each.cookie_used, find_error(each))]
            # Cookies before pauses, as in every transaction: two of them cannot deadlock.
            await self.writer.record_uses(connection, uses, at=at)
            for error in errors:
                # An answer ends the pause of the platform; one that blocks or cannot be reached is paused.
                await self.writer.pauses.judge_answer(connection, platform, error, at=at)
            await self.writer.pauses.judge_captchas(connection, uses, at=at)
            if is_pause(mine):
                paused = {**progress, "paused": sorted({*progress.get("paused", ()), platform})}
                await store_progress(connection, execution, paused, before=progress)
            await count_tries(connection, platform, errors)
            read, failed = (sum(each.action in of for each in settled) for of in (_PAGE_READ, _PAGE_FAILED))
            await self.writer.executions.count_items(connection, execution, processed=read, failed=failed)
            # Last, because other executions wait for this row until the commit.
            await count_minute(connection, at=at, succeeded=read, failed=failed)
        stored = sum(each.stored for each in settled)
        log_settled("comments.settled", step, (each.action for each in settled), stored=stored)
        return settled

    async def _settle(self, step: Settling, result: ThreadResult) -> SettledThread:
        held = step.held.get(result.note_id)
        if held is None:
            return SettledThread(note_id=result.note_id, action=StageAction.LOST)
        place = {"found": held.found, "cursor": held.cursor}
        if isinstance(result, ReadComments):
            settled, place = await self._store(step, result, held)
        else:
            settled = self._judge(step, result, held)
        row = step.describe(
            settled.note_id,
            status=settled.status,
            retry_count=settled.retry_count,
            due_at=to_milliseconds(settled.retry_at or step.at),
            error=find_error(result),
            cookie_used=result.cookie_used,
            **place,
        )
        await step.write([row])
        return settled

    async def _store(self, step: Settling, page: ReadComments, held: Any) -> tuple[SettledThread, dict[str, Any]]:
        """Store a page: each comment once, with its present values. Also returns the place of the next page."""
        # PostgreSQL limits the length of a key.
        whole = {each.comment_id: each for each in page.comments if 0 < len(each.comment_id) <= LONGEST_NOTE_ID}
        wanted = list(whole.values())[: max(0, held.wanted - held.found)]
        created = await self._upsert(step, page, wanted)
        found = held.found + len(wanted)
        is_done = page.cursor is None or not wanted or found >= held.wanted
        action = StageAction.DONE if is_done else StageAction.MORE
        settled = SettledThread(note_id=page.note_id, action=action, stored=len(wanted), created=created, retry_count=0)
        return settled, {"found": found, "cursor": "" if is_done else make_storable(page.cursor or "")}

    async def _upsert(self, step: Settling, page: ReadComments, wanted: Sequence[Comment]) -> int:
        """Returns how many comments are new."""
        if not wanted:
            return 0
        key = {"platform": step.platform, "note_id": page.note_id}
        if self.pseudonyms is not None:
            wanted = [self.pseudonyms.hide_reader(step.platform, each) for each in wanted]
        meta = write_meta(step.execution, cookie_used=page.cookie_used)
        rows = [{**key, **_describe_comment(each, now=step.now), "exec_meta": meta} for each in wanted]
        names = [row["comment_id"] for row in rows]
        known = select(comments.c.comment_id).filter_by(**key).where(comments.c.comment_id.in_(names))
        before = set((await step.connection.execute(known)).scalars())
        new = self.writer.database.insert(comments)
        kept = {name: new.excluded[name] for name in rows[0] if name not in ("collected_at", *key)}
        statement = new.on_conflict_do_update(index_elements=[*key, "comment_id"], set_=kept)
        await step.connection.execute(statement, rows)
        return len(rows) - len(before)

    def _judge(self, step: Settling, failure: Failed, held: Any) -> SettledThread:
        verdict = judge_failure(
            failure,
            retry_count=held.retry_count,
            at=step.at,
            limits=replace(self.writer.limits, backoff=WAITS),
            is_outage=failure.error.code is ErrorCode.NETWORK_ERROR,
        )
        return SettledThread(
            note_id=failure.note_id,
            action=StageAction(verdict.action.value),
            retry_count=verdict.retry_count,
            retry_at=verdict.retry_at,
        )


def _describe_comment(comment: Comment, *, now: int) -> dict[str, Any]:
    texts = {
        "comment_id": comment.comment_id,
        "parent_id": comment.parent_id,
        "author_id": comment.author.author_id,
        "author_name": comment.author.name,
        "text": comment.text,
        "place": comment.place,
        "images": json.dumps(comment.images, ensure_ascii=False),
    }
    return {
        **{name: make_storable(value) for name, value in texts.items()},
        "likes": comment.likes,
        "replies": comment.replies,
        "published_at": None if comment.published_at is None else to_milliseconds(comment.published_at),
        "collected_at": now,
        "updated_at": now,
    }
