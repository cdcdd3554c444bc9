"""The dashboard in a real browser: the daily ways through it, by mouse and by keyboard, and axe-core's rules."""

import re
from datetime import datetime
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import DESKTOP, MARKS, Visit
from tests.browser.install import find_axe
from tests.web.api_stage import hold
from tests.web.pages.test_notes_pages import NOTE, store
from tests.web.stage import ADMIN
from tidings.sandbox.wire.faults import Fault

pytestmark = MARKS

# For tests that choose the size themselves, or that no size changes.
ONE_SIZE = pytest.mark.parametrize("visit", [DESKTOP], ids=["desktop"], indirect=True)
WIDTHS = (320, 390, 768, 820, 1024, 1280, 1440)


async def sign_in(visit: Visit) -> None:
    await visit.open("/")
    await visit.page.get_by_label("Token").fill(ADMIN)
    await visit.page.get_by_role("button", name="Sign in").click()
    await expect(visit.page.get_by_role("heading", level=1)).to_have_text("Overview")


async def add_site(visit: Visit) -> str:
    """Add the sandbox's site; returns its page's path."""
    site: str = (await visit.api.add_site())["id"]
    return f"/sites/{quote(site, safe='')}"


async def test_the_first_site_goes_from_nothing_to_accepted_pages(visit: Visit) -> None:
    """Sign in, give a sitemap, check the key file, look at the dry run, announce, watch the progress to its end."""
    await sign_in(visit)
    page, web = visit.page, visit.api.web
    await page.get_by_role("link", name="Add site").first.click()
    await page.get_by_label("Sitemap address").fill(web.sitemap_url)
    await page.get_by_role("button", name="Read the sitemap").click()
    await expect(page.get_by_role("button", name="Copy").first).to_be_visible()
    await page.get_by_role("link", name="Check now").click()
    await expect(page.get_by_role("alert")).to_contain_text("The file is not there yet")
    # The person uploads the file: here, the site has had this key all along.
    await page.goto(re.sub(r"key=[0-9a-f]+", f"key={web.key}", page.url))
    await page.get_by_role("button", name="Save and go on").click()
    await expect(page.get_by_role("main")).to_contain_text("60 pages would be sent now")
    await page.get_by_role("button", name="Announce now").click()
    await expect(page.get_by_role("row", name=re.compile("Succeeded"))).to_contain_text("60")


async def test_progress_moves_without_a_reload(visit: Visit) -> None:
    """The running site names its worker; the stream brings the engine's counts into the same page, up to the end."""
    await sign_in(visit)
    path = await add_site(visit)
    [worker] = await visit.api.installation.dispatcher.list_workers()
    async with hold(visit.api.engine):
        await visit.open(path)
        await visit.page.get_by_text("Run now", exact=True).click()
        await visit.page.get_by_role("button", name="Run", exact=True).click()
        progress = visit.page.locator("[data-stream]")
        await expect(progress).to_contain_text("Sending")
        await expect(progress).to_contain_text(f"on {worker.name}")
        # A page that is loaded anew has no mark.
        await visit.page.evaluate("window.mark = 1")
        took = await progress.locator("[data-part=took]").inner_text()
        await expect(progress.locator("[data-part=took]")).not_to_have_text(took)
        assert await visit.page.evaluate("window.mark") == 1
    await expect(visit.page.get_by_role("row", name=re.compile("Succeeded"))).to_be_visible()


async def test_a_failed_page_is_requeued(visit: Visit) -> None:
    visit.api.engine.misbehave(Fault(status=422, matching="/0000003/"))
    await sign_in(visit)
    path = await add_site(visit)
    await visit.api.run()
    await visit.open(f"{path}/failed")
    await visit.page.get_by_role("checkbox").nth(1).check()
    await visit.page.get_by_role("button", name="Requeue the chosen").click()
    await expect(visit.page.get_by_role("status")).to_contain_text("sent again")


