"""Executions over HTTP: the history, live progress while one runs, and what failed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.web.api_stage import BING_KEY, ApiStage, hold, open_api, serve
from tests.web.stage import ADMIN, SOON
from tidings.sandbox.wire.faults import Fault

pytestmark = pytest.mark.one_database

HEADERS = {"Authorization": f"Bearer {ADMIN}"}
COUNTS = {"total", "new", "cached", "submitted", "failed", "engines", "bingStats", "errors", "durationMs"}


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_history_is_reported_page_by_page_the_newest_first(api: ApiStage) -> None:
    """A36, A37: each execution once; the last page says that it is the last."""
    name = (await api.add_site())["id"]
    made = [(await api.run())["executionId"] for _ in range(5)]
    seen: list[str] = []
    target = f"/api/sites/{name}/executions?limit=2"
    for _ in range(3):
        page = await api.read(target)
        seen += [each["executionId"] for each in page["executions"]]
        target = f"/api/sites/{name}/executions?limit=2&before={page['next']}"
    assert page["next"] is None
    assert seen == made[::-1]
    assert (await api.read(f"/api/sites/{name}/executions?limit=5"))["next"] is None


async def test_execution_is_kept_with_its_times_and_figures(api: ApiStage) -> None:
    """A37: counts, each engine's counts, Bing's, and errors; the list has the same as the one."""
    name = (await api.add_site(bingEnabled=True, bingApiKey=BING_KEY))["id"]
    result = await api.run()
    execution = await api.read_execution(name, result["executionId"])
    assert execution.keys() == {"executionId", "site", "status", "startedAt", "completedAt", "result"}
    assert (execution["site"], execution["status"]) == (name, "succeeded")
    assert execution["startedAt"] <= execution["completedAt"]
    assert execution["result"] == result
    assert result.keys() >= COUNTS
    assert {field: result[field] for field in ("total", "new", "cached", "submitted", "failed", "errors")} == {
        "total": 20,
        "new": 20,
        "cached": 0,
        "submitted": 20,
        "failed": 0,
        "errors": [],
    }
    [engine] = result["engines"]
    assert (engine["total"], engine["succeeded"], engine["failed"]) == (20, 20, 0)
    assert engine["meanResponseMs"] > 0
    expected = {"success": True, "urlCount": 20, "statusCode": 200, "errorCode": None, "errorMessage": None}
    assert expected.items() <= result["bingStats"].items()
    assert result["bingStats"]["timestamp"].endswith("Z")
    assert (await api.read(f"/api/sites/{name}/executions"))["executions"] == [execution]


@pytest.mark.thorough
async def test_error_of_bing_is_kept_in_its_words(api: ApiStage) -> None:
    """A31, A37: code and message, as an answer had them."""
    await api.add_site(bingEnabled=True, bingApiKey=BING_KEY)
    api.bing.misbehave(Fault(status=400, body='{"ErrorCode":14,"Message":"ERROR!!! NotAuthorized"}'))
    result = await api.run()
    shown = {field: result["bingStats"][field] for field in ("success", "urlCount", "statusCode", "errorMessage")}
    assert result["status"] == "partial"
    assert shown == {"success": False, "urlCount": 0, "statusCode": 400, "errorMessage": "ERROR!!! NotAuthorized"}
    assert str(result["bingStats"]["errorCode"]) == "14"


@pytest.mark.thorough
async def test_progress_can_be_read_while_it_runs(sqlite_url: str, tmp_path: Path) -> None:
    """A19, A36: what one engine has taken shows before the other has answered."""
    async with open_api(sqlite_url, tmp_path, engines=2) as api:
        name = (await api.add_site())["id"]
        async with hold(api.engine):
            running = await api.start_held()
            await api.engines[1].wait_for_requests(1)
            await api.engines[1].wait_until_idle()
            async with asyncio.timeout(SOON):
                while (state := await api.read_execution(name, running))["result"]["engines"][1]["succeeded"] == 0:
                    pass
            assert (state["status"], state["completedAt"]) == ("running", None)
            assert state["result"]["status"] == "running"
            assert [engine["succeeded"] for engine in state["result"]["engines"]] == [0, 20]
        ended = await api.wait_for_end(name, running)
        assert [engine["succeeded"] for engine in ended["result"]["engines"]] == [20, 20]


@pytest.mark.parametrize("path", ["", "/events"])
async def test_execution_of_another_site_is_not_shown(api: ApiStage, path: str) -> None:
    """A36: 404 before a stream begins, also where the site or the execution is unknown."""
    one, two = (await api.add_site(id="one"))["id"], (await api.add_site(id="two"))["id"]
    execution = (await api.run(site=one))["executionId"]
    assert (await api.ask("GET", f"/api/sites/{one}/executions/{execution}{path}")).status == 200
    for target, code in (
        (f"{two}/executions/{execution}", "unknown_execution"),
        (f"{one}/executions/exec-1-00000000", "unknown_execution"),
        (f"none/executions/{execution}", "unknown_site"),
    ):
        answer = await api.ask("GET", f"/api/sites/{target}{path}")
        assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")
        assert answer.json["code"] == code
    assert (await api.ask("GET", "/api/sites/none/executions")).status == 404


async def read_events(port: int, target: str, *, shown: asyncio.Queue[dict[str, Any]]) -> None:
    """Put every event of a stream into the queue, until the stream has its proper end."""
    timeout = aiohttp.ClientTimeout(total=SOON)
    async with (
        aiohttp.ClientSession(timeout=timeout, headers=HEADERS) as session,
        session.get(f"http://127.0.0.1:{port}{target}") as response,
    ):
        assert (response.status, response.content_type) == (200, "text/event-stream")
        async for line in response.content:
            if line.startswith(b"data:"):
                shown.put_nowait(json.loads(line.removeprefix(b"data:")))


@pytest.mark.thorough
async def test_execution_can_be_watched_to_its_end(api: ApiStage) -> None:
    """A36: server-sent events over a socket: how it stands now, each change, the result, and the end."""
    name = (await api.add_site())["id"]
    shown: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    async with serve(api) as port:
        async with hold(api.engine):
            running = await api.start_held()
            target = f"/api/sites/{name}/executions/{running}/events"
            watching = asyncio.create_task(read_events(port, target, shown=shown))
            first = await asyncio.wait_for(shown.get(), SOON)
            assert (first["executionId"], first["status"]) == (running, "running")
            assert shown.empty()
        await asyncio.wait_for(watching, SOON)
    events = [first, *(shown.get_nowait() for _ in range(shown.qsize()))]
    last = events.pop()
    assert all(event["status"] == "running" for event in events)
    assert (last["status"], last["result"]["submitted"]) == ("succeeded", 20)
    assert last == await api.read_execution(name, running)


@pytest.mark.thorough
async def test_watching_one_that_has_ended_tells_its_result_and_ends(api: ApiStage) -> None:
    """A36: one event."""
    name = (await api.add_site())["id"]
    execution = (await api.run())["executionId"]
    shown: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    async with serve(api) as port:
        await read_events(port, f"/api/sites/{name}/executions/{execution}/events", shown=shown)
    assert shown.qsize() == 1
    assert shown.get_nowait() == await api.read_execution(name, execution)


@pytest.mark.thorough
async def test_stream_ends_where_its_site_is_removed(api: ApiStage) -> None:
    """A36: the execution that runs is watched to its end all the same."""
    name = (await api.add_site())["id"]
    shown: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    async with serve(api) as port:
        async with hold(api.engine):
            running = await api.start_held()
            target = f"/api/sites/{name}/executions/{running}/events"
            watching = asyncio.create_task(read_events(port, target, shown=shown))
            await asyncio.wait_for(shown.get(), SOON)
            assert (await api.ask("DELETE", f"/api/sites/{name}")).status == 204
        await asyncio.wait_for(watching, SOON)
    last = [shown.get_nowait() for _ in range(shown.qsize())][-1]
    assert last["status"] == "succeeded"


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_failed_urls_are_listed_with_why_and_how_often(api: ApiStage) -> None:
    """A13, A36: on each channel; gone once they are taken."""
    name = (await api.add_site(bingEnabled=True, bingApiKey=BING_KEY))["id"]
    api.engine.misbehave(Fault(status=503))
    api.bing.misbehave(Fault(status=503))
    await api.run()
    failed = (await api.read(f"/api/sites/{name}/failed"))["failed"]
    assert {(each["channel"], each["url"]) for each in failed} == {
        (channel, url) for channel in ("indexnow", "bing") for url in api.web.urls()
    }
    for each in failed:
        assert each.keys() == {"url", "channel", "engine", "reason", "attempts", "failedAt"}
        assert (each["attempts"], "503" in each["reason"]) == (4, True)
        assert each["failedAt"].endswith("Z")
    assert len((await api.read(f"/api/sites/{name}/failed?limit=3"))["failed"]) == 6
    api.engine.recover()
    api.bing.recover()
    await api.run()
    assert await api.read(f"/api/sites/{name}/failed") == {"failed": []}
    assert (await api.ask("GET", "/api/sites/none/failed")).status == 404


@pytest.mark.thorough
async def test_an_execution_can_be_stopped_and_the_workers_are_listed(sqlite_url: str, tmp_path: Path) -> None:
    """A20, A36: it ends in good order, 409 after that; the list says who does it."""
    async with open_api(sqlite_url, tmp_path) as api:
        name = (await api.add_site(submitMethod="get"))["id"]
        async with hold(api.engine):
            running = await api.start_held()
            workers = (await api.read("/api/workers"))["workers"]
            stopped = await api.ask("POST", f"/api/sites/{name}/executions/{running}/stop")
        ended = await api.wait_for_end(name, running)
        again = await api.ask("POST", f"/api/sites/{name}/executions/{running}/stop")
        scraped = (await api.ask("GET", "/metrics")).body.decode()
    assert [(worker["jobs"], worker["queues"]) for worker in workers] == [(1, ["announce"])]
    assert (stopped.status, stopped.json["status"]) == (202, "stopping")
    assert (ended["status"], api.engine.accepted.total() < 20) == ("interrupted", True)
    assert (again.status, again.json["code"]) == (409, "not_running")
    assert "tidings_workers 1.0" in scraped
