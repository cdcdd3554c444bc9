"""Executions started over HTTP, by an admin or with a site's own token, and corrections of the ledger."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.web.api_stage import BING_KEY, ApiStage, hold
from tests.web.stage import ADMIN

pytestmark = pytest.mark.one_database

BING_OFF = "Bing submission is not enabled for this site; it needs bingApiKey"
AT_ONCE = 50
WITH_BING: dict[str, Any] = {"bingEnabled": True, "bingApiKey": BING_KEY}


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_trigger_answers_at_once_with_the_executions_id(api: ApiStage, method: str) -> None:
    """A35: 202; the execution goes on by itself."""
    name = (await api.add_site())["id"]
    answer = await api.ask(method, f"/trigger?site={name}")
    execution = answer.json["executionId"]
    assert answer.status == 202
    assert answer.json == {"executionId": execution, "siteId": name, "status": "running", "result": None}
    assert (await api.wait_for_end(name, execution))["status"] == "succeeded"
    assert dict(api.engine.accepted) == dict.fromkeys(api.web.urls(), 1)


@pytest.mark.thorough
async def test_trigger_that_waits_answers_with_the_result(api: ApiStage) -> None:
    """A35: 200, with what the history has of it."""
    name = (await api.add_site())["id"]
    answer = await api.ask("POST", "/trigger?wait=true")
    assert (answer.status, answer.json["status"], answer.json["siteId"]) == (200, "succeeded", name)
    recorded = await api.read_execution(name, answer.json["executionId"])
    assert recorded["result"] == answer.json["result"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("channel", "indexnow", "bing"), [("all", 20, 20), ("indexnow", 20, 0), ("bing", 0, 20)], ids=str
)
async def test_trigger_runs_the_channels_that_are_named(api: ApiStage, channel: str, indexnow: int, bing: int) -> None:
    """A35: `bing` alone skips IndexNow."""
    await api.add_site(**WITH_BING)
    await api.run(channel=channel)
    assert (api.engine.accepted.total(), api.bing.accepted.total()) == (indexnow, bing)


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_trigger_of_bing_on_a_site_without_it_is_refused(api: ApiStage, method: str) -> None:
    """A35: 400 with these words, and no execution."""
    name = (await api.add_site())["id"]
    answer = await api.ask(method, "/trigger?channel=bing")
    assert (answer.status, answer.json["detail"]) == (400, BING_OFF)
    assert (await api.read(f"/api/sites/{name}/executions"))["executions"] == []
    answer = await api.ask("POST", f"/api/sites/{name}/urls", {"urls": [api.web.url(1)], "channel": "bing"})
    assert (answer.status, answer.json["detail"]) == (400, BING_OFF)


@pytest.mark.thorough
async def test_unknown_channel_is_refused_with_those_there_are(api: ApiStage) -> None:
    """A35."""
    await api.add_site()
    answer = await api.ask("GET", "/trigger?channel=yahoo")
    assert answer.status == 400
    assert answer.json["errors"] == [
        {"field": "channel", "message": "Input should be 'all', 'indexnow', 'bing', 'baidu' or 'google'"}
    ]


@pytest.mark.thorough
async def test_run_in_progress_is_409_with_its_id(api: ApiStage) -> None:
    """A35, A39: for every other change of the site's ledger, too."""
    name = (await api.add_site())["id"]
    async with hold(api.engine):
        running = await api.start_held()
        for method, target, document in (
            ("GET", "/trigger", None),
            ("POST", "/trigger?wait=true", None),
            ("POST", f"/api/sites/{name}/urls", {"urls": [api.web.url(1)]}),
            ("POST", f"/api/sites/{name}/requeue", {"urls": [api.web.url(1)]}),
            ("POST", f"/api/sites/{name}/forget", {"since": "2026-01-01"}),
        ):
            answer = await api.ask(method, target, *([] if document is None else [document]))
            assert (answer.status, answer.json["code"]) == (409, "already_running"), target
            assert answer.json["executionId"] == running
    assert (await api.wait_for_end(name, running))["status"] == "succeeded"


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_of_many_triggers_at_once_one_runs(api: ApiStage) -> None:
    """A39: 50 identical requests, one execution, 49 times its id; each URL is sent once."""
    name = (await api.add_site())["id"]
    async with hold(api.engine):
        answers = await asyncio.gather(*(api.ask("POST", "/trigger") for _ in range(AT_ONCE)))
        assert sorted(answer.status for answer in answers) == [202] + (AT_ONCE - 1) * [409]
        [execution] = {answer.json["executionId"] for answer in answers}
    await api.wait_for_end(name, execution)
    history = (await api.read(f"/api/sites/{name}/executions"))["executions"]
    assert [each["executionId"] for each in history] == [execution]
    assert dict(api.engine.accepted) == dict.fromkeys(api.web.urls(), 1)


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_page_of_another_site_cannot_trigger(api: ApiStage, method: str) -> None:
    """Attack cases "Dashboard", A35: 403 even with a right token, and nothing runs."""
    name = (await api.add_site())["id"]
    answer = await api.ask(method, "/trigger", headers=[("Sec-Fetch-Site", "cross-site")])
    assert (answer.status, answer.json["code"]) == (403, "cross_site")
    assert (await api.read(f"/api/sites/{name}/executions"))["executions"] == []
    assert (await api.ask("GET", "/status", headers=[("Sec-Fetch-Site", "cross-site")])).status == 200


