"""The workflow's routes over HTTP, as n8n uses them: the whole way from a keyword to the tables, every POST sent twice,
and everything that may happen to a lock in between."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from tests.collect.crawl_stage import open_weibo
from tests.collect.test_cookie_secrets import COOKIE, find_traces
from tests.web.stage import ADMIN, CANARY, FIXED
from tests.web.test_crawler_api import check_refusal
from tests.web.workflow_stage import ACCOUNT, NOTE, PLATFORM, TOKEN, Driver, fail, list_requests, open_driver, succeed
from tidings.collect.crawl.cookies.table import cookies
from tidings.collect.errors import BACKOFF, RULES
from tidings.collect.tables import candidates, sources, watched_keywords
from tidings.core.executions import ExecutionStatus, executions
from tidings.core.logs.logger import LogFormat, configure_logging
from tidings.core.secrets.redaction import Redactor
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media.weibo import SandboxWeibo, name_post
from tidings.sandbox.wire.faults import Fault
from tidings.settings.collect import CollectSettings
from tidings.web.middleware.input import LARGEST_BODY, LARGEST_NOTES

pytestmark = pytest.mark.one_database

NOBODY: Final = "exec-1794873600000-0a1b2c3d"


@pytest.fixture
async def weibo() -> AsyncIterator[SandboxWeibo]:
    async with open_weibo(ACCOUNT) as running:
        yield running


@pytest.fixture
async def driver(database_url: str, tmp_path: Path, weibo: SandboxWeibo) -> AsyncIterator[Driver]:
    """On both databases."""
    async with open_driver(database_url, tmp_path, weibo=weibo.origin) as opened:
        yield opened


@pytest.fixture
async def small(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Driver]:
    """One database is enough where the writer is not the point."""
    async with open_driver(sqlite_url, tmp_path) as opened:
        yield opened


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_the_whole_way_from_a_keyword_to_the_tables_with_one_token(driver: Driver, weibo: SandboxWeibo) -> None:
    """C19, C20, C8: the crawl API's answers go back as they came; what failed is tried later, the rest is written."""
    await driver.add_account()
    await driver.api.installation.collect.keywords.add(PLATFORM, "生活")
    discover = await driver.begin("discover")
    [keyword] = (await driver.ask("/workflow/keywords", method="GET")).json["data"]["keywords"]
    question = {"platform": keyword["platform"], "keyword": keyword["keyword"], "page": 1}
    found = (await driver.ask("/crawler/search", question)).json
    report = {
        "execution_id": discover,
        "keyword_id": keyword["id"],
        "source_keyword": keyword["keyword"],
        "platform": PLATFORM,
        "hits": found["data"]["hits"],
        "cookie_used": found["meta"]["cookie_used"],
    }
    count = len(found["data"]["hits"])
    assert await driver.do("candidates", **report) == {"created": count, "known": 0}
    ended = await driver.do("executions/finish", execution_id=discover)
    assert ended == {"status": "succeeded", "items_processed": count, "items_failed": 0, "released": 0}

    collect = await driver.begin()
    lease = await driver.do("candidates/lease", execution_id=collect, limit=3)
    assert (lease["locked_count"], [each["platform"] for each in lease["records"]]) == (3, [PLATFORM] * 3)
    names = [each["note_id"] for each in lease["records"]]
    weibo.misbehave(Fault(status=503, matching=names[1]))
    wanted = [{"note_id": each["note_id"], "url": each["note_url"]} for each in lease["records"]]
    batch = (await driver.ask("/crawler/detail/batch", {"platform": PLATFORM, "items": wanted})).json
    settled = await driver.do("candidates/settle", execution_id=collect, platform=PLATFORM, items=batch["items"])
    assert [(each["note_id"], each["action"], each["status"]) for each in settled["items"]] == [
        (names[0], "created", "collected"),
        (names[1], "retry", "pending"),
        (names[2], "created", "collected"),
    ]
    none = dict.fromkeys(("skipped", "failed", "kept", "released", "lost"), 0)
    assert settled["summary"] == {"total": 3, "created": 2, "retry": 1, **none}
    assert settled["items"][1]["retry_at"].endswith("Z")
    assert (await driver.do("candidates/lease", execution_id=collect, limit=1))["locked_count"] == 1
    assert await driver.do("executions/heartbeat", execution_id=collect) == {"renewed": 1}
    ended = await driver.do("executions/finish", execution_id=collect)
    assert ended == {"status": "partial", "items_processed": 2, "items_failed": 1, "released": 1}

    written = await driver.read(sources)
    assert [json.loads(row.content) for row in written] == [batch["items"][0]["data"], batch["items"][2]["data"]]
    assert {row.status for row in await driver.read(candidates)} == {"pending", "collected"}
    [cookie] = await driver.read(cookies)
    assert (cookie.daily_used, cookie.status) == (4, "active")
    [watched] = await driver.read(watched_keywords)
    assert (watched.last_found, watched.last_created, watched.last_error_code) == (count, count, None)


