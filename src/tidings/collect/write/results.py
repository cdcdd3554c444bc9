"""Writes the results of leased candidates: the source, the candidate's new status and the statistics, all in the
caller's guarded transaction. Records that the execution no longer holds stay unchanged.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import and_, bindparam, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.archive.search import make_terms
from tidings.collect.errors import RULES, Action, ErrorCode
from tidings.collect.tables import CandidateStatus, SourceStatus, candidates, note_terms, sources
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
    make_storable,
    write_meta,
)
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database
from tidings.core.executions import Execution

_MINUTE: Final = 60_000

_is_processed = and_(candidates.c.platform == bindparam("of_platform"), text("tbl_candidate.status = 'processing'"))
_set_collected = (
    update(candidates)
    .where(_is_processed, candidates.c.note_id.in_(bindparam("note_ids", expanding=True)))
    .values(
        status=CandidateStatus.COLLECTED.value,
        processing_lock=None,
        locked_at=None,
        exec_meta=bindparam("new_meta"),
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
        updated_at=bindparam("now"),
    )
)
_COUNT_MINUTE: Final = text(
    """
    INSERT INTO collect_minutes (minute, succeeded, failed) VALUES (:minute, :succeeded, :failed)
    ON CONFLICT (minute) DO UPDATE SET
        succeeded = collect_minutes.succeeded + excluded.succeeded, failed = collect_minutes.failed + excluded.failed
    """
)

_COUNT_TRIES: Final = text(
    """
    INSERT INTO collect_tries (platform, code, tries) VALUES (:platform, :code, :tries)
    ON CONFLICT (platform, code) DO UPDATE SET tries = collect_tries.tries + excluded.tries
    """
)


def make_key(note_id: str) -> str:
    """The idempotency key of a note in its first version."""
    return f"{note_id}_v1"


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
    """Insert the sources of these notes and mark their candidates as collected. An existing source is skipped."""
    mine = [each for each in collected if each.note_id in held]
    rows = [_describe_source(each, held[each.note_id], platform=platform, execution=execution, at=at) for each in mine]
    created = await insert_sources(connection, database, rows)
    terms = {each.note_id: make_terms(each.note) for each in mine}
    await insert_terms(connection, {row_id: terms[note_id] for note_id, row_id in created.items()})
    await _mark_collected(connection, mine, platform=platform, execution=execution, at=at)
    others = [each.note_id for each in collected if each.note_id not in created]
    existing = await _find_sources(connection, platform=platform, note_ids=others)
    return [_describe_written(each.note_id, created=created, existing=existing) for each in collected]


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
        judge_failure(
            each,
            retry_count=held[each.note_id].retry_count,
            at=at,
            limits=limits,
            is_outage=each.note_id in outages,
        )
        if each.note_id in held
        else Settled(note_id=each.note_id, action=SettledAction.LOST)
        for each in failures
    ]
    marks = [
        _describe_mark(failure, verdict, platform=platform, execution=execution, at=at)
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
        await connection.execute(_COUNT_MINUTE, values)


async def count_tries(connection: AsyncConnection, platform: str, results: Sequence[Result]) -> None:
    """Count the tries of held candidates by error code, for the metrics."""
    codes = Counter("OK" if isinstance(each, Collected) else each.code.value for each in results)
    # One order for all: two executions cannot deadlock.
    rows = [{"platform": platform, "code": code, "tries": count} for code, count in sorted(codes.items())]
    if rows:
        await connection.execute(_COUNT_TRIES, rows)


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


def list_uses(results: Sequence[Result], *, held: Mapping[str, Any]) -> list[CookieUse]:
    """The cookie uses of these results, one per note. A repeated report counts nothing: its record is not held."""
    uses, counted = [], set()
    for each in results:
        if each.cookie_used is None or each.note_id not in held or each.note_id in counted:
            continue
        counted.add(each.note_id)
        if isinstance(each, Collected):
            uses.append(CookieUse(cookie_name=each.cookie_used))
        else:
            uses.append(CookieUse(cookie_name=each.cookie_used, code=each.code, captcha=each.captcha))
    return uses


async def _mark_collected(
    connection: AsyncConnection, collected: Sequence[Collected], *, platform: str, execution: Execution, at: datetime
) -> None:
    """One statement per cookie, because `exec_meta` names the cookie."""
    by_cookie = defaultdict(list)
    for each in collected:
        by_cookie[each.cookie_used].append(each.note_id)
    for cookie_used, note_ids in by_cookie.items():
        meta = write_meta(execution, cookie_used=cookie_used)
        values = {"of_platform": platform, "note_ids": note_ids, "new_meta": meta, "now": to_milliseconds(at)}
        await connection.execute(_set_collected, values)


async def insert_sources(
    connection: AsyncConnection, database: Database, rows: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Insert sources. Returns the row ids of the new ones by note id."""
    if not rows:
        return {}
    statement = database.insert(sources).on_conflict_do_nothing().returning(sources.c.id, sources.c.note_id)
    return {row.note_id: row.id for row in await connection.execute(statement, list(rows))}


async def insert_terms(connection: AsyncConnection, terms: Mapping[int, str]) -> None:
    """Add new sources to the full-text index, in the transaction that stores them."""
    if terms:
        rows = [{"source_id": row_id, "terms": words} for row_id, words in terms.items()]
        await connection.execute(insert(note_terms), rows)


async def _find_sources(connection: AsyncConnection, *, platform: str, note_ids: Sequence[str]) -> dict[str, int]:
    if not note_ids:
        return {}
    keys = {make_key(note_id): note_id for note_id in note_ids}
    statement = select(sources.c.id, sources.c.idempotency_key).where(
        sources.c.platform == platform, sources.c.idempotency_key.in_(sorted(keys))
    )
    return {keys[row.idempotency_key]: row.id for row in await connection.execute(statement)}


def _describe_source(
    collected: Collected, before: Any, *, platform: str, execution: Execution, at: datetime
) -> dict[str, Any]:
    note, now = collected.note, to_milliseconds(at)
    published_at = None if note.published_at is None else to_milliseconds(note.published_at)
    return {
        "platform": platform,
        "note_id": collected.note_id,
        "idempotency_key": make_key(collected.note_id),
        "note_url": make_storable(note.url),
        "kind": note.kind.value,
        "title": make_storable(note.title),
        "author_id": make_storable(note.author.author_id),
        "author_name": make_storable(note.author.name),
        "source_keyword": before.source_keyword,
        "published_at": published_at,
        "dated_at": now if published_at is None else published_at,
        "version": 1,
        "is_latest": True,
        "content": make_storable(json.dumps(note.describe(), ensure_ascii=False)),
        "status": SourceStatus.PENDING.value,
        "retry_count": 0,
        "due_at": now,
        "exec_meta": write_meta(execution, cookie_used=collected.cookie_used),
        "collected_at": now,
    }


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


def _describe_written(note_id: str, *, created: Mapping[str, int], existing: Mapping[str, int]) -> Settled:
    if note_id in created:
        return Settled(note_id=note_id, action=SettledAction.CREATED, existing_id=created[note_id])
    if note_id in existing:
        return Settled(note_id=note_id, action=SettledAction.SKIPPED, existing_id=existing[note_id])
    return Settled(note_id=note_id, action=SettledAction.LOST)
