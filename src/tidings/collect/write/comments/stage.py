"""Leases and results of comment threads. A lease is for one page. One guarded transaction stores its comments and the
cursor of the next page, so an execution that dies costs at most the page that it was reading.

Same locks, fencing, retries, pauses and recovery as for candidates; the rules are in `leases`, `values` and `pauses`.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.comments import Comment
from tidings.collect.errors import RULES, Action, ErrorCode
from tidings.collect.pseudonyms import Pseudonyms
from tidings.collect.tables import comment_threads, comments
from tidings.collect.write.batches import store_progress
from tidings.collect.write.comments.values import (
    LeasedThread,
    ReadComments,
    SettledThread,
    ThreadResult,
)
from tidings.collect.write.leases import THREADS, find_due_platforms, find_held, lease_records
from tidings.collect.write.results import count_codes, count_minute
from tidings.collect.write.values import (
    LONGEST_ERROR,
    LONGEST_NOTE_ID,
    Failed,
    StageAction,
    WriterLimits,
    judge_failure,
    list_uses,
    make_storable,
    write_meta,
)
from tidings.collect.write.writer import Writer
from tidings.core.clock import Clock, to_milliseconds
from tidings.core.db.database import Database
from tidings.core.executions import Execution, Executions
from tidings.core.logs.logger import get_logger

# The waits after a page that could not be read. They are long, because a platform's comments may fail for a while
# although its notes can be read, and comments are not urgent.
WAITS: Final = (timedelta(minutes=1), timedelta(minutes=15), timedelta(minutes=60))
_PAGE_READ: Final = frozenset({StageAction.MORE, StageAction.DONE})
_PAGE_FAILED: Final = frozenset({StageAction.RETRY, StageAction.FAILED})

_log = get_logger(__name__)


class CommentStage:
    """Threads of comments. Every method raises ExecutionLostError. `pseudonyms` replaces the authors of comments before
    they are stored; None stores them as the platform gives them."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        *,
        executions: Executions,
        clock: Clock,
        limits: WriterLimits,
        pseudonyms: Pseudonyms | None,
    ) -> None:
        self._database = database
        self._writer = writer
        self._executions = executions
        self._clock = clock
        self._limits = replace(limits, backoff=WAITS)
        self._pseudonyms = pseudonyms

    async def lease(self, execution: Execution, *, limit: int = 1, platform: str | None = None) -> list[LeasedThread]:
        """Lease threads of one platform, each for its next page: of the named one, or of the one that waits longest.

        A platform that is paused, or that has no cookie left for this execution, is skipped. After a pause it is one
        thread: the probe.
        """
        at = self._clock.now()
        async with self._executions.guard_progress(execution) as (connection, progress):
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
        pauses = self._writer.pauses
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

        Repeating the same results changes nothing: a thread that is no longer held is answered with `lost`.
        """
        at = self._clock.now()
        first = {each.note_id: each for each in reversed(results)}
        async with self._executions.guard_progress(execution) as (connection, progress):
            held = await find_held(connection, execution, platform=platform, note_ids=first, of=THREADS)
            settled = []
            for note_id, result in first.items():
                if note_id not in held:
                    settled.append(SettledThread(note_id=note_id, action=StageAction.LOST))
                elif isinstance(result, ReadComments):
                    settled.append(await self._store(connection, execution, platform, result, held[note_id], at=at))
                else:
                    settled.append(await self._fail(connection, execution, platform, result, held[note_id], at=at))
            mine = [each for note_id, each in first.items() if note_id in held]
            uses = [use for each in mine for use in list_uses(*_read_answer(each))]
            # Cookies before pauses, as in every transaction: two of them cannot deadlock.
            await self._writer.record_uses(connection, uses, at=at)
            await self._judge_platform(connection, platform, mine, at=at)
            await self._writer.pauses.judge_captchas(connection, uses, at=at)
            if any(isinstance(each, Failed) and RULES[each.code].action is Action.PAUSE for each in mine):
                paused = {**progress, "paused": sorted({*progress.get("paused", ()), platform})}
                await store_progress(connection, execution, paused, before=progress)
            await self._count(connection, execution, platform, mine, settled, at=at)
        _log_settled(execution, platform, settled)
        return settled

    async def _store(
        self,
        connection: AsyncConnection,
        execution: Execution,
        platform: str,
        page: ReadComments,
        before: Any,
        *,
        at: datetime,
    ) -> SettledThread:
        """Store a page: each comment once, with its present values, and the cursor of the next page."""
        # PostgreSQL limits the length of a key.
        whole = {each.comment_id: each for each in page.comments if 0 < len(each.comment_id) <= LONGEST_NOTE_ID}
        wanted = list(whole.values())[: max(0, before.wanted - before.found)]
        created = await self._upsert(connection, execution, platform, page, wanted, at=at)
        found = before.found + len(wanted)
        is_done = page.cursor is None or not wanted or found >= before.wanted
        action = StageAction.DONE if is_done else StageAction.MORE
        place = {"found": found, "cursor": "" if is_done else make_storable(page.cursor or "")}
        settled = SettledThread(note_id=page.note_id, action=action, stored=len(wanted), created=created, retry_count=0)
        await self._update(connection, execution, platform, settled, at=at, cookie_used=page.cookie_used, **place)
        return settled

    async def _upsert(
        self,
        connection: AsyncConnection,
        execution: Execution,
        platform: str,
        page: ReadComments,
        wanted: Sequence[Comment],
        *,
        at: datetime,
    ) -> int:
        """Returns how many comments are new."""
        if not wanted:
            return 0
        key = {"platform": platform, "note_id": page.note_id}
        shown = (
            wanted if self._pseudonyms is None else [self._pseudonyms.hide_reader(platform, each) for each in wanted]
        )
        meta = write_meta(execution, cookie_used=page.cookie_used)
        rows = [{**key, **_describe_comment(each, at=at), "exec_meta": meta} for each in shown]
        names = [row["comment_id"] for row in rows]
        known = select(comments.c.comment_id).filter_by(**key).where(comments.c.comment_id.in_(names))
        before = set((await connection.execute(known)).scalars())
        new = self._database.insert(comments)
        kept = {name: new.excluded[name] for name in rows[0] if name not in ("collected_at", *key)}
        statement = new.on_conflict_do_update(index_elements=[*key, "comment_id"], set_=kept)
        await connection.execute(statement, rows)
        return len(rows) - len(before)

    async def _fail(
        self,
        connection: AsyncConnection,
        execution: Execution,
        platform: str,
        failure: Failed,
        before: Any,
        *,
        at: datetime,
    ) -> SettledThread:
        is_outage = failure.code is ErrorCode.NETWORK_ERROR
        verdict = judge_failure(
            failure, retry_count=before.retry_count, at=at, limits=self._limits, is_outage=is_outage
        )
        settled = SettledThread(
            note_id=failure.note_id,
            action=StageAction(verdict.action.value),
            retry_count=verdict.retry_count,
            retry_at=verdict.retry_at,
        )
        error = {"last_error_code": failure.code.value, "last_error": make_storable(failure.message)[:LONGEST_ERROR]}
        await self._update(connection, execution, platform, settled, at=at, cookie_used=failure.cookie_used, **error)
        return settled

    async def _update(
        self,
        connection: AsyncConnection,
        execution: Execution,
        platform: str,
        settled: SettledThread,
        *,
        at: datetime,
        cookie_used: str | None,
        **values: Any,
    ) -> None:
        assert settled.status is not None  # noqa: S101 - the thread is held
        done = {
            "status": settled.status.value,
            "processing_lock": None,
            "locked_at": None,
            "retry_count": settled.retry_count,
            "due_at": to_milliseconds(settled.retry_at or at),
            "exec_meta": write_meta(execution, cookie_used=cookie_used),
            "updated_at": to_milliseconds(at),
        }
        statement = update(comment_threads).filter_by(platform=platform, note_id=settled.note_id)
        await connection.execute(statement.values(**{**values, **done}))

    async def _judge_platform(
        self, connection: AsyncConnection, platform: str, results: Sequence[ThreadResult], *, at: datetime
    ) -> None:
        """End the pause of a platform that answered; pause one that blocks or cannot be reached."""
        for each in results:
            _, failure = _read_answer(each)
            await self._writer.pauses.judge_answer(connection, platform, failure, at=at)

    async def _count(
        self,
        connection: AsyncConnection,
        execution: Execution,
        platform: str,
        results: Sequence[ThreadResult],
        settled: Sequence[SettledThread],
        *,
        at: datetime,
    ) -> None:
        failures = [failure for _, failure in map(_read_answer, results)]
        codes = ["OK" if failure is None else failure.code.value for failure in failures]
        await count_codes(connection, platform, codes)
        read, failed = (sum(each.action in of for each in settled) for of in (_PAGE_READ, _PAGE_FAILED))
        await self._executions.count_items(connection, execution, processed=read, failed=failed)
        # Last, because other executions wait for this row until the commit.
        await count_minute(connection, at=at, succeeded=read, failed=failed)


def _read_answer(result: ThreadResult) -> tuple[str | None, Failed | None]:
    """The cookie that was used, and the failure."""
    return result.cookie_used, None if isinstance(result, ReadComments) else result


def _describe_comment(comment: Comment, *, at: datetime) -> dict[str, Any]:
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
        "collected_at": to_milliseconds(at),
        "updated_at": to_milliseconds(at),
    }


def _log_settled(execution: Execution, platform: str, settled: Sequence[SettledThread]) -> None:
    counts = {action.value: sum(each.action is action for each in settled) for action in StageAction}
    _log.info(
        "comments.settled",
        platform=platform,
        execution=execution.public_id,
        stored=sum(each.stored for each in settled),
        **{name: count for name, count in counts.items() if count},
    )
