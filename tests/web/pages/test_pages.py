"""The pages: every one in both languages, what forms do, and text that somebody else wrote."""

import html
import re
from urllib.parse import quote

import pytest

from tests.collect.cookie_stage import change_row
from tests.web.api_stage import BING_KEY, ApiStage, hold
from tests.web.pages.browser import Browser
from tests.web.pages.test_page_cost import MOST_QUERIES, record_queries
from tidings.announce.execution.alerts import AnnounceAlert
from tidings.collect.alerts.kinds import CollectAlert
from tidings.collect.write.cookies import make_cookie
from tidings.core.alerts.events import Alert
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.sandbox.wire.faults import Fault
from tidings.web.middleware.callers import WRONG_TRIES
from tidings.web.middleware.input import LARGEST_BODY
from tidings.web.pages.view.forms import LARGEST_FORM

ATTACK = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
LARGEST_PAGE = 100_000


async def run_once(api: ApiStage) -> tuple[str, str]:
    """A site with Bing that has run; returns its address and its execution's."""
    site = (await api.add_site(bingEnabled=True, bingApiKey=BING_KEY))["id"]
    await api.run(site=site)
    [execution] = (await api.read(f"/api/sites/{site}/executions"))["executions"]
    page = f"/sites/{site.replace(':', '%3A')}"
    return page, f"{page}/executions/{execution['executionId']}"


@pytest.mark.thorough
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_every_page_is_there_in_both_languages_and_small(api: ApiStage, browser: Browser, language: str) -> None:
    browser.cookies["language"] = language
    site, execution = await run_once(api)
    paths = ["/", "/sites", "/sites/new", "/alerts", "/keywords", "/candidates", "/cookies", site, execution]
    paths += ["/executions", "/workers", "/notes", "/settings", "/docs"]
    parts = ("executions", "failed", "settings", "lookup", "check", "dry-run", "remove/confirm")
    paths += [f"{site}/{part}" for part in parts]
    paths += [f"{site}/forget/confirm?since=2026-11-15T10:00:00Z"]
    for path in paths:
        answer = await browser.get(path)
        assert answer.status == 200, (path, answer.text[:300])
        assert f'lang="{"zh-CN" if language == "zh" else "en"}"' in answer.text
        assert len(answer.body) < LARGEST_PAGE, path


@pytest.mark.thorough
async def test_a_field_with_an_error_keeps_what_was_typed_but_no_secret(api: ApiStage, browser: Browser) -> None:
    site, _ = await run_once(api)
    answer = await browser.post(
        f"{site}/settings", sitemapUrl=api.web.sitemap_url, schedule="0 25 * * *", bingApiKey="typed-secret-key"
    )
    assert answer.status == 400
    assert 'value="0 25 * * *"' in answer.text
    assert 'aria-invalid="true"' in answer.text
    assert "typed-secret-key" not in answer.text


@pytest.mark.thorough
async def test_a_site_is_paused_and_resumed(api: ApiStage, browser: Browser) -> None:
    site, _ = await run_once(api)
    await browser.post(f"{site}/pause")
    page = await browser.get(site)
    assert "Paused 127.0.0.1" in page.text
    assert f'action="{site}/resume"' in page.text
    assert "Paused 127.0.0.1" not in (await browser.get(site)).text
    await browser.post(f"{site}/resume")
    assert f'action="{site}/pause"' in (await browser.get(site)).text


@pytest.mark.thorough
async def test_a_url_is_looked_up(api: ApiStage, browser: Browser) -> None:
    """A44: each channel says whether the page is due, and why; a URL of another host is refused."""
    bad = api.web.url(3)
    api.engine.misbehave(Fault(status=422, body="not welcome", matching="/0000003/"))
    site, _ = await run_once(api)
    failed = (await browser.get(f"{site}/lookup?url={bad}")).text
    assert "Waiting" in failed
    assert "HTTP 422: not welcome" in failed
    assert "It is sent again" in (await browser.get(f"{site}/lookup?url={api.web.url(4)}")).text
    assert "another host" in (await browser.get(f"{site}/lookup?url=https://other.example/")).text
    assert "not a valid http" in (await browser.get(f"{site}/lookup?url=javascript:alert(1)")).text


