"""What people ask for in Feishu: keywords and retries have an effect, and nothing else has."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from tests.collect.feishu_stage import (
    BATCH_UPDATE,
    CANDIDATES,
    COOKIES,
    EXECUTIONS,
    KEYWORDS,
    SEARCH,
    SOURCES,
    MirrorMaker,
    change_candidates,
    make_service,
    put_candidates,
    put_cookie,
    put_source,
    read_expected,
    read_mirrored,
)
from tests.fakes import FakeClock
from tidings.collect.feishu.mirror import READ_BACK, READ_EVERY, FeishuMirror
from tidings.collect.tables import candidates
from tidings.collect.write import Keywords
from tidings.core.db.database import Database
from tidings.core.executions import Executions
from tidings.sandbox.feishu import bitable
from tidings.sandbox.feishu.bitable import SandboxBitable
from tidings.sandbox.feishu.tables import Fields

pytestmark = pytest.mark.one_database

KEYWORD_UPDATE = BATCH_UPDATE.replace(CANDIDATES, KEYWORDS)


@pytest.fixture
async def service() -> AsyncIterator[SandboxBitable]:
    async with make_service() as running:
        yield running


@pytest.fixture
def mirror(service: SandboxBitable, make_mirror: MirrorMaker, clock: FakeClock) -> FeishuMirror:
    return make_mirror(service, clock=clock, reads=True)


@pytest.fixture
def keywords(database: Database, clock: FakeClock) -> Keywords:
    return Keywords(database, clock=clock)


async def read_later(mirror: FeishuMirror, clock: FakeClock) -> None:
    clock.advance(READ_EVERY)
    assert (await mirror.deliver()).failures == {}


async def list_watched(keywords: Keywords) -> list[tuple[str, str, int, bool]]:
    return [(each.platform, each.keyword, each.pages, each.enabled) for each in await keywords.list_all()]


async def read_status(database: Database, note_id: str) -> tuple[str, int]:
    chosen = select(candidates.c.status, candidates.c.retry_count).where(candidates.c.note_id == note_id)
    async with database.read() as connection:
        row = (await connection.execute(chosen)).one()
    return row.status, row.retry_count


def find_record(service: SandboxBitable, table_id: str, key: str) -> str:
    return next(name for name, row in service.table(table_id).records.items() if row.get("key") == key)


@pytest.mark.both_databases
async def test_new_rows_become_watched_keywords_once_and_are_answered(
    mirror: FeishuMirror, service: SandboxBitable, keywords: Keywords, clock: FakeClock
) -> None:
    """C21: a row that is not finished waits, a wrong one is answered with the rules, and none is read twice."""
    service.edit_records(
        KEYWORDS,
        add=[
            {"keyword": " 咖啡 ", "platform": "bilibili", "pages": 2},
            {"keyword": "露营", "platform": "Weibo"},
            {"keyword": "no platform yet"},
            {"platform": "weibo"},
            {"keyword": "tea", "platform": "myspace"},
            {"keyword": "tea", "platform": "weibo", "pages": 21},
            {"keyword": "x" * 2000, "platform": "weibo"},
        ],
    )
    assert (await mirror.deliver()).failures == {}
    assert await list_watched(keywords) == [("bilibili", "咖啡", 2, True), ("weibo", "露营", 1, True)]
    answers = [str(row.get("status", "")).partition(":")[0] for row in service.rows(KEYWORDS)]
    assert answers == ["watched", "watched", "", "", "not watched", "not watched", "not watched"]

    unfinished = list(service.table(KEYWORDS).records)[2]
    service.edit_records(KEYWORDS, change={unfinished: {"platform": "web"}})
    await read_later(mirror, clock)
    assert ("web", "no platform yet", 1, True) in await list_watched(keywords)

    # Removed by a command, paused by a command, and its answer emptied by a person: it was read already.
    await keywords.remove("weibo", "露营")
    await keywords.set_enabled("bilibili", "咖啡", enabled=False)
    for record_id in list(service.table(KEYWORDS).records)[:2]:
        service.edit_records(KEYWORDS, change={record_id: {"status": None, "pages": 9}})
    await read_later(mirror, clock)
    assert ("bilibili", "咖啡", 2, False) in await list_watched(keywords)
    assert "露营" not in str(await list_watched(keywords))
    assert service.rows(KEYWORDS)[0]["status"] == "watched"


@pytest.mark.both_databases
async def test_a_failed_candidate_that_a_person_sets_to_pending_is_tried_again(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock
) -> None:
    """C21: once, with a new count of retries; the others get their own status back."""
    await put_candidates(database, ["a", "b"], status="failed", retry_count=4, last_error_code="PLATFORM_ERROR")
    await put_candidates(database, ["c"], status="collected", last_error_code="TIMEOUT_ERROR")
    await mirror.deliver()
    for name in ("a", "c"):
        service.edit_records(
            CANDIDATES, change={find_record(service, CANDIDATES, f"weibo:{name}"): {"status": "pending"}}
        )
    assert (await mirror.deliver()).failures == {}
    assert await read_status(database, "a") == ("failed", 4)
    await read_later(mirror, clock)
    assert [await read_status(database, name) for name in "abc"] == [("pending", 0), ("failed", 4), ("collected", 0)]
    await mirror.deliver()
    assert read_mirrored(service) == await read_expected(database)


async def test_a_base_that_is_behind_asks_for_no_retry(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock, make_mirror: MirrorMaker
) -> None:
    """C21: Feishu still shows `pending` because our own change is not delivered, not searchable, or was never recorded:
    that is no request of a person."""
    await put_candidates(database, ["a", "b", "c"], last_error_code="TIMEOUT_ERROR")
    await mirror.deliver()
    # Not delivered: Feishu refuses updates.
    service.misbehave(replace(bitable.UNAVAILABLE, path=BATCH_UPDATE))
    await change_candidates(database, ["a"], status="failed")
    clock.advance(READ_EVERY)
    await mirror.deliver()
    service.recover()
    # Delivered, but the search shows what stood there before.
    await change_candidates(database, ["b"], status="failed")
    await mirror.deliver()
    late = {"record_id": find_record(service, CANDIDATES, "weibo:b"), "fields": {"key": "weibo:b"}}
    service.serve(SEARCH, json.dumps({"code": 0, "data": {"items": [late], "has_more": False}}))
    # Changed by a process that knows nothing of the mirror.
    async with database.write() as connection:
        await connection.execute(candidates.update().where(candidates.c.note_id == "c").values(status="failed"))
    await read_later(mirror, clock)
    service.restore(SEARCH)
    await read_later(mirror, clock)
    assert [(await read_status(database, name))[0] for name in "abc"] == ["failed"] * 3


@pytest.mark.thorough
async def test_nothing_else_that_people_change_has_an_effect(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock, executions: Executions
) -> None:
    """C21: people edit, delete and add rows in all four tables; our tables stay, and a rebuild makes the base equal."""
    await put_candidates(database, ["a", "b"], status="failed", last_error_code="TIMEOUT_ERROR")
    await put_candidates(database, ["c"])
    await put_source(database, "a", note={"text": "one"})
    await put_source(database, "b", note={"text": "two"})
    await put_cookie(database, "mine")
    await executions.acquire("discover", kind="collect")
    await mirror.deliver()
    before = await read_expected(database)

    edits: tuple[tuple[str, Fields], ...] = (
        (CANDIDATES, {"status": "collected", "retry_count": 0, "title": "mine now"}),
        (SOURCES, {"text": "changed", "collected_at": 1}),
        (COOKIES, {"status": "banned", "daily_limit": 1_000_000}),
        (EXECUTIONS, {"status": "failed"}),
    )
    for table_id, values in edits:
        first, *others = service.table(table_id).records
        service.edit_records(table_id, change={first: values}, remove=others[:1], add=[{"key": "weibo:mine"}])
    await read_later(mirror, clock)
    assert await read_expected(database) == before

    assert (await mirror.rebuild()).failures == {}
    expected = await read_expected(database)
    assert expected == before
    shown = read_mirrored(service)
    assert {table_id: [row for row in rows if "managed_by" in row] for table_id, rows in shown.items()} == expected
    assert all({"key": "weibo:mine"} in rows for rows in shown.values())


async def test_reading_costs_a_request_every_five_minutes_and_raises_an_alert_where_it_fails(
    mirror: FeishuMirror, database: Database, service: SandboxBitable, clock: FakeClock
) -> None:
    """C21: an idle base is read, not written, and for retries only while a candidate has failed; a keyword table
    without its field is named in the status."""
    await mirror.deliver()
    asked = len(service.requests)
    await mirror.deliver()
    assert len(service.requests) == asked
    await read_later(mirror, clock)
    assert len(service.requests) == asked + 1
    await put_candidates(database, ["a"], status="failed", last_error_code="TIMEOUT_ERROR")
    await mirror.deliver()
    asked = len(service.requests)
    await read_later(mirror, clock)
    assert len(service.requests) == asked + 2
    del service.table(KEYWORDS).fields["status"]
    clock.advance(READ_EVERY)
    failed = (await mirror.deliver()).failures
    assert list(failed) == [READ_BACK]
    assert (await mirror.describe()).last_error == str(failed[READ_BACK])


async def test_an_answer_that_is_lost_watches_no_keyword_twice(
    mirror: FeishuMirror, service: SandboxBitable, keywords: Keywords, clock: FakeClock
) -> None:
    """C2, C21: the row is answered at the next read, and a keyword that was removed meanwhile stays removed."""
    service.edit_records(KEYWORDS, add=[{"keyword": "tea", "platform": "weibo"}])
    service.misbehave(replace(bitable.RESET, path=KEYWORD_UPDATE, times=1))
    assert list((await mirror.deliver()).failures) == [READ_BACK]
    await keywords.remove("weibo", "tea")
    clock.advance(timedelta(seconds=10))
    assert (await mirror.deliver()).failures == {}
    assert await list_watched(keywords) == []
    assert service.rows(KEYWORDS)[0]["status"] == "watched"
