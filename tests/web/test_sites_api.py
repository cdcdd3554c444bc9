"""Sites over HTTP: set up, listed, read, changed and removed, with their keys kept to themselves."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import select, text

from tests.announce.test_site_documents import ACCOUNT, DEFAULTS
from tests.web.api_stage import BING_KEY, KEY, MASK, ApiStage, open_api
from tidings.announce.site.table import sites
from tidings.core.db.database import metadata
from tidings.core.secrets.secret import Secret
from tidings.settings.site import SiteSettings

pytestmark = pytest.mark.one_database

OTHER_KEY = "another-key-2b9e4d10"
REQUIRED = "bingApiKey is required when bingEnabled is true"


async def change(api: ApiStage, site: str, **fields: Any) -> dict[str, Any]:
    answer = await api.ask("PUT", f"/api/sites/{site}", fields)
    assert answer.status == 200, answer.body
    changed: dict[str, Any] = answer.json["site"]
    return changed


async def dump(api: ApiStage) -> str:
    """All that the database holds, as text."""
    async with api.installation.database.read() as connection:
        tables = [(await connection.execute(select(table))).all() for table in metadata.sorted_tables]
    return repr(tables)


async def test_new_site_is_answered_with_every_field_and_its_default(api: ApiStage) -> None:
    """A2, A3, A4: the names of the API, the id from the host, keys masked, also within keyLocation."""
    answer = await api.ask("POST", "/api/sites", {"sitemapUrl": api.web.sitemap_url, "indexnowKey": KEY})
    host = api.web.origin.removeprefix("http://")
    assert answer.status == 201
    assert answer.json == {
        "site": {
            **DEFAULTS,
            "id": host,
            "host": host,
            "sitemapUrl": api.web.sitemap_url,
            "sitemapUrls": [api.web.sitemap_url],
            "keyLocation": f"{api.web.origin}/{MASK}.txt",
            "searchEngines": [api.engine.endpoint],
        }
    }
    assert await api.read(f"/api/sites/{host}") == answer.json


async def test_every_field_can_be_set(api: ApiStage) -> None:
    """A2, A3: and is read again as it was set."""
    given: dict[str, Any] = {
        "id": "shop",
        "host": "shop.example",
        "sitemapUrls": ["https://shop.example/de.xml", "https://shop.example/fr.xml"],
        "backupSitemapUrls": ["https://backup.example/all.xml"],
        "keyLocation": "https://shop.example/keys/file.txt",
        "searchEngines": ["https://yandex.com/indexnow"],
        "submitMethod": "get",
        "schedule": "30 6 * * 1",
        "announceRemoved": True,
        "enabled": False,
        "group": "acme",
        "pageCheck": "all",
        "pageCheckLimit": 10_000,
        "bingEnabled": True,
        "bingDailyQuota": 500,
        "bingPriority": "random",
        "baiduEnabled": True,
        "baiduDailyQuota": 3_000,
        "baiduPriority": "random",
        "baiduSite": "https://www.shop.example",
        "googleIndexing": "liveStream",
        "googleDailyQuota": 400,
        "googlePriority": "random",
        "googleProperty": "sc-domain:shop.example",
    }
    secrets = {
        "indexnowKey": KEY,
        "bingApiKey": BING_KEY,
        "baiduToken": BING_KEY,
        "googleCredentials": ACCOUNT,
        "hookSecret": BING_KEY,
    }
    answer = await api.ask("POST", "/api/sites", {**given, **secrets})
    assert answer.status == 201
    shown = {**given, "sitemapUrl": given["sitemapUrls"][0], **dict.fromkeys(secrets, MASK)}
    assert answer.json == {"site": shown}
    assert await api.read("/api/sites/shop") == answer.json


@pytest.mark.both_databases
async def test_sites_are_listed_page_by_page_each_once(api: ApiStage) -> None:
    """A2: by id, with the number of all; the last page says that it is the last."""
    names = [f"site-{number}" for number in range(7)]
    for name in reversed(names):
        await api.add_site(id=name)
    seen: list[str] = []
    pages, target = 0, "/api/sites?limit=3"
    while pages < 5:
        page = await api.read(target)
        pages += 1
        seen += [site["id"] for site in page["sites"]]
        assert page["total"] == len(names)
        if page["next"] is None:
            break
        target = f"/api/sites?limit=3&after={page['next']}"
    assert (seen, pages) == (names, 3)
    assert (await api.read("/api/sites?limit=7"))["next"] is None
    assert (await api.read("/api/sites?after=site-6"))["sites"] == []


async def test_put_changes_what_it_names_and_nothing_else(api: ApiStage) -> None:
    """A2: partial; null sets the default, which is the installation's own."""
    before = await api.add_site(
        schedule="5 5 * * *", bingEnabled=True, bingApiKey=BING_KEY, searchEngines=["https://yandex.com/indexnow"]
    )
    name = before["id"]
    assert await change(api, name) == before
    assert await change(api, name, submitMethod="post", announceRemoved=True) == {
        **before,
        "submitMethod": "post",
        "announceRemoved": True,
    }
    defaults = await change(
        api, name, submitMethod=None, announceRemoved=None, schedule=None, searchEngines=None, bingEnabled=None
    )
    assert defaults == {
        **before,
        "schedule": "0 0 * * *",
        "searchEngines": [api.engine.endpoint],
        "bingEnabled": False,
    }
    assert (await api.read(f"/api/sites/{name}"))["site"] == defaults


