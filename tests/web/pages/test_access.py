"""Signing in: sessions, forms that cannot be forged, and who sees what."""

import html
import re
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from tests.web.api_stage import ApiStage, open_api
from tests.web.pages.browser import FORM, HTML, Browser
from tests.web.pages.test_notes_pages import NOTE, store
from tests.web.stage import ADMIN
from tidings.announce.execution.alerts import AnnounceAlert
from tidings.collect.alerts.kinds import CollectAlert
from tidings.core.alerts.events import Alert
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.web.pages import access


@pytest.fixture
async def api(sqlite_url: str, tmp_path: Path) -> AsyncIterator[ApiStage]:
    tokens = {Scope.ADMIN: Secret(ADMIN), Scope.METRICS: Secret("metrics-token-0123456789abcdef")}
    async with open_api(sqlite_url, tmp_path, tokens=tokens) as opened:
        yield opened


@pytest.mark.thorough
async def test_a_browser_is_led_to_sign_in_and_back(api: ApiStage) -> None:
    browser = Browser(api)
    answer = await browser.get("/sites?state=paused")
    assert (answer.status, answer.headers["location"]) == (303, "/sign-in?next=%2Fsites%3Fstate%3Dpaused")
    signed_in = await browser.sign_in(next="/sites?state=paused")
    assert (signed_in.status, signed_in.headers["location"]) == (303, "/sites?state=paused")
    assert (await browser.get("/sites")).status == 200


async def test_a_browser_without_cookies_is_told_so(api: ApiStage) -> None:
    """The token is right, and the session is lost: not the empty form again."""
    browser = Browser(api)
    answer = await browser.post("/sign-in", token=ADMIN, next="/sites")
    browser.cookies.clear()
    page = await browser.get(answer.headers["location"])
    assert (page.status, "Your browser did not keep the session" in page.text) == (200, True)


async def test_a_link_of_another_site_leads_who_is_signed_in_to_its_page(api: ApiStage) -> None:
    """The strict cookie does not come with it: the page of signing in offers the way, which a person has to press."""
    browser, stranger = Browser(api), Browser(api)
    await browser.sign_in()
    stranger.headers = [("Sec-Fetch-Site", "cross-site")]
    arrived = await stranger.get("/sites?state=paused")
    page = await stranger.get(arrived.headers["location"])
    [link] = re.findall(r'href="(/sign-in[^"]*)"', page.text)
    assert (await browser.get(html.unescape(link))).headers["location"] == "/sites?state=paused"
    assert 'href="/sign-in' not in (await Browser(api).get("/sign-in")).text


@pytest.mark.parametrize("path", ["/sign-in", "/preferences"])
async def test_another_site_signs_nobody_in_and_changes_no_preference(api: ApiStage, path: str) -> None:
    """CSRF without a session: nobody is signed in to an account that somebody else chose."""
    browser = Browser(api)
    browser.headers = [("Sec-Fetch-Site", "cross-site")]
    answer = await browser.post(path, token=ADMIN, language="zh")
    assert (answer.status, browser.cookies) == (403, {})
    assert "Another site sent this form" in answer.text


async def test_a_program_gets_401_and_no_page(api: ApiStage) -> None:
    answer = await api.stage.ask("GET", "/api/sites", token=None, headers=[HTML])
    assert answer.status == 401
    assert answer.json["code"] == "token_missing"


async def test_the_session_cookie_is_strict_and_holds_no_token(api: ApiStage) -> None:
    browser = Browser(api)
    answer = await browser.post("/sign-in", token=ADMIN)
    [cookie] = answer.headers.getlist("set-cookie")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert ADMIN not in cookie


@pytest.mark.thorough
async def test_a_wrong_token_opens_nothing_and_too_many_are_refused(api: ApiStage) -> None:
    browser = Browser(api)
    for _ in range(10):
        assert (await browser.sign_in("wrong")).status == 401
    refused = await browser.sign_in(ADMIN)
    assert refused.status == 429
    assert "tidings-session" not in browser.cookies


async def test_signing_out_ends_the_session_also_for_a_copied_cookie(api: ApiStage) -> None:
    browser, thief = Browser(api), Browser(api)
    await browser.sign_in()
    thief.cookies = dict(browser.cookies)
    assert (await thief.get("/")).status == 200
    assert (await browser.post("/sign-out")).status == 303
    assert (await thief.get("/")).status == 303