@pytest.mark.thorough
async def test_all_failed_pages_are_requeued_by_one_button(api: ApiStage, browser: Browser) -> None:
    """A36: after the engine recovered, the next execution sends them."""
    api.engine.misbehave(Fault(status=422, matching="/0000003/"))
    site, _ = await run_once(api)
    assert "Requeue all 1" in (await browser.get(site)).text
    api.engine.recover()
    answer = await browser.post(f"{site}/requeue", all="1")
    assert "1 page is sent again" in (await browser.get(answer.headers["location"])).text
    await api.run()
    assert "No failed URL" in (await browser.get(f"{site}/failed")).text


@pytest.mark.thorough
async def test_forgetting_asks_with_the_number_and_for_one_channel(api: ApiStage, browser: Browser) -> None:
    """A36, A41: the question names how many entries of which channel, and the form does just that."""
    site, _ = await run_once(api)
    since = "2020-01-01T00:00:00Z"
    asked = (await browser.get(f"{site}/forget/confirm?since={since}&channel=bing")).text
    assert "Forget 20 announcements" in asked
    answer = await browser.post(f"{site}/forget", since=since, channel="bing")
    assert "Forgot 20 announcements" in (await browser.get(answer.headers["location"])).text
    assert "Forget 20 announcements" in (await browser.get(f"{site}/forget/confirm?since={since}")).text
    assert (await browser.get(f"{site}/forget/confirm?since=yesterday")).status == 400


@pytest.mark.thorough
async def test_a_run_is_for_the_channel_that_was_chosen(api: ApiStage, browser: Browser) -> None:
    """A35: Bing alone leaves IndexNow out; a channel that is off cannot be chosen."""
    site = (await api.add_site(bingEnabled=True, bingApiKey=BING_KEY))["id"]
    page = f"/sites/{site.replace(':', '%3A')}"
    assert 'value="bing"' in (await browser.get(page)).text
    await browser.post(f"{page}/run", channel="bing")
    [execution] = (await api.read(f"/api/sites/{site}/executions"))["executions"]
    await api.wait_for_end(site, execution["executionId"])
    assert (api.engine.accepted.total(), api.bing.accepted.total()) == (0, 20)


@pytest.mark.thorough
async def test_keys_are_masked_on_every_page_of_a_site(api: ApiStage, browser: Browser) -> None:
    """A4: neither key is on any page of the site."""
    site, execution = await run_once(api)
    parts = ("", "/executions", "/failed", "/settings", "/lookup", "/check", "/dry-run")
    for path in (*(site + part for part in parts), execution):
        text = (await browser.get(path)).text
        assert BING_KEY not in text, path
        # The key file's address holds the key, and the check names that address.
        assert api.web.key not in text or path.endswith("/check"), path


async def test_a_dry_run_counts_the_pages_that_wait_as_it_lists_them(api: ApiStage, browser: Browser) -> None:
    api.engine.misbehave(Fault(status=422, matching="/0000003/"))
    site, _ = await run_once(api)
    shown = (await browser.get(f"{site}/dry-run")).text
    assert "1 page would be sent now" in shown
    assert shown.count(api.web.url(3)) == 1
    assert "Announce now" in shown


@pytest.mark.thorough
async def test_progress_is_shown_and_streamed_to_its_end(api: ApiStage, browser: Browser) -> None:
    site = (await api.add_site())["id"]
    page = f"/sites/{site.replace(':', '%3A')}"
    async with hold(api.engine):
        execution = await api.start_held(f"/trigger?site={site}")
        with record_queries() as queries:
            shown = await browser.get(page)
        assert len(queries) <= MOST_QUERIES, queries
        [worker] = await api.installation.dispatcher.list_workers()
        assert f"on {worker.name}" in shown.text
        assert 'role="progressbar"' in shown.text
        assert f"{page}/executions/{execution}/progress" in shown.text
        steps = re.findall(r'<li class="(\w+)" data-mark="step:(\w+)">', shown.text)
        assert steps == [("done", "sitemap"), ("done", "due"), ("now", "indexnow")]
        assert ">20 of 20<" in shown.text
        assert ">Sending<" in shown.text
        assert "0 of 20 due pages sent" in shown.text
        assert re.search(r'data-part="[^"]+:left">20<', shown.text)
        again = await browser.post(f"{page}/run", channel="all")
        assert "running already" in (await browser.get(again.headers["location"])).text
    await api.wait_for_end(site, execution)
    stream = await browser.get(f"{page}/executions/{execution}/progress")
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert '"percent": 100' in stream.text
    assert '"step:indexnow": ["done", "ok"]' in stream.text
    assert '"ended": true' in stream.text


