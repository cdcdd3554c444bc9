"""Writes the results of leased candidates: the source, the candidate's new status and the statistics, all in the
caller's guarded transaction. Records that the execution no longer holds stay unchanged.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import and_, bindparam, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.errors import RULES, Action, ErrorCode
from tidings.collect.tables import CandidateStatus, candidates
from tidings.collect.write.comments.threads import begin_threads
from tidings.collect.write.keywords import read_follow_up
from tidings.collect.write.values import (
    LONGEST_ERROR,
    Collected,
    CookieUse,
    Failed,
    Repeated,
    Result,
    Settled,
    SettledAction,
    WriterLimits,
    judge_failure,
    list_uses,
    make_storable,
    write_meta,
)
from tidings.collect.write.versions import StoredNotes, StoredVersion, find_latest, store_notes
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database
from tidings.core.db.direct_statement import DirectStatement, among, bind_texts
from tidings.core.executions import Execution
from tidings.core.logs.logger import get_logger

_log = get_logger(__name__)

_MINUTE: Final = 60_000

_is_processed = and_(candidates.c.platform == bindparam("of_platform"), text("tbl_candidate.status = 'processing'"))
_set_collected = DirectStatement(
    update(candidates)
    .where(_is_processed, among(candidates.c.note_id, bindparam("note_ids")))
    .values(
        status=CandidateStatus.COLLECTED.value,
        processing_lock=None,
        locked_at=None,
        exec_meta=bindparam("new_meta"),
        refresh_at=bindparam("new_refresh"),
        updated_at=bindparam("now"),
    )
)
_set_failed = (
    update(candidates)
    .where(_is_processed, candidates.c.note_id == bindparam("of_note"))
    .values(
        status=bindparam("new_status"),
        processing_lock=None,
        locked_at=None,
        retry_count=bindparam("new_count"),
        due_at=bindparam("new_due"),
        last_error_code=bindparam("code"),
        last_error=bindparam("message"),
        exec_meta=bindparam("new_meta"),
        refresh_at=bindparam("new_refresh"),
        updated_at=bindparam("now"),
    )
)
_COUNT_MINUTE: Final = DirectStatement(
    text("""
    INSERT INTO collect_minutes (minute, succeeded, failed) VALUES (:minute, :succeeded, :failed)
    ON CONFLICT (minute) DO UPDATE SET
        succeeded = collect_minutes.succeeded + excluded.succeeded, failed = collect_minutes.failed + excluded.failed
    """)
)

_COUNT_TRIES: Final = DirectStatement(
    text("""
    INSERT INTO collect_tries (platform, code, tries) VALUES (:platform, :code, :tries)
    ON CONFLICT (platform, code) DO UPDATE SET tries = collect_tries.tries + excluded.tries
    """)
)


async def write_collected(
    connection: AsyncConnection,
    database: Database,
    collected: Sequence[Collected],
    *,
    platform: str,
    held: Mapping[str, Any],
    execution: Execution,
    at: datetime,
) -> list[Settled]:
    """Store these notes and mark their candidates as collected. A note with the text of its source is skipped."""
    mine = [each for each in collected if each.note_id in held]
    stored = await store_notes(
        connection, database, collected, platform=platform, held=held, execution=execution, at=at
    )
    refreshes = _plan_refreshes(held, latest=stored.latest, at=at)
    await _mark_collected(connection, mine, platform=platform, execution=execution, refreshes=refreshes, at=at)
    await begin_threads(connection, database, _want_comments(mine, platform=platform, held=held), at=at)
    return [_describe_written(each.note_id, stored=stored) for each in collected]


async def write_failed(
    connection: AsyncConnection,
    failures: Sequence[Failed],
    *,
    platform: str,
    held: Mapping[str, Any],
    execution: Execution,
    at: datetime,
    limits: WriterLimits,
    outages: Collection[str],
) -> list[Settled]:
    """Update the candidates of these failures: due again, failed, or given back. `outages` are the note ids of failures
    that say nothing about their note."""
    settled = [
        _judge_held(each, held[each.note_id], at=at, limits=limits, is_outage=each.note_id in outages)
        if each.note_id in held
        else Settled(note_id=each.note_id, action=SettledAction.LOST)
        for each in failures
    ]
    kept = {each.note_id: held[each.note_id] for each in settled if each.action is SettledAction.KEPT}
    latest = await find_latest(connection, platform=platform, note_ids=list(kept))
    refreshes = _plan_refreshes(kept, latest=latest, at=at)
    marks = [
        {
            **_describe_mark(failure, verdict, platform=platform, execution=execution, at=at),
            "new_refresh": _find_next(failure, verdict, before=held[failure.note_id], refreshes=refreshes),
        }
        for failure, verdict in zip(failures, settled, strict=True)
        if verdict.status is not None
    ]
    if marks:
        await connection.execute(_set_failed, marks)
    return settled


async def count_minute(connection: AsyncConnection, *, at: datetime, succeeded: int, failed: int) -> None:
    """Add to the statistics of this minute, which the success rate is computed from."""
    if succeeded or failed:
        values = {"minute": to_milliseconds(at) // _MINUTE, "succeeded": succeeded, "failed": failed}
        await _COUNT_MINUTE.run(connection, values)


async def count_tries(connection: AsyncConnection, platform: str, results: Sequence[Result]) -> None:
    """Count the tries of held candidates by error code, for the metrics."""
    codes = ["OK" if isinstance(each, Collected) else each.code.value for each in results]
    await count_codes(connection, platform, codes)


async def count_codes(connection: AsyncConnection, platform: str, codes: Sequence[str]) -> None:
    """Count tries by their codes; `OK` is a success."""
    # Always in the same order, so that two executions cannot deadlock.
    counts = sorted(Counter(codes).items())
    await _COUNT_TRIES.run_each(
        connection, [{"platform": platform, "code": code, "tries": count} for code, count in counts]
    )


def split_results(results: Sequence[Result]) -> tuple[list[Collected], list[Failed]]:
    """The final results, each note once. Of two results for one note the first counts."""
    first: dict[str, Collected | Failed] = {}
    for result in results:
        if not isinstance(result, Repeated):
            first.setdefault(result.note_id, result)
    return (
        [each for each in first.values() if isinstance(each, Collected)],
        [each for each in first.values() if isinstance(each, Failed)],
    )


def refuse(result: Result) -> Failed:
    """The failure of a note that the database refuses."""
    return Failed(
        note_id=result.note_id,
        code=ErrorCode.INTERNAL_ERROR,
        message="the database refuses this note; the log has the cause",
        cookie_used=result.cookie_used,
    )


def is_pause(failures: Sequence[Failed], *, held: Mapping[str, Any]) -> bool:
    """Whether a failure pauses the platform for the rest of the execution: no cookie is left for it."""
    return any(RULES[each.code].action is Action.PAUSE and each.note_id in held for each in failures)


def list_held_uses(results: Sequence[Result], *, held: Mapping[str, Any]) -> list[CookieUse]:
    """The cookie uses of these results, one per note. A repeated report counts nothing: its record is not held."""
    uses: dict[str, list[CookieUse]] = {}
    for each in results:
        if each.note_id in held and each.cookie_used is not None:
            use = list_uses(each.cookie_used, None if isinstance(each, Collected) else each)
            uses.setdefault(each.note_id, use)
    return [use for each in uses.values() for use in each]


def _judge_held(failure: Failed, before: Any, *, at: datetime, limits: WriterLimits, is_outage: bool) -> Settled:
    """The result of a failure. A note that was collected before, and cannot be read again, stays as it is."""
    verdict = judge_failure(failure, retry_count=before.retry_count, at=at, limits=limits, is_outage=is_outage)
    if verdict.action is SettledAction.FAILED and before.refresh_at is not None:
        return Settled(note_id=failure.note_id, action=SettledAction.KEPT, retry_count=0)
    return verdict


def _want_comments(collected: Sequence[Collected], *, platform: str, held: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The notes whose keyword asks for comments, as rows of threads."""
    return [
        {
            "platform": platform,
            "note_id": each.note_id,
            "note_url": make_storable(each.note.url),
            "source_keyword": held[each.note_id].source_keyword,
            "wanted": wanted,
        }
        for each in collected
        if (wanted := read_follow_up(held[each.note_id]).comments)
    ]