async def test_put_of_one_sitemap_replaces_all(api: ApiStage) -> None:
    """A2: under either name."""
    name = (await api.add_site(sitemapUrls=[f"{api.web.origin}/more.xml"]))["id"]
    changed = await change(api, name, sitemapUrl=f"{api.web.origin}/one.xml")
    assert changed["sitemapUrls"] == [f"{api.web.origin}/one.xml"]
    changed = await change(api, name, sitemapUrls=[f"{api.web.origin}/two.xml", f"{api.web.origin}/three.xml"])
    assert changed["sitemapUrl"] == f"{api.web.origin}/two.xml"


@pytest.mark.parametrize("folder", ["", "/keys"], ids=["default", "own folder"])
async def test_key_file_goes_along_with_another_key(api: ApiStage, folder: str) -> None:
    """A4, A15: the old key stands nowhere any more, neither in an answer nor in the table."""
    name = (await api.add_site(keyLocation=f"{api.web.origin}{folder}/{KEY}.txt"))["id"]
    changed = await change(api, name, indexnowKey=OTHER_KEY)
    assert changed["keyLocation"] == f"{api.web.origin}{folder}/{MASK}.txt"
    stored = await api.installation.sites.find(name)
    assert stored is not None
    assert stored.key_location == f"{api.web.origin}{folder}/{OTHER_KEY}.txt"
    assert KEY not in await dump(api)


@pytest.mark.parametrize("fields", [{"bingEnabled": True}, {"bingEnabled": True, "bingApiKey": None}])
async def test_bing_needs_its_key(api: ApiStage, fields: dict[str, Any]) -> None:
    """A3: HTTP 400 with these words, by POST and by PUT; nothing is changed."""
    refused = await api.ask("POST", "/api/sites", {**api.describe(), **fields})
    assert refused.status == 400
    assert REQUIRED in refused.json["detail"]
    assert refused.json["errors"] == [{"field": "bingApiKey", "message": REQUIRED}]
    before = await api.add_site()
    refused = await api.ask("PUT", f"/api/sites/{before['id']}", fields)
    assert (refused.status, REQUIRED in refused.json["detail"]) == (400, True)
    assert (await api.read(f"/api/sites/{before['id']}"))["site"] == before