@pytest.mark.thorough
async def test_a_running_execution_is_stopped_by_its_button(api: ApiStage, browser: Browser) -> None:
    """A20: it ends in good order, and a second press says that it has ended."""
    site = (await api.add_site(submitMethod="get"))["id"]
    page = f"/sites/{site.replace(':', '%3A')}"
    async with hold(api.engine):
        execution = await api.start_held(f"/trigger?site={site}")
        await browser.get(page)
        answer = await browser.post(f"{page}/executions/{execution}/stop")
        assert "Stopping" in (await browser.get(answer.headers["location"])).text
    assert (await api.wait_for_end(site, execution))["status"] == "interrupted"
    again = await browser.post(f"{page}/executions/{execution}/stop")
    assert "has ended already" in (await browser.get(again.headers["location"])).text


@pytest.mark.thorough
async def test_a_site_that_nothing_schedules_shows_no_schedule(api: ApiStage, browser: Browser) -> None:
    """A1: a cron time beside no next run would be a riddle."""
    shown = []
    for enabled in (True, False):
        site = (await api.add_site(id=f"site-{enabled}", enabled=enabled))["id"]
        page = (await browser.get(f"/sites/{site}")).text
        [fact] = re.findall(r"<dt>Schedule</dt>\s*<dd[^>]*>(.*?)</dd>", page, re.DOTALL)
        shown.append(fact.strip())
    assert "UTC" in shown[0]
    assert shown[1] == "Off"


async def test_removing_a_site_asks_for_its_name(api: ApiStage, browser: Browser) -> None:
    site, _ = await run_once(api)
    await browser.post(f"{site}/remove", name="another.example")
    assert (await api.read("/api/sites"))["total"] == 1
    await browser.post(f"{site}/remove", name=site.removeprefix("/sites/").replace("%3A", ":"))
    assert (await api.read("/api/sites"))["total"] == 0


async def test_the_form_of_keywords_refuses_what_cannot_work_and_warns_of_what_needs_too_much(
    api: ApiStage, browser: Browser
) -> None:
    """C30, C18: as the command and the API do; the field says why, and the message after it the two numbers."""
    refused = await browser.post("/keywords", platform="web", keyword="coffee", pages="1")
    assert (refused.status, "TIDINGS_FEEDS" in refused.text) == (400, True)
    secret = Secret("SUB=a-long-session")
    await api.installation.collect.cookies.add(make_cookie("mine", platform="weibo", secret=secret, daily_limit=100))
    taken = await browser.post("/keywords", platform="weibo", keyword="tea", pages="20")
    text = (await browser.get("/keywords")).text
    assert (taken.status, "480 uses a day, and its cookies allow 100" in text) == (303, True)


@pytest.mark.thorough
async def test_what_others_write_is_text_and_never_markup(api: ApiStage, browser: Browser) -> None:
    """XSS: an engine's answer, an alert, a keyword and a search are shown as they came, escaped."""
    api.engine.misbehave(Fault(status=400, body=ATTACK))
    site = (await api.add_site())["id"]
    page = f"/sites/{site.replace(':', '%3A')}"
    await api.run(site=site)
    await browser.post("/keywords", platform="bilibili", keyword=ATTACK, pages="1")
    installation = api.installation
    async with installation.database.write() as connection:
        alert = Alert(kind=AnnounceAlert.NO_URLS, subject=ATTACK, reason=ATTACK, action=ATTACK)
        await installation.alerts.raise_alert(connection, alert)
    [execution] = (await api.read(f"/api/sites/{site}/executions"))["executions"]
    paths = ["/", "/alerts", "/keywords", "/sites?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E", page, f"{page}/failed"]
    shown = 0
    for path in (*paths, f"{page}/executions/{execution['executionId']}"):
        text = (await browser.get(path)).text
        assert "<script>alert" not in text, path
        assert "<img src=x" not in text, path
        shown += "alert(1)" in text
    assert shown >= 4


