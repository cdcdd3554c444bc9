"""The mirror in Feishu: each row once and in its latest state."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, select

from tests.collect.feishu_stage import (
    BATCH_CREATE,
    CANDIDATES,
    COOKIES,
    EXECUTIONS,
    FIELDS,
    SEARCH,
    SOURCES,
    TABLES,
    WRITES,
    MirrorMaker,
    change_candidates,
    count_waiting,
    list_calls,
    make_service,
    make_target,
    put_candidates,
    put_cookie,
    put_source,
    read_expected,
    read_mirrored,
    read_owner,
    remove_candidates,
)
from tests.fakes import FakeClock
from tidings.collect.crawl.cookies.table import cookies
from tidings.collect.feishu.client import FeishuTarget, FeishuTargetError
from tidings.collect.feishu.mirror import FeishuMirror
from tidings.collect.feishu.rows import LONGEST_TEXT
from tidings.collect.mirror_tables import mirror_outbox, mirror_records
from tidings.collect.tables import candidates, sources
from tidings.core.db.database import Database
from tidings.core.executions import Executions, ExecutionStatus, executions
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.secret import Secret
from tidings.core.stop import Stop
from tidings.sandbox.feishu import bitable
from tidings.sandbox.feishu.bitable import SandboxBitable
from tidings.sandbox.feishu.tables import BitableFieldType

pytestmark = pytest.mark.one_database


@pytest.fixture
async def service() -> AsyncIterator[SandboxBitable]:
    async with make_service() as running:
        yield running


@pytest.fixture
def mirror(database: Database, service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock) -> FeishuMirror:
    return make_mirror(service, clock=clock)


@pytest.mark.both_databases
async def test_rows_are_created_updated_and_deleted_in_feishu(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: what is written to the tables stands in Feishu once and in its latest state."""
    await put_candidates(database, ["a", "b", "c"])
    note = {"text": "正文\nsecond line", "tags": ["one", "two"], "counts": {"likes": 12, "views": None}}
    await put_source(database, "a", note=note)
    first = await mirror.deliver()
    assert (first.created, first.updated, first.deleted, first.failures) == (4, 0, 0, {})
    assert read_mirrored(service) == await read_expected(database)
    shown = service.rows(SOURCES)[0]
    assert (shown["key"], shown["text"], shown["tags"], shown["likes"]) == (
        "weibo:a_v1",
        "正文\nsecond line",
        "one, two",
        12,
    )
    assert "views" not in shown
    await change_candidates(database, ["a"], status="failed", last_error="it broke", retry_count=3)
    await remove_candidates(database, ["b"])
    await put_candidates(database, ["d"])
    second = await mirror.deliver()
    assert (second.created, second.updated, second.deleted) == (1, 1, 1)
    assert read_mirrored(service) == await read_expected(database)
    assert await count_waiting(database) == 0


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_cookies_and_executions_are_mirrored_without_being_announced(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, executions: Executions, clock: FakeClock
) -> None:
    """C9, C11, C21: nobody records their changes, and the mirror shows them within a minute. A cookie is shown without
    its secret."""
    await put_cookie(database, "mine")
    running = await executions.acquire("discover", kind="collect")
    await executions.acquire("announce:example.com", kind="announce")
    assert (await mirror.deliver()).created == 2
    assert read_mirrored(service) == await read_expected(database)
    (shown,) = service.rows(COOKIES)
    assert "cookie_encrypted" not in service.table(COOKIES).fields
    assert "sealed-cookie-bytes" not in str(shown)
    assert service.rows(EXECUTIONS)[0]["status"] == "running"

    await executions.finish(running, ExecutionStatus.PARTIAL, processed=3, failed=1, result={})
    await put_cookie(database, "second")
    async with database.write() as connection:
        await connection.execute(delete(cookies).where(cookies.c.cookie_name == "mine"))
    assert (await mirror.deliver()).created == 0
    clock.advance(timedelta(minutes=1))
    delivered = await mirror.deliver()
    assert (delivered.created, delivered.updated, delivered.deleted) == (1, 1, 1)
    assert read_mirrored(service) == await read_expected(database)

    # A record of a base's 20,000 is not spent on an execution of last month.
    clock.advance(timedelta(days=31))
    assert (await mirror.deliver()).deleted == 1
    assert service.rows(EXECUTIONS) == []


