"""What Feishu can answer, and what the mirror makes of it: waits, a new token, a halved batch, a row given up, a table
left alone; and nothing is lost or doubled on the way."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.collect.feishu_stage import (
    BATCH_CREATE,
    BATCH_DELETE,
    BATCH_UPDATE,
    CANDIDATES,
    SEARCH,
    MirrorMaker,
    build_mirror,
    change_candidates,
    count_waiting,
    list_calls,
    list_refused,
    make_service,
    make_target,
    put_candidates,
    read_expected,
    read_mirrored,
    remove_candidates,
)
from tests.fakes import FakeClock
from tidings.collect.alerts.kinds import CollectAlert
from tidings.collect.feishu.errors import CODE_RULES, FeishuError, FeishuErrorKind, classify_answer
from tidings.collect.feishu.mirror import FeishuMirror
from tidings.collect.tables import candidates
from tidings.core.alerts.conditions import OpenCondition
from tidings.core.alerts.service import Alerts
from tidings.core.db.database import Database
from tidings.core.net.client import GuardedClient
from tidings.core.stop import Stop
from tidings.sandbox.feishu import bitable
from tidings.sandbox.feishu.bitable import SandboxBitable, refuse
from tidings.sandbox.feishu.limits import BitableLimits
from tidings.sandbox.feishu.tables import BitableFieldType
from tidings.sandbox.wire.faults import Fault, FaultKind
from tidings.sandbox.wire.request_log import Recorded

pytestmark = [pytest.mark.slow, pytest.mark.one_database]

NAMES = [f"n{number}" for number in range(8)]
PASSING = {
    1254290: bitable.TOO_MANY_REQUESTS,
    1254291: bitable.WRITE_CONFLICT,
    1254607: bitable.NOT_READY,
    1255040: bitable.TIMED_OUT,
    99991400: bitable.limit_rate(7),
}
REFUSED = [*range(1254060, 1254070), 1254130]
BLOCKING = [99991403, 1254302, 1254608, 1254040, 1254041]


@pytest.fixture
async def service() -> AsyncIterator[SandboxBitable]:
    async with make_service() as running:
        yield running


@pytest.fixture
def mirror(database: Database, service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock) -> FeishuMirror:
    return make_mirror(service, clock=clock)


async def list_conditions(database: Database, clock: FakeClock) -> list[OpenCondition]:
    return [open_ for open_ in await Alerts(database, clock=clock, destinations=()).list_open() if open_.fired_at]


async def put_all_kinds(database: Database, mirror: FeishuMirror, *, suffix: str) -> None:
    """Rows to be created, updated and deleted."""
    await put_candidates(database, [f"old{suffix}", f"gone{suffix}"])
    await mirror.deliver()
    await put_candidates(database, [f"new{suffix}"])
    await change_candidates(database, [f"old{suffix}"], status="collected")
    await remove_candidates(database, [f"gone{suffix}"])


@pytest.mark.parametrize("path", [BATCH_CREATE, BATCH_UPDATE, BATCH_DELETE, SEARCH])
async def test_what_passes_by_itself_is_waited_for(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock, path: str
) -> None:
    """C21: a moment later it works, and nothing was done twice; the gateway's wish is followed."""
    for code, fault in PASSING.items():
        await put_all_kinds(database, mirror, suffix=str(code))
        clock.slept.clear()
        service.misbehave(replace(fault, times=1, path=path))
        delivered = await mirror.deliver()
        assert (delivered.failures, delivered.refused) == ({}, 0)
        assert clock.slept == [timedelta(seconds=7 if code == 99991400 else 0.5)], code
        assert read_mirrored(service) == await read_expected(database), code