async def test_an_alert_that_ended_stands_beside_the_open_ones(api: ApiStage, browser: Browser) -> None:
    """C24: open alerts with what to do, past ones with the time of their end."""
    alerts, database = api.installation.alerts, api.installation.database
    async with database.write() as connection:
        for subject in ("first.example", "second.example"):
            alert = Alert(kind=AnnounceAlert.NO_URLS, subject=subject, reason=f"{subject} is empty", action="Look.")
            await alerts.raise_alert(connection, alert)
    async with database.write() as connection:
        await alerts.resolve_alert(connection, AnnounceAlert.NO_URLS, "first.example")
    page = (await browser.get("/alerts")).text
    opened, _, past = page.partition('id="past-title"')
    assert "second.example is empty" in opened
    assert "first.example" not in opened
    assert "first.example is empty" in past
    assert "Over since" in past


async def test_the_most_urgent_alert_comes_first_and_names_its_platform(api: ApiStage, browser: Browser) -> None:
    """C24: also when it is the oldest. The level stands once, and a command that is advised is code."""
    alerts = api.installation.alerts
    no_cookie = Alert(kind=CollectAlert.NO_ACTIVE_COOKIE, subject="weibo", reason="none", action="`tidings cookies`.")
    async with api.installation.database.write() as connection:
        await alerts.raise_alert(connection, no_cookie)
        for number in range(6):
            skipped = Alert(kind=CollectAlert.NOTES_SKIPPED, subject=f"platform-{number}", reason="gone", action="-")
            await alerts.raise_alert(connection, skipped)
    shown = re.findall(r"<h3>(.*?)</h3>", (await browser.get("/")).text)
    assert shown[:2] == ["No cookie can be used: Weibo", "Notes were skipped: platform-5"]
    browser.cookies["language"] = "zh"
    page = (await browser.get("/alerts")).text
    assert "没有可用的 Cookie：微博" in page
    assert "<code>tidings cookies</code>" in page


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "english", "chinese"),
    [
        (Fault(status=422, matching="/0000003/"), "Check that the URL belongs to the host", "请确认网址属于该主机"),
        (Fault(status=503), "the engine had trouble", "搜索引擎暂时故障"),
        (Fault(status=401), "Check the key and its file", "确认密钥及其文件"),
    ],
)
async def test_each_reason_has_its_own_advice_in_both_languages(
    api: ApiStage, browser: Browser, fault: Fault, english: str, chinese: str
) -> None:
    """A13: a failed page says what a person should do about it."""
    api.engine.misbehave(fault)
    site, _ = await run_once(api)
    assert english in html.unescape((await browser.get(f"{site}/failed")).text)
    browser.cookies["language"] = "zh"
    assert chinese in (await browser.get(f"{site}/failed")).text


@pytest.mark.thorough
async def test_findings_and_reasons_are_reported_in_chinese(api: ApiStage, browser: Browser) -> None:
    browser.cookies["language"] = "zh"
    site = (await api.add_site())["id"]
    page = f"/sites/{site.replace(':', '%3A')}"
    api.web.misbehave(Fault(status=404, path="/sitemap.xml"))
    check = (await browser.get(f"{page}/check")).text
    assert "密钥文件" in check
    assert "内容正确" in check
    assert "读取失败：服务器返回 404，而不是站点地图。请在浏览器中打开该地址查看。" in check
    await api.run(site=site)
    assert "读取失败：服务器返回 404，而不是站点地图" in (await browser.get(page)).text


@pytest.mark.thorough
async def test_a_problem_is_a_page(browser: Browser) -> None:
    answer = await browser.get("/sites/unknown.example")
    assert answer.status == 404
    assert "There is nothing at this address" in answer.text


async def test_an_address_without_a_route_is_a_page_for_people_and_a_problem_for_programs(
    api: ApiStage, browser: Browser
) -> None:
    """So is a form's address that somebody opens by hand."""
    for path in ("/nothing/here", "/candidates/retry"):
        shown = await browser.get(path)
        assert "There is nothing at this address" in shown.text, path
        assert 'href="/sites"' in shown.text
        assert shown.headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'")
        assert (await api.ask("GET", path)).json["status"] == shown.status
    assert (await browser.get("/api/nothing")).json["code"] == "not_found"


