"""Collect over HTTP for people: status, keywords, candidates, cookies, executions; and its metrics."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.collect.writer_stage import begin, make_candidates, make_note, store_notes
from tests.web.api_stage import ApiStage, open_api
from tests.web.stage import FIXED
from tidings.collect.crawl.envelope import make_error
from tidings.collect.errors import ErrorCode
from tidings.collect.note_urls import NoteUrlError, find_note
from tidings.collect.write.cookies import make_cookie
from tidings.collect.write.values import Failed
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret

WORKFLOW = FIXED[Scope.WORKFLOW].reveal()
VALUE = "SUB=canary-cookie-value"


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncIterator[ApiStage]:
    async with open_api(database_url, tmp_path, tokens=FIXED) as opened:
        yield opened


async def fill(api: ApiStage) -> None:
    """Two notes, a failed candidate, a pending one, and a cookie."""
    installation = api.installation
    await installation.collect.cookies.add(make_cookie("mine", platform="weibo", secret=Secret(VALUE)))
    await store_notes(installation.collect.writer, [make_note(name, platform="weibo") for name in ("a", "b")])
    execution = await begin(installation.collect.writer)
    await installation.collect.writer.add_candidates(execution, make_candidates("bad", platform="weibo"))
    await installation.collect.writer.lease(execution, platform="weibo")
    failed = Failed(note_id="bad", error=make_error(ErrorCode.INVALID_INPUT, "why"))
    await installation.collect.writer.settle(execution, "weibo", [failed])
    await installation.collect.writer.add_candidates(execution, make_candidates("c:1", platform="web"))
    await installation.collect.writer.finish(execution)


@pytest.mark.thorough
async def test_status_executions_and_cookies_are_read_without_a_secret(api: ApiStage) -> None:
    """C30, C7: GET /api/collect/status, /api/collect/executions, /api/cookies; the workflow token may read."""
    await fill(api)
    answers = {
        path: await api.ask("GET", f"/api/{path}", token=WORKFLOW)
        for path in ("collect/status", "collect/executions", "cookies", "keywords", "candidates")
    }
    assert {answer.status for answer in answers.values()} == {200}
    assert not [path for path, answer in answers.items() if b"canary" in answer.body]
    status = answers["collect/status"].json
    counts = {"pending": 0, "processing": 0, "collected": 2, "failed": 1, "deleted": 0}
    assert status["candidates"]["weibo"] == counts
    assert status["cookies"] == {"weibo": {"usable": 1, "total": 1}}
    [cookie] = answers["cookies"].json["cookies"]
    assert (cookie["name"], cookie["status"]) == ("mine", "active")
    assert [each["workflow"] for each in answers["collect/executions"].json["executions"]] == ["collect", "store_notes"]


@pytest.mark.thorough
async def test_keywords_are_added_paused_resumed_and_removed(api: ApiStage) -> None:
    """C30, C32: by an admin; a keyword that cannot be watched is refused with its rule."""
    body = {"platform": "bilibili", "keyword": " 咖啡 ", "pages": 2}
    added = await api.ask("POST", "/api/keywords", body)
    assert added.status == 201
    number = added.json["keyword"]["id"]
    assert [each["keyword"] for each in (await api.read("/api/keywords"))["keywords"]] == ["咖啡"]
    daily = await api.ask("POST", "/api/keywords", {**body, "refresh": {"every": "1d"}})
    again = await api.ask("POST", "/api/keywords", body)
    ended = await api.ask("POST", "/api/keywords", {**body, "refresh": "off"})
    plans = [answer.json["keyword"]["refresh"] for answer in (added, daily, again, ended)]
    assert plans == [None, {"every": "1d", "for": "7d"}, {"every": "1d", "for": "7d"}, None]
    paused = await api.ask("POST", f"/api/keywords/{number}/pause")
    resumed = await api.ask("POST", f"/api/keywords/{number}/resume")
    assert (paused.json["keyword"]["enabled"], resumed.json["keyword"]["enabled"]) == (False, True)
    assert (await api.ask("DELETE", f"/api/keywords/{number}")).status == 204
    for method, path in (("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")):
        assert (await api.ask(method, f"/api/keywords/{number}{path}")).status == 404
    assert (await api.ask("POST", "/api/keywords", body, token=WORKFLOW)).status == 403
    for field, wrong in (("platform", "bilibli"), ("keyword", "\t"), ("pages", 21), ("refresh", {"every": "1m"})):
        answer = await api.ask("POST", "/api/keywords", {**body, field: wrong})
        assert (answer.status, answer.json["errors"][0]["field"]) == (400, field)


@pytest.mark.thorough
async def test_a_keyword_that_cannot_work_is_refused_and_one_that_needs_too_much_is_taken_with_a_warning(
    api: ApiStage,
) -> None:
    """C30, C18: no feeds are set; twenty pages an hour are more than the one cookie allows."""
    refused = await api.ask("POST", "/api/keywords", {"platform": "web", "keyword": "coffee"})
    assert (refused.status, refused.json["errors"][0]["field"]) == (400, "keyword")
    assert "TIDINGS_FEEDS" in refused.json["errors"][0]["message"]
    await api.installation.collect.cookies.add(
        make_cookie("mine", platform="weibo", secret=Secret(VALUE), daily_limit=100)
    )
    answers = [
        (await api.ask("POST", "/api/keywords", {"platform": "weibo", "keyword": "tea", "pages": pages})).json
        for pages in (4, 20)
    ]
    assert [each["overload"] for each in answers] == [None, {"needed": 480, "allowed": 100}]
    assert [each["keyword"] for each in (await api.read("/api/keywords"))["keywords"]] == ["tea"]


@pytest.mark.thorough
async def test_a_paused_platform_is_shown_with_its_cause_and_end(api: ApiStage) -> None:
    """C30, C34: GET /api/collect/status, from the first failure to the pause's end."""
    writer = api.installation.collect.writer
    assert (await api.read("/api/collect/status"))["pauses"] == []
    execution = await begin(writer)
    await writer.add_candidates(execution, make_candidates("a", "b", platform="weibo"))
    leased = await writer.lease(execution, platform="weibo")
    failures = [Failed(note_id=each.note_id, error=make_error(ErrorCode.NETWORK_ERROR, "no route")) for each in leased]
    await writer.settle(execution, "weibo", failures)
    await writer.finish(execution)
    status = await api.read("/api/collect/status")
    [pause] = status["pauses"]
    assert (pause["platform"], pause["cause"], pause["failures"]) == ("weibo", "network", 1)
    assert "no route" in pause["message"]
    assert datetime.fromisoformat(pause["until"]) - datetime.fromisoformat(pause["since"]) == timedelta(minutes=1)
    assert status["candidates"]["weibo"]["pending"] == 2
    await writer.pauses.resume("weibo")
    assert (await api.read("/api/collect/status"))["pauses"] == []


