"""The next stage: collected notes are leased and settled with the guarantees of candidates."""

import asyncio
from datetime import timedelta

import pytest

from tests.collect.writer_stage import begin, make_note, read_outbox, read_sources, store_notes
from tests.fakes import FakeClock
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import ErrorCode
from tidings.collect.write.next_stage import NextStage, SourceResult
from tidings.collect.write.values import StageAction
from tidings.collect.write.writer import Writer
from tidings.core.db.database import Database
from tidings.core.executions import ExecutionLostError

WEIBO = "weibo"


@pytest.fixture
def stage(writer: Writer) -> NextStage:
    return NextStage(writer)


async def fill(writer: Writer, *names: str, platform: str = WEIBO) -> None:
    await store_notes(writer, [make_note(name, platform=platform) for name in names])


def name_results(*names: str, code: ErrorCode | None = None) -> list[SourceResult]:
    error = None if code is None else make_error(code, "why")
    return [SourceResult(idempotency_key=f"{name}_v1", error=error) for name in names]


async def test_note_is_leased_once_settled_once_and_shown_in_the_mirror(
    writer: Writer, stage: NextStage, database: Database
) -> None:
    """C29: two executions get different notes; a repeated result changes nothing."""
    await fill(writer, "a", "b", "c")
    one, two = await begin(writer, "one"), await begin(writer, "two")
    before = len(await read_outbox(database))
    leases = await asyncio.gather(stage.lease(one, limit=2), stage.lease(two, limit=2))
    leased = [each.idempotency_key for lease in leases for each in lease]
    assert sorted(leased) == ["a_v1", "b_v1", "c_v1"]
    first = next(each for each in leases[0] + leases[1])
    assert (first.platform, first.note["title"], first.source_keyword) == (WEIBO, f"About {first.note_id}", "tea")
    mine, other = (leases[0], leases[1])
    results = [SourceResult(idempotency_key=each.idempotency_key) for each in [*mine, *other]]
    settled = await stage.settle(one, WEIBO, results)
    assert [each.action for each in settled] == [StageAction.DONE] * len(mine) + [StageAction.LOST] * len(other)
    assert {each.action for each in await stage.settle(one, WEIBO, results)} == {StageAction.LOST}
    assert await stage.lease(one) == []
    assert {name for name, _ in (await read_outbox(database))[before:]} == {"tbl_source"}
    finished = await writer.finish(two)
    assert finished.released == len(other)
    statuses = {row.idempotency_key: row.status for row in await read_sources(database)}
    assert sorted(statuses.values()) == sorted(["done"] * len(mine) + ["pending"] * len(other))


async def test_failures_follow_the_table_of_codes(
    writer: Writer, stage: NextStage, database: Database, clock: FakeClock
) -> None:
    """C29, C10, C15: backoff and four attempts; one that no retry changes fails at once; a pause is not counted."""
    await fill(writer, "a", "b", "c")
    execution = await begin(writer, "further")
    assert len(await stage.lease(execution, platform=WEIBO)) == 3
    [bad] = await stage.settle(execution, WEIBO, name_results("a", code=ErrorCode.INVALID_INPUT))
    [free] = await stage.settle(execution, WEIBO, name_results("b", code=ErrorCode.COOKIE_EXHAUSTED))
    assert (bad.action, free.action, free.retry_count) == (StageAction.FAILED, StageAction.RELEASED, 0)
    actions = []
    for _ in range(4):
        [late] = await stage.settle(execution, WEIBO, name_results("c", code=ErrorCode.NETWORK_ERROR))
        actions.append(late.action)
        if late.retry_at is not None:
            assert "c_v1" not in {each.idempotency_key for each in await stage.lease(execution)}
            clock.advance(late.retry_at - clock.now())
            await stage.settle(execution, WEIBO, name_results("b"))
            assert [each.idempotency_key for each in await stage.lease(execution)] == ["c_v1"]
    assert actions == [StageAction.RETRY] * 3 + [StageAction.FAILED]
    rows = {row.note_id: (row.status, row.retry_count, row.last_error_code) for row in await read_sources(database)}
    assert rows == {"a": ("failed", 1, "INVALID_INPUT"), "b": ("done", 0, None), "c": ("failed", 4, "NETWORK_ERROR")}


async def test_dead_holder_is_fenced_and_its_notes_are_free(
    writer: Writer, stage: NextStage, database: Database, clock: FakeClock
) -> None:
    """C29, C4, C5: the heartbeat keeps a lease; without it the note is free again, and the old holder is fenced."""
    await fill(writer, "a")
    execution = await begin(writer, "further")
    assert len(await stage.lease(execution)) == 1
    clock.advance(timedelta(minutes=29))
    assert await writer.heartbeat(execution) == 1
    clock.advance(timedelta(minutes=29))
    assert (await writer.recover()).records == 0
    clock.advance(timedelta(minutes=2))
    assert (await writer.recover()).records == 1
    with pytest.raises(ExecutionLostError):
        await stage.settle(execution, WEIBO, name_results("a"))
    [row] = await read_sources(database)
    assert (row.status, row.retry_count, row.processing_lock) == ("pending", 1, None)
    assert len(await stage.lease(await begin(writer, "further"))) == 1