def _plan_refreshes(held: Mapping[str, Any], *, latest: Mapping[str, StoredVersion], at: datetime) -> dict[str, int]:
    """When each of these notes is to be read again, by note id; without notes whose keyword does not want that."""
    times = {}
    for note_id, row in held.items():
        plan = read_follow_up(row).refresh
        since = latest[note_id].first_at if note_id in latest else at
        if plan is not None and at + plan.every <= since + plan.period:
            times[note_id] = to_milliseconds(at + plan.every)
    return times


def _find_next(failure: Failed, verdict: Settled, *, before: Any, refreshes: Mapping[str, int]) -> int | None:
    """When the note of a failure is to be read again. A note that is gone is not."""
    if verdict.action is not SettledAction.KEPT:
        at: int | None = before.refresh_at
        return at
    return None if RULES[failure.code].gives_up else refreshes.get(failure.note_id)


async def _mark_collected(
    connection: AsyncConnection,
    collected: Sequence[Collected],
    *,
    platform: str,
    execution: Execution,
    refreshes: Mapping[str, int],
    at: datetime,
) -> None:
    """One statement per cookie and next reading, because `exec_meta` names the cookie."""
    groups = defaultdict(list)
    for each in collected:
        groups[each.cookie_used, refreshes.get(each.note_id)].append(each.note_id)
    for (cookie_used, refresh_at), note_ids in groups.items():
        values = {
            "of_platform": platform,
            "note_ids": bind_texts(note_ids),
            "new_meta": write_meta(execution, cookie_used=cookie_used),
            "new_refresh": refresh_at,
            "now": to_milliseconds(at),
        }
        await _set_collected.run(connection, values)


def _describe_mark(
    failure: Failed, verdict: Settled, *, platform: str, execution: Execution, at: datetime
) -> dict[str, Any]:
    return {
        "of_platform": platform,
        "of_note": failure.note_id,
        "new_status": verdict.status,
        "new_count": verdict.retry_count,
        "new_due": to_milliseconds(verdict.retry_at or at),
        "code": failure.code.value,
        "message": make_storable(failure.message)[:LONGEST_ERROR],
        "new_meta": write_meta(execution, cookie_used=failure.cookie_used),
        "now": to_milliseconds(at),
    }


def _describe_written(note_id: str, *, stored: StoredNotes) -> Settled:
    changed = stored.changed.get(note_id)
    if note_id in stored.created:
        row_id = stored.created[note_id]
        return Settled(note_id=note_id, action=SettledAction.CREATED, existing_id=row_id, source_key=changed)
    if note_id in stored.latest:
        row_id = stored.latest[note_id].id
        return Settled(note_id=note_id, action=SettledAction.SKIPPED, existing_id=row_id, source_key=changed)
    return Settled(note_id=note_id, action=SettledAction.LOST)


def log_settled(execution: Execution, platform: str, settled: Sequence[Settled]) -> None:
    counts = {action: sum(each.action is action for each in settled) for action in SettledAction}
    _log.info(
        "candidates.settled",
        platform=platform,
        execution=execution.public_id,
        **{action.value: count for action, count in counts.items() if count},
    )
