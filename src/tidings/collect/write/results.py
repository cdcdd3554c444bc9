"""Writes the results of leased candidates: the source, the candidate's new status and the statistics, all in the
caller's guarded transaction. Records that the execution no longer holds stay unchanged.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import bindparam, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.crawl.envelope import ErrorInfo, make_error
from tidings.collect.errors import RULES, Action, ErrorCode
from tidings.collect.status.queries import count_minutes
from tidings.collect.tables import CandidateStatus, candidates
from tidings.collect.write.comments.threads import begin_threads
from tidings.collect.write.keywords import read_plan
from tidings.collect.write.leases import CANDIDATES, Settling
from tidings.collect.write.values import (
    Collected,
    CookieUse,
    Failed,
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
from tidings.core.db.direct_statement import DirectStatement, among, bind_texts
from tidings.core.logs.logger import get_logger

_log = get_logger(__name__)

_set_collected = DirectStatement(
    update(candidates)
    .where(
        candidates.c.platform == bindparam("of_platform"),
        CANDIDATES.is_processing,
        among(candidates.c.note_id, bindparam("note_ids")),
    )
    .values(
        status=CandidateStatus.COLLECTED.value,
        processing_lock=None,
        locked_at=None,
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


async def write_collected(step: Settling, collected: Sequence[Collected]) -> list[Settled]:
    """Store these notes and mark their candidates as collected. A note with the text of its source is skipped."""
    mine = [each for each in collected if each.note_id in step.held]
    stored = await store_notes(step, collected)
    await _mark_collected(step, mine, refreshes=_plan_refreshes(step, list(step.held), latest=stored.latest))
    await begin_threads(step.connection, step.database, _want_comments(step, mine), at=step.at)
    return [_describe_written(each.note_id, stored=stored) for each in collected]


async def write_failed(
    step: Settling, failures: Sequence[Failed], *, limits: WriterLimits, outages: Collection[str]
) -> list[Settled]:
    """Update the candidates of these failures: due again, failed, or given back. `outages` are the note ids of failures
    that say nothing about their note."""
    settled = [_judge_held(step, each, limits=limits, is_outage=each.note_id in outages) for each in failures]
    kept = [each.note_id for each in settled if each.action is SettledAction.KEPT]
    refreshes = _plan_refreshes(step, kept, latest=await find_latest(step, kept))
    await step.write(
        [
            step.describe(
                failure.note_id,
                status=verdict.status,
                retry_count=verdict.retry_count,
                due_at=to_milliseconds(verdict.retry_at or step.at),
                refresh_at=_find_next(step, failure, verdict, refreshes=refreshes),
                error=failure.error,
                cookie_used=failure.cookie_used,
            )
            for failure, verdict in zip(failures, settled, strict=True)
            if verdict.status is not None
        ]
    )
    return settled


async def count_minute(connection: AsyncConnection, *, at: datetime, succeeded: int, failed: int) -> None:
    """Add to the statistics of this minute, which the success rate is computed from."""
    if succeeded or failed:
        values = {"minute": count_minutes(at), "succeeded": succeeded, "failed": failed}
        await _COUNT_MINUTE.run(connection, values)


async def count_tries(connection: AsyncConnection, platform: str, errors: Sequence[ErrorInfo | None]) -> None:
    """Count tries by the codes of their errors, for the metrics."""
    # Always in the same order, so that two executions cannot deadlock.
    counts = sorted(Counter("OK" if error is None else error.code.value for error in errors).items())
    await _COUNT_TRIES.run_each(
        connection, [{"platform": platform, "code": code, "tries": count} for code, count in counts]
    )


def split_results(results: Sequence[Result]) -> tuple[list[Collected], list[Failed]]:
    """The final results, each note once. Of two results for one note the first counts."""
    first: dict[str, Result] = {}
    for result in results:
        if isinstance(result, Collected) or not result.is_repeated:
            first.setdefault(result.note_id, result)
    return (
        [each for each in first.values() if isinstance(each, Collected)],
        [each for each in first.values() if isinstance(each, Failed)],
    )


def refuse(result: Result) -> Failed:
    """The failure of a note that the database refuses."""
    error = make_error(ErrorCode.INTERNAL_ERROR, "the database refuses this note; the log has the cause")
    return Failed(note_id=result.note_id, error=error, cookie_used=result.cookie_used)


def find_error(result: object) -> ErrorInfo | None:
    """The error of a result; None if something was read."""
    return result.error if isinstance(result, Failed) else None


def is_pause(results: Iterable[object]) -> bool:
    """Whether an error pauses the platform for the rest of the execution: no cookie is left for it."""
    return any(error is not None and RULES[error.code].action is Action.PAUSE for error in map(find_error, results))


def list_uses_by_note(results: Sequence[Result]) -> list[CookieUse]:
    """The cookie uses of the results of held candidates, one per note."""
    uses: dict[str, list[CookieUse]] = {}
    for each in results:
        if each.cookie_used is not None:
            uses.setdefault(each.note_id, list_uses(each.cookie_used, find_error(each)))
    return [use for each in uses.values() for use in each]


def _judge_held(step: Settling, failure: Failed, *, limits: WriterLimits, is_outage: bool) -> Settled:
    """The result of a failure. A note that was collected before, and cannot be read again, stays as it is."""
    before = step.held.get(failure.note_id)
    if before is None:
        return Settled(note_id=failure.note_id, action=SettledAction.LOST)
    verdict = judge_failure(failure, retry_count=before.retry_count, at=step.at, limits=limits, is_outage=is_outage)
    if verdict.action is SettledAction.FAILED and before.refresh_at is not None:
        return Settled(note_id=failure.note_id, action=SettledAction.KEPT, retry_count=0)
    return verdict


def _want_comments(step: Settling, collected: Sequence[Collected]) -> list[dict[str, Any]]:
    """The notes whose keyword asks for comments, as rows of threads."""
    return [
        {
            "platform": step.platform,
            "note_id": each.note_id,
            "note_url": make_storable(each.note.url),
            "source_keyword": step.held[each.note_id].source_keyword,
            "wanted": wanted,
        }
        for each in collected
        if (wanted := step.held[each.note_id].comments)
    ]


def _plan_refreshes(step: Settling, note_ids: Sequence[str], *, latest: Mapping[str, StoredVersion]) -> dict[str, int]:
    """When each of these notes is to be read again, by note id; without notes whose keyword does not want that."""
    times = {}
    for note_id in note_ids:
        plan = read_plan(step.held[note_id])
        since = latest[note_id].first_at if note_id in latest else step.at
        if plan is not None and step.at + plan.every <= since + plan.period:
            times[note_id] = to_milliseconds(step.at + plan.every)
    return times


def _find_next(step: Settling, failure: Failed, verdict: Settled, *, refreshes: Mapping[str, int]) -> int | None:
    """When the note of a failure is to be read again. A note that is gone is not."""
    if verdict.action is not SettledAction.KEPT:
        at: int | None = step.held[failure.note_id].refresh_at
        return at
    return None if RULES[failure.error.code].gives_up else refreshes.get(failure.note_id)


async def _mark_collected(step: Settling, collected: Sequence[Collected], *, refreshes: Mapping[str, int]) -> None:
    """One statement per cookie and next reading, because `exec_meta` names the cookie."""
    groups = defaultdict(list)
    for each in collected:
        groups[each.cookie_used, refreshes.get(each.note_id)].append(each.note_id)
    for (cookie_used, refresh_at), note_ids in groups.items():
        values = {
            "of_platform": step.platform,
            "note_ids": bind_texts(note_ids),
            "new_meta": write_meta(step.execution, cookie_used=cookie_used),
            "new_refresh": refresh_at,
            "now": step.now,
        }
        await _set_collected.run(step.connection, values)


def _describe_written(note_id: str, *, stored: StoredNotes) -> Settled:
    changed = stored.changed.get(note_id)
    if note_id in stored.created:
        row_id = stored.created[note_id]
        return Settled(note_id=note_id, action=SettledAction.CREATED, existing_id=row_id, source_key=changed)
    if note_id in stored.latest:
        row_id = stored.latest[note_id].id
        return Settled(note_id=note_id, action=SettledAction.SKIPPED, existing_id=row_id, source_key=changed)
    return Settled(note_id=note_id, action=SettledAction.LOST)


def log_settled(event: str, step: Settling, actions: Iterable[str], **more: int) -> None:
    """Log how many records had each action."""
    counts = Counter(map(str, actions))
    _log.info(event, platform=step.platform, execution=step.execution.public_id, **more, **counts)