async def test_bing_that_put_enables_is_part_of_the_next_execution(api: ApiStage) -> None:
    """A3: and what IndexNow had is due for Bing alone."""
    name = (await api.add_site())["id"]
    assert (await api.run())["bingStats"] is None
    await change(api, name, bingEnabled=True, bingApiKey=BING_KEY)
    result = await api.run()
    assert (result["bingStats"]["success"], result["bingStats"]["urlCount"]) == (True, 20)
    assert dict(api.bing.accepted) == dict.fromkeys(api.web.urls(), 1)
    assert dict(api.engine.accepted) == dict.fromkeys(api.web.urls(), 1)


async def test_mask_is_not_taken_for_a_key(api: ApiStage) -> None:
    """A4: anybody who sends back what was answered keeps the true key."""
    name = (await api.add_site(bingEnabled=True, bingApiKey=BING_KEY))["id"]
    for field in ("bingApiKey", "indexnowKey"):
        refused = await api.ask("PUT", f"/api/sites/{name}", {field: MASK})
        assert (refused.status, refused.json["errors"][0]["field"]) == (400, field)
    stored = await api.installation.sites.find(name)
    assert stored is not None
    assert stored.secrets == (Secret(KEY), Secret(BING_KEY))


@pytest.mark.thorough
@pytest.mark.both_databases
async def test_keys_are_encrypted_at_rest(api: ApiStage) -> None:
    """A4: nothing of a key in any table, also after a change and in keyLocation."""
    name = (await api.add_site(bingEnabled=True, bingApiKey=BING_KEY))["id"]
    await change(api, name, keyLocation=f"{api.web.origin}/keys/{KEY}.txt")
    everything = await dump(api)
    assert name in everything
    assert KEY not in everything
    assert BING_KEY not in everything
    async with api.installation.database.read() as connection:
        row = (await connection.execute(select(sites))).one()
    assert row.indexnow_key
    assert row.bing_key


BAD_VALUES: list[tuple[dict[str, Any], str, str]] = [
    ({"sitemap": "https://x.example/"}, "sitemap", "allowed are sitemapUrl, sitemapUrls"),
    ({"bing_enabled": True}, "bing_enabled", "bingEnabled"),
    ({"sitemapUrl": 7}, "sitemapUrl", "string"),
    ({"sitemapUrl": "ftp://x.example/"}, "sitemapUrl", "https://example.com/sitemap.xml"),
    ({"sitemapUrl": "https://u:p@x.example/"}, "sitemapUrl", "https://example.com/sitemap.xml"),
    ({"sitemapUrls": "https://x.example/"}, "sitemapUrls", "list"),
    ({"sitemapUrls": ["https://x.example/", 1]}, "sitemapUrls[1]", "string"),
    ({"sitemapUrl": None, "sitemapUrls": []}, "sitemapUrl", "at least one"),
    ({"backupSitemapUrls": ["x"]}, "backupSitemapUrls", "https://example.com/sitemap.xml"),
    ({"indexnowKey": "short"}, "indexnowKey", "8 to 128"),
    ({"indexnowKey": "k" * 129}, "indexnowKey", "8 to 128"),
    ({"indexnowKey": "under_score"}, "indexnowKey", "letters, digits or -"),
    ({"indexnowKey": None}, "indexnowKey", "required"),
    ({"keyLocation": "https://elsewhere.example/k.txt"}, "keyLocation", "own host"),
    ({"searchEngines": []}, "searchEngines", "at least one"),
    ({"searchEngines": ["a b"]}, "searchEngines", "api.indexnow.org"),
    ({"submitMethod": "put"}, "submitMethod", "'auto', 'get' or 'post'"),
    ({"schedule": "never"}, "schedule", "0 0 * * *"),
    ({"schedule": "* * * * * *"}, "schedule", "0 0 * * *"),
    ({"enabled": "yes"}, "enabled", "boolean"),
    ({"announceRemoved": 1}, "announceRemoved", "boolean"),
    ({"bingEnabled": "true"}, "bingEnabled", "boolean"),
    ({"bingApiKey": "a b"}, "bingApiKey", "without white space"),
    ({"bingDailyQuota": 0}, "bingDailyQuota", "1 to 500"),
    ({"bingDailyQuota": 501}, "bingDailyQuota", "1 to 500"),
    ({"bingDailyQuota": 1.5}, "bingDailyQuota", "integer"),
    ({"bingDailyQuota": "7"}, "bingDailyQuota", "integer"),
    ({"bingDailyQuota": True}, "bingDailyQuota", "integer"),
    ({"pageCheck": "some"}, "pageCheck", "'off', 'sample' or 'all'"),
    ({"pageCheckLimit": 10_001}, "pageCheckLimit", "1 to 10,000"),
    ({"group": "a b"}, "group", "letters, digits"),
    ({"hookSecret": "short"}, "hookSecret", "16 to 256"),
    ({"bingPriority": "oldest"}, "bingPriority", "'newest' or 'random'"),
]