@pytest.mark.thorough
async def test_a_search_that_failed_is_noted_on_its_keyword_and_its_cookie(driver: Driver) -> None:
    """C9, C19: without hits; the next good search clears it."""
    await driver.add_account()
    await driver.api.installation.collect.keywords.add(PLATFORM, "tea")
    [keyword] = await driver.read(watched_keywords)
    execution = await driver.begin("discover")
    about = {"execution_id": execution, "platform": PLATFORM, "source_keyword": "tea", "keyword_id": keyword.id}
    failed = await driver.do(
        "candidates", **about, hits=[], cookie_used=ACCOUNT, error_code="COOKIE_INVALID", captcha=True
    )
    assert failed == {"created": 0, "known": 0}
    [watched], [cookie] = await driver.read(watched_keywords), await driver.read(cookies)
    assert (watched.last_error_code, watched.last_found, cookie.status) == ("COOKIE_INVALID", 0, "cooling")
    await driver.do("candidates", **about)
    [watched] = await driver.read(watched_keywords)
    assert watched.last_error_code is None
    assert (await driver.do("executions/finish", execution_id=execution))["status"] == "partial"


async def test_the_pages_of_a_search_are_added_up_on_its_keyword(driver: Driver) -> None:
    """C19: what went wrong on one of them stays, too; the next search begins again."""
    await driver.api.installation.collect.keywords.add(PLATFORM, "tea", pages=3)
    [keyword] = await driver.read(watched_keywords)
    about = {"execution_id": await driver.begin("discover"), "platform": PLATFORM}
    about |= {"source_keyword": "tea", "keyword_id": keyword.id}

    async def tell(*note_ids: str, **fields: Any) -> tuple[int, int, str | None]:
        hits = [{"note_id": note_id, "url": f"https://m.weibo.cn/detail/{note_id}"} for note_id in note_ids]
        await driver.do("candidates", **about, hits=hits, **fields)
        [noted] = await driver.read(watched_keywords)
        return noted.last_found, noted.last_created, noted.last_error_code

    # The first word about a keyword may be a continuation, where the one before it was refused.
    assert await tell("n1", continued=True) == (1, 1, None)
    assert await tell("n1", "n2") == (2, 1, None)
    assert await tell("n2", "n3", continued=True) == (4, 2, None)
    assert await tell(error_code="PLATFORM_ERROR", continued=True) == (4, 2, "PLATFORM_ERROR")
    assert await tell("n4", continued=True) == (5, 3, "PLATFORM_ERROR")
    assert await tell() == (0, 0, None)


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_of_many_that_acquire_at_once_one_gets_the_lock(driver: Driver) -> None:
    """C3, C20: the others learn who holds it, and may come back when it is free."""
    asked = [acquire(driver, request_id=f"n8n-{number}") for number in range(8)]
    answers = await asyncio.gather(*asked)
    assert sorted(answer["locked"] for answer in answers) == [False] * 7 + [True]
    assert len({answer["execution_id"] for answer in answers}) == 1
    holder = answers[0]["execution_id"]
    assert all((answer["reason"] is None) == answer["locked"] for answer in answers)
    assert all(holder in answer["reason"] for answer in answers if not answer["locked"])
    await driver.do("executions/finish", execution_id=holder)
    assert await driver.begin() != holder


