"""Comments over HTTP: a driver such as n8n leases, crawls and settles pages; people read and export comments."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openpyxl  # type: ignore[import-untyped]
import pytest

from tests.collect.crawl_stage import session_of
from tests.collect.writer_stage import begin, make_note, store_notes
from tests.web.api_stage import ApiStage, open_api
from tests.web.stage import FIXED
from tidings.collect.comments import Comment
from tidings.collect.notes import Author
from tidings.collect.write.comments.stage import ReadComments
from tidings.collect.write.cookies import make_cookie
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.sandbox.media.weibo import SandboxWeibo, name_post
from tidings.settings.collect import CrawlSettings

pytestmark = pytest.mark.one_database

WORKFLOW = FIXED[Scope.WORKFLOW].reveal()
NOTE = name_post(3)
TEXTS = ["=1+1", "第二条", "第三条"]


@pytest.fixture
async def weibo() -> AsyncIterator[SandboxWeibo]:
    async with SandboxWeibo(sessions=[session_of("one")]) as running:
        yield running


@pytest.fixture
async def api(database_url: str, tmp_path: Path, weibo: SandboxWeibo) -> AsyncIterator[ApiStage]:
    crawl = CrawlSettings(base_urls={"weibo": weibo.origin})
    async with open_api(database_url, tmp_path, tokens=FIXED, crawl=crawl) as opened:
        collect = opened.installation.collect
        secret = Secret(f"SUB={session_of('one')}; _T_WM=device")
        await collect.cookies.add(make_cookie("one", platform="weibo", secret=secret))
        await store_notes(collect.writer, [make_note(NOTE, platform="weibo")])
        yield opened


async def post(api: ApiStage, path: str, **body: Any) -> Any:
    answer = await api.ask("POST", path, body, token=WORKFLOW)
    assert answer.status == 200, answer.body
    return answer.json["data"]


async def test_a_driver_reads_comments_with_leases(api: ApiStage) -> None:
    """C19, C30, C32: POST /api/keywords asks for them; lease, crawl, settle, until nothing is due."""
    asked = {"platform": "weibo", "keyword": "tea", "comments": 30}
    added = await api.ask("POST", "/api/keywords", asked)
    assert (added.status, added.json["keyword"]["comments"]) == (201, 30)
    status = await api.read("/api/collect/status")
    assert status["comments"] == {"weibo": {"pending": 1, "processing": 0, "failed": 0}}
    execution = (await post(api, "/workflow/executions", workflow_name="mine"))["execution_id"]
    actions = []
    for _ in range(5):
        leased = await post(api, "/workflow/comments/lease", execution_id=execution)
        if not leased["records"]:
            break
        [thread] = leased["records"]
        named = {"platform": "weibo", "note_id": thread["note_id"], "url": thread["note_url"]}
        answer = await api.ask("POST", "/crawler/comments", {**named, "cursor": thread["cursor"]}, token=WORKFLOW)
        item = {
            "note_id": thread["note_id"],
            **{name: answer.json[name] for name in ("success", "data", "error")},
            "cookie_used": answer.json["meta"]["cookie_used"],
        }
        body = {"execution_id": execution, "platform": "weibo", "items": [item]}
        settled = await post(api, "/workflow/comments/settle", **body)
        actions += [(each["action"], each["stored"], each["created"]) for each in settled["items"]]
        [again] = (await post(api, "/workflow/comments/settle", **body))["items"]
        assert again["action"] == "lost"
    assert actions == [("more", 25, 25), ("done", 5, 5)]
    page = await api.read(f"/api/notes/weibo/{NOTE}/comments?limit=20")
    rest = await api.read(f"/api/notes/weibo/{NOTE}/comments?limit=20&cursor={page['next']}")
    assert (page["total"], len(page["comments"]), len(rest["comments"]), rest["next"]) == (30, 20, 10, None)
    assert page["comments"][0]["author"]["name"].endswith("***")
    [cookie] = (await api.read("/api/cookies"))["cookies"]
    assert cookie["dailyUsed"] == 2


async def test_a_note_id_of_any_characters_is_answered_as_described(api: ApiStage) -> None:
    """C28: a line end in a note's id, which any client may send, leads to the same routes as every other id."""
    page = await api.read("/api/notes/weibo/a%0Ab/comments")
    assert (page["total"], page["comments"]) == (0, [])
    answer = await api.ask("GET", "/api/notes/weibo/a%0Ab", token=WORKFLOW)
    assert (answer.status, answer.json["code"]) == (404, "unknown_note")


async def test_comments_that_cannot_be_read_or_are_too_many_are_refused(api: ApiStage) -> None:
    """C32: when the keyword is added, and nothing is watched."""
    asked = {"platform": "web", "keyword": "https://example.com/feed.xml tea", "comments": 5}
    refused = await api.ask("POST", "/api/keywords", asked)
    assert (refused.status, b"comments of web cannot be collected" in refused.body) == (400, True)
    many = await api.ask("POST", "/api/keywords", {"platform": "weibo", "keyword": "tea", "comments": 1_001})
    assert many.status == 400
    assert (await api.read("/api/keywords"))["keywords"] == []


async def store_some(api: ApiStage) -> None:
    collect = api.installation.collect
    await collect.keywords.add("weibo", "tea", comments=10)
    execution = await begin(collect.writer, "mine")
    await collect.comments.lease(execution)
    found = [
        Comment(comment_id=str(number), text=text, author=Author(author_id="7", name="张三"))
        for number, text in enumerate(TEXTS)
    ]
    await collect.comments.settle(execution, "weibo", [ReadComments(note_id=NOTE, comments=found, cursor=None)])
    await collect.writer.finish(execution)


async def test_comments_and_snapshots_are_exported(api: ApiStage, tmp_path: Path) -> None:
    """C28, C32: alone as CSV, as sheets of their own in XLSX, within their note in JSONL; no cell is a formula."""
    await store_some(api)
    csv = (await api.ask("GET", "/api/notes/export?format=csv&of=comments")).body.decode("utf-8-sig").splitlines()
    assert csv[0].startswith("platform,note_id,comment_id,parent_id,text,author_id")
    assert [line.split(",")[4] for line in csv[1:]] == ["'=1+1", "第二条", "第三条"]
    assert all("张***" in line for line in csv[1:])
    answer = await api.ask("GET", "/api/notes/export?format=xlsx&of=all")
    path = tmp_path / "all.xlsx"
    path.write_bytes(answer.body)
    book = openpyxl.load_workbook(path)
    assert book.sheetnames == ["notes", "comments", "snapshots"]
    rows = list(book["comments"].iter_rows(min_row=2))
    assert [row[4].value for row in rows] == TEXTS
    assert {cell.data_type for row in rows for cell in row if cell.value is not None} <= {"s", "n"}
    [line] = (await api.ask("GET", "/api/notes/export?of=all")).body.splitlines()
    note = json.loads(line)
    assert [each["text"] for each in note["comments"]] == TEXTS
    assert note["snapshots"] == []
    refused = await api.ask("GET", "/api/notes/export?format=csv&of=all")
    assert (refused.status, b"one table" in refused.body) == (400, True)