@pytest.mark.thorough
async def test_sites_token_opens_its_own_trigger_urls_and_history_and_nothing_else(api: ApiStage) -> None:
    """A35, design 8: for CI/CD; shown once, by nobody else."""
    one, two = (await api.add_site(id="one"))["id"], (await api.add_site(id="two"))["id"]
    made = await api.ask("POST", f"/api/sites/{one}/token")
    assert (made.status, made.json.keys()) == (201, {"token"})
    token = made.json["token"]
    answer = await api.ask("POST", f"/trigger?site={one}&wait=true", token=token)
    assert (answer.status, answer.json["result"]["submitted"]) == (200, 20)
    urls = {"urls": [api.web.url(1)]}
    answer = await api.ask("POST", f"/api/sites/{one}/urls", urls, token=token)
    assert answer.status == 202
    await api.wait_for_end(one, answer.json["executionId"])
    for target in (f"/status?site={one}", f"/api/sites/{one}/executions"):
        assert (await api.ask("GET", target, token=token)).status == 200
    for method, target, document in (
        ("POST", f"/trigger?site={two}", None),
        ("GET", f"/trigger?site={two}", None),
        ("POST", f"/api/sites/{two}/urls", urls),
        ("GET", f"/status?site={two}", None),
        ("GET", f"/api/sites/{one}", None),
        ("PUT", f"/api/sites/{one}", {"enabled": False}),
        ("DELETE", f"/api/sites/{one}", None),
        ("POST", f"/api/sites/{one}/token", None),
        ("DELETE", f"/api/sites/{one}/token", None),
        ("GET", f"/api/sites/{two}/executions", None),
        ("POST", f"/api/sites/{one}/forget", {"since": "2026-01-01"}),
        ("POST", f"/api/sites/{one}/pause", None),
        ("POST", "/api/pause", None),
        ("GET", "/api/alerts", None),
        ("GET", "/metrics", None),
    ):
        answer = await api.ask(method, target, *([] if document is None else [document]), token=token)
        assert answer.status == 403, (method, target)
    assert (await api.read(f"/api/sites/{two}/executions"))["executions"] == []