async def acquire(driver: Driver, **asked: str) -> dict[str, Any]:
    answer = await driver.ask("/workflow/executions", {"workflow_name": "collect"}, **asked)
    data: dict[str, Any] = answer.json["data"]
    return data


@pytest.mark.thorough
async def test_a_lost_answer_to_acquire_may_be_asked_for_again(driver: Driver) -> None:
    """C3: the same call has the same execution for as long as that runs; also where the first is still under way."""
    first, *again = await asyncio.gather(*(acquire(driver) for _ in range(4)))
    assert first["locked"]
    assert again == [first] * 3
    about = {"execution_id": first["execution_id"]}
    assert await driver.do("executions/heartbeat", **about) == {"renewed": 0}
    other = (await driver.api.installation.tokens.make(Scope.WORKFLOW, name="another n8n")).reveal()
    for asked in ({"request_id": "n8n-2"}, {"token": other}):
        assert not (await acquire(driver, **asked))["locked"], asked
    assert (await driver.do("executions", workflow_name="discover"))["execution_id"] != first["execution_id"]
    await driver.do("executions/finish", **about)
    after = await acquire(driver)
    assert (after["locked"], after["execution_id"] == first["execution_id"]) == (True, False)
    assert await acquire(driver) == after
    await driver.age(executions, "heartbeat_at")
    assert (await acquire(driver))["execution_id"] not in (first["execution_id"], after["execution_id"])


@pytest.mark.thorough
@pytest.mark.parametrize("headers", [{}, {"X-Request-ID": "no id"}])
async def test_a_call_without_an_id_of_its_own_is_no_repeat(small: Driver, headers: Mapping[str, str]) -> None:
    """C3: the id that is made here for such a call is nobody's."""
    locked = []
    for _ in range(2):
        async with small.client.post(
            f"{small.origin}/workflow/executions",
            json={"workflow_name": "collect"},
            headers={"Authorization": f"Bearer {TOKEN}", **headers},
        ) as answer:
            locked.append((await answer.json())["data"]["locked"])
    assert locked == [True, False]


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_a_repeated_write_is_skipped_and_changes_nothing(driver: Driver) -> None:
    """C2, C20: an answer that got lost may be asked for again, by either route."""
    await driver.add_account()
    execution = await driver.begin_with("n1", "n2", "n3")
    requests = list_requests(execution)
    written = await driver.do("sources", **requests["sources"])
    assert written["action"] == "created"
    before = await driver.read_all()
    assert await driver.do("sources", **requests["sources"]) == {
        "action": "skipped",
        "existing_id": written["existing_id"],
    }
    assert (await driver.do("candidates/settle", **requests["candidates/settle"]))["items"][0]["action"] == "skipped"
    assert await driver.read_all() == before

    items = [fail("n3"), succeed("n2"), succeed("n2", title="of two words the first counts")]
    batch = {"execution_id": execution, "platform": PLATFORM, "items": items}
    first = await driver.do("candidates/settle", **batch)
    before = await driver.read_all()
    second = await driver.do("candidates/settle", **batch)
    assert [each["action"] for each in first["items"]] == ["retry", "created"]
    assert [each["action"] for each in second["items"]] == ["lost", "skipped"]
    assert [each["existing_id"] for each in second["items"]] == [None, first["items"][1]["existing_id"]]
    assert await driver.read_all() == before
    [cookie] = await driver.read(cookies)
    assert cookie.daily_used == 3


