"""Browsers that lack something, links from elsewhere, broken streams, two tabs, and the button Back."""

import re
from urllib.parse import quote

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.conftest import DESKTOP, MARKS, Visit
from tests.browser.test_attacks import serve_page
from tests.browser.test_dashboard import add_site, sign_in
from tests.web.api_stage import hold

pytestmark = [*MARKS, pytest.mark.parametrize("visit", [DESKTOP], ids=["desktop"], indirect=True)]


async def start_run(visit: Visit, path: str) -> None:
    await visit.open(path)
    await visit.page.get_by_text("Run now", exact=True).click()
    await visit.page.get_by_role("button", name="Run", exact=True).click()


async def wait_for_progress(page: Page) -> None:
    """Until the page has all its rows and the stream has moved it twice: a row that is new loads the page anew."""
    for _ in range(2):
        before = await page.locator("[data-part=took]").inner_text()
        await expect(page.locator("[data-part=took]")).not_to_have_text(before)


async def test_text_is_copied_where_the_browser_has_no_clipboard(visit: Visit) -> None:
    """At a plain http address of another machine there is no `navigator.clipboard`."""
    await visit.page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    await sign_in(visit)
    await visit.open(f"/sites/new?sitemap={quote(visit.api.web.sitemap_url, safe='')}&key=another-key-0123456789")
    await visit.page.get_by_role("button", name="Copy").first.click()
    await expect(visit.page.get_by_role("button", name="Copied")).to_be_visible()
    await visit.open("/sites/new")
    await visit.page.get_by_label("Sitemap address").press("Control+v")
    await expect(visit.page.get_by_label("Sitemap address")).to_have_value("another-key-0123456789.txt")


async def test_progress_goes_on_after_a_stream_that_a_proxy_refused(visit: Visit) -> None:
    """A browser gives up a stream that is answered by an error; the page says so, and goes on by itself."""
    refused = 0

    async def refuse(route: Route) -> None:
        nonlocal refused
        refused += 1
        await route.fulfill(status=502, body="no upstream")

    await sign_in(visit)
    path = await add_site(visit)
    await visit.page.route("**/progress", refuse, times=1)
    async with hold(visit.api.engine):
        await start_run(visit, path)
        await expect(visit.page.get_by_text("Connection lost, trying again")).to_be_visible()
        await expect(visit.page.get_by_text("Connection lost, trying again")).to_be_hidden()
        await wait_for_progress(visit.page)
    await expect(visit.page.get_by_role("row", name=re.compile("Succeeded"))).to_be_visible()
    assert refused == 1
    visit.errors[:] = [each for each in visit.errors if "502" not in each]


async def test_progress_leads_to_sign_in_when_the_session_is_over(visit: Visit) -> None:
    """Who is signed out in another tab is asked for the token, and comes back to the page."""
    await sign_in(visit)
    path = await add_site(visit)
    async with hold(visit.api.engine):
        await start_run(visit, path)
        await wait_for_progress(visit.page)
        await show_as(visit.page, hidden=True)
        await visit.page.context.clear_cookies(name="tidings-session")
        await show_as(visit.page, hidden=False)
        await visit.page.wait_for_url(f"{visit.origin}/sign-in?next=**")
    visit.errors[:] = [each for each in visit.errors if "401" not in each]


async def test_a_tab_that_nobody_sees_holds_no_stream(visit: Visit) -> None:
    """A browser opens six connections to a host: progress in six other tabs must not block the seventh."""
    await sign_in(visit)
    path = await add_site(visit)
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url) if "/progress" in request.url else None)
    async with hold(visit.api.engine):
        await start_run(visit, path)
        await wait_for_progress(visit.page)
        async with visit.page.expect_event("requestfailed", lambda request: "/progress" in request.url):
            await show_as(visit.page, hidden=True)
        async with visit.page.expect_request(lambda request: "/progress" in request.url):
            await show_as(visit.page, hidden=False)
        await wait_for_progress(visit.page)
    await expect(visit.page.get_by_role("row", name=re.compile("Succeeded"))).to_be_visible()


async def show_as(page: Page, *, hidden: bool) -> None:
    """Playwright shows every tab as seen; here the tab is told that it is hidden or seen."""
    script = """(hidden) => {
        Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    await page.evaluate(script, hidden)


async def test_a_link_of_another_site_leads_on_with_one_press(visit: Visit) -> None:
    """As from a chat: the strict cookie stays at home, so the page of signing in offers the way."""
    await sign_in(visit)
    path = await add_site(visit)
    async with serve_page(f'<link rel="icon" href="data:,"><a href="{visit.origin}{path}">our site</a>') as elsewhere:
        await visit.page.goto(elsewhere)
        await visit.page.get_by_role("link").click()
        await visit.page.get_by_role("link", name="Open the page").click()
        await visit.page.wait_for_url(f"{visit.origin}{path}")


async def test_another_site_signs_nobody_in(visit: Visit) -> None:
    """CSRF at the sign-in: a stranger's token, sent by a stranger's page, opens no session in this browser."""
    form = (
        f'<link rel="icon" href="data:,"><form method="post" action="{visit.origin}/sign-in">'
        '<input name="token" value="x"></form><script>document.forms[0].submit()</script>'
    )
    async with serve_page(form) as elsewhere:
        await visit.page.goto(elsewhere)
        await expect(visit.page.get_by_role("heading", level=1)).to_have_text("Another site sent this form")
    assert not [each for each in await visit.page.context.cookies() if "session" in each["name"]]
    visit.errors[:] = [each for each in visit.errors if "403" not in each]


async def test_two_tabs_and_the_button_back_do_nothing_twice(visit: Visit) -> None:
    """A form of a tab that is out of date says so; Back after a form shows the page before it, and sends nothing."""
    await sign_in(visit)
    path = await add_site(visit)
    await visit.open(path)
    old = await visit.page.context.new_page()
    await old.goto(visit.origin + path)
    await visit.page.get_by_role("button", name="Pause").click()
    await expect(visit.page.get_by_role("status")).to_contain_text("Paused")
    # The second tab still shows its button; it does what it says, once more.
    await old.get_by_role("button", name="Pause").click()
    await expect(old.get_by_role("status")).to_contain_text("Paused")
    await old.get_by_role("button", name="Resume").last.click()
    await expect(old.get_by_role("status")).to_contain_text("Resumed")
    await visit.page.go_back()
    await visit.page.go_forward()
    await visit.page.reload()
    await expect(visit.page.get_by_role("button", name="Pause")).to_be_visible()
    # Signing in anew makes the forms of the other tab worthless.
    await old.context.clear_cookies(name="tidings-session")
    await sign_in(visit)
    await old.get_by_role("button", name="Pause").click()
    await expect(old.get_by_role("heading", level=1)).to_have_text("This form is out of date")
    visit.errors[:] = [each for each in visit.errors if "403" not in each]