async def test_bad_fields_are_named_with_what_is_allowed(sqlite_url: str, tmp_path: Path) -> None:
    """A2, A3, A4: HTTP 400, by POST and by PUT; the site stays as it was."""
    async with open_api(sqlite_url, tmp_path) as api:
        before = await api.add_site()
        for fields, field, allowed in BAD_VALUES:
            for method, target, document in (
                ("POST", "/api/sites", {**api.describe(), "id": "new", **fields}),
                ("PUT", f"/api/sites/{before['id']}", fields),
            ):
                answer = await api.ask(method, target, document)
                assert answer.status == 400, (method, fields, answer.body)
                [error] = answer.json["errors"]
                assert error["field"] == field
                assert allowed in error["message"], error
                assert error["message"] in answer.json["detail"]
        assert (await api.read("/api/sites"))["sites"] == [before]


@pytest.mark.parametrize("field", ["id", "host"])
async def test_id_and_host_of_a_site_stay_what_they_are(sqlite_url: str, tmp_path: Path, field: str) -> None:
    """A2: another id would be another site, with another ledger."""
    async with open_api(sqlite_url, tmp_path) as api:
        name = (await api.add_site())["id"]
        answer = await api.ask("PUT", f"/api/sites/{name}", {field: "other.example"})
    assert (answer.status, answer.json["errors"][0]["field"]) == (400, field)


async def test_unknown_site_is_404_and_a_taken_id_409(api: ApiStage) -> None:
    """A2: with words that say what to do."""
    for method, document in (("GET", None), ("PUT", {}), ("DELETE", None)):
        answer = await api.ask(method, "/api/sites/none", *([] if document is None else [document]))
        assert (answer.status, answer.json["code"]) == (404, "unknown_site")
    before = await api.add_site()
    answer = await api.ask("POST", "/api/sites", api.describe(schedule="1 1 * * *"))
    assert (answer.status, answer.json["code"]) == (409, "site_exists")
    assert (await api.read("/api/sites"))["sites"] == [before]


@pytest.mark.thorough
async def test_removed_site_is_gone_with_its_keys_and_can_come_back(api: ApiStage) -> None:
    """A2, A10: it is listed nowhere; once it is back, nothing is sent twice."""
    name = (await api.add_site(bingEnabled=True, bingApiKey=BING_KEY))["id"]
    await api.run()
    answer = await api.ask("DELETE", f"/api/sites/{name}")
    assert (answer.status, answer.body) == (204, b"")
    assert await api.read("/api/sites") == {"sites": [], "next": None, "total": 0}
    assert (await api.ask("GET", f"/api/sites/{name}")).status == 404
    assert (await api.ask("POST", f"/trigger?site={name}")).status == 404
    async with api.installation.database.read() as connection:
        kept = (await connection.execute(text("SELECT indexnow_key, bing_key FROM sites"))).one()
    assert tuple(kept) == (None, None)
    await api.add_site()
    assert (await api.run())["new"] == 0


