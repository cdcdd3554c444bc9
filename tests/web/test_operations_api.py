"""The daily work over HTTP: how a site stands, run it now, pause it, count what was done, and undo what was wrong."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from tests.web.api_stage import BING_KEY, KEY, ApiStage, hold, open_api
from tests.web.stage import ADMIN
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.statistics import daily_stats
from tidings.sandbox import Fault
from tidings.sandbox.engines.bing import INVALID_API_KEY
from tidings.sandbox.engines.indexnow import FORBIDDEN

pytestmark = pytest.mark.one_database

BING_OFF = "Bing submission is not enabled for this site"
AT_ONCE = 50
WITH_BING: dict[str, Any] = {"bingEnabled": True, "bingApiKey": BING_KEY}


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncIterator[ApiStage]:
    async with open_api(database_url, tmp_path) as opened:
        yield opened


async def count_today(api: ApiStage, channel: str = "indexnow") -> tuple[int, int]:
    """Total and successful of the last day told."""
    figures = (await api.read("/api/stats/daily?days=1"))["daily"][-1][channel]
    return figures["total"], figures["successful"]


# /status


async def test_status_of_a_site_that_never_ran(api: ApiStage) -> None:
    """A33: with Bing off, `bing` says that and nothing else."""
    name = (await api.add_site())["id"]
    status = await api.read(f"/status?site={name}")
    assert status.pop("nextRun").endswith("Z")
    assert status == {
        "status": "running",
        "siteId": name,
        "lastExecution": None,
        "executing": False,
        "execution": None,
        "bing": {"enabled": False},
        "bingQuota": None,
    }
    assert await api.read("/status") == await api.read(f"/status?site={name}")


async def test_status_of_bing_has_its_four_fields(api: ApiStage) -> None:
    """A33: used and remaining of today, and when it was last."""
    await api.add_site(**WITH_BING, bingDailyQuota=50)
    assert (await api.read("/status"))["bing"] == {
        "enabled": True,
        "todayQuotaUsed": 0,
        "todayQuotaRemaining": 50,
        "lastSubmission": None,
    }
    await api.run()
    bing = (await api.read("/status"))["bing"]
    assert datetime.fromisoformat(bing.pop("lastSubmission")) <= datetime.now(UTC)
    assert bing == {"enabled": True, "todayQuotaUsed": 20, "todayQuotaRemaining": 30}


async def test_status_shows_the_last_execution_beside_the_one_that_runs(api: ApiStage) -> None:
    """A33: `executing` while it runs, with how far it is."""
    await api.add_site()
    first = await api.run()
    api.web.change(1)
    async with hold(api.engine):
        running = await api.start_held()
        status = await api.read("/status")
        assert status["executing"] is True
        assert status["execution"]["executionId"] == running
        assert status["lastExecution"]["executionId"] == first["executionId"]
    await api.wait_for_end(status["siteId"], running)
    status = await api.read("/status")
    assert (status["executing"], status["execution"]) == (False, None)
    assert status["lastExecution"]["executionId"] == running


async def test_status_is_broken_with_a_reason_while_an_engine_refuses_the_key(api: ApiStage) -> None:
    """A22, A33: until the site is resumed, which tries the same key again."""
    name = (await api.add_site())["id"]
    api.engine.misbehave(FORBIDDEN)
    await api.run()
    status = await api.read("/status")
    assert status["status"] == "broken"
    assert "every engine refuses the key" in status["reason"]
    api.engine.recover()
    assert (await api.ask("POST", f"/api/sites/{name}/resume")).json == {"paused": False, "freed": 1}
    status = await api.read("/status")
    assert (status["status"], "reason" in status) == ("running", False)
    assert (await api.run())["submitted"] == 20


async def test_status_is_broken_while_bing_refuses_its_key(api: ApiStage) -> None:
    """A31, A33: IndexNow's half went through."""
    await api.add_site(**WITH_BING)
    api.bing.misbehave(INVALID_API_KEY)
    assert (await api.run())["status"] == "partial"
    status = await api.read("/status")
    assert (status["status"], status["reason"].startswith("Bing: ")) == ("broken", True)
    assert status["bing"].keys() == {"enabled", "todayQuotaUsed", "todayQuotaRemaining", "lastSubmission"}


