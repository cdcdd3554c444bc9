"""Tokens that only read: of all sites, or of one group. The overview that they read, and the dashboard."""

from typing import Any

import pytest

from tests.web.api_stage import BING_KEY, ApiStage
from tests.web.pages.browser import Browser
from tidings.core.secrets.scopes import Scope

pytestmark = pytest.mark.one_database


async def make_viewer(api: ApiStage, group: str | None = None) -> str:
    return (await api.installation.tokens.make(Scope.VIEWER, name=f"for {group}", group=group)).reveal()


async def add_fleet(api: ApiStage) -> None:
    for name, group in (("one", "acme"), ("two", "acme"), ("three", None)):
        await api.add_site(id=name, group=group)


async def read_ids(api: ApiStage, target: str, token: str) -> list[str]:
    answer = await api.ask("GET", target, token=token)
    assert answer.status == 200, answer.body
    return [site["id"] for site in answer.json["sites"]]


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_the_overview_has_a_page_of_sites_with_their_condition(api: ApiStage) -> None:
    """A33: condition, last execution and quota of each site in one request; filters, order and pages."""
    await add_fleet(api)
    assert (await api.run(site="one"))["status"] == "succeeded"
    answer = await api.read("/api/overview?order=name")
    assert (answer["total"], answer["found"], answer["conditions"]) == (3, 3, {"new": 2, "ok": 1})
    site: dict[str, Any] = answer["sites"][0]
    assert (site["id"], site["group"], site["condition"], site["submitted"]) == ("one", "acme", "ok", 20)
    assert (site["channels"], site["quotas"], site["lastStatus"]) == (["indexnow"], {}, "succeeded")
    names = [site["id"] for site in (await api.read("/api/overview?group=acme&order=name&limit=1&offset=1"))["sites"]]
    assert names == ["two"]
    assert [site["id"] for site in (await api.read("/api/overview?condition=ok"))["sites"]] == ["one"]


async def test_a_viewer_reads_and_changes_nothing(api: ApiStage) -> None:
    """A33, A36: all that announce shows, without its keys; no run, no change, nothing of collect or the system."""
    await add_fleet(api)
    token = await make_viewer(api)
    assert await read_ids(api, "/api/overview?order=name", token) == ["one", "three", "two"]
    for target in ("/status?site=one", "/api/sites/one", "/api/sites/one/executions", "/api/sites/one/failed"):
        assert (await api.ask("GET", target, token=token)).status == 200, target
    for target in ("/api/stats/daily", "/api/alerts", "/api/sites"):
        assert (await api.ask("GET", target, token=token)).status == 200, target
    for method, target in (
        ("POST", "/trigger?site=one"),
        ("GET", "/trigger?site=one"),
        ("PUT", "/api/sites/one"),
        ("DELETE", "/api/sites/one"),
        ("POST", "/api/sites/one/pause"),
        ("POST", "/api/sites/one/token"),
        ("GET", "/api/notes"),
        ("GET", "/api/workers"),
        ("GET", "/metrics"),
    ):
        body = ({"enabled": False},) if method == "PUT" else ()
        assert (await api.ask(method, target, *body, token=token)).status == 403, target


@pytest.mark.thorough
async def test_a_viewer_of_one_group_sees_no_other(api: ApiStage) -> None:
    """A33: lists are filtered; another site, and what is about all sites, is refused."""
    await add_fleet(api)
    token = await make_viewer(api, "acme")
    assert await read_ids(api, "/api/overview?order=name", token) == ["one", "two"]
    assert await read_ids(api, "/api/sites", token) == ["one", "two"]
    assert (await api.ask("GET", "/status?site=one", token=token)).status == 200
    for target in (
        "/status?site=three",
        "/api/sites/three",
        "/api/sites/three/executions",
        "/api/sites/three/failed",
        "/api/sites/three/ledger?url=https://three.example/",
        "/api/overview?group=other",
        "/api/stats/daily",
        "/api/alerts",
    ):
        answer = await api.ask("GET", target, token=token)
        assert (answer.status, answer.json["code"]) == (403, "other_group"), target


async def test_an_unknown_group_is_named_as_such(api: ApiStage) -> None:
    """A33: a typing error must not look like a group without sites."""
    none = await api.ask("GET", "/api/overview?group=acme")
    await add_fleet(api)
    answer = await api.ask("GET", "/api/overview?group=amce")
    assert (none.status, none.json["code"]) == (404, "unknown_group")
    assert (answer.status, answer.json["code"]) == (404, "unknown_group")
    assert answer.json["detail"] == "there is no such group; the groups are: acme"


@pytest.mark.thorough
async def test_the_dashboard_shows_a_viewer_its_sites_and_no_buttons(api: ApiStage) -> None:
    """A33: the pages of a group's sites without their forms; other sites and pages are not there."""
    await add_fleet(api)
    browser = Browser(api)
    await browser.sign_in(await make_viewer(api, "acme"))
    listed = await browser.get("/sites")
    assert ("/sites/one" in listed.text, "/sites/three" in listed.text) == (True, False)
    assert "/sites/new" not in listed.text
    page = await browser.get("/sites/one")
    assert (page.status, "/sites/one/run" in page.text, "/sites/one/settings" in page.text) == (200, False, False)
    for target, status in (("/sites/three", 404), ("/sites/one/settings", 403), ("/alerts", 403), ("/cookies", 403)):
        assert (await browser.get(target)).status == status, target


@pytest.mark.thorough
async def test_bing_is_asked_for_its_quota_once_a_day(api: ApiStage) -> None:
    """A32: with bingDailyQuota "auto" Bing's own number counts, above the 500 that can be set; one question a day."""
    api.bing.daily_quota = 700
    site = await api.add_site(bingEnabled=True, bingApiKey=BING_KEY, bingDailyQuota="auto")
    assert site["bingDailyQuota"] == "auto"
    assert (await api.run())["bingStats"]["quota"]["limit"] == 700
    await api.run()
    assert [request.method for request in api.bing.requests].count("GET") == 1
    quota = (await api.read("/status"))["bing"]
    assert (quota["todayQuotaUsed"], quota["todayQuotaRemaining"]) == (20, 680)
    overview = (await api.read("/api/overview"))["sites"][0]
    assert overview["quotas"] == {"bing": {"used": 20, "limit": 700, "full": False}}
    metrics = (await api.ask("GET", "/metrics")).text
    assert 'quota_left{channel="bing"} 680.0' in metrics