async def test_all_failures_are_requeued_and_a_url_is_looked_up(visit: Visit) -> None:
    visit.api.engine.misbehave(Fault(status=422, matching="/0000003/"))
    await sign_in(visit)
    path = await add_site(visit)
    await visit.api.run()
    await visit.open(path)
    await visit.page.get_by_role("button", name="Requeue all 1").click()
    await expect(visit.page.get_by_role("status")).to_contain_text("sent again")
    await visit.page.get_by_role("link", name="Look up a URL").click()
    await visit.page.get_by_label("URL", exact=True).fill(visit.api.web.url(3))
    await visit.page.get_by_role("button", name="Look up", exact=True).click()
    await expect(visit.page.get_by_role("main")).to_contain_text("Waiting")


async def test_notes_are_searched_and_exported(visit: Visit) -> None:
    await store(visit.api.installation, NOTE)
    await sign_in(visit)
    await visit.open("/notes")
    await visit.page.get_by_label("Search notes").fill("咖啡")
    await visit.page.get_by_role("button", name="Search", exact=True).click()
    await expect(visit.page.locator("mark").first).to_have_text("咖啡")
    await visit.page.get_by_text("Export", exact=True).click()
    async with visit.page.expect_download() as download:
        await visit.page.get_by_role("link", name="JSONL").click()
    exported = await (await download.value).path()
    assert "手冲咖啡入门" in exported.read_text()
    await visit.page.get_by_role("link", name=re.compile("手冲")).click()
    await expect(visit.page.get_by_role("main")).to_contain_text("60,033")


async def test_language_and_theme_are_switched_and_kept(visit: Visit) -> None:
    await sign_in(visit)
    await open_menu(visit.page)
    await visit.page.get_by_role("button", name="中文").locator("visible=true").click()
    await expect(visit.page.get_by_role("heading", level=1)).to_have_text("总览")
    await open_menu(visit.page)
    await visit.page.get_by_role("button", name="深色").locator("visible=true").click()
    await expect(visit.page.locator("html")).to_have_attribute("data-theme", "dark")
    await visit.open("/sites")
    await expect(visit.page.locator("html")).to_have_attribute("lang", "zh-CN")


async def open_menu(page: Page) -> None:
    """A phone keeps the language, the theme and the sign-out in a menu."""
    menu = page.locator(".bar summary")
    if await menu.is_visible():
        await menu.click()


async def press_until(visit: Visit, name: str) -> None:
    """Press Tab until the element with this text or label has the focus."""
    script = """() => { const at = document.activeElement;
        return [at.innerText, at.getAttribute("aria-label"), ...[...(at.labels || [])].map((one) => one.innerText)] }"""
    for _ in range(60):
        await visit.page.keyboard.press("Tab")
        if any(each and each.strip() == name for each in await visit.page.evaluate(script)):
            return
    pytest.fail(f"Tab never reaches {name}")


async def test_the_first_site_is_announced_by_keyboard_alone(visit: Visit) -> None:
    """From the sign-in to the first accepted page: only Tab, Enter and what is typed."""
    page, keyboard, web = visit.page, visit.page.keyboard, visit.api.web
    await visit.open("/sites/new")
    await keyboard.type(ADMIN)
    await keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Add a site")
    await press_until(visit, "Sitemap address")
    await keyboard.type(web.sitemap_url)
    await keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Copy").first).to_be_visible()
    # The person uploads the file: here, the site has had this key all along.
    await page.goto(f"{page.url}&key={web.key}")
    await press_until(visit, "Check now")
    await keyboard.press("Enter")
    await expect(page.get_by_role("main")).to_contain_text("The key file is in place")
    await press_until(visit, "Save and go on")
    await keyboard.press("Enter")
    await expect(page.get_by_role("main")).to_contain_text("60 pages would be sent now")
    await press_until(visit, "Announce now")
    await keyboard.press("Enter")
    await expect(page.get_by_role("row", name=re.compile("Succeeded"))).to_contain_text("60")


