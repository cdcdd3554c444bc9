"""The dashboard in a real browser: the daily ways through it, by mouse and by keyboard, and axe-core's rules."""

import re
from urllib.parse import quote

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Visit
from tests.browser.install import find_axe
from tests.web.pages.test_notes_pages import NOTE, store
from tests.web.stage import ADMIN
from tidings.sandbox import Fault

pytestmark = pytest.mark.browser

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
    await sign_in(visit)
    path = await add_site(visit)
    visit.api.engine.misbehave(Fault(status=503, times=2))
    await visit.open(path)
    await visit.page.get_by_text("Run now", exact=True).click()
    await visit.page.get_by_role("button", name="Run", exact=True).click()
    await expect(visit.page.get_by_role("row", name=re.compile("Succeeded"))).to_be_visible()
    visit.errors.clear()


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
    await open_menu(visit)
    await visit.page.get_by_role("button", name="中文").locator("visible=true").click()
    await expect(visit.page.get_by_role("heading", level=1)).to_have_text("总览")
    await open_menu(visit)
    await visit.page.get_by_role("button", name="深色").locator("visible=true").click()
    await expect(visit.page.locator("html")).to_have_attribute("data-theme", "dark")
    await visit.open("/sites")
    await expect(visit.page.locator("html")).to_have_attribute("lang", "zh-CN")


async def open_menu(visit: Visit) -> None:
    menu = visit.page.locator(".bar summary")
    if await menu.is_visible():
        await menu.click()


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
    ]
    return [*pages, *(site + part for part in parts)]


async def test_every_page_keeps_axes_rules(visit: Visit) -> None:
    """WCAG 2 A and AA, as far as a program can tell, in both themes."""
    script = find_axe().read_text()
    await sign_in(visit)
    found = {}
    for path in await list_paths(visit):
        await visit.open(path)
        # The policy of our pages forbids a script that is added; the browser's own console may run it.
        await visit.page.evaluate(script)
        result = await visit.page.evaluate("axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa']})")
        if result["violations"]:
            found[path] = [(each["id"], each["nodes"][0]["html"][:120]) for each in result["violations"]]
    assert found == {}


async def test_no_page_scrolls_sideways_at_any_width(visit: Visit) -> None:
    await sign_in(visit)
    wide = []
    for path in await list_paths(visit):
        for width in WIDTHS:
            await visit.page.set_viewport_size({"width": width, "height": 900})
            await visit.open(path)
            if await visit.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                wide.append((path, width))
    assert wide == []


async def test_pages_work_without_script(visit: Visit) -> None:
    """Everything but live progress and copy buttons."""
    browser = visit.page.context.browser
    assert browser is not None
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(visit.origin)
    await page.get_by_label("Token").fill(ADMIN)
    await page.get_by_role("button", name="Sign in").click()
    await page.goto(f"{visit.origin}/keywords")
    await page.get_by_label("Keyword", exact=True).fill("咖啡")
    await page.get_by_role("button", name="Watch", exact=True).click()
    await expect(page.get_by_role("status")).to_contain_text("咖啡")
    await context.close()