@pytest.mark.thorough
async def test_candidates_are_listed_retried_and_added_by_url(api: ApiStage) -> None:
    """C30: pages by cursor, also with ids that hold a colon; a deleted note stays deleted."""
    await fill(api)
    seen, cursor = [], ""
    while cursor is not None:
        page = await api.read(f"/api/candidates?limit=2{cursor and '&cursor=' + quote(cursor)}")
        seen += [each["noteId"] for each in page["candidates"]]
        cursor = page["next"]
    assert seen == ["c:1", "a", "b", "bad"]
    [failed] = (await api.read("/api/candidates?status=failed&platform=weibo"))["candidates"]
    assert (failed["noteId"], failed["errorCode"], failed["error"]) == ("bad", "INVALID_INPUT", "why")
    assert (await api.ask("POST", "/api/candidates/retry", {"noteIds": ["bad"]})).status == 400
    retried = await api.ask("POST", "/api/candidates/retry", {"platform": "weibo", "noteIds": ["bad", "a"]})
    assert retried.json == {"requeued": 1}
    url = {"url": "https://www.bilibili.com/video/BV1xx411c7mD/?spm=1"}
    given = [(await api.ask("POST", "/api/candidates", url)).json for _ in range(2)]
    expected = {"platform": "bilibili", "noteId": "BV1xx411c7mD"}
    assert given == [expected | {"created": True}, expected | {"created": False}]
    await api.ask("DELETE", "/api/notes/bilibili/BV1xx411c7mD")
    assert (await api.ask("POST", "/api/candidates", url)).json["created"] is False
    assert (await api.ask("POST", "/api/candidates", {"url": "ftp://x"})).json["errors"][0]["field"] == "url"