async def test_the_keyboard_alone_is_enough(visit: Visit) -> None:
    """Tab reaches the token field, Enter signs in, the skip link leads to the content, Escape closes a menu."""
    await visit.open("/")
    await visit.page.keyboard.type(ADMIN)
    await visit.page.keyboard.press("Enter")
    await expect(visit.page.get_by_role("heading", level=1)).to_have_text("Overview")
    await visit.page.keyboard.press("Tab")
    await expect(visit.page.locator(":focus")).to_have_text("Skip to content")
    await visit.page.keyboard.press("Enter")
    await expect(visit.page.locator("main")).to_be_focused()
    path = await add_site(visit)
    await visit.open(path)
    run = visit.page.locator("main details.menu summary")
    await run.focus()
    await visit.page.keyboard.press("Enter")
    await expect(visit.page.get_by_role("button", name="Run", exact=True)).to_be_visible()
    await visit.page.keyboard.press("Escape")
    await expect(visit.page.get_by_role("button", name="Run", exact=True)).to_be_hidden()
    await expect(run).to_be_focused()


async def list_paths(visit: Visit) -> list[str]:
    site = await add_site(visit)
    await visit.api.run()
    await store(visit.api.installation, NOTE, failed="a note that is gone")
    parts = ("", "/lookup", "/executions", "/failed", "/settings", "/check", "/dry-run", "/remove/confirm")
    await visit.api.installation.collect.keywords.add("bilibili", "咖啡")
    pages = [
        "/",
        "/sites",
        "/sites/new",
        "/alerts",
        "/keywords",
        "/candidates",
        "/cookies",
        "/notes",
        "/notes/bilibili/BV1",
        "/workers",
        "/executions",
        "/settings",
        "/docs",
        "/keywords/remove/confirm?platform=bilibili&keyword=x",
        "/notes/delete/confirm?platform=bilibili&note_id=BV1",
        f"/sites/new?sitemap={quote(visit.api.web.sitemap_url, safe='')}&key=another-key-0123456789&check=true",
    ]
    return [*pages, *(site + part for part in parts)]


async def test_every_page_keeps_axes_rules(visit: Visit) -> None:
    """WCAG 2 A and AA, as far as a program can tell, in both themes, with every part of a form opened."""
    script = find_axe().read_text()
    # A button fades into its new colours, and axe would judge the colours between; this ends every fading.
    await visit.page.emulate_media(reduced_motion="reduce")
    await sign_in(visit)
    found = {}
    for path in await list_paths(visit):
        await visit.open(path)
        # The policy of our pages forbids a script that is added; the browser's own console may run it.
        await visit.page.evaluate(script)
        await visit.page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true })")
        for theme in ("light", "dark"):
            await visit.page.evaluate("(theme) => { document.documentElement.dataset.theme = theme }", theme)
            result = await visit.page.evaluate("axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa']})")
            if result["violations"]:
                broken = [(each["id"], each["nodes"][0]["html"][:120]) for each in result["violations"]]
                found[path, theme] = broken
    assert found == {}


@ONE_SIZE
async def test_no_page_scrolls_sideways_at_any_width(visit: Visit) -> None:
    await sign_in(visit)
    wide = []
    for path in await list_paths(visit):
        await visit.open(path)
        for width in WIDTHS:
            await visit.page.set_viewport_size({"width": width, "height": 900})
            if await visit.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                wide.append((path, width))
    assert wide == []