@pytest.mark.thorough
async def test_revoked_token_stops_at_once(api: ApiStage) -> None:
    """Design 8: also one that was just used, one that was replaced, and that of a site that is gone."""
    name = (await api.add_site())["id"]
    first = (await api.ask("POST", f"/api/sites/{name}/token")).json["token"]
    assert (await api.ask("POST", "/trigger?wait=true", token=first)).status == 200
    second = (await api.ask("POST", f"/api/sites/{name}/token")).json["token"]
    assert (await api.ask("POST", "/trigger", token=first)).status == 401
    assert (await api.ask("POST", "/trigger?wait=true", token=second)).status == 200
    answer = await api.ask("DELETE", f"/api/sites/{name}/token")
    assert (answer.status, answer.body) == (204, b"")
    assert (await api.ask("POST", "/trigger", token=second)).status == 401
    assert (await api.ask("DELETE", f"/api/sites/{name}/token")).json["code"] == "no_token"
    third = (await api.ask("POST", f"/api/sites/{name}/token")).json["token"]
    await api.ask("DELETE", f"/api/sites/{name}")
    await api.add_site()
    assert (await api.ask("POST", "/trigger", token=third)).status == 401
    assert (await api.ask("POST", "/trigger?wait=true", token=ADMIN)).status == 200


@pytest.mark.thorough
async def test_given_urls_are_announced_now_and_nothing_else(api: ApiStage) -> None:
    """A37: on all channels; those of other hosts are dropped and counted, and all is not well then."""
    name = (await api.add_site(**WITH_BING))["id"]
    given = [api.web.url(3), f"{api.web.origin}/not-in-the-sitemap", "https://elsewhere.example/"]
    answer = await api.ask("POST", f"/api/sites/{name}/urls", {"urls": given})
    assert (answer.status, answer.json["siteId"], answer.json["status"]) == (202, name, "running")
    ended = await api.wait_for_end(name, answer.json["executionId"])
    assert (ended["status"], ended["result"]["dropped"]["foreignHost"]) == ("partial", 1)
    assert dict(api.engine.accepted) == dict.fromkeys(given[:2], 1)
    assert dict(api.bing.accepted) == dict.fromkeys(given[:2], 1)
    assert not [each for each in api.web.requests if "sitemap" in each.path]
    answer = await api.ask("POST", f"/api/sites/{name}/urls", {"urls": given[:1], "channel": "indexnow"})
    await api.wait_for_end(name, answer.json["executionId"])
    assert (api.engine.accepted[given[0]], api.bing.accepted[given[0]]) == (2, 1)


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_requeued_urls_are_sent_again(api: ApiStage) -> None:
    """A36: these and no others, on the channel that is named."""
    name = (await api.add_site(**WITH_BING))["id"]
    await api.run()
    urls = [api.web.url(1), api.web.url(2), f"{api.web.origin}/never-sent"]
    answer = await api.ask("POST", f"/api/sites/{name}/requeue", {"urls": urls, "channel": "indexnow"})
    assert (answer.status, answer.json) == (200, {"forgotten": 2})
    await api.run()
    assert {url for url, times in api.engine.accepted.items() if times == 2} == set(urls[:2])
    assert set(api.bing.accepted.values()) == {1}


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_forgotten_run_is_made_again(api: ApiStage) -> None:
    """A36, A41: what was announced since then, on one channel or all; what came before stays."""
    name = (await api.add_site(**WITH_BING))["id"]
    await api.run()
    since = api.installation.clock.now() + timedelta(milliseconds=1)
    target = f"/api/sites/{name}/forget"
    answer = await api.ask("POST", target, {"since": since.isoformat()})
    assert (answer.status, answer.json) == (200, {"forgotten": 0})
    answer = await api.ask("POST", target, {"since": "2026-01-01", "channel": "bing"})
    assert answer.json == {"forgotten": 20}
    await api.run()
    assert (set(api.engine.accepted.values()), set(api.bing.accepted.values())) == ({1}, {2})
    assert (await api.ask("POST", target, {"since": "2026-01-01T00:00:00+02:00"})).json == {"forgotten": 40}


@pytest.mark.thorough
@pytest.mark.parametrize("since", ["yesterday", "", "2026-13-01", "1794764670127"])
async def test_moment_that_is_none_is_refused(api: ApiStage, since: str) -> None:
    """A36: nothing is forgotten by mistake."""
    name = (await api.add_site())["id"]
    await api.run()
    answer = await api.ask("POST", f"/api/sites/{name}/forget", {"since": since})
    assert (answer.status, answer.json["errors"][0]["field"]) == (400, "since")
    assert (await api.run())["new"] == 0
