"""What people ask for in Feishu: keywords and retries have an effect, and nothing else has."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from tests.announce.bing_stage import MORNING
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
    make_target,
    put_candidates,
    put_cookie,
    put_source,
    read_expected,
    read_mirrored,
)
from tests.collect.runner_stage import open_runner
from tests.fakes import FakeClock, StageClock
from tidings.collect.errors import CrawlError
from tidings.collect.feishu.mirror import READ_BACK, READ_EVERY, FeishuMirror
from tidings.collect.tables import candidates
from tidings.collect.write.keywords import Keywords, RefreshPlan
from tidings.core.db.database import Database
from tidings.core.executions import Executions
from tidings.core.process_lock import ProcessLock
from tidings.core.secrets.keyring import KeyRing
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


async def test_a_row_may_ask_for_refreshes_and_comments(
    mirror: FeishuMirror, service: SandboxBitable, keywords: Keywords
) -> None:
    """C21, C32: the same wishes as `keywords add`, and each refusal says why."""
    service.edit_records(
        KEYWORDS,
        add=[
            {"keyword": "咖啡", "platform": "weibo", "refresh": "1d", "for": "3d", "comments": 50},
            {"keyword": "茶", "platform": "weibo", "refresh": "5s"},
            {"keyword": "茶", "platform": "weibo", "for": "3d"},
            {"keyword": "茶", "platform": "weibo", "comments": 1.5},
            {"keyword": "茶", "platform": "weibo", "comments": 5_000},
            {"keyword": "茶", "platform": "weibo", "pages": 0},
        ],
    )
    assert (await mirror.deliver()).failures == {}
    [watched] = await keywords.list_all()
    assert (watched.keyword, watched.comments) == ("咖啡", 50)
    assert watched.refresh == RefreshPlan(timedelta(days=1), timedelta(days=3))
    answers = [str(row.get("status", "")) for row in service.rows(KEYWORDS)]
    assert answers[0] == "watched"
    reasons = ("every 10 minutes", "`for` needs", "comments must be a whole number", "from 0 to 1,000", "page must be")
    for answer, reason in zip(answers[1:], reasons, strict=True):
        assert answer.startswith("not watched: "), answer
        assert reason in answer


async def test_a_table_from_before_has_fewer_fields_and_works(
    mirror: FeishuMirror, service: SandboxBitable, keywords: Keywords
) -> None:
    """C21: `feishu setup` has not added the new fields yet."""
    table = service.table(KEYWORDS)
    for name in ("refresh", "for", "comments"):
        table.fields.pop(name, None)
    service.edit_records(KEYWORDS, add=[{"keyword": "咖啡", "platform": "weibo"}])
    assert (await mirror.deliver()).failures == {}
    assert [each.keyword for each in await keywords.list_all()] == ["咖啡"]


async def test_keywords_that_cannot_be_searched_are_refused_with_the_reason(
    database_url: str, keys: KeyRing, process_lock: ProcessLock
) -> None:
    """C21: the installation's own mirror checks rows as `keywords add` does, and answers in the chosen language."""
    clock = StageClock(MORNING)
    async with (
        make_service() as service,
        open_runner(
            database_url, clock=clock, keys=keys, process_lock=process_lock, feishu=make_target(service)
        ) as opened,
    ):
        installation = opened.installation
        check = installation.collect.check_keyword
        for platform, keyword, comments, reason in (
            ("weibo", "茶 since:2026-01-01", None, "cannot search within a period"),
            ("web", "author:7", None, "cannot be watched"),
            ("web", "tea", 5, "cannot be collected"),
        ):
            with pytest.raises(CrawlError, match=reason):
                check(platform, keyword, comments)
        check("weibo", "author:7", 10)


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