@ONE_SIZE
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_the_choice_of_channels_stays_on_the_screen(visit: Visit, language: str) -> None:
    """Run now opens its choices within the window, whatever the width and the length of the words."""
    await sign_in(visit)
    if language == "zh":
        await visit.page.get_by_role("button", name="中文").locator("visible=true").click()
        await expect(visit.page.get_by_role("heading", level=1)).to_have_text("总览")
    await visit.open(await add_site(visit))
    await visit.page.locator("main details.menu summary").click()
    outside = []
    for width in WIDTHS:
        await visit.page.set_viewport_size({"width": width, "height": 900})
        box = await visit.page.locator("main details.menu .panel").bounding_box()
        if box is None or box["x"] < 0 or box["x"] + box["width"] > width:
            outside.append((width, box))
    assert outside == []


async def test_everything_works_without_script(visit: Visit) -> None:
    """From the sign-in to the first accepted page, settings, language and sign-out; progress comes by reload."""
    async with visit.open_another(java_script_enabled=False, viewport=visit.page.viewport_size) as page:
        await walk_without_script(visit, page)


async def walk_without_script(visit: Visit, page: Page) -> None:
    web = visit.api.web
    await page.goto(f"{visit.origin}/sites/new")
    await page.get_by_label("Token").fill(ADMIN)
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_label("Sitemap address").fill(web.sitemap_url)
    await page.get_by_role("button", name="Read the sitemap").click()
    await expect(page.get_by_role("link", name="Download the file")).to_be_visible()
    await page.goto(f"{page.url}&key={web.key}&check=true")
    await page.get_by_role("button", name="Save and go on").click()
    async with hold(visit.api.engine):
        await page.get_by_role("button", name="Announce now").click()
        await expect(page.locator("noscript meta[http-equiv=refresh]")).to_have_count(1)
    # The page loads itself anew every five seconds.
    await expect(page.get_by_role("row", name=re.compile("Succeeded"))).to_contain_text("60", timeout=30_000)
    await page.get_by_role("link", name="Settings", exact=True).last.click()
    await page.get_by_text("Group and deploy hook").click()
    await page.get_by_label("Group", exact=True).fill("shops")
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_role("status")).to_contain_text("Saved")
    await page.goto(f"{visit.origin}/sites?group=shops")
    await expect(page.get_by_role("row")).to_have_count(2)
    await open_menu(page)
    await page.get_by_role("button", name="中文").locator("visible=true").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("站点")
    await open_menu(page)
    await page.get_by_role("button", name="退出登录").locator("visible=true").click()
    await expect(page.get_by_label("令牌")).to_be_visible()


@ONE_SIZE
async def test_times_are_in_the_viewers_zone_with_utc_on_hover(visit: Visit) -> None:
    await visit.api.add_site()
    await visit.api.run()
    async with visit.open_another(timezone_id="Asia/Shanghai", locale="zh-CN") as page:
        await page.goto(visit.origin)
        await page.get_by_label("令牌").fill(ADMIN)
        await page.get_by_role("button", name="登录").click()
        await page.goto(f"{visit.origin}/executions")
        time = page.locator("tbody time").first
        utc = datetime.fromisoformat(str(await time.get_attribute("datetime")))
        local = utc.astimezone(ZoneInfo("Asia/Shanghai"))
        assert (await time.inner_text()).endswith(f"{local:%H:%M}")
        assert await time.get_attribute("title") == f"{utc:%Y-%m-%d %H:%M:%S} UTC"


@ONE_SIZE
async def test_an_error_in_any_browser_of_a_test_is_noticed(visit: Visit) -> None:
    """The check itself: an inline script that the policy forbids, and an error that is thrown, in a second browser."""
    async with visit.open_another() as page:
        await page.goto(f"{visit.origin}/sign-in")
        async with page.expect_console_message():
            await page.evaluate("document.body.appendChild(document.createElement('script')).textContent = 'alert(1)'")
        async with page.expect_event("pageerror"):
            await page.evaluate("setTimeout(() => { throw new Error('thrown') })")
    seen, visit.errors = visit.errors, []
    assert ["Content Security Policy" in seen[0], "thrown" in seen[1]] == [True, True]