async def test_pause_and_resume_of_one_site(api: ApiStage) -> None:
    """A33, A41: a site that is paused says so and has no next run; the others go on."""
    await api.add_site(id="one")
    await api.add_site(id="two")
    assert (await api.ask("POST", "/api/sites/one/pause")).json == {"paused": True, "freed": 0}
    one = await api.read("/status?site=one")
    assert (one["status"], one["nextRun"]) == ("paused", None)
    assert (await api.read("/status?site=two"))["status"] == "running"
    assert (await api.ask("POST", "/api/sites/one/resume")).json == {"paused": False, "freed": 0}
    one = await api.read("/status?site=one")
    assert (one["status"], one["nextRun"] is None) == ("running", False)


async def test_pause_and_resume_of_everything(api: ApiStage) -> None:
    """A33, A41: also a site that is paused by itself stays so."""
    await api.add_site(id="one")
    await api.add_site(id="two")
    await api.ask("POST", "/api/sites/two/pause")
    assert (await api.ask("POST", "/api/pause")).json == {"paused": True, "freed": 0}
    one = await api.read("/status?site=one")
    assert (one["status"], one["reason"], one["nextRun"]) == ("paused", "everything is paused", None)
    assert (await api.ask("POST", "/api/resume")).json == {"paused": False, "freed": 0}
    assert (await api.read("/status?site=one"))["status"] == "running"
    assert (await api.read("/status?site=two"))["status"] == "paused"


async def test_disabled_site_is_paused_with_its_reason(api: ApiStage) -> None:
    """A2, A33."""
    await api.add_site(enabled=False)
    status = await api.read("/status")
    assert (status["status"], status["reason"], status["nextRun"]) == ("paused", "the site is disabled", None)


@pytest.mark.parametrize("target", ["/status", "/trigger"])
async def test_site_has_to_be_named_where_there_are_several_or_none(api: ApiStage, target: str) -> None:
    """A33, A35: 404, as for one that is not there."""
    assert (await api.ask("GET", target)).status == 404
    await api.add_site(id="one")
    await api.add_site(id="two")
    answer = await api.ask("GET", target)
    assert (answer.status, "?site=ID" in answer.json["detail"]) == (404, True)
    assert (await api.ask("GET", f"{target}?site=three")).json["code"] == "unknown_site"


# /api/stats/daily


@pytest.mark.both_databases
async def test_days_without_work_are_told_too_the_oldest_first(api: ApiStage) -> None:
    """A34: exactly this shape; of all sites together, or of one."""
    one = await api.add_site(id="one")
    await api.add_site(id="two")
    today = api.installation.clock.now().astimezone(UTC).date()
    days = [(today - timedelta(days=ago)).isoformat() for ago in (2, 1, 0)]
    rows = [
        {"day": days[0], "site": number, "channel": channel.value, "total": total, "successful": total - 1}
        for number, channel, total in ((1, Channel.INDEXNOW, 5), (2, Channel.INDEXNOW, 7), (2, Channel.BING, 3))
    ]
    async with api.installation.database.write() as connection:
        await connection.execute(insert(daily_stats), rows)
    nothing = {"total": 0, "successful": 0}
    assert await api.read("/api/stats/daily?days=3") == {
        "daily": [
            {
                "date": days[0],
                "indexnow": {"total": 12, "successful": 10},
                "bing": {"total": 3, "successful": 2},
            },
            {"date": days[1], "indexnow": nothing, "bing": nothing},
            {"date": days[2], "indexnow": nothing, "bing": nothing},
        ]
    }
    of_one = await api.read(f"/api/stats/daily?days=3&site={one['id']}")
    assert of_one["daily"][0] == {"date": days[0], "indexnow": {"total": 5, "successful": 4}, "bing": nothing}
    week = await api.read("/api/stats/daily")
    assert [day["date"] for day in week["daily"]][-3:] == days
    assert len(week["daily"]) == 7
    assert (await api.ask("GET", "/api/stats/daily?site=none")).status == 404


@pytest.mark.both_databases
async def test_url_that_fails_and_is_sent_again_the_same_day_counts_once(api: ApiStage) -> None:
    """A34: first as attempted, then as successful; on both channels."""
    await api.add_site(**WITH_BING)
    api.engine.misbehave(Fault(status=503))
    api.bing.misbehave(Fault(status=503))
    await api.run()
    assert (await count_today(api), await count_today(api, "bing")) == ((20, 0), (20, 0))
    await api.run()
    assert (await count_today(api), await count_today(api, "bing")) == ((20, 0), (20, 0))
    api.engine.recover()
    api.bing.recover()
    await api.run()
    assert (await count_today(api), await count_today(api, "bing")) == ((20, 20), (20, 20))


