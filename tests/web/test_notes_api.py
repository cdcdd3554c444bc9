"""Collected notes over HTTP: list, search, read, export, delete; who may do it, and what bad input is answered with."""

import csv
import io
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import openpyxl  # type: ignore[import-untyped]
import pytest

from tests.collect.writer_stage import make_note, store_notes
from tests.web.api_stage import ApiStage, open_api
from tests.web.stage import FIXED
from tidings.collect.notes import Counts
from tidings.core.secrets.scopes import Scope

pytestmark = pytest.mark.one_database

WORKFLOW = FIXED[Scope.WORKFLOW].reveal()
CRAWL = FIXED[Scope.CRAWL].reveal()
TITLES = {"a": "手冲咖啡", "b": "茶馆", "c/d": "=咖啡豆"}


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncIterator[ApiStage]:
    async with open_api(database_url, tmp_path, tokens=FIXED) as opened:
        yield opened


@pytest.fixture
async def filled(api: ApiStage) -> ApiStage:
    notes = [make_note(note_id, platform="weibo", title=title) for note_id, title in TITLES.items()]
    await store_notes(api.installation.collect.writer, notes)
    return api


async def test_notes_are_listed_page_by_page_and_searched(filled: ApiStage) -> None:
    """C28: GET /api/notes, with the filters and a cursor."""
    first = await filled.read("/api/notes?limit=2&platform=weibo")
    rest = await filled.read(f"/api/notes?limit=2&platform=weibo&cursor={first['next']}")
    assert [each["note_id"] for each in first["notes"] + rest["notes"]] == ["c/d", "b", "a"]
    assert rest["next"] is None
    found = await filled.read(f"/api/notes?q={quote('咖啡')}&keyword=tea&since=2020-01-01")
    assert [each["title"] for each in found["notes"]] == ["=咖啡豆", "手冲咖啡"]
    assert (await filled.read("/api/notes?until=2020-01-01"))["notes"] == []
    answer = await filled.read("/api/notes/weibo/c/d")
    one = answer["note"]
    assert (one["title"], one["keyword"], one["idempotency_key"]) == ("=咖啡豆", "tea", "c/d_v1")
    assert datetime.fromisoformat(one["collected_at"]).tzinfo == UTC
    assert [each["version"] for each in answer["versions"]] == [1]


async def test_a_note_shows_its_counts_over_time(api: ApiStage) -> None:
    """C32: GET /api/notes/{platform}/{note_id}."""
    await store_notes(api.installation.collect.writer, [replace(make_note("n1"), counts=Counts(views=5, likes=2))])
    [snapshot] = (await api.read("/api/notes/bilibili/n1"))["snapshots"]
    assert datetime.fromisoformat(snapshot.pop("taken_at")).tzinfo == UTC
    assert {name: value for name, value in snapshot.items() if value is not None} == {"views": 5, "likes": 2}


async def test_notes_are_exported_in_three_formats(filled: ApiStage) -> None:
    """C28: GET /api/notes/export, as a file to save."""
    expected = list(TITLES.values())
    answers = {name: await filled.ask("GET", f"/api/notes/export?format={name}") for name in ("jsonl", "csv", "xlsx")}
    for name, answer in answers.items():
        assert answer.status == 200
        assert f".{name}" in answer.headers["content-disposition"]
    rows = csv.DictReader(io.StringIO(answers["csv"].body.decode("utf-8-sig"), newline=""))
    assert [row["title"] for row in rows] == ["手冲咖啡", "茶馆", "'=咖啡豆"]
    sheet = openpyxl.load_workbook(io.BytesIO(answers["xlsx"].body))["notes"]
    assert [row[4] for row in sheet.iter_rows(min_row=2, values_only=True)] == expected
    some = await filled.ask("GET", f"/api/notes/export?q={quote('茶馆')}")
    assert some.body.count(b"\n") == 1


@pytest.mark.thorough
async def test_note_is_deleted_by_an_admin_alone(filled: ApiStage) -> None:
    """C28, design 8: the workflow token reads; the crawl token does neither."""
    assert (await filled.ask("GET", "/api/notes/weibo/a", token=WORKFLOW)).status == 200
    assert (await filled.ask("GET", "/api/notes", token=CRAWL)).status == 403
    assert (await filled.ask("DELETE", "/api/notes/weibo/a", token=WORKFLOW)).status == 403
    assert (await filled.ask("DELETE", "/api/notes/weibo/a")).status == 204
    for method in ("GET", "DELETE"):
        status = (await filled.ask(method, "/api/notes/weibo/none")).status
        assert status == 404
    assert (await filled.ask("GET", "/api/notes/weibo/a")).status == 404


@pytest.mark.thorough
@pytest.mark.parametrize("query", ["limit=0", "limit=501", "cursor=x", "since=soon", "kind=poem", "wrong=1"])
async def test_bad_input_is_named(api: ApiStage, query: str) -> None:
    """C28, A33: each parameter has its rule."""
    answer = await api.ask("GET", f"/api/notes?{query}")
    assert (answer.status, answer.json["errors"][0]["field"]) == (400, query.partition("=")[0])
