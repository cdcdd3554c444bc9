"""Rows that changed without an outbox entry; our records beside those of people and of other installations; and two
targets."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, select, text, update

from tests.collect.feishu_stage import (
    BATCH_CREATE,
    CANDIDATES,
    SOURCES,
    MirrorMaker,
    change_candidates,
    count_waiting,
    list_calls,
    make_candidate,
    make_service,
    make_target,
    put_candidates,
    put_source,
    read_expected,
    read_mirrored,
    read_owner,
)
from tests.fakes import FakeClock
from tidings.collect.feishu.errors import FeishuErrorKind
from tidings.collect.feishu.mirror import FeishuMirror
from tidings.collect.feishu.rows import MIRRORED_TABLES
from tidings.collect.mirror_tables import mirror_intents, mirror_outbox, mirror_records, mirror_state
from tidings.collect.tables import candidates, sources
from tidings.core.alerts.service import Alerts
from tidings.core.db.database import Database, open_database
from tidings.core.db.revisions import prepare_database
from tidings.core.executions import executions
from tidings.sandbox.feishu import bitable
from tidings.sandbox.feishu.bitable import SandboxBitable, refuse

pytestmark = pytest.mark.one_database


@pytest.fixture
async def service() -> AsyncIterator[SandboxBitable]:
    async with make_service() as running:
        yield running


@pytest.fixture
def mirror(database: Database, service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock) -> FeishuMirror:
    return make_mirror(service, clock=clock)


async def change_unseen(database: Database) -> None:
    """What a process without the mirror's settings does: a row is changed, one removed, one new; no marker."""
    async with database.write() as connection:
        await connection.execute(update(candidates).where(candidates.c.note_id == "a").values(status="collected"))
        await connection.execute(delete(candidates).where(candidates.c.note_id == "b"))
        await connection.execute(insert(candidates), [make_candidate("new", "weibo")])


async def list_subjects(database: Database, clock: FakeClock) -> list[str]:
    return [alert.subject for alert in await Alerts(database, clock=clock, destinations=()).list_open()]


@pytest.mark.parametrize("is_restarted", [True, False], ids=["by the next process", "within the hour"])
@pytest.mark.both_databases
async def test_what_changed_without_a_marker_is_delivered(
    mirror: FeishuMirror,
    database: Database,
    service: SandboxBitable,
    make_mirror: MirrorMaker,
    clock: FakeClock,
    is_restarted: bool,
) -> None:
    """C21: while the mirror was off, or by a process that knows nothing of it."""
    await put_candidates(database, ["a", "b", "c"])
    await mirror.deliver()
    await change_unseen(database)
    if is_restarted:
        mirror = make_mirror(service, clock=clock)
    else:
        clock.advance(timedelta(minutes=59))
        assert (await mirror.deliver()).updated == 0
        clock.advance(timedelta(minutes=1))
    delivered = await mirror.deliver()
    assert (delivered.created, delivered.updated, delivered.deleted) == (1, 1, 1)
    assert read_mirrored(service) == await read_expected(database)


async def test_a_comparison_asks_nothing_of_feishu_and_marks_nothing_twice(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock
) -> None:
    """C21: every hour of an outage the same rows differ; what waits does not grow by that."""
    await put_candidates(database, ["a", "b"])
    await mirror.deliver()
    asked = len(service.requests)
    await make_mirror(service, clock=clock).deliver()
    assert len(service.requests) == asked
    service.misbehave(bitable.RESET)
    async with database.write() as connection:
        await connection.execute(update(candidates).values(status="collected"))
    for _ in range(3):
        await make_mirror(service, clock=clock).deliver()
    assert await count_waiting(database) == 2


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_a_long_table_is_compared_block_by_block(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock
) -> None:
    """C21: no row is left out where one block ends and the next begins, whatever its platform."""
    block, long_block = (MIRRORED_TABLES[table.name].block for table in (candidates, sources))
    await put_candidates(database, [f"n{number:04}" for number in range(block + 1)])
    await put_candidates(database, ["n0000", "n9999"], platform="bilibili")
    for number in range(long_block + 1):
        await put_source(database, f"n{number}", note={})
    await mirror.deliver()
    async with database.write() as connection:
        await connection.execute(update(candidates).values(status="collected"))
        await connection.execute(delete(sources))
    delivered = await make_mirror(service, clock=clock).deliver()
    assert (delivered.updated, delivered.deleted) == (block + 3, long_block + 1)
    assert read_mirrored(service) == await read_expected(database)