@pytest.mark.thorough
async def test_every_other_post_may_be_repeated_too(driver: Driver) -> None:
    """C2: nothing is there twice, nothing is counted twice against a candidate, and an end stays the end."""
    execution = await driver.begin_with("n1")
    requests = list_requests(execution)
    for path, first, second in (
        ("executions/heartbeat", {"renewed": 1}, {"renewed": 1}),
        ("candidates", {"created": 1, "known": 0}, {"created": 0, "known": 1}),
    ):
        assert [await driver.do(path, **requests[path]) for _ in range(2)] == [first, second]
    assert [
        (await driver.do("candidates/lease", **requests["candidates/lease"]))["locked_count"] for _ in range(2)
    ] == [1, 0]
    failed = await driver.do("candidates/fail", **requests["candidates/fail"])
    assert (failed["action"], failed["status"], failed["retry_count"]) == ("retry", "pending", 1)
    before = await driver.read_all()
    check_refusal(await driver.ask("/workflow/candidates/fail", requests["candidates/fail"]), 409, "LOCK_LOST")
    assert await driver.read_all() == before
    ended = await driver.do("executions/finish", **requests["executions/finish"])
    assert (ended["status"], ended["released"]) == ("partial", 1)
    before = await driver.read_all()
    for status in (None, "failed"):
        assert await driver.do("executions/finish", **requests["executions/finish"], status=status) == {
            **ended,
            "released": 0,
        }
    nothing = {"executions": [], "records": 0, "failed": 0}
    assert [(await driver.ask("/workflow/recover")).json["data"] for _ in range(2)] == [nothing] * 2
    assert await driver.read_all() == before


@pytest.mark.thorough
async def test_a_stale_execution_can_do_nothing_more(driver: Driver) -> None:
    """C5: no route writes for a holder whose lock was taken away, no matter who holds it now."""
    await driver.add_account()
    stale = await driver.begin_with("n1", "n2")
    await driver.age(executions, "heartbeat_at")
    await driver.age(candidates, "locked_at")
    recovered = (await driver.ask("/workflow/recover", {})).json["data"]
    assert recovered == {"executions": [stale], "records": 2, "failed": 0}
    after = await driver.begin()
    assert (await driver.do("candidates/lease", execution_id=after))["locked_count"] == 2
    before = await driver.read_all()
    for path, request in list_requests(stale).items():
        envelope = check_refusal(await driver.ask(f"/workflow/{path}", request), 409, "LOCK_LOST")
        assert (envelope["error"]["retryable"], stale in envelope["error"]["message"]) == (False, True), path
    assert await driver.read_all() == before
    assert (await driver.do("sources", **list_requests(after)["sources"]))["action"] == "created"


async def test_a_record_that_was_taken_away_cannot_be_written(driver: Driver) -> None:
    """C4: though the execution itself still runs; a batch tells it for the one record alone."""
    execution = await driver.begin_with("n1", "n2")
    await driver.age(candidates, "locked_at")
    assert (await driver.ask("/workflow/recover")).json["data"] == {"executions": [], "records": 2, "failed": 0}
    before = await driver.read_all()
    requests = list_requests(execution)
    for path in ("sources", "candidates/fail"):
        check_refusal(await driver.ask(f"/workflow/{path}", requests[path]), 409, "LOCK_LOST")
    settled = await driver.do(
        "candidates/settle",
        execution_id=execution,
        platform=PLATFORM,
        items=[succeed("n1"), fail("n2"), succeed("unknown")],
    )
    assert {(each["action"], each["status"]) for each in settled["items"]} == {("lost", None)}
    assert await driver.read_all() == before


@pytest.mark.thorough
async def test_an_execution_of_the_api_outlives_the_server_that_gave_it(database_url: str, tmp_path: Path) -> None:
    """C5: anybody who works from outside goes on after a restart; what the server itself ran is over with it."""
    async with open_driver(database_url, tmp_path) as driver:
        execution = await driver.begin_with("n1")
        own = await driver.api.installation.collect.writer.acquire("discover")
    async with open_driver(database_url, tmp_path) as driver:
        recovered = await driver.read(executions)
        assert {row.public_id: row.status for row in recovered} == {
            execution: "running",
            own.execution_id: "interrupted",
        }
        assert (await driver.ask("/workflow/recover")).json["data"]["executions"] == []
        assert await driver.do("executions/heartbeat", execution_id=execution) == {"renewed": 1}
        assert (await driver.do("sources", **list_requests(execution)["sources"]))["action"] == "created"


