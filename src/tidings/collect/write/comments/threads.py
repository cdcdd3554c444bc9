"""Which notes have a thread: begin one, begin it again, end those of a keyword, delete that of a note. Each function is
one step of the caller's transaction.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Integer, Text, bindparam, cast, delete, literal, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.collect.tables import StageStatus, candidates, comment_threads, comments
from tidings.collect.write.leases import THREADS, update_in_order
from tidings.core.clock import to_milliseconds
from tidings.core.db.database import Database

_is_waiting = text("comment_threads.status = 'pending'")


async def begin_threads(
    connection: AsyncConnection, database: Database, rows: Sequence[Mapping[str, Any]], *, at: datetime
) -> None:
    """Read the comments of these notes from the first page on. A row has `platform`, `note_id`, `note_url`,
    `source_keyword` and `wanted`. A thread that an execution holds goes on."""
    if not rows:
        return
    ordered = sorted(rows, key=lambda row: (row["platform"], row["note_id"]))
    new = database.insert(comment_threads)
    begun = {**_describe_beginning(at), "wanted": new.excluded.wanted, "note_url": new.excluded.note_url}
    statement = new.on_conflict_do_update(
        index_elements=["platform", "note_id"],
        set_=begun,
        where=comment_threads.c.status != StageStatus.PROCESSING.value,
    )
    await connection.execute(statement, [{**row, **_describe_beginning(at), "exec_meta": "{}"} for row in ordered])


async def begin_threads_of(
    connection: AsyncConnection, database: Database, *, platform: str, keyword: str, wanted: int, at: datetime
) -> None:
    """Read the comments of all notes that this keyword has found, unless at least as many were read before."""
    beginning = _describe_beginning(at)
    values = {name: literal(value) for name, value in beginning.items()}
    found = select(
        candidates.c.platform,
        candidates.c.note_id,
        candidates.c.note_url,
        candidates.c.source_keyword,
        cast(bindparam("wanted", wanted), Integer),
        literal("{}", Text),
        *values.values(),
    )
    of_keyword = (
        text("tbl_candidate.status = 'collected'"),
        candidates.c.platform == platform,
        candidates.c.source_keyword == keyword,
    )
    names = ["platform", "note_id", "note_url", "source_keyword", "wanted", "exec_meta", *values]
    new = database.insert(comment_threads).from_select(names, found.where(*of_keyword).order_by(candidates.c.note_id))
    statement = new.on_conflict_do_update(
        index_elements=["platform", "note_id"],
        set_={**beginning, "wanted": new.excluded.wanted},
        where=(comment_threads.c.status != StageStatus.PROCESSING.value)
        & (comment_threads.c.wanted < new.excluded.wanted),
    )
    await connection.execute(statement)


async def end_threads_of(connection: AsyncConnection, *, platform: str, keyword: str, at: datetime) -> None:
    """Read no further comments for this keyword. Those that were stored stay."""
    of_keyword = (comment_threads.c.platform == platform, comment_threads.c.source_keyword == keyword)
    statement = update_in_order(comment_threads, _is_waiting, *of_keyword, order=THREADS.key)
    await connection.execute(statement.values(status=StageStatus.DONE.value, updated_at=to_milliseconds(at)))


async def delete_comments(connection: AsyncConnection, *, platform: str, note_id: str) -> None:
    """Delete the thread of a note and its comments."""
    # Delete the thread first: an execution that has locked its row then stores its page before we delete the comments.
    for table in (comment_threads, comments):
        await connection.execute(delete(table).filter_by(platform=platform, note_id=note_id))


async def requeue_threads(connection: AsyncConnection, *, platform: str | None, at: datetime) -> int:
    """Make failed threads due again, at the page that failed. Returns how many."""
    conditions: list[Any] = [text("comment_threads.status = 'failed'")]
    if platform is not None:
        conditions.append(comment_threads.c.platform == platform)
    statement = update_in_order(comment_threads, *conditions, order=THREADS.key)
    now = to_milliseconds(at)
    due = {"status": StageStatus.PENDING.value, "retry_count": 0, "due_at": now, "updated_at": now}
    return (await connection.execute(statement.values(due))).rowcount


def _describe_beginning(at: datetime) -> dict[str, Any]:
    now = to_milliseconds(at)
    return {
        "status": StageStatus.PENDING.value,
        "found": 0,
        "cursor": "",
        "retry_count": 0,
        "due_at": now,
        "updated_at": now,
    }
