"""Two transactions that need the same rows wait for each other in one order. On PostgreSQL two orders are a deadlock,
which ends one of them; SQLite has one writer at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Table, delete, event, select, text, update

from tests.collect.writer_stage import PLATFORM, begin, make_candidates, make_note, read_candidates, read_sources
from tests.fakes import FakeClock
from tidings.collect.tables import candidates, comment_threads, platform_pauses, sources
from tidings.collect.write.cookies import CookieRecords, make_cookie
from tidings.collect.write.keywords import Keywords, RefreshPlan
from tidings.collect.write.next_stage import NextStage, SourceResult
from tidings.collect.write.values import Collected, CookieUse
from tidings.collect.write.writer import Writer
from tidings.core.db.database import Database
from tidings.core.executions import Execution
from tidings.core.secrets.keyring import KeyRing
from tidings.core.secrets.secret import Secret

SOON = 30.0
DAY = timedelta(days=1)
Step = Callable[[], Awaitable[Any]]


async def run_in_turn(database: Database, gate: AsyncExitStack, *steps: Step) -> None:
    """Begin each step when the ones before wait for a row; then open the gate that holds the first. All must end."""
    tasks = []
    for number, step in enumerate(steps, start=1):
        tasks.append(asyncio.ensure_future(step()))
        async with asyncio.timeout(SOON):
            while not tasks[-1].done() and await count_waiting(database) < number:  # noqa: ASYNC110 - it asks the database
                await asyncio.sleep(0)
    await gate.aclose()
    async with asyncio.timeout(SOON):
        await asyncio.gather(*tasks)


async def count_waiting(database: Database) -> float:
    """How many sessions wait for a lock. On SQLite there is nothing to hold, so the next step may begin."""
    if database.dialect == "sqlite":
        return float("inf")
    statement = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with database.read() as connection:
        return float((await connection.execute(text(statement))).scalar_one())


@asynccontextmanager
async def hold_row(database: Database, table: Table, **key: str) -> AsyncIterator[None]:
    """A transaction of somebody else holds this row."""
    if database.dialect == "sqlite":
        yield
        return
    async with database.write() as connection:
        assert (await connection.execute(select(table).filter_by(**key).with_for_update())).first() is not None
        yield


@asynccontextmanager
async def claim_row(database: Database, table: Table, values: dict[str, Any], **key: str) -> AsyncIterator[None]:
    """A transaction of somebody else has inserted this row, and takes it back."""
    if database.dialect == "sqlite":
        yield
        return
    async with database.write() as connection:
        await connection.execute(table.insert().values(values))
        yield
        await connection.execute(delete(table).filter_by(**key))


async def lay_out_sources(database: Database) -> None:
    """Let PostgreSQL meet the rows in the order of their ids, unless a statement asks for another."""
    if database.dialect == "postgresql":
        async with database.write() as connection:
            await connection.execute(text("CLUSTER tbl_source USING tbl_source_pkey"))


async def settle_notes(
    writer: Writer, execution: Execution, *names: str, title: str = "", cookie_used: str | None = None
) -> None:
    results = [
        Collected(note_id=name, note=make_note(name, title=title and f"{title} {name}"), cookie_used=cookie_used)
        for name in names
    ]
    await writer.settle(execution, PLATFORM, results)


async def test_a_probe_that_ends_a_pause_and_a_search_with_the_same_cookie_both_succeed(
    writer: Writer, database: Database, clock: FakeClock, keys: KeyRing
) -> None:
    """C4, C34: the probe has read its note, and a search has found more. Both end the pause and count the cookie."""
    cookies = CookieRecords(database, keys=keys, clock=clock)
    await cookies.add(make_cookie("one", platform=PLATFORM, secret=Secret("SESSDATA=x")))
    probing, searching = await begin(writer, "probing"), await begin(writer, "searching")
    await writer.add_candidates(probing, make_candidates("n1"))
    pause = {"cause": "network", "message": "", "failures": 1, "paused_at": 1, "paused_until": 1}
    async with database.write() as connection:
        await connection.execute(platform_pauses.insert().values(platform=PLATFORM, **pause))
    await writer.lease(probing, platform=PLATFORM)
    await writer.add_candidates(searching, make_candidates("n2"))
    [template] = await find_source_values(writer, searching, database)
    claimed = template | {"id": 1_000, "platform": PLATFORM, "note_id": "n1", "idempotency_key": "n1_v1"}
    async with AsyncExitStack() as gate:
        await gate.enter_async_context(claim_row(database, sources, claimed, idempotency_key="n1_v1"))
        await run_in_turn(
            database,
            gate,
            lambda: settle_notes(writer, probing, "n1", cookie_used="one"),
            lambda: writer.add_candidates(
                searching, make_candidates("n3"), platform=PLATFORM, uses=[CookieUse(cookie_name="one")]
            ),
        )
    [cookie] = await cookies.list_all()
    assert (cookie.state.daily_used, await writer.pauses.list_all()) == (2, [])
    assert {name: row.status for name, row in (await read_candidates(database)).items()} == {
        "n1": "collected",
        "n2": "collected",
        "n3": "pending",
    }


async def find_source_values(writer: Writer, execution: Execution, database: Database) -> list[dict[str, Any]]:
    """The rows of the sources, after the notes that are due were collected."""
    async with database.write() as connection:
        await connection.execute(update(platform_pauses).values(paused_until=2**50))
        await connection.execute(update(candidates).filter_by(note_id="n2").values(due_at=0, platform="weibo"))
    await writer.lease(execution, platform="weibo")
    await writer.settle(execution, "weibo", [Collected(note_id="n2", note=make_note("n2", platform="weibo"))])
    async with database.write() as connection:
        await connection.execute(update(platform_pauses).values(paused_until=1))
    return [dict(row._mapping) for row in await read_sources(database)]


@pytest.mark.parametrize("ending", ["settle", "heartbeat", "finish"])
async def test_notes_that_changed_and_the_next_stage_that_works_on_them_wait_for_each_other(
    writer: Writer, database: Database, clock: FakeClock, ending: str
) -> None:
    """C4, C29, C32: one execution writes second versions while another settles, renews or returns the first ones."""
    stage = NextStage(writer)
    await Keywords(database, clock=clock).add(PLATFORM, "tea", refresh=RefreshPlan(DAY, 3 * DAY))
    collecting, further = await begin(writer, "collecting"), await begin(writer, "further")
    for name in ("c", "b", "a"):
        await writer.add_candidates(collecting, make_candidates(name))
        await writer.lease(collecting, platform=PLATFORM)
        await settle_notes(writer, collecting, name)
        clock.advance(timedelta(seconds=1))
    async with database.write() as connection:
        await connection.execute(update(sources).filter_by(note_id="b").values(due_at=2**50))
    await stage.lease(further)
    clock.advance(DAY)
    await writer.heartbeat(further)
    await writer.lease(collecting, platform=PLATFORM)
    await lay_out_sources(database)
    steps: dict[str, Step] = {
        "settle": lambda: stage.settle(
            further, PLATFORM, [SourceResult(idempotency_key=name) for name in ("a_v1", "c_v1")]
        ),
        "heartbeat": lambda: writer.heartbeat(further),
        "finish": lambda: writer.finish(further),
    }
    async with AsyncExitStack() as gate:
        await gate.enter_async_context(hold_row(database, sources, idempotency_key="b_v1"))
        await run_in_turn(
            database, gate, lambda: settle_notes(writer, collecting, "c", "b", "a", title="new"), steps[ending]
        )
    after = {"settle": "done", "heartbeat": "processing", "finish": "pending"}[ending]
    found = {row.idempotency_key: row.status for row in await read_sources(database)}
    assert found == {"a_v1": after, "c_v1": after, "b_v1": "pending"} | dict.fromkeys(
        ("a_v2", "b_v2", "c_v2"), "pending"
    )


@pytest.mark.parametrize("request_of_person", ["no_comments", "retry"])
async def test_notes_that_are_read_again_and_a_person_who_changes_their_comments_wait_for_each_other(
    writer: Writer, database: Database, clock: FakeClock, request_of_person: str
) -> None:
    """C4, C32: a keyword no longer asks for comments, or its failed ones are asked for again."""
    keywords = Keywords(database, clock=clock)
    await keywords.add(PLATFORM, "tea", refresh=RefreshPlan(DAY, 3 * DAY), comments=10)
    execution = await begin(writer)
    for name in ("c", "b", "a"):
        await writer.add_candidates(execution, make_candidates(name))
        await writer.lease(execution, platform=PLATFORM)
        await settle_notes(writer, execution, name)
        clock.advance(timedelta(seconds=1))
    async with database.write() as connection:
        await connection.execute(update(candidates).filter_by(note_id="b").values(refresh_at=None))
        if request_of_person == "retry":
            await connection.execute(update(comment_threads).values(status="failed"))
    clock.advance(DAY)
    await writer.lease(execution, platform=PLATFORM)
    ask: dict[str, Step] = {
        "no_comments": lambda: keywords.add(PLATFORM, "tea", comments=0),
        "retry": writer.corrections.requeue,
    }
    async with AsyncExitStack() as gate:
        await gate.enter_async_context(hold_row(database, comment_threads, note_id="b"))
        await run_in_turn(database, gate, ask[request_of_person], lambda: settle_notes(writer, execution, "a", "c"))
    assert {row.status for row in (await read_candidates(database)).values()} == {"collected"}


@pytest.mark.one_database
async def test_the_order_of_locks_makes_sqlite_read_no_other_notes(writer: Writer, database: Database) -> None:
    """C4: a platform may have a million notes; these statements hold the only lock to write."""
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a"))
    [leased] = await writer.lease(execution)
    result = Collected(note_id="a", note=make_note("a"), cookie_used=None)
    await writer.settle(execution, leased.platform, [result])
    async with database.write() as connection:
        engine = connection.engine.sync_engine
    seen: list[tuple[str, Any]] = []

    def record(_connection: Any, _cursor: Any, statement: str, values: Any, *_others: Any) -> None:
        seen.append((statement, values))

    event.listen(engine, "before_cursor_execute", record)
    await writer.settle(execution, leased.platform, [result])
    await writer.corrections.delete_note(PLATFORM, "a")
    event.remove(engine, "before_cursor_execute", record)
    looks = [each for each in seen if each[0].startswith("SELECT tbl_source.")]
    assert len(looks) == 2
    for statement, values in looks:
        async with database.read() as connection:
            plan = (await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)).all()
        assert "(platform=? AND note_id=?)" in plan[0][-1]