async def test_site_of_the_environment_is_read_but_not_changed(sqlite_url: str, tmp_path: Path) -> None:
    """A1, A2: 409 that says where it is set up."""
    own = SiteSettings(sitemap_url="https://own.example/sitemap.xml", host=None)
    async with open_api(sqlite_url, tmp_path, site=own, indexnow_key=Secret(KEY)) as api:
        await api.installation.store_own_site()
        before = (await api.read("/api/sites/own.example"))["site"]
        assert before["indexnowKey"] == MASK
        for method, document in (("PUT", {"schedule": "1 1 * * *"}), ("DELETE", None)):
            answer = await api.ask(method, "/api/sites/own.example", *([] if document is None else [document]))
            assert (answer.status, answer.json["code"]) == (409, "from_environment")
            assert "SITEMAP_URL" in answer.json["detail"]
        assert (await api.read("/api/sites"))["sites"] == [before]


@pytest.mark.both_databases
async def test_changes_at_once_lose_nothing(api: ApiStage) -> None:
    """A2: each of them is in the site afterwards."""
    name = (await api.add_site())["id"]
    fields: dict[str, Any] = {
        "submitMethod": "post",
        "schedule": "7 7 * * *",
        "announceRemoved": True,
        "enabled": False,
        "bingDailyQuota": 7,
        "bingPriority": "random",
        "bingApiKey": BING_KEY,
    }
    await asyncio.gather(*(change(api, name, **{field: value}) for field, value in fields.items()))
    site = (await api.read(f"/api/sites/{name}"))["site"]
    assert {field: site[field] for field in fields} == {**fields, "bingApiKey": MASK}


@pytest.mark.both_databases
async def test_of_sites_set_up_at_once_under_one_id_one_is_stored(api: ApiStage) -> None:
    """A2: the others learn that there is one; none of them replaces it unseen."""
    answers = await asyncio.gather(
        *(api.ask("POST", "/api/sites", api.describe(id="same", schedule=f"{n} 1 * * *")) for n in range(8))
    )
    assert sorted(answer.status for answer in answers) == [201] + 7 * [409]
    [stored] = [answer.json["site"] for answer in answers if answer.status == 201]
    assert (await api.read("/api/sites"))["sites"] == [stored]


async def test_one_page_is_looked_up_in_every_channel(api: ApiStage) -> None:
    """A44: accepted at one channel, never sent to another, and nothing about channels that are off; a foreign URL is
    refused with a reason."""
    name = (await api.add_site(bingEnabled=True, bingApiKey=BING_KEY))["id"]
    await api.ask("POST", f"/trigger?site={name}&channel=indexnow&wait=true")
    found = await api.read(f"/api/sites/{name}/ledger?url={quote(api.web.url(1), safe='')}")
    assert (found["url"], found["refusal"]) == (api.web.url(1), None)
    channels = {each["channel"]: each for each in found["channels"]}
    assert channels["indexnow"]["acceptedAt"].endswith("Z")
    assert (channels["indexnow"]["due"], channels["bing"]["rule"], channels["bing"]["due"]) == (False, "new", True)
    assert channels.keys() == {"indexnow", "bing"}
    foreign = await api.read(f"/api/sites/{name}/ledger?url=https%3A%2F%2Fother.example%2F")
    assert (foreign["refusal"], foreign["channels"]) == ("foreign_host", [])
    assert (await api.ask("GET", f"/api/sites/{name}/ledger")).status == 400


@pytest.mark.thorough
async def test_a_sites_own_token_reads_its_status_and_executions(api: ApiStage) -> None:
    """A33, A36: of its own site, and of no other."""
    own, other = (await api.add_site(id="own"))["id"], (await api.add_site(id="other"))["id"]
    token = (await api.ask("POST", f"/api/sites/{own}/token")).json["token"]
    answer = await api.ask("POST", f"/trigger?site={own}&wait=true", token=token)
    execution = answer.json["executionId"]
    paths = ("/status?site={}", "/api/sites/{}/executions", f"/api/sites/{{}}/executions/{execution}")
    assert [(await api.ask("GET", path.format(own), token=token)).status for path in paths] == [200] * 3
    assert [(await api.ask("GET", path.format(other), token=token)).status for path in paths] == [403] * 3
    assert (await api.ask("GET", f"/api/sites/{own}", token=token)).status == 403