@pytest.mark.both_databases
async def test_a_row_that_was_given_up_is_tried_again_within_the_hour(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock
) -> None:
    """C21: what it was refused for may be mended by now."""
    await put_candidates(database, ["a", "b"])
    service.misbehave(replace(refuse(1254063), path=BATCH_CREATE, matching="weibo:a"))
    assert (await mirror.deliver()).refused == 1
    service.recover()
    clock.advance(timedelta(hours=1))
    assert (await mirror.deliver()).created == 1
    assert (await mirror.describe()).refused == 0


async def test_a_field_that_is_made_anew_is_filled(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: a person renames one; all rows are written again, not only those that change."""
    await put_candidates(database, ["a", "b"])
    await mirror.deliver()
    table = service.table(CANDIDATES)
    table.fields["Titel"] = table.fields.pop("title")
    for row in table.records.values():
        row["Titel"] = row.pop("title")
    await put_candidates(database, ["c"])
    assert (await mirror.deliver()).failures == {}
    assert [row.get("title") for row in service.rows(CANDIDATES)] == ["candidate a", "candidate b", "candidate c"]


@pytest.mark.both_databases
async def test_a_release_with_another_field_writes_all_rows_again(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock
) -> None:
    """C21: what a row shows is another thing by then; nobody has to change it first."""
    await put_candidates(database, ["a", "b"])
    await mirror.deliver()
    async with database.write() as connection:
        await connection.execute(update(mirror_state).values(signature="of the release before"))
        await connection.execute(update(mirror_records).values(digest="of the release before"))
    delivered = await make_mirror(service, clock=clock).deliver()
    assert (delivered.updated, delivered.failures) == (2, {})


@pytest.mark.parametrize("is_rebuilt", [False, True], ids=["deliver", "rebuild"])
async def test_a_key_field_that_is_gone_stops_the_table(
    mirror: FeishuMirror,
    database: Database,
    service: SandboxBitable,
    tmp_path: Path,
    clock: FakeClock,
    is_rebuilt: bool,
) -> None:
    """C21: made anew it would be empty, and every row would be created once more."""
    await put_candidates(database, ["a", "b"])
    await mirror.deliver()
    table = service.table(CANDIDATES)
    table.fields = {("Schlüssel" if name == "key" else name): kind for name, kind in table.fields.items()}
    for row in table.records.values():
        row["Schlüssel"] = row.pop("key")
    await put_candidates(database, ["c"])
    delivered = await (mirror.rebuild() if is_rebuilt else mirror.deliver())
    failed = delivered.failures[candidates.name]
    assert (failed.kind, "key" in str(failed), len(table.records)) == (FeishuErrorKind.BLOCKED, True, 2)
    assert await list_subjects(database, clock) == [candidates.name]
    table.fields = {("key" if name == "Schlüssel" else name): kind for name, kind in table.fields.items()}
    for row in table.records.values():
        row["key"] = row.pop("Schlüssel")
    assert (await mirror.deliver()).created == 1
    assert await list_subjects(database, clock) == []


async def test_what_people_write_into_the_table_is_theirs(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: whatever it looks like, also in a rebuild, and where it has the key of a row that is removed."""
    theirs = [{"key": "TODO: call Bob"}, {"key": "weibo:a"}, {"key": "weibo:gone"}, {"title": "x"}]
    service.table(CANDIDATES).create([dict(row) for row in theirs])
    await put_candidates(database, ["a", "gone"])
    await mirror.deliver()
    async with database.write() as connection:
        await connection.execute(delete(candidates).where(candidates.c.note_id == "gone"))
    delivered = await mirror.rebuild()
    assert (delivered.created, delivered.updated, delivered.deleted) == (0, 1, 1)
    ours = (await read_expected(database))[CANDIDATES]
    assert service.rows(CANDIDATES) == [*theirs, *ours]


async def test_two_installations_on_one_table_leave_each_other_alone(
    mirror: FeishuMirror,
    database: Database,
    service: SandboxBitable,
    tmp_path: Path,
    clock: FakeClock,
    make_mirror: MirrorMaker,
) -> None:
    """C21: each has its own record of a note that both know, and neither removes the other's."""
    folder = tmp_path / "other"
    folder.mkdir()
    other = open_database(f"sqlite:///{folder / 'other.db'}")
    await prepare_database(other)
    second = make_mirror(service, database=other, folder=folder, clock=clock)
    await put_candidates(database, ["a", "b"])
    await put_candidates(other, ["a", "c"])
    for _ in range(2):
        assert (await mirror.rebuild()).failures == {}
        assert (await second.rebuild()).failures == {}
    owners = {await read_owner(database), await read_owner(other)}
    await other.close()
    assert len(owners) == 2
    assert sorted(str(row["key"]) for row in service.rows(CANDIDATES)) == ["weibo:a", "weibo:a", "weibo:b", "weibo:c"]
    assert {row["managed_by"] for row in service.rows(CANDIDATES)} == owners


async def test_a_record_of_which_a_person_empties_a_cell_is_still_ours(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: the mark of whose it is, and the key, are written again; nothing is doubled."""
    await put_candidates(database, ["a", "b"])
    await mirror.deliver()
    first, second = service.rows(CANDIDATES)
    del first["managed_by"]
    second["key"] = "written over"
    delivered = await mirror.rebuild()
    assert (delivered.created, delivered.updated, delivered.deleted) == (0, 2, 0)
    assert read_mirrored(service) == await read_expected(database)


@pytest.mark.both_databases
async def test_a_process_with_another_target_waits_and_raises_an_alert(
    database: Database, service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock
) -> None:
    """C21: or both would write everything again and again; ten minutes after the last delivery it takes over."""
    service.table(SOURCES).fields = dict(service.table(CANDIDATES).fields)
    here, there = (make_target(service, **{candidates.name: table_id}) for table_id in (CANDIDATES, SOURCES))
    first, second = (make_mirror(service, clock=clock, target=target) for target in (here, there))
    await put_candidates(database, ["a"])
    await first.deliver()
    asked = len(service.requests)
    for _ in range(3):
        assert (await second.deliver()).failures[candidates.name].kind is FeishuErrorKind.BLOCKED
        assert (await first.deliver()).failures == {}
    assert (len(service.requests), await list_subjects(database, clock)) == (asked, ["tbl_candidate in two places"])
    assert (await second.describe()).last_error is None
    clock.advance(timedelta(minutes=10))
    assert (await second.deliver()).created == 1
    assert await list_subjects(database, clock) == []
    assert (await first.deliver()).failures[candidates.name].kind is FeishuErrorKind.BLOCKED
    assert (await first.rebuild()).failures == {}


async def test_a_round_that_could_not_be_ended_is_ended_before_the_next(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C3: the database is away at that moment; the right to deliver is not kept for half an hour by who has it."""
    await put_candidates(database, ["a"])
    async with database.write() as connection:
        away = "CREATE TRIGGER away BEFORE DELETE ON executions BEGIN SELECT RAISE(ABORT, 'away'); END"
        await connection.execute(text(away))
    assert (await mirror.deliver()).created == 1
    async with database.write() as connection:
        await connection.execute(text("DROP TRIGGER away"))
    await put_candidates(database, ["b"])
    assert (await mirror.deliver()).created == 1
    async with database.read() as connection:
        assert (await connection.execute(select(executions.c.id))).all() == []


async def test_a_bug_that_concerns_one_table_raises_an_alert_and_the_other_continues(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock
) -> None:
    """C21, C24: something is in the database that nobody has thought of."""
    await mirror.deliver()
    await put_candidates(database, ["a"])
    await put_source(database, "a", note={})
    async with database.write() as connection:
        broken = {"table_name": candidates.name, "client_token": "x", "body": "{", "created_at": 1}
        await connection.execute(insert(mirror_intents), [broken])
    delivered = await mirror.deliver()
    failed = delivered.failures[candidates.name]
    assert (failed.kind, str(failed)) == (FeishuErrorKind.BLOCKED, "an error within Tidings (JSONDecodeError)")
    assert (delivered.created, len(service.rows(SOURCES))) == (1, 1)
    assert await list_subjects(database, clock) == [candidates.name]


async def test_an_update_that_may_have_been_done_is_written_again(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: the answer is lost, and the row is back to what it was before."""
    await put_candidates(database, ["a"])
    await mirror.deliver()
    await change_candidates(database, ["a"], status="processing")
    service.misbehave(replace(bitable.ANSWER_LOST, path=BATCH_CREATE.replace("create", "update"), times=1))
    await mirror.deliver()
    await change_candidates(database, ["a"], status="pending")
    await mirror.deliver()
    assert read_mirrored(service) == await read_expected(database)


@pytest.mark.thorough
async def test_no_request_and_no_page_is_too_large_for_the_loop(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: what is written out and read on the event loop at once stays short, so that nothing else there waits.

    A hundred notes of 50,000 characters: each request is at most a quarter of a million of them, each of three bytes.
    """
    for number in range(100):
        await put_source(database, f"long{number}", note={"text": "长" * 50_000})
    assert (await mirror.deliver()).created == 100
    sizes = [entry.fields["bytes"] for entry in service.requests]
    assert 500_000 < max(int(str(size)) for size in sizes) < 800_000
    searched = list_calls(service, BATCH_CREATE.replace(CANDIDATES, SOURCES).replace("batch_create", "search"))
    # One search for each page: none holds more than a million characters, and a step of 25 rows.
    assert len(searched) >= 4


async def test_records_that_are_gone_by_the_hundred_are_looked_up_by_the_hundred(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: a person empties the table; 1254043 is answered for the whole batch."""
    names = [f"n{number}" for number in range(200)]
    await put_candidates(database, names)
    await mirror.deliver()
    kept = dict(list(service.table(CANDIDATES).records.items())[:50])
    service.table(CANDIDATES).records = kept
    await change_candidates(database, names, status="collected")
    asked = len(service.requests)
    delivered = await mirror.deliver()
    assert (delivered.created, delivered.updated) == (150, 50)
    assert len(service.requests) - asked <= 5
    assert read_mirrored(service) == await read_expected(database)


async def test_a_new_target_learns_nothing_from_the_old_one(
    mirror: FeishuMirror, database: Database, make_mirror: MirrorMaker, clock: FakeClock
) -> None:
    """C21: records of another base are not ours to count on; the mark of whose they are stays the same."""
    await put_candidates(database, ["a"])
    await mirror.deliver()
    owner = await read_owner(database)
    clock.advance(timedelta(minutes=10))
    async with make_service() as other:
        assert (await make_mirror(other, clock=clock).deliver()).created == 1
        assert other.rows(CANDIDATES)[0]["managed_by"] == owner
    async with database.read() as connection:
        assert len((await connection.execute(select(mirror_records.c.record_id))).all()) == 1
        assert (await connection.execute(select(mirror_outbox.c.id))).all() == []