async def test_timestamps_are_dates_and_statuses_are_choices(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: dates as Feishu dates, in tables that the mirror itself completes."""
    for table_id in TABLES.values():
        service.table(table_id).fields = {"key": BitableFieldType.TEXT}
    await put_candidates(database, ["a"])
    assert (await mirror.deliver()).failures == {}
    kinds = service.table(CANDIDATES).fields
    dates = {name for name, kind in kinds.items() if kind is BitableFieldType.DATETIME}
    assert dates == {"locked_at", "due_at", "created_at", "updated_at"}
    assert kinds["status"] is BitableFieldType.SINGLE_SELECT


async def test_a_value_that_is_gone_is_gone_in_feishu_too(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: the latest state also where it is less than the one before."""
    await put_candidates(database, ["a"], last_error="it broke", last_error_code="TIMEOUT_ERROR")
    await mirror.deliver()
    await change_candidates(database, ["a"], last_error=None, last_error_code=None)
    await mirror.deliver()
    assert "last_error" not in service.rows(CANDIDATES)[0]
    assert read_mirrored(service) == await read_expected(database)


@pytest.mark.both_databases
async def test_many_changes_of_a_row_are_one_request(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: only the latest state is sent; a row that was created and removed meanwhile is not sent at all."""
    await put_candidates(database, ["a", "b"])
    await remove_candidates(database, ["b"])
    for retry in range(20):
        await change_candidates(database, ["a"], retry_count=retry)
    await mirror.deliver()
    assert list_calls(service) == ["batch_create"]
    assert read_mirrored(service) == await read_expected(database)
    await change_candidates(database, ["a"], retry_count=19)
    await mirror.deliver()
    assert list_calls(service) == ["batch_create"]
    assert await count_waiting(database) == 0


@pytest.mark.thorough
async def test_batches_are_as_large_as_feishu_takes_and_no_larger(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: 1,200 rows go in three batches; long texts are cut, and spread over more requests."""
    await put_candidates(database, [f"n{number:04}" for number in range(1200)])
    await mirror.deliver()
    sent = [entry.fields["records"] for entry in service.requests if entry.path == BATCH_CREATE]
    assert sent == [500, 500, 200]
    for number in range(25):
        await put_source(database, f"long{number}", note={"text": "长" * (2 * LONGEST_TEXT)})
    await mirror.deliver()
    assert len({str(row["text"]) for row in service.rows(SOURCES)}) == 1
    assert len(str(service.rows(SOURCES)[0]["text"])) == LONGEST_TEXT
    path = BATCH_CREATE.replace(CANDIDATES, SOURCES)
    sent = [entry.fields["records"] for entry in service.requests if entry.path == path]
    assert sent == [4, 4, 4, 4, 4, 4, 1]
    assert read_mirrored(service) == await read_expected(database)


@pytest.mark.both_databases
async def test_only_the_markers_that_were_taken_are_removed(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: a change that comes while the row is being delivered is delivered next."""
    await put_candidates(database, ["a", "b"])

    async def change_meanwhile(entry: object) -> None:
        if getattr(entry, "path", "") == BATCH_CREATE:
            service.on_request = None
            await change_candidates(database, ["a"], status="collected")

    service.on_request = change_meanwhile
    await mirror.deliver()
    assert await count_waiting(database) == 1
    assert await read_expected(database) != read_mirrored(service)
    await mirror.deliver()
    assert read_mirrored(service) == await read_expected(database)


async def test_missing_fields_are_created_and_a_wrong_type_stops_the_table(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: a table needs no more than to be there; a field of another type stops it, with a reason."""
    service.table(CANDIDATES).fields = {"Text": BitableFieldType.TEXT}
    service.table(SOURCES).fields["published_at"] = BitableFieldType.TEXT
    await put_candidates(database, ["a"])
    await put_source(database, "a", note={})
    delivered = await mirror.deliver()
    assert delivered.created == 1
    assert str(delivered.failures[sources.name]) == "the field published_at is not of the type Date"
    assert read_mirrored(service)[CANDIDATES] == (await read_expected(database))[CANDIDATES]
    # A number takes the same values as a date. Earlier mirrors have such fields.
    service.table(SOURCES).fields["published_at"] = BitableFieldType.NUMBER
    assert (await mirror.deliver()).created == 1
    assert read_mirrored(service) == await read_expected(database)


async def test_a_field_that_a_person_removes_comes_back(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: 1254045 in the middle of it all."""
    await put_candidates(database, ["a"])
    await mirror.deliver()
    del service.table(CANDIDATES).fields["source_keyword"]
    await put_candidates(database, ["b"])
    assert (await mirror.deliver()).failures == {}
    assert read_mirrored(service) == await read_expected(database)


async def test_a_record_that_a_person_removes_is_created_anew(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: 1254043 on an update; one that is to be deleted anyway is well."""
    await put_candidates(database, ["a", "b", "c", "d"])
    await mirror.deliver()
    table = service.table(CANDIDATES)
    for record_id in [name for name, row in table.records.items() if row["key"] in ("weibo:b", "weibo:d")]:
        del table.records[record_id]
    await change_candidates(database, ["a", "b", "c"], status="collected")
    await remove_candidates(database, ["d"])
    delivered = await mirror.deliver()
    assert (delivered.created, delivered.updated, delivered.failures) == (1, 2, {})
    assert read_mirrored(service) == await read_expected(database)


@pytest.mark.both_databases
async def test_a_new_target_gets_everything(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock
) -> None:
    """C21: rows from before the mirror was set up, or from another base, need no marker."""
    await put_candidates(database, ["a", "b"])
    async with database.write() as connection:
        await connection.execute(delete(mirror_outbox))
    await mirror.deliver()
    assert read_mirrored(service) == await read_expected(database)
    async with make_service() as other:
        clock.advance(timedelta(minutes=10))
        await make_mirror(other, clock=clock).deliver()
        assert read_mirrored(other) == await read_expected(database)


async def test_a_table_that_is_not_mirrored_is_left_alone(
    database: Database, service: SandboxBitable, make_mirror: MirrorMaker
) -> None:
    """C21: one of the tables is enough."""
    await put_candidates(database, ["a"])
    await put_source(database, "a", note={})
    target = make_target(service, **{candidates.name: CANDIDATES})
    await make_mirror(service, target=target).deliver()
    assert (len(service.rows(CANDIDATES)), len(service.rows(SOURCES))) == (1, 0)


@pytest.mark.both_databases
async def test_a_rebuild_makes_equal_whatever_stands_there(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: the map is lost, rows were removed unseen, records changed, doubled and made by people."""
    await put_candidates(database, ["a", "b", "c"])
    await mirror.deliver()
    async with database.write() as connection:
        await connection.execute(delete(mirror_records))
        await connection.execute(delete(candidates).where(candidates.c.note_id == "b"))
    table = service.table(CANDIDATES)
    next(iter(table.records.values()))["title"] = "changed by a person"
    owner = await read_owner(database)
    table.create([{"key": "weibo:c", "title": "a copy", "managed_by": owner}, {"title": "a note of a person's own"}])
    delivered = await mirror.rebuild()
    assert (delivered.created, delivered.updated, delivered.deleted, delivered.failures) == (0, 2, 1, {})
    rows = read_mirrored(service)[CANDIDATES]
    assert rows[0] == {"title": "a note of a person's own"}
    assert rows[1:] == (await read_expected(database))[CANDIDATES]


@pytest.mark.both_databases
async def test_a_lost_map_makes_no_duplicates(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: what is not known to stand in Feishu is searched for, also where it is to be deleted; capitals count."""
    await put_candidates(database, ["a", "A", "b"])
    await mirror.deliver()
    async with database.write() as connection:
        await connection.execute(delete(mirror_records))
    await change_candidates(database, ["a", "A"], status="collected")
    await remove_candidates(database, ["b"])
    delivered = await mirror.deliver()
    assert (delivered.created, delivered.updated, delivered.deleted) == (0, 2, 1)
    assert read_mirrored(service) == await read_expected(database)


@pytest.mark.thorough
async def test_a_large_table_is_read_page_by_page(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: a rebuild of 1,100 records."""
    await put_candidates(database, [f"n{number:04}" for number in range(1100)])
    await mirror.deliver()
    async with database.write() as connection:
        await connection.execute(delete(mirror_records))
    asked = len(list_calls(service, SEARCH))
    assert (await mirror.rebuild()).updated == 1100
    assert len(list_calls(service, SEARCH)) - asked == 3
    assert read_mirrored(service) == await read_expected(database)


@pytest.mark.both_databases
async def test_of_two_who_deliver_at_once_one_does(
    database: Database, service: SandboxBitable, make_mirror: MirrorMaker
) -> None:
    """C3, C21: no write overlaps another, and each row stands there once."""
    service.write_time = timedelta(milliseconds=20)
    await put_candidates(database, [f"n{number}" for number in range(30)])
    first, second = (make_mirror(service) for _ in range(2))
    outcomes = await asyncio.gather(first.deliver(), second.deliver())
    assert sorted(outcome.is_busy for outcome in outcomes) == [False, True]
    assert read_mirrored(service) == await read_expected(database)
    assert service.max_in_flight == 1
    async with database.read() as connection:
        assert (await connection.execute(select(executions.c.id))).all() == []


async def test_a_rebuild_waits_for_a_round_that_is_under_way(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, tmp_path: Path, clock: FakeClock
) -> None:
    """C3: the service delivers, and a person asks for a rebuild."""
    await put_candidates(database, ["a"])
    holding = Executions(database, clock=clock, process_lock=ProcessLock(tmp_path))
    execution = await holding.acquire("mirror", kind="mirror")
    rebuilding = asyncio.create_task(mirror.rebuild())
    for _ in range(100_000):
        if clock.slept:
            break
        await asyncio.sleep(0)
    await holding.abandon(execution)
    assert (await rebuilding).created == 1


@pytest.mark.both_databases
async def test_one_that_lost_the_right_to_deliver_leaves_the_latest_state_to_the_other(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock
) -> None:
    """C5, C21: it was stopped in the middle of an update; what it had sent is sent over once more."""
    await put_candidates(database, ["a"])
    await mirror.deliver()
    await change_candidates(database, ["a"], status="processing")
    other = make_mirror(service, clock=clock)
    paths = []

    async def overtake(entry: object) -> None:
        paths.append(getattr(entry, "path", ""))
        if paths[-1].endswith("batch_update") and len(paths) == 1:
            clock.advance(timedelta(minutes=31))
            await change_candidates(database, ["a"], status="collected")
            assert (await other.deliver()).updated == 1

    service.on_request = overtake
    assert (await mirror.deliver()).is_busy
    assert service.rows(CANDIDATES)[0]["status"] == "processing"
    assert (await other.deliver()).updated == 1
    assert read_mirrored(service) == await read_expected(database)


async def test_the_loop_delivers_what_comes_and_stops_when_asked(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock
) -> None:
    """C21: within seconds, and without being woken."""
    stop, created = Stop(clock=clock), asyncio.Event()
    service.on_answer = lambda entry: created.set() if entry.path == BATCH_CREATE else None
    running = asyncio.create_task(mirror.run(stop))
    async with asyncio.timeout(30):
        for name in ("a", "b"):
            created.clear()
            await put_candidates(database, [name])
            await created.wait()
        stop.request("the test is over")
        await running
    assert read_mirrored(service) == await read_expected(database)


async def test_nothing_is_asked_where_nothing_waits(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: an idle mirror costs Feishu's quota nothing."""
    await mirror.deliver()
    asked = len(service.requests)
    assert (await mirror.deliver()).failures == {}
    assert len(service.requests) == asked


async def test_fields_are_looked_at_once(mirror: FeishuMirror, database: Database, service: SandboxBitable) -> None:
    """C21: a round in the middle of the day is a search and a write."""
    await put_candidates(database, ["a"])
    await mirror.deliver()
    asked = len(service.requests)
    await put_candidates(database, ["b"])
    await mirror.deliver()
    assert list_calls(service, *WRITES, SEARCH, FIELDS)[-2:] == ["search", "batch_create"]
    assert len(service.requests) == asked + 2


async def test_odd_content_is_shown_as_far_as_it_can_be(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: half an emoji, a broken document, counts that are none: no row keeps the others from being delivered."""
    await put_source(database, "half", note={"text": "half \ud83d", "counts": {"likes": "12"}, "tags": "x"})
    await put_source(database, "broken", note={}, content="{", exec_meta="[]")
    await put_source(database, "list", note={}, content=json.dumps([1]))
    assert (await mirror.deliver()).created == 3
    assert read_mirrored(service) == await read_expected(database)


@pytest.mark.both_databases
async def test_a_marker_without_a_row_and_without_a_record_is_done(mirror: FeishuMirror, database: Database) -> None:
    """C21: made and removed before anyone looked."""
    await mirror.deliver()
    async with database.write() as connection:
        values = {"table_name": candidates.name, "platform": "weibo", "note_id": "x", "created_at": 1}
        await connection.execute(insert(mirror_outbox), [values])
    delivered = await mirror.deliver()
    assert (delivered.created, delivered.deleted, await count_waiting(database)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"base_url": "http://feishu.example"}, "https://"),
        ({"base_url": "https://user@feishu.example"}, "https://"),
        ({"base_url": "https://feishu.example/path"}, "https://"),
        ({"app_id": ""}, "app's id"),
        ({"tables": {"tbl_keyword": "tblX"}}, "tables"),
        ({"keyword_table": "tblX"}, "same one"),
        ({"tables": {"tbl_candidate": "tblX", "tbl_source": "tblX"}}, "same one"),
    ],
)
def test_a_target_that_cannot_work_is_refused(changes: dict[str, object], reason: str) -> None:
    """C21: and the secret goes nowhere but to Feishu, over TLS."""
    good: dict[str, object] = {
        "app_id": "cli_x",
        "app_secret": Secret("a-secret-of-the-app"),
        "app_token": "bascn",
        "tables": {"tbl_candidate": "tblX"},
    }
    assert FeishuTarget(**good).base_url == "https://open.feishu.cn"  # type: ignore[arg-type]
    with pytest.raises(FeishuTargetError, match=reason):
        FeishuTarget(**good | changes)  # type: ignore[arg-type]


@pytest.mark.both_databases
async def test_the_status_shows_pending_changes_and_the_last_error(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock
) -> None:
    """C21: what waits, since when, and what went wrong last."""
    await mirror.deliver()
    service.misbehave(bitable.RESET)
    await put_candidates(database, ["a"])
    await mirror.deliver()
    failing = await mirror.describe()
    assert (failing.waiting, failing.refused, failing.failed_at) == (1, 0, clock.now())
    assert failing.last_error is not None
    assert failing.last_error.startswith("Feishu could not be reached")
    service.recover()
    await mirror.deliver()
    working = await mirror.describe()
    assert (working.waiting, working.oldest, working.last_error) == (0, None, None)
    assert working.delivered_at == clock.now()