async def test_what_does_not_pass_in_seconds_is_left_for_later(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock
) -> None:
    """C21: four tries, and the row still waits; a wish of two minutes is not waited for with the lock in hand."""
    await put_candidates(database, ["a"])
    await mirror.deliver()
    await put_candidates(database, ["b"])
    service.misbehave(replace(bitable.WRITE_CONFLICT, path=BATCH_CREATE))
    failed = (await mirror.deliver()).failures[candidates.name]
    assert (failed.code, failed.kind) == (1254291, FeishuErrorKind.RETRY)
    assert clock.slept == [timedelta(seconds=0.5), timedelta(seconds=1), timedelta(seconds=1)]
    service.recover()
    service.misbehave(replace(bitable.limit_rate(120), path=BATCH_CREATE))
    assert (await mirror.deliver()).failures[candidates.name].retry_after == timedelta(minutes=2)
    assert (len(clock.slept), await count_waiting(database)) == (3, 1)
    service.recover()
    await mirror.deliver()
    assert read_mirrored(service) == await read_expected(database)


@pytest.mark.parametrize("path", [BATCH_CREATE, BATCH_UPDATE])
@pytest.mark.both_databases
async def test_of_a_batch_only_the_row_at_fault_is_given_up(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock, path: str
) -> None:
    """C8, C21: its reason is stored, with one alert; when it changes it is tried again, and the alert resolved."""
    await put_candidates(database, NAMES)
    if path == BATCH_UPDATE:
        await mirror.deliver()
        await change_candidates(database, NAMES, status="collected")
    service.misbehave(replace(refuse(1254063), path=path, matching="weibo:n3"))
    delivered = await mirror.deliver()
    assert (delivered.refused, delivered.created + delivered.updated, delivered.failures) == (1, 7, {})
    assert (await mirror.describe()).refused == 1
    assert await count_waiting(database) == 0
    [alert] = await list_conditions(database, clock)
    assert (alert.kind, alert.subject, alert.count) == (CollectAlert.MIRROR_FAILED, candidates.name, 1)
    assert alert.reason.startswith("weibo:n3: ")
    service.recover()
    await change_candidates(database, ["n3"], status="failed")
    assert (await mirror.deliver()).refused == 0
    assert read_mirrored(service) == await read_expected(database)
    assert (await mirror.describe()).refused == 0
    assert await list_conditions(database, clock) == []