def test_address_names_its_note() -> None:
    """C30: as browsers show it; the token of Xiaohongshu is kept, and short links are refused with a hint."""
    token = "https://www.xiaohongshu.com/explore/64a0b1c2d3e4f5a6b7c8d9e0?xsec_token=AB=&x=1"
    expected = {
        "https://www.bilibili.com/video/BV1xx411c7mD": ("bilibili", "BV1xx411c7mD"),
        "https://m.bilibili.com/video/BV1xx411c7mD?p=2": ("bilibili", "BV1xx411c7mD"),
        "https://m.weibo.cn/status/4998765432101234": ("weibo", "4998765432101234"),
        "https://weibo.com/1234567890/NxYzAbCdE": ("weibo", "NxYzAbCdE"),
        token: ("xiaohongshu", "64a0b1c2d3e4f5a6b7c8d9e0"),
    }
    found = {url: find_note(url) for url in expected}
    assert {url: (note.platform, note.note_id) for url, note in found.items()} == expected
    assert found[token].url == token
    assert find_note("https://notbilibili.com/video/BV1xx411c7mD").platform == "web"
    for wrong in ("", "x", "javascript:alert(1)", "https://", "https://b23.tv/x", "https://bilibili.com/", token[:70]):
        with pytest.raises(NoteUrlError):
            find_note(wrong)


@pytest.mark.thorough
async def test_metrics_tell_how_collect_is(api: ApiStage) -> None:
    """C30, A37: candidates, tries by code, cookies, the oldest pending candidate, notes per keyword with few labels,
    and threads of comments."""
    collect = api.installation.collect
    await collect.keywords.add("weibo", "tea", comments=20)
    await fill(api)
    reading = await begin(collect.writer, "comments")
    assert len(await collect.comments.lease(reading, platform="weibo")) == 1
    many = [replace(make_note(f"k{n}", platform="weibo")) for n in range(60)]
    for number, note in enumerate(many):
        await store_notes(api.installation.collect.writer, [note], keyword=f"word {number}")
    text = (await api.ask("GET", "/metrics")).body.decode()
    for line in (
        'tidings_collect_candidates{platform="weibo",status="failed"} 1.0',
        'tidings_collect_candidates{platform="web",status="pending"} 1.0',
        'tidings_collect_tries_total{code="INVALID_INPUT",platform="weibo"} 1.0',
        'tidings_collect_tries_total{code="OK",platform="weibo"} 62.0',
        'tidings_collect_cookies{platform="weibo",status="active"} 1.0',
        'tidings_collect_comment_threads{platform="weibo",status="pending"} 1.0',
        'tidings_collect_comment_threads{platform="weibo",status="processing"} 1.0',
        'tidings_collect_notes{keyword="tea"} 2.0',
        'tidings_collect_notes{keyword=""} 11.0',
    ):
        assert line in text
    assert re.search(r'tidings_collect_oldest_pending_seconds\{platform="web"\} \d', text)
    assert text.count("tidings_collect_notes{") == 51
    assert "tidings_collector_failures_total 0.0" in text