async def test_url_that_two_engines_take_counts_once(database_url: str, tmp_path: Path) -> None:
    """A34: also where one of them refuses it, and takes it later."""
    async with open_api(database_url, tmp_path, engines=2) as api:
        await api.add_site()
        api.engines[1].misbehave(Fault(status=503))
        await api.run()
        assert await count_today(api) == (20, 20)
        api.engines[1].recover()
        await api.run()
        assert api.engines[1].accepted.total() == 20
        assert await count_today(api) == (20, 20)


async def test_url_that_changes_and_is_sent_twice_a_day_counts_once(api: ApiStage) -> None:
    """A12, A34."""
    await api.add_site(**WITH_BING)
    await api.run()
    api.web.change_many([1, 2])
    assert (await api.run())["changed"] == 2
    assert api.engine.accepted.total() == 22
    assert (await count_today(api), await count_today(api, "bing")) == ((20, 20), (20, 20))


# /trigger


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


async def test_trigger_that_waits_answers_with_the_result(api: ApiStage) -> None:
    """A35: 200, with what the history has of it."""
    name = (await api.add_site())["id"]
    answer = await api.ask("POST", "/trigger?wait=true")
    assert (answer.status, answer.json["status"], answer.json["siteId"]) == (200, "succeeded", name)
    recorded = await api.read_execution(name, answer.json["executionId"])
    assert recorded["result"] == answer.json["result"]


@pytest.mark.parametrize(
    ("channel", "indexnow", "bing"), [("all", 20, 20), ("indexnow", 20, 0), ("bing", 0, 20)], ids=str
)
async def test_trigger_runs_the_channels_that_are_named(api: ApiStage, channel: str, indexnow: int, bing: int) -> None:
    """A35: `bing` alone skips IndexNow."""
    await api.add_site(**WITH_BING)
    await api.run(channel=channel)
    assert (api.engine.accepted.total(), api.bing.accepted.total()) == (indexnow, bing)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_trigger_of_bing_on_a_site_without_it_is_refused(api: ApiStage, method: str) -> None:
    """A35: 400 with these words, and no execution."""
    name = (await api.add_site())["id"]
    answer = await api.ask(method, "/trigger?channel=bing")
    assert (answer.status, answer.json["detail"]) == (400, BING_OFF)
    assert (await api.read(f"/api/sites/{name}/executions"))["executions"] == []
    answer = await api.ask("POST", f"/api/sites/{name}/urls", {"urls": [api.web.url(1)], "channel": "bing"})
    assert (answer.status, answer.json["detail"]) == (400, BING_OFF)


async def test_unknown_channel_is_refused_with_those_there_are(api: ApiStage) -> None:
    """A35."""
    await api.add_site()
    answer = await api.ask("GET", "/trigger?channel=google")
    assert answer.status == 400
    assert answer.json["errors"] == [{"field": "channel", "message": "Input should be 'all', 'indexnow' or 'bing'"}]


async def test_run_in_progress_is_409_with_its_id(api: ApiStage) -> None:
    """A35, A39: whatever else would be done with the site's ledger, too."""
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


@pytest.mark.both_databases
async def test_of_many_triggers_at_once_one_runs(api: ApiStage) -> None:
    """A39, issue 4: 50 identical requests, one execution, 49 times its id; each URL is sent once."""
    name = (await api.add_site())["id"]
    async with hold(api.engine):
        answers = await asyncio.gather(*(api.ask("POST", "/trigger") for _ in range(AT_ONCE)))
        assert sorted(answer.status for answer in answers) == [202] + (AT_ONCE - 1) * [409]
        [execution] = {answer.json["executionId"] for answer in answers}
    await api.wait_for_end(name, execution)
    history = (await api.read(f"/api/sites/{name}/executions"))["executions"]
    assert [each["executionId"] for each in history] == [execution]
    assert dict(api.engine.accepted) == dict.fromkeys(api.web.urls(), 1)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_page_of_another_site_cannot_trigger(api: ApiStage, method: str) -> None:
    """Attack cases "Dashboard", A35: 403 even with a right token, and nothing runs."""
    name = (await api.add_site())["id"]
    answer = await api.ask(method, "/trigger", headers=[("Sec-Fetch-Site", "cross-site")])
    assert (answer.status, answer.json["code"]) == (403, "cross_site")
    assert (await api.read(f"/api/sites/{name}/executions"))["executions"] == []
    assert (await api.ask("GET", "/status", headers=[("Sec-Fetch-Site", "cross-site")])).status == 200