async def test_a_row_is_given_up_for_each_code_that_is_about_a_value(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: with its reason and what to do about it."""
    for code in REFUSED:
        await put_candidates(database, [f"n{code}"])
        service.misbehave(replace(refuse(code), path=BATCH_CREATE, matching=f"weibo:n{code}"))
        assert (await mirror.deliver()).refused == 1
        last = next(row for row in await list_refused(database) if row.note_id == f"n{code}")
        assert str(code) in last.reason
        assert last.action
    assert (await mirror.describe()).refused == len(REFUSED)
    service.recover()
    assert (await mirror.rebuild()).created == len(REFUSED)
    assert read_mirrored(service) == await read_expected(database)


async def test_an_error_that_needs_a_person_stops_the_table_and_raises_one_alert(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock
) -> None:
    """C21, C24: every row still waits; the alert is over when it works again."""
    for code in BLOCKING:
        await put_candidates(database, [f"{name}-{code}" for name in NAMES])
        service.misbehave(replace(refuse(code, status=403), path=BATCH_CREATE))
        asked = len(list_calls(service))
        for _ in range(2):
            failed = (await mirror.deliver()).failures[candidates.name]
        assert (failed.kind, failed.code) == (FeishuErrorKind.BLOCKED, code)
        [alert] = await list_conditions(database, clock)
        assert str(code) in alert.reason
        assert alert.action
        assert (len(list_calls(service)) - asked, await count_waiting(database)) == (2, len(NAMES))
        service.recover()
        await mirror.deliver()
        assert read_mirrored(service) == await read_expected(database)
        assert await list_conditions(database, clock) == []


async def test_a_full_table_takes_what_fits_and_goes_on_with_what_it_has(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock
) -> None:
    """C21, C24: 1254103 stops nothing but creates, however many rows wait before others; one alert."""
    await put_candidates(database, [f"old{number}" for number in range(50)])
    await mirror.deliver()
    service.table(CANDIDATES).most_records = 60
    await put_candidates(database, [f"new{number}" for number in range(600)])
    await change_candidates(database, ["old1"], status="collected")
    await remove_candidates(database, ["old2"])
    for _ in range(2):
        assert (await mirror.deliver()).failures[candidates.name].code == 1254103
        clock.advance(timedelta(minutes=5))
    rows = {row["key"]: row for row in service.rows(CANDIDATES)}
    assert (len(rows), rows["weibo:old1"]["status"], "weibo:old2" in rows) == (60, "collected", False)
    assert len(list_calls(service)) < 60
    [alert] = await list_conditions(database, clock)
    assert ((await mirror.describe()).waiting, "full" in alert.reason) == (589, True)
    service.table(CANDIDATES).most_records = 20_000
    assert (await mirror.deliver()).failures == {}
    assert await list_conditions(database, clock) == []
    assert read_mirrored(service) == await read_expected(database)


UNCLEAR = {
    "a code that nobody knows": refuse(1254001),
    "too large for a proxy": Fault(status=413, headers={"Content-Type": "text/html"}, body="<html>413</html>"),
    "a batch that is too large": refuse(1254104),
    "a page of a proxy": Fault(status=403, headers={"Content-Type": "text/html"}, body="<html>403</html>"),
}


@pytest.mark.parametrize("fault", UNCLEAR.values(), ids=UNCLEAR.keys())
@pytest.mark.parametrize("path", [BATCH_CREATE, BATCH_UPDATE])
async def test_one_row_that_is_refused_for_whatever_reason_stops_no_other(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, path: str, fault: Fault
) -> None:
    """C21: it is given up with its reason, and tried again when it changes."""
    await put_candidates(database, NAMES)
    if path == BATCH_UPDATE:
        await mirror.deliver()
        await change_candidates(database, NAMES, status="collected")
    service.misbehave(replace(fault, path=path, matching="weibo:n3"))
    delivered = await mirror.deliver()
    assert (delivered.created + delivered.updated, delivered.refused, delivered.failures) == (7, 1, {})
    [refused] = await list_refused(database)
    assert (refused.note_id, bool(refused.reason), bool(refused.action)) == ("n3", True, True)
    service.recover()
    await change_candidates(database, ["n3"], status="failed")
    await mirror.deliver()
    assert read_mirrored(service) == await read_expected(database)


async def test_a_request_that_is_too_large_goes_in_parts(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: 1254104 and HTTP 413 say nothing about a row; all stand there in the end."""
    for number, fault in enumerate((refuse(1254104), UNCLEAR["too large for a proxy"])):
        await put_candidates(database, [f"{name}-{number}" for name in NAMES])
        service.misbehave(replace(fault, path=BATCH_CREATE, times=3))
        delivered = await mirror.deliver()
        assert (delivered.created, delivered.refused, delivered.failures) == (len(NAMES), 0, {})
    assert read_mirrored(service) == await read_expected(database)


@pytest.mark.parametrize("fault", UNCLEAR.values(), ids=UNCLEAR.keys())
@pytest.mark.parametrize("count", [1, 8, 300])
async def test_an_unknown_code_for_every_row_is_the_tables_fault(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock, fault: Fault, count: int
) -> None:
    """C21, C24: no row is given up, an alert is raised, and finding out takes few requests."""
    await mirror.deliver()
    await put_candidates(database, [f"n{number}" for number in range(count)])
    service.misbehave(replace(fault, path=BATCH_CREATE))
    failed = (await mirror.deliver()).failures[candidates.name]
    assert (failed.kind, (await mirror.describe()).refused) == (FeishuErrorKind.BLOCKED, 0)
    assert ((await mirror.describe()).waiting, len(list_calls(service)) < 40) == (count, True)
    assert [alert.subject for alert in await list_conditions(database, clock)] == [candidates.name]
    service.recover()
    await mirror.deliver()
    assert read_mirrored(service) == await read_expected(database)


async def test_a_kind_of_write_that_is_not_taken_stops_no_other_kind(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: a code that nobody knows for every create; updates and deletes go on."""
    await put_candidates(database, ["old", "gone"])
    await mirror.deliver()
    await put_candidates(database, [f"n{number}" for number in range(40)])
    await change_candidates(database, ["old"], status="collected")
    await remove_candidates(database, ["gone"])
    service.misbehave(replace(refuse(1299999), path=BATCH_CREATE))
    delivered = await mirror.deliver()
    assert (delivered.updated, delivered.deleted, delivered.refused) == (1, 1, 0)
    assert delivered.failures[candidates.name].kind is FeishuErrorKind.BLOCKED


async def test_a_type_that_a_person_changes_gives_up_no_row(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: Feishu would refuse every row, so the error is the table's."""
    await put_candidates(database, ["a"])
    await mirror.deliver()
    service.table(CANDIDATES).fields["retry_count"] = BitableFieldType.TEXT
    await put_candidates(database, ["b", "c"])
    failed = (await mirror.deliver()).failures[candidates.name]
    assert str(failed) == "the field retry_count is not of the type Number"
    assert ((await mirror.describe()).refused, await count_waiting(database)) == (0, 2)


async def test_a_record_that_is_found_and_not_there_is_no_endless_loop(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: 1254043 for a record that every search finds."""
    await put_candidates(database, ["a"])
    await mirror.deliver()
    await change_candidates(database, ["a"], status="collected")
    service.misbehave(replace(refuse(1254043), path=BATCH_UPDATE))
    assert (await mirror.deliver()).failures[candidates.name].kind is FeishuErrorKind.UNSETTLED
    assert len(list_calls(service, BATCH_UPDATE)) <= 5
    service.recover()
    await mirror.deliver()
    assert read_mirrored(service) == await read_expected(database)


async def test_a_field_that_cannot_be_found_at_all_stops_the_table(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock
) -> None:
    """C21: 1254045 although the fields are there."""
    await put_candidates(database, ["a"])
    service.misbehave(replace(refuse(1254045), path=BATCH_CREATE))
    assert (await mirror.deliver()).failures[candidates.name].code == 1254045
    assert [alert.kind for alert in await list_conditions(database, clock)] == [CollectAlert.MIRROR_FAILED]
    assert await count_waiting(database) == 1


async def test_a_client_token_that_is_spent_is_replaced(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: 1255006; Feishu is asked what stands there before the next try."""
    await put_candidates(database, ["a"])
    service.misbehave(replace(bitable.TOKEN_CONFLICT, times=1, path=BATCH_CREATE))
    assert (await mirror.deliver()).created == 1
    sent = [entry.fields["client_token"] for entry in service.requests if entry.path == BATCH_CREATE]
    assert len(set(sent)) == 2
    assert list_calls(service, SEARCH, BATCH_CREATE)[-2:] == ["search", "batch_create"]
    assert read_mirrored(service) == await read_expected(database)


async def test_a_token_that_ends_in_the_middle_is_replaced(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: between two batches, within a round."""
    await put_candidates(database, [f"n{number:04}" for number in range(700)])

    def expire(entry: Recorded) -> None:
        if entry.path == BATCH_CREATE:
            service.on_request = None
            service.expire_tokens()

    service.on_request = expire
    delivered = await mirror.deliver()
    assert (delivered.created, delivered.failures) == (700, {})
    assert list_calls(service, bitable.TOKEN_PATH) == ["internal"] * 2
    assert read_mirrored(service) == await read_expected(database)


async def test_a_token_is_kept_for_as_long_as_it_is_good(
    database: Database, make_mirror: MirrorMaker, clock: FakeClock
) -> None:
    """C21: and replaced before it ends, so that none ends on its way."""
    async with make_service(now=clock.now) as service:
        mirror = make_mirror(service, clock=clock)
        for name, minutes in (("a", 100), ("b", 9), ("c", 2)):
            await put_candidates(database, [name])
            assert (await mirror.deliver()).created == 1
            clock.advance(timedelta(minutes=minutes))
        assert list_calls(service, bitable.TOKEN_PATH) == ["internal"]
        await put_candidates(database, ["d"])
        assert (await mirror.deliver()).created == 1
        assert list_calls(service, bitable.TOKEN_PATH) == ["internal"] * 2
        assert read_mirrored(service) == await read_expected(database)


async def test_a_token_that_is_never_taken_and_a_wrong_secret_end_the_round(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, make_mirror: MirrorMaker
) -> None:
    """C21: no endless loop of tokens."""
    await put_candidates(database, ["a"])
    service.misbehave(replace(bitable.TOKEN_REFUSED, path=SEARCH))
    assert (await mirror.deliver()).failures[candidates.name].code == 99991663
    assert len(list_calls(service, SEARCH)) == 2
    wrong = make_mirror(service, target=make_target(service, secret="not-the-secret"))
    assert (await wrong.deliver()).failures[candidates.name].code == 10014


LOST = {
    "the answer is lost": bitable.ANSWER_LOST,
    "the connection is reset": bitable.RESET,
    "a proxy answers": bitable.UNAVAILABLE,
    "the answer is cut off": Fault(FaultKind.TRUNCATE),
    "the answer is not Feishu's": Fault(status=200, body='{"code": 0, "data": {"records": [{}]}}'),
    "the answer is no document": Fault(status=200, body="[]"),
}


@pytest.mark.parametrize("path", [BATCH_CREATE, BATCH_UPDATE, BATCH_DELETE])
@pytest.mark.parametrize("is_forgotten", [False, True], ids=["", "client_token forgotten"])
async def test_a_doubtful_answer_neither_loses_nor_doubles_anything(
    mirror: FeishuMirror,
    database: Database,
    service: SandboxBitable,
    make_mirror: MirrorMaker,
    path: str,
    is_forgotten: bool,
) -> None:
    """C21: another process goes on, even if Feishu no longer knows the client_token; and the row changes meanwhile.

    An answer that says 0 and nothing more is believed where nothing more is needed.
    """
    for number, (name, fault) in enumerate(LOST.items()):
        believed = path != BATCH_CREATE and '"code": 0' in fault.body
        if believed:
            continue
        await put_all_kinds(database, mirror, suffix=str(number))
        service.misbehave(replace(fault, times=1, path=path))
        assert candidates.name in (await mirror.deliver()).failures, name
        if is_forgotten:
            service.forget_client_tokens()
        await change_candidates(database, [f"new{number}"], status="failed")
        assert (await make_mirror(service).deliver()).failures == {}, name
        assert read_mirrored(service) == await read_expected(database), name


async def test_a_request_that_arrives_late_creates_nothing_again(
    database: Database, service: SandboxBitable, make_mirror: MirrorMaker
) -> None:
    """C21: the first process gave up waiting; its request is still on its way when the second one begins."""
    await put_candidates(database, ["a"])
    first = make_mirror(service, timeout=timedelta(seconds=1))
    await first.deliver()
    await put_candidates(database, ["b"])
    service.misbehave(Fault(FaultKind.SLOW, latency=timedelta(seconds=2), times=1, path=BATCH_CREATE))
    assert candidates.name in (await first.deliver()).failures
    second = make_mirror(service)
    assert (await second.deliver()).failures == {}
    await service.wait_until_idle()
    sent = [entry.fields["client_token"] for entry in service.requests if entry.path == BATCH_CREATE]
    assert (len(sent), len(set(sent[1:]))) == (3, 1)
    assert read_mirrored(service) == await read_expected(database)


async def test_a_create_of_one_that_lost_the_right_to_is_found_and_removed(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock
) -> None:
    """C5, C21: its request comes when the other has done the same, and its client_token is no longer known."""
    await mirror.deliver()
    await put_candidates(database, ["a"])
    other = make_mirror(service, clock=clock)
    overtaken: list[Recorded] = []

    async def overtake(entry: Recorded) -> None:
        if entry.path == BATCH_CREATE and not overtaken:
            overtaken.append(entry)
            clock.advance(timedelta(minutes=31))
            await other.deliver()
            service.forget_client_tokens()

    service.on_request = overtake
    assert (await mirror.deliver()).is_busy
    assert len(service.rows(CANDIDATES)) == 2
    await other.deliver()
    assert read_mirrored(service) == await read_expected(database)


async def test_a_late_create_is_found_even_if_searches_show_it_later(
    database: Database, make_mirror: MirrorMaker, clock: FakeClock
) -> None:
    """C5, C21: the doubt lasts until a search must have shown what it is about."""
    async with make_service(now=clock.now) as service:
        first, other = (make_mirror(service, clock=clock) for _ in range(2))
        await first.deliver()
        await put_candidates(database, ["a"])
        overtaken: list[Recorded] = []

        async def overtake(entry: Recorded) -> None:
            if entry.path == BATCH_CREATE and not overtaken:
                overtaken.append(entry)
                clock.advance(timedelta(minutes=31))
                await other.deliver()
                service.forget_client_tokens()
                clock.advance(timedelta(seconds=30))
                service.table(CANDIDATES).search_delay = timedelta(seconds=20)

        service.on_request = overtake
        assert (await first.deliver()).is_busy
        await other.deliver()
        assert len(service.rows(CANDIDATES)) == 2
        clock.advance(timedelta(seconds=61))
        await other.deliver()
        assert read_mirrored(service) == await read_expected(database)
        assert await count_waiting(database) == 0


async def test_an_update_of_one_that_lost_the_right_to_is_written_over(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock
) -> None:
    """C5, C21: it does not even see an answer, and so cannot know that it came too late."""
    await put_candidates(database, ["a"])
    await mirror.deliver()
    await change_candidates(database, ["a"], status="processing")
    other = make_mirror(service, clock=clock)
    overtaken: list[Recorded] = []

    async def overtake(entry: Recorded) -> None:
        if entry.path == BATCH_UPDATE and not overtaken:
            overtaken.append(entry)
            clock.advance(timedelta(minutes=31))
            await change_candidates(database, ["a"], status="collected")
            assert (await other.deliver()).updated == 1
            service.misbehave(replace(bitable.ANSWER_LOST, path=BATCH_UPDATE, times=1))

    service.on_request = overtake
    assert (await mirror.deliver()).is_busy
    assert service.rows(CANDIDATES)[0]["status"] == "processing"
    await other.deliver()
    assert read_mirrored(service) == await read_expected(database)


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["", "client_token forgotten"])
async def test_a_create_that_searches_show_only_in_part_is_not_done_again(
    database: Database, make_mirror: MirrorMaker, clock: FakeClock, is_forgotten: bool
) -> None:
    """C21: its answer was lost, and a record is shown seconds after it was made."""
    async with make_service(now=clock.now) as service:
        mirror = make_mirror(service, clock=clock)
        await mirror.deliver()
        await put_candidates(database, ["a", "b", "c", "d"])
        service.misbehave(replace(bitable.ANSWER_LOST, path=BATCH_CREATE, times=1))
        assert candidates.name in (await mirror.deliver()).failures
        clock.advance(timedelta(seconds=5))
        table = service.table(CANDIDATES)
        table.hide([name for name, row in table.records.items() if row["key"] in ("weibo:c", "weibo:d")])
        table.search_delay = timedelta(seconds=2)
        if is_forgotten:
            service.forget_client_tokens()
        assert (await mirror.deliver()).failures == {}
        # With the client_token it is known at once; without, a doubt lasts until a search must have shown everything.
        assert (len(service.rows(CANDIDATES)) == 4) is not is_forgotten
        clock.advance(timedelta(seconds=61))
        await mirror.deliver()
        assert read_mirrored(service) == await read_expected(database)
        assert await count_waiting(database) == 0


async def test_a_create_whose_records_are_gone_before_its_answer_was_seen_is_done_anew(
    mirror: FeishuMirror, database: Database, service: SandboxBitable
) -> None:
    """C21: a person has emptied the table before anyone saw the answer; Feishu says that the create was done."""
    await mirror.deliver()
    await put_candidates(database, ["a", "b"])
    service.misbehave(replace(bitable.ANSWER_LOST, path=BATCH_CREATE, times=1))
    await mirror.deliver()
    service.table(CANDIDATES).records.clear()
    assert (await mirror.deliver()).failures == {}
    assert read_mirrored(service) == await read_expected(database)


@pytest.mark.both_databases
async def test_an_outage_of_an_hour_with_restarts_ends_equal(
    database: Database, service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock
) -> None:
    """C21, C24: one alert after half an hour, resolved when it is over; each row once, in its latest state."""
    await put_candidates(database, NAMES)
    await make_mirror(service, clock=clock).deliver()
    faults = (bitable.ANSWER_LOST, bitable.RESET, bitable.UNAVAILABLE, bitable.TOO_MANY_REQUESTS)
    alerts = Alerts(database, clock=clock, destinations=())
    alert_counts = []
    for minute in range(0, 60, 4):
        service.recover()
        service.misbehave(faults[minute // 4 % len(faults)])
        await put_candidates(database, [f"m{minute}"])
        await change_candidates(database, NAMES[:4], retry_count=minute)
        if minute == 20:
            await remove_candidates(database, NAMES[4:6])
        # A new object each time: what a process knows dies with it.
        await make_mirror(service, clock=clock).deliver()
        await alerts.deliver()
        alert_counts.append(len(await list_conditions(database, clock)))
        clock.advance(timedelta(minutes=4))
    service.recover()
    last = await make_mirror(service, clock=clock).deliver()
    assert last.failures == {}
    assert read_mirrored(service) == await read_expected(database)
    assert (sorted(alert_counts), alert_counts[0], max(alert_counts)) == (alert_counts, 0, 1)
    assert await list_conditions(database, clock) == []


async def test_in_an_outage_the_loop_asks_less_and_less_often(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock
) -> None:
    """C21: an hour long; when Feishu is back it is noticed within minutes, without anybody's help."""
    await mirror.deliver()
    await put_candidates(database, ["a"])
    began, asked, stop = clock.now(), len(service.requests), Stop(clock=clock)
    service.misbehave(bitable.RESET)

    def watch(entry: Recorded) -> None:
        if clock.now() - began > timedelta(hours=1):
            service.recover()

    def end(entry: Recorded) -> None:
        if entry.path == BATCH_CREATE:
            stop.request("it is there")

    service.on_request, service.on_answer = watch, end
    async with asyncio.timeout(30):
        await mirror.run(stop)
    assert 10 <= len(service.requests) - asked <= 20
    assert clock.now() - began <= timedelta(hours=1, minutes=6)
    assert read_mirrored(service) == await read_expected(database)


async def test_an_address_that_the_guard_refuses_names_the_setting(
    database: Database, service: SandboxBitable, tmp_path: Path
) -> None:
    """C21: every request goes through the guard; the action names what to set."""
    await put_candidates(database, ["a"])
    async with GuardedClient(user_agent="tests") as strict:
        mirror = build_mirror(service, database=database, folder=tmp_path, client=strict)
        failed = (await mirror.deliver()).failures[candidates.name]
    assert (failed.kind, service.requests) == (FeishuErrorKind.BLOCKED, [])
    assert "TIDINGS_ALLOW_NETWORKS" in failed.action


async def test_a_listing_with_more_pages_than_searches_a_second_ends(
    database: Database, make_mirror: MirrorMaker, clock: FakeClock
) -> None:
    """C21: a page that is refused for the rate is asked for again, not the whole listing."""
    async with make_service(limits=BitableLimits(searches_a_second=1), now=clock.now) as service:
        for _ in range(5):
            service.table(CANDIDATES).create([{"key": "a line of a person's own"}] * 500)
        await put_candidates(database, ["a"])
        result = await make_mirror(service, clock=clock).rebuild()
        assert (result.created, result.failures) == (1, {})


def test_every_code_has_a_meaning_and_where_a_person_is_needed_an_action() -> None:
    """C21: the table is the one place that knows the codes."""
    for code, rule in CODE_RULES.items():
        assert rule.meaning, code
        assert rule.action or rule.kind is FeishuErrorKind.MISSING_RECORD, code
    unknown = classify_answer(1, status=500, headers={})
    assert (unknown.kind, isinstance(unknown, FeishuError)) == (FeishuErrorKind.RETRY, True)


@pytest.mark.parametrize(("value", "seconds"), [("1.5", 1.5), ("x", None), ("nan", None), ("-1", None), ("1e7", 3600)])
def test_the_gateways_wish_is_read_with_care(value: str, seconds: float | None) -> None:
    """C21: a header is what someone else wrote."""
    wanted = classify_answer(99991400, status=429, headers={"x-ogw-ratelimit-reset": value}).retry_after
    assert wanted == (None if seconds is None else timedelta(seconds=seconds))
