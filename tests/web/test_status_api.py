"""Monitoring over HTTP: status, pauses, statistics by day, alerts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.web.api_stage import BING_KEY, KEY, ApiStage, hold, open_api
from tidings.announce.ledger.batch_state import DayCount
from tidings.announce.ledger.ledger import Channel
from tidings.announce.ledger.statistics import DailyStatistics
from tidings.sandbox.engines.bing import INVALID_API_KEY
from tidings.sandbox.engines.indexnow import FORBIDDEN
from tidings.sandbox.wire.faults import Fault

pytestmark = pytest.mark.one_database

BING_OFF = "Bing submission is not enabled for this site; it needs bingApiKey"
AT_ONCE = 50
WITH_BING: dict[str, Any] = {"bingEnabled": True, "bingApiKey": BING_KEY}


async def count_today(api: ApiStage, channel: str = "indexnow") -> tuple[int, int]:
    """Total and successful of the last day."""
    numbers = (await api.read("/api/stats/daily?days=1"))["daily"][-1][channel]
    return numbers["total"], numbers["successful"]


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
        "baidu": {"enabled": False},
        "baiduQuota": None,
        "google": {"enabled": False},
        "googleQuota": None,
        "googleSitemaps": [],
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


@pytest.mark.both_databases
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
    """A33, A41: a site that is paused says so and has no next execution; the others go on."""
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


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["/status", "/trigger"])
async def test_site_has_to_be_named_where_there_are_several_or_none(api: ApiStage, target: str) -> None:
    """A33, A35: 404, as for one that is not there."""
    assert (await api.ask("GET", target)).status == 404
    await api.add_site(id="one")
    await api.add_site(id="two")
    answer = await api.ask("GET", target)
    assert (answer.status, "?site=ID" in answer.json["detail"]) == (404, True)
    assert (await api.ask("GET", f"{target}?site=three")).json["code"] == "unknown_site"


@pytest.mark.both_databases
async def test_days_without_work_are_reported_too_the_oldest_first(api: ApiStage) -> None:
    """A34: exactly this shape; of all sites together, or of one."""
    one = await api.add_site(id="one")
    await api.add_site(id="two")
    today = api.installation.clock.now().astimezone(UTC).date()
    days = [(today - timedelta(days=ago)).isoformat() for ago in (2, 1, 0)]
    database = api.installation.database
    async with database.write() as connection:
        for number, channel, total in ((1, Channel.INDEXNOW, 5), (2, Channel.INDEXNOW, 7), (2, Channel.BING, 3)):
            counts = DayCount(total, total - 1)
            await DailyStatistics(database, site=number, channel=channel).add(connection, counts, day=days[0])
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


@pytest.mark.thorough
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


@pytest.mark.thorough
async def test_url_that_two_engines_take_counts_once(sqlite_url: str, tmp_path: Path) -> None:
    """A34: also where one of them refuses it, and takes it later."""
    async with open_api(sqlite_url, tmp_path, engines=2) as api:
        await api.add_site()
        api.engines[1].misbehave(Fault(status=503))
        await api.run()
        assert await count_today(api) == (20, 20)
        api.engines[1].recover()
        await api.run()
        assert api.engines[1].accepted.total() == 20
        assert await count_today(api) == (20, 20)


@pytest.mark.thorough
async def test_url_that_changes_and_is_sent_twice_a_day_counts_once(api: ApiStage) -> None:
    """A12, A34."""
    await api.add_site(**WITH_BING)
    await api.run()
    api.web.change_many([1, 2])
    assert (await api.run())["changed"] == 2
    assert api.engine.accepted.total() == 22
    assert (await count_today(api), await count_today(api, "bing")) == ((20, 20), (20, 20))


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_alerts_show_what_needs_a_person_until_it_is_over(api: ApiStage) -> None:
    """A24: reason, count and what to do."""
    name = (await api.add_site())["id"]
    assert await api.read("/api/alerts") == {"alerts": []}
    api.engine.misbehave(Fault(status=503))
    await api.run()
    alerts = {alert["kind"]: alert for alert in (await api.read("/api/alerts"))["alerts"]}
    assert alerts.keys() == {"execution_failed", "many_failures"}
    many = alerts["many_failures"]
    assert many.keys() == {"kind", "level", "subject", "reason", "action", "count", "since", "firedAt"}
    assert many["subject"].startswith(f"{name} at ")
    assert (many["count"], many["reason"].startswith("20 of 20 URLs failed")) == (20, True)
    assert many["action"]
    assert many["since"] == many["firedAt"]
    assert len((await api.read("/api/alerts?limit=1"))["alerts"]) == 1
    api.engine.recover()
    await api.run()
    assert await api.read("/api/alerts") == {"alerts": []}
    assert KEY not in str(alerts)