# the site's own token, and given URLs


async def test_sites_token_opens_its_own_trigger_and_urls_and_nothing_else(api: ApiStage) -> None:
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
    for method, target, document in (
        ("POST", f"/trigger?site={two}", None),
        ("GET", f"/trigger?site={two}", None),
        ("POST", f"/api/sites/{two}/urls", urls),
        ("GET", f"/status?site={one}", None),
        ("GET", f"/api/sites/{one}", None),
        ("PUT", f"/api/sites/{one}", {"enabled": False}),
        ("DELETE", f"/api/sites/{one}", None),
        ("POST", f"/api/sites/{one}/token", None),
        ("DELETE", f"/api/sites/{one}/token", None),
        ("GET", f"/api/sites/{one}/executions", None),
        ("POST", f"/api/sites/{one}/forget", {"since": "2026-01-01"}),
        ("POST", f"/api/sites/{one}/pause", None),
        ("POST", "/api/pause", None),
        ("GET", "/api/alerts", None),
        ("GET", "/metrics", None),
    ):
        answer = await api.ask(method, target, *([] if document is None else [document]), token=token)
        assert answer.status == 403, (method, target)
    assert (await api.read(f"/api/sites/{two}/executions"))["executions"] == []


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


async def test_given_urls_are_announced_now_and_nothing_else(api: ApiStage) -> None:
    """Issue 4, A7: on all channels; those of other hosts are dropped and counted."""
    name = (await api.add_site(**WITH_BING))["id"]
    given = [api.web.url(3), f"{api.web.origin}/not-in-the-sitemap", "https://elsewhere.example/"]
    answer = await api.ask("POST", f"/api/sites/{name}/urls", {"urls": given})
    assert (answer.status, answer.json["siteId"], answer.json["status"]) == (202, name, "running")
    ended = await api.wait_for_end(name, answer.json["executionId"])
    assert (ended["status"], ended["result"]["dropped"]["foreignHost"]) == ("succeeded", 1)
    assert dict(api.engine.accepted) == dict.fromkeys(given[:2], 1)
    assert dict(api.bing.accepted) == dict.fromkeys(given[:2], 1)
    assert not [each for each in api.web.requests if "sitemap" in each.path]
    answer = await api.ask("POST", f"/api/sites/{name}/urls", {"urls": given[:1], "channel": "indexnow"})
    await api.wait_for_end(name, answer.json["executionId"])
    assert (api.engine.accepted[given[0]], api.bing.accepted[given[0]]) == (2, 1)


# corrections and alerts


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


@pytest.mark.parametrize("since", ["yesterday", "", "2026-13-01", "1794764670127"])
async def test_moment_that_is_none_is_refused(api: ApiStage, since: str) -> None:
    """A36: nothing is forgotten by mistake."""
    name = (await api.add_site())["id"]
    await api.run()
    answer = await api.ask("POST", f"/api/sites/{name}/forget", {"since": since})
    assert (answer.status, answer.json["errors"][0]["field"]) == (400, "since")
    assert (await api.run())["new"] == 0


async def test_alerts_show_what_needs_a_person_until_it_is_over(api: ApiStage) -> None:
    """A24, issue 4: reason, count and what to do."""
    name = (await api.add_site())["id"]
    assert await api.read("/api/alerts") == {"alerts": []}
    api.engine.misbehave(Fault(status=503))
    await api.run()
    alerts = {alert["kind"]: alert for alert in (await api.read("/api/alerts"))["alerts"]}
    assert alerts.keys() == {"execution_failed", "many_failures"}
    many = alerts["many_failures"]
    assert many.keys() == {"kind", "subject", "reason", "action", "count", "since", "firedAt"}
    assert many["subject"].startswith(f"{name} at ")
    assert (many["count"], many["reason"].startswith("20 of 20 URLs failed")) == (20, True)
    assert many["action"]
    assert many["since"] == many["firedAt"]
    assert len((await api.read("/api/alerts?limit=1"))["alerts"]) == 1
    api.engine.recover()
    await api.run()
    assert await api.read("/api/alerts") == {"alerts": []}
    assert KEY not in str(alerts)