async def test_a_session_ends_with_its_token(api: ApiStage) -> None:
    made = await api.installation.tokens.make(Scope.ADMIN, name="temporary")
    browser = Browser(api)
    await browser.sign_in(made.reveal())
    assert (await browser.get("/")).status == 200
    await api.installation.tokens.revoke(Scope.ADMIN, name="temporary")
    assert (await browser.get("/")).status == 303


@pytest.mark.thorough
async def test_signing_in_makes_a_new_session_id(api: ApiStage) -> None:
    """A session id that somebody planted in the browser is worth nothing."""
    browser = Browser(api)
    browser.cookies["tidings-session"] = "planted"
    await browser.sign_in()
    assert browser.cookies["tidings-session"] != "planted"


@pytest.mark.parametrize("form_key", ["", "forged"])
async def test_a_forged_form_changes_nothing(api: ApiStage, form_key: str) -> None:
    site = (await api.add_site())["id"]
    browser = Browser(api)
    await browser.sign_in()
    browser.form_key = form_key
    answer = await browser.post(f"/sites/{site}/pause")
    assert answer.status == 403
    assert (await api.read(f"/status?site={site}"))["status"] == "running"


async def test_a_session_reads_the_api_and_changes_nothing_there(api: ApiStage) -> None:
    await api.add_site()
    browser = Browser(api)
    await browser.sign_in()
    assert (await browser.get("/api/sites")).status == 200
    assert (await browser.get("/openapi.json")).status == 200
    refused = await browser.get("/trigger")
    assert refused.status == 403
    assert refused.json["code"] == "token_needed"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "elsewhere", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
async def test_sign_in_never_leads_elsewhere(api: ApiStage, elsewhere: str) -> None:
    answer = await Browser(api).sign_in(next=elsewhere)
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize(
    "value",
    ["[" * 30_000, '{"key":' * 5_000, "9" * 5_000, "NaN", "null", "%FF", "%00", '{"key":"x","values":[]}', '{"key":1}'],
    ids=lambda value: value[:8],
)
async def test_cookies_of_a_strangers_making_break_no_page(api: ApiStage, value: str) -> None:
    """Attack cases "API": each cookie that a page reads, on the page that everybody may open; never a 5xx."""
    for name in ("message", "language", "theme", "tidings-session"):
        browser = Browser(api)
        browser.cookies[name] = value
        page = await browser.get("/sign-in")
        assert (page.status, 'name="token"' in page.text) == (200, True), name


async def test_the_scope_decides_what_is_shown(api: ApiStage) -> None:
    browser = Browser(api)
    await browser.sign_in("metrics-token-0123456789abcdef")
    home = await browser.get("/")
    assert (home.status, home.headers["location"]) == (303, "/docs")
    answer = await browser.get("/docs")
    assert answer.status == 200
    assert 'href="/sites"' not in answer.text
    assert (await browser.get("/sites")).status == 403


@pytest.mark.thorough
@pytest.mark.parametrize(("scope", "group"), [*((scope, None) for scope in Scope), (Scope.VIEWER, "acme")])
async def test_no_link_leads_a_token_to_a_page_that_it_may_not_open(
    api: ApiStage, scope: Scope, group: str | None
) -> None:
    """From the first page on, over every link of the dashboard, with an alert of each pipeline."""
    site = await api.add_site(group="acme")
    await store(api.installation, NOTE, failed="gone")
    async with api.installation.database.write() as connection:
        for kind, subject in ((AnnounceAlert.CHANNEL_BROKEN, site["id"]), (CollectAlert.NO_ACTIVE_COOKIE, "bilibili")):
            await api.installation.alerts.raise_alert(
                connection, Alert(kind=kind, subject=subject, reason="refused", action="look")
            )
    number = 1 if scope is Scope.SITE else None
    made = await api.installation.tokens.make(scope, name="someone", group=group, site=number)
    browser = Browser(api)
    home = await browser.sign_in(made.reveal())
    waiting, seen = [home.headers["location"]], set[str]()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        answer = await browser.get(path)
        assert answer.status in (200, 303), (path, answer.status)
        links = [*re.findall(r'href="(/[^"#]*)', answer.text), answer.headers.get("location", "")]
        waiting += (
            {html.unescape(each) for each in links if each.startswith("/") and "xlsx" not in each} - seen - set(waiting)
        )
    assert "/docs" in seen
    assert len(seen) > (20 if scope is Scope.ADMIN else 1)