@pytest.mark.thorough
@pytest.mark.parametrize("workflow_name", ["discover", "announce:example.com"])
async def test_an_execution_that_this_server_runs_itself_is_nobody_elses(small: Driver, workflow_name: str) -> None:
    """C3: though a refused `acquire` tells its id; and a token for workflows reaches no site's execution."""
    own = await small.api.installation.executions.acquire(workflow_name, kind="announce")
    before = await small.read_all()
    for path, request in list_requests(own.public_id).items():
        check_refusal(await small.ask(f"/workflow/{path}", request), 409, "LOCK_LOST")
    assert await small.read_all() == before
    await small.api.installation.executions.finish(own, ExecutionStatus.SUCCEEDED)
    check_refusal(await small.ask("/workflow/executions/finish", {"execution_id": own.public_id}), 409, "LOCK_LOST")


async def test_recovery_leaves_the_other_pipeline_to_itself(small: Driver) -> None:
    """C5: a site whose run was cut off is due again at once, and only announce sees to that."""
    await small.api.installation.executions.acquire("announce:example.com", kind="announce")
    await small.age(executions, "heartbeat_at")
    assert (await small.ask("/workflow/recover")).json["data"]["executions"] == []
    assert [row.status for row in await small.read(executions)] == ["running"]


@pytest.mark.thorough
@pytest.mark.parametrize("path", ["sources", "candidates/settle"])
async def test_a_note_is_stored_by_the_name_of_its_candidate(small: Driver, path: str) -> None:
    """C12: a platform may know the note by another id (av170001 is BV17x411w7KC); what is in the note stays its own."""
    execution = await small.begin_with("n1")
    note = {**NOTE, "note_id": "n-canonical"}
    request = list_requests(execution)[path]
    request |= {"note": note} if path == "sources" else {"items": [{**succeed("n1"), "data": note}]}
    await small.do(path, **request)
    [row] = await small.read(sources)
    assert (row.note_id, row.idempotency_key, json.loads(row.content)) == ("n1", "n1_v1", note)
    assert [each.status for each in await small.read(candidates)] == ["collected"]