async def test_a_form_that_is_sent_after_the_session_ended_says_that_nothing_was_changed(
    api: ApiStage, browser: Browser
) -> None:
    site = (await api.add_site())["id"]
    browser.cookies.clear()
    answer = await browser.post(f"/sites/{site}/pause")
    assert answer.status == 401
    assert "Nothing was changed. Sign in" in answer.text
    assert 'href="/sign-in"' in answer.text
    # Who is not signed in learns nothing, not even how many sites there are.
    assert 'href="/sites"' not in answer.text
    await browser.sign_in()
    assert f'action="/sites/{quote(site, safe="")}/pause"' in (await browser.get(f"/sites/{site}")).text


async def test_who_may_not_see_a_page_can_sign_in_with_another_token(api: ApiStage, browser: Browser) -> None:
    """The session ends first: the page of signing in would lead back."""
    viewer = (await api.installation.tokens.make(Scope.VIEWER, name="looks")).reveal()
    await browser.post("/sign-out")
    await browser.sign_in(viewer)
    assert 'action="/sign-out"' in (await browser.get("/settings")).text.partition("<main")[2]


@pytest.mark.parametrize("wrong", ["large form", "large body", "token"])
async def test_what_is_wrong_with_a_request_is_said_in_chinese(api: ApiStage, browser: Browser, wrong: str) -> None:
    """C24: also where no route saw the request."""
    browser.cookies["language"] = "zh"
    if wrong == "token":
        browser.cookies = {"language": "zh"}
        browser.headers = [("Authorization", f"Bearer {'wrong' * 8}")]
        pages = [await browser.get("/sites") for _ in range(WRONG_TRIES + 1)]
        assert {page.status for page in pages} == {401, 429}
    else:
        size = LARGEST_FORM if wrong == "large form" else LARGEST_BODY
        pages = [await browser.post("/keywords", keyword="a" * size)]
    for page in pages:
        [text] = re.findall(r"<strong>(.*?)</strong>", page.text.partition("<main")[2])
        assert re.search("[\u4e00-\u9fff]", text), text
        assert not re.search("[a-z]{3,}", text), text


@pytest.mark.thorough
async def test_a_cookie_is_added_and_never_shown(api: ApiStage, browser: Browser) -> None:
    """C7: the pasted value is encrypted, and no page repeats it."""
    value = "session=canary-cookie-3f81"
    answer = await browser.post("/cookies", name="team-1", platform="bilibili", cookie=value)
    assert answer.status == 303
    page = await browser.get("/cookies")
    assert "team-1" in page.text
    assert "canary-cookie" not in page.text
    wrong = await browser.post("/cookies", name="bad name!", platform="bilibili", cookie=value)
    assert wrong.status == 400
    assert "canary-cookie" not in wrong.text


async def test_a_cookie_that_cannot_be_read_is_shown_and_checked_as_such(api: ApiStage, browser: Browser) -> None:
    """A broken row or a lost master key must not take the page of all cookies along."""
    cookies, database = api.installation.collect.cookies, api.installation.database
    for name in ("broken", "locked"):
        await cookies.add(make_cookie(name, platform="weibo", secret=Secret("SUB=a-long-value")))
    await change_row(database, "broken", status="of another program")
    await change_row(database, "locked", cookie_encrypted=b"damaged")
    page = await browser.get("/cookies")
    assert (page.status, "Unreadable" in page.text) == (200, True)
    await browser.post("/cookies/check", name="locked")
    assert "locked cannot be read" in (await browser.get("/cookies")).text
    browser.cookies["language"] = "zh"
    assert "无法读取" in (await browser.get("/cookies")).text


async def test_a_group_that_no_site_has_is_named_instead_of_an_invitation_to_add_the_first_site(
    api: ApiStage, browser: Browser
) -> None:
    """A33: an old link may name a group that is gone."""
    await api.add_site(group="acme")
    page = await browser.get("/sites?group=amce")
    assert ("There is no group amce." in page.text, "No site yet" in page.text) == (True, False)
    browser.cookies["language"] = "zh"
    assert "没有分组 amce。" in (await browser.get("/sites?group=amce")).text


async def test_a_list_that_is_opened_beyond_its_end_says_so(api: ApiStage, browser: Browser) -> None:
    """An old bookmark, or an address that somebody wrote: no page claims that there is no site."""
    await api.add_site()
    beyond = await browser.get("/sites?from=500")
    assert (beyond.status, "No site matches." in beyond.text, "No site yet" in beyond.text) == (200, True, False)
    far = await browser.get(f"/sites?from={10**22}")
    assert far.status == 400
    assert 'href="/sites">Open the page without it' in far.text