async def test_a_sites_own_token_runs_no_site_by_a_form(api: ApiStage) -> None:
    """It is for /trigger and /urls of its site, which refuse every other site, and its own while that is paused."""
    site = await api.installation.sites.find((await api.add_site())["id"])
    assert site is not None
    made = await api.installation.tokens.make(Scope.SITE, name="hook", site=site.number + 1)
    browser = Browser(api)
    await browser.sign_in(made.reveal())
    await browser.get("/docs")
    answer = await browser.post(f"/sites/{quote(site.id, safe='')}/run", channel="all")
    assert (answer.status, api.engine.requests) == (403, [])


async def test_a_token_in_the_header_sends_no_form_of_a_page(api: ApiStage) -> None:
    """Forms belong to sessions: a program uses the API, and is told so instead of failing."""
    answer = await api.stage.ask("POST", "/cookies", headers=[FORM], body=b"form_key=x&name=y")
    assert (answer.status, answer.json["code"]) == (403, "form_key_wrong")


async def test_pages_cannot_be_framed_and_run_only_our_script(api: ApiStage) -> None:
    browser = Browser(api)
    await browser.sign_in()
    policy = (await browser.get("/")).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self'" in policy
    assert "unsafe" not in policy


async def test_language_and_theme_are_kept(api: ApiStage) -> None:
    browser = Browser(api)
    await browser.sign_in()
    await browser.post("/preferences", language="zh", back="/sites")
    await browser.post("/preferences", theme="dark", back="/")
    page = (await browser.get("/")).text
    assert '<html lang="zh-CN" data-theme="dark"' in page
    assert "总览" in page


async def test_static_files_may_be_kept_for_ever(api: ApiStage) -> None:
    page = (await Browser(api).get("/sign-in")).text
    found = re.findall(r'"(/static/[^"#]+)"', page)
    assert len(found) >= 3
    for path in found:
        answer = await api.stage.ask("GET", path, token=None)
        assert (answer.status, answer.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")


async def test_every_form_of_the_dashboard_refuses_a_forged_key(api: ApiStage) -> None:
    """CSRF: each route that changes something asks for this session's form key before anything else."""
    browser = Browser(api)
    await browser.sign_in()
    open_forms = {"/sign-in", "/preferences"}
    files = Path(access.__file__).parent.rglob("*.py")
    paths = {path for file in files for path in re.findall(r'@router\.post\("([^"]+)"\)', file.read_text())}
    assert len(paths) > 12
    for path in sorted(paths - open_forms):
        # Each page that refuses brings the true key.
        browser.form_key = "forged"
        answer = await browser.post(re.sub(r"\{[^}]*\}", "x", path))
        assert answer.status == 403, path


@pytest.mark.parametrize(
    ("peer", "name"), [("192.0.2.1", "__Host-tidings-session"), ("198.51.100.7", "tidings-session")]
)
async def test_behind_a_trusted_https_proxy_the_cookie_is_bound_to_this_host(
    sqlite_url: str, tmp_path: Path, peer: str, name: str
) -> None:
    """`__Host-` and Secure where the browser speaks https. A stranger's header says nothing."""
    async with open_api(sqlite_url, tmp_path, trusted_proxies=(ip_network("192.0.2.0/24"),)) as api:
        headers = [HTML, FORM, ("X-Forwarded-Proto", "https"), ("X-Forwarded-For", "203.0.113.9")]
        body = urlencode({"token": ADMIN}).encode()
        answer = await api.stage.ask("POST", "/sign-in", token=None, headers=headers, body=body, peer=peer)
        [cookie] = answer.headers.getlist("set-cookie")
        assert cookie.partition("=")[0] == name
        assert ("Secure" in cookie.split("; ")) == name.startswith("__Host-")
        assert "Domain" not in cookie


@pytest.mark.parametrize("proxies", ["192.0.2.0/24", "203.0.113.0/24"])
async def test_signing_out_takes_the_cookie_away_behind_https_too(
    sqlite_url: str, tmp_path: Path, proxies: str
) -> None:
    """A browser deletes a `__Host-` cookie only where the answer says Secure, as it takes one only so."""
    async with open_api(sqlite_url, tmp_path, trusted_proxies=(ip_network(proxies),)) as api:
        browser = Browser(api)
        browser.headers = [("X-Forwarded-Proto", "https")]
        await browser.sign_in()
        answer = await browser.post("/sign-out")
        [cookie] = answer.headers.getlist("set-cookie")
        assert cookie.startswith("__Host-") == ("Secure" in cookie.split("; ")) == (proxies == "192.0.2.0/24")
        assert "Max-Age=0" in cookie