@pytest.mark.thorough
async def test_a_batch_of_long_articles_is_taken_as_it_came(small: Driver) -> None:
    """C19: a megabyte is too little for ten of them; there is an end to it all the same, and elsewhere it is nearer."""
    execution = await small.begin_with(*(f"n{number}" for number in range(10)))
    items = [succeed(f"n{number}", text="x" * (LARGEST_BODY // 2)) for number in range(10)]
    settled = await small.do("candidates/settle", execution_id=execution, platform=PLATFORM, items=items)
    assert settled["summary"]["created"] == 10
    for path, size in (("/workflow/candidates/settle", LARGEST_NOTES), ("/workflow/executions", LARGEST_BODY)):
        answer = await small.api.stage.ask("POST", path, token=TOKEN, body=b" " * (size + 1))
        check_refusal(answer, 413, "INVALID_INPUT")


@pytest.mark.thorough
async def test_the_rules_are_those_of_the_table(sqlite_url: str, tmp_path: Path) -> None:
    """C15, C26: one wait for each retry, as it is set."""
    async with open_driver(sqlite_url, tmp_path) as driver:
        rules = (await driver.ask("/workflow/rules", method="GET")).json["data"]["rules"]
    assert [(each["code"], each["action"], each["retryable"]) for each in rules] == [
        (code, rule.action, rule.retryable) for code, rule in RULES.items()
    ]
    assert all(len(each["backoff_seconds"]) == each["most_retries"] for each in rules)
    waits = {each["code"]: each["backoff_seconds"] for each in rules}
    assert waits["NETWORK_ERROR"] == [wait.total_seconds() for wait in BACKOFF]
    assert (waits["PLATFORM_ERROR"], waits["LOCK_LOST"]) == ([0, 0], [])
    collect = CollectSettings(runs=False, backoff=(timedelta(seconds=1),))
    async with open_driver(sqlite_url, tmp_path, collect=collect) as driver:
        rules = (await driver.ask("/workflow/rules", method="GET")).json["data"]["rules"]
    assert {each["code"]: each["backoff_seconds"] for each in rules}["NETWORK_ERROR"] == [1, 1, 1]


@pytest.mark.thorough
async def test_a_lease_is_as_large_as_is_set_unless_it_says_more(sqlite_url: str, tmp_path: Path) -> None:
    """C26: BATCH_SIZE."""
    async with open_driver(sqlite_url, tmp_path, collect=CollectSettings(runs=False, batch_size=2)) as driver:
        execution = await driver.begin_with("n1", "n2", "n3", "n4")
        await driver.do("executions/finish", execution_id=execution)
        execution = await driver.begin()
        sizes = [await driver.do("candidates/lease", execution_id=execution, **given) for given in ({}, {"limit": 1})]
        assert [each["locked_count"] for each in sizes] == [2, 1]


@pytest.mark.thorough
async def test_cookies_that_were_used_in_vain_are_counted(small: Driver) -> None:
    """C9, C15: after three errors in a row, all reported at once, the cookie rests; an unknown cookie is no error."""
    await small.add_account()
    execution = await small.begin()
    uses = [{"cookie_name": ACCOUNT, "code": "COOKIE_INVALID"}] * 3 + [{"cookie_name": "gone"}]
    assert await small.do("cookies/outcomes", execution_id=execution, uses=uses) == {"counted": 4}
    assert [row.status for row in await small.read(cookies)] == ["cooling"]


@pytest.mark.thorough
async def test_a_failed_workflow_is_reported_once_and_is_over_when_it_works_again(driver: Driver) -> None:
    """C24: `partial` is about candidates; an end as `failed` is none; recovery has no end but its own answer."""
    alerts = driver.api.installation.alerts

    async def list_subjects() -> list[str]:
        return sorted(each.subject for each in await alerts.list_open() if each.kind == "workflow_failed")

    for name in ("collect", "recover", "collect"):
        report = {"workflow_name": name, "message": "a node failed", "execution_id": "77"}
        assert await driver.do("errors", **report) == {"alerted": True}
    assert await list_subjects() == ["collect", "recover"]
    [shown] = [each for each in await alerts.list_open() if each.subject == "collect"]
    assert (shown.reason, shown.fired_at is not None) == ("execution 77: a node failed", True)
    await driver.do("executions/finish", execution_id=await driver.begin(), status="failed")
    assert await list_subjects() == ["collect", "recover"]
    await driver.do("executions/finish", execution_id=await driver.begin("discover"))
    await driver.ask("/workflow/recover")
    assert await list_subjects() == ["collect"]
    await driver.do("executions/finish", execution_id=await driver.begin(), status="partial")
    assert await list_subjects() == []


BAD_INPUT: Final[Sequence[tuple[str, Mapping[str, Any], str]]] = (
    ("executions", {"workflow_name": "Collect"}, "workflow_name: a workflow's name has 1 to 100 of"),
    ("executions", {"workflow_name": "announce:example.com"}, "workflow_name: "),
    ("executions", {"workflow_name": "collect\n"}, "workflow_name: "),
    ("executions", {"workflow_name": "x", "holder": CANARY}, "holder: it is not known; allowed are workflow_name"),
    ("executions/heartbeat", {"execution_id": CANARY}, "execution_id: "),
    ("executions/heartbeat", {"execution_id": f"{NOBODY}\n"}, "execution_id: "),
    ("candidates", {"platform": "x" * 33}, "platform: "),
    (
        "candidates",
        {"hits": [{"note_id": "n", "url": "https://a.example/u", "platform": "bilibili"}]},
        "must be of this platform",
    ),
    ("candidates", {"hits": [{"note_id": "n" * 257, "url": "https://a.example/u"}]}, "hits[0].note_id: "),
    ("candidates", {"hits": [{"note_id": "n", "url": "https://a.example/u"}] * 201}, "hits: "),
    ("candidates", {"hits": [{"note_id": "n", "url": "javascript:alert(1)"}]}, "hits[0].url: "),
    ("candidates", {"hits": [{"note_id": "n", "url": "//a.example/u"}]}, "hits[0].url: "),
    ("candidates", {"hits": [{"note_id": "n", "url": "http://"}]}, "hits[0].url: "),
    ("candidates", {"hits": [{"note_id": "n", "url": "http://[::1"}]}, "hits[0].url: "),
    ("candidates", {"keyword_id": 2**63}, "keyword_id: "),
    ("candidates", {"error_code": CANARY}, "error_code: "),
    ("candidates/lease", {"limit": 51}, "limit: "),
    ("candidates/lease", {"limit": 0}, "limit: "),
    ("sources", {"note": {**NOTE, "platform": "bilibili"}}, "the note must be of this platform"),
    ("sources", {"note": {**NOTE, "cookie": CANARY}}, "note.cookie: it is not known"),
    ("sources", {"note": {**NOTE, "duration_seconds": 10**14}}, "note.duration_seconds: "),
    ("sources", {"note": {**NOTE, "counts": {**NOTE["counts"], "likes": "12"}}}, "note.counts.likes: "),
    ("sources", {"note": {**NOTE, "counts": {**NOTE["counts"], "views": 10**4000}}}, "note.counts.views: "),
    ("sources", {"note": {**NOTE, "url": "javascript:alert(1)"}}, "note.url: "),
    ("sources", {"note": {**NOTE, "url": "data:text/html,x"}}, "note.url: "),
    ("sources", {"note": {**NOTE, "url": "https:///path"}}, "note.url: "),
    ("sources", {"note_id": ""}, "note_id: "),
    ("candidates/fail", {"code": "TIRED"}, "code: "),
    ("candidates/fail", {"captcha": "true"}, "captcha: "),
    ("candidates/settle", {"items": [succeed("n1")] * 51}, "items: "),
    ("candidates/settle", {"items": [succeed("n1", platform="web")]}, "the notes must be of this platform"),
    ("candidates/settle", {"items": [succeed("n1") | {"data": None}]}, "items[0]: a success has data"),
    ("candidates/settle", {"items": [succeed("n1"), fail("n2") | {"error": None}]}, "items[1]: a success has data"),
    ("candidates/settle", {"items": [fail("n1") | {"data": dict(NOTE)}]}, "items[0]: a success has data"),
    ("cookies/outcomes", {"uses": [{"cookie_name": ACCOUNT}] * 51}, "uses: "),
    ("executions/finish", {"status": "running"}, "status: "),
    ("errors", {"workflow_name": "", "message": CANARY}, "workflow_name: "),
)


@pytest.mark.thorough
async def test_bad_input_is_a_422_that_says_what_is_allowed_and_repeats_nothing(small: Driver) -> None:
    """C13: INVALID_INPUT, and nothing was done."""
    good, before = list_requests(NOBODY), await small.read_all()
    for path, fields, message in BAD_INPUT:
        answer = await small.ask(f"/workflow/{path}", {**good.get(path, {}), **fields})
        envelope = check_refusal(answer, 422, "INVALID_INPUT")
        assert message in envelope["error"]["message"], (path, message)
        assert CANARY.encode() not in answer.body
    assert await small.read_all() == before


async def test_each_token_opens_what_it_is_for(small: Driver) -> None:
    """C13: a workflow's token drives the crawl API too; the crawl API's own writes nothing."""
    body, search = {"workflow_name": "collect"}, {"platform": "web", "keyword": "x"}
    for token, status in ((None, 401), ("wrong", 401)):
        check_refusal(await small.ask("/workflow/executions", body, token=token), status, "UNAUTHORIZED")
    for scope in (Scope.CRAWL, Scope.METRICS):
        answer = await small.ask("/workflow/executions", body, token=FIXED[scope].reveal())
        check_refusal(answer, 403, "UNAUTHORIZED")
    assert await small.read(executions) == []
    # Without a feed there is nothing to search, which is said only to those who may ask.
    for token, status in ((TOKEN, 422), (FIXED[Scope.CRAWL].reveal(), 422), (FIXED[Scope.METRICS].reveal(), 403)):
        assert (await small.ask("/crawler/search", search, token=token)).status == status
    made = (await small.api.installation.tokens.make(Scope.WORKFLOW, name="n8n")).reveal()
    assert (await small.ask("/crawler/search", search, token=made)).status == 422
    assert (await small.ask("/workflow/executions", body, token=made)).status == 200
    assert (await small.api.ask("GET", "/api/sites", token=made)).status == 403


@pytest.mark.thorough
async def test_one_token_that_is_set_for_both_opens_both(sqlite_url: str, tmp_path: Path) -> None:
    """Design 8: the stronger scope counts."""
    same = Secret("one for both")
    tokens = {Scope.ADMIN: Secret(ADMIN), Scope.CRAWL: same, Scope.WORKFLOW: same}
    async with open_driver(sqlite_url, tmp_path, tokens=tokens) as driver:
        asked: Sequence[tuple[str, Any]] = (
            ("/workflow/executions", {"workflow_name": "collect"}),
            ("/crawler/search", {"platform": "web", "keyword": "x"}),
        )
        answers = [await driver.ask(path, body, token=same.reveal()) for path, body in asked]
    assert [answer.status for answer in answers] == [200, 422]


@pytest.fixture
def log(driver: Driver) -> Iterator[io.StringIO]:
    """All that is logged, as it is written."""
    stream = io.StringIO()
    configure_logging(format=LogFormat.JSON, level="debug", redactor=driver.api.installation.redactor, stream=stream)
    yield stream
    configure_logging(format=LogFormat.JSON, level="info", redactor=Redactor(), quiet=True)


@pytest.mark.thorough
async def test_a_request_can_be_followed_and_no_cookie_is_seen(driver: Driver, log: io.StringIO) -> None:
    """C6, C7: the id from the header to the record and the log; the cookie in no answer, line, record or alert."""
    await driver.add_account("canary", before=f"{COOKIE}; ")
    execution = await driver.begin_with(name_post(1), name_post(2))
    about = {"execution_id": execution, "platform": PLATFORM}
    wanted = {"platform": PLATFORM, "items": [{"note_id": name_post(1)}]}
    batch = await driver.ask("/crawler/detail/batch", wanted, request_id="trace-7")
    # One who repeats what a platform said tells the cookie with it.
    refused = fail(name_post(2), message=f"refused: {COOKIE}")
    items = [*batch.json["items"], refused]
    answers = [
        batch,
        await driver.ask("/workflow/candidates/settle", {**about, "items": items}, request_id="trace-7"),
        await driver.ask("/workflow/errors", {"workflow_name": "collect", "message": COOKIE}, request_id="trace-8"),
        await driver.ask("/workflow/executions/finish", {"execution_id": execution}, request_id="trace-9"),
    ]
    assert [answer.status for answer in answers] == [200] * 4
    rows = {row.note_id: row for row in await driver.read(candidates)}
    [source] = await driver.read(sources)
    meta = {"request_id": "trace-7", "execution_id": execution, "cookie_used": "canary"}
    assert [json.loads(source.exec_meta), json.loads(rows[name_post(1)].exec_meta)] == [meta] * 2
    assert "refused: " in rows[name_post(2)].last_error
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    shown = {(line["event"], line["request_id"]) for line in lines if "request_id" in line}
    assert shown >= {
        ("crawl.item", "trace-7"),
        ("candidates.settled", "trace-7"),
        ("http.request", "trace-7"),
        ("alert", "trace-8"),
        ("workflow.finished", "trace-9"),
    }
    opened = repr(await driver.api.installation.alerts.list_open())
    whole = b"".join(answer.body + repr(answer.headers).encode() for answer in answers)
    records = repr([list(rows.values()), source])
    assert [find_traces(part) for part in (whole, log.getvalue(), records, opened)] == [set()] * 4
