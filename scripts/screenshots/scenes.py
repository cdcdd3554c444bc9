"""What is photographed: the address of each scene, and what somebody does there before the picture is taken."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from playwright.async_api import Page

# A page of the sandbox.
PAGE = "pages/0000001/amber-bridge-letters.html"

Act = Callable[[Page], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture."""

    name: str
    path: str
    # What somebody does on the page first.
    act: Act | None = None
    # Only at this size.
    size: str | None = None


async def find_scenes(page: Page, origin: str) -> list[Scene]:
    """The demo's scenes, for somebody who may do everything."""
    own = await _find_own_site(page, origin)
    sitemap = f"http://{unquote(own.rpartition('/')[2])}/sitemap.xml"
    await page.goto(f"{origin}/sites/docs.example/executions")
    execution = str(await page.locator("tbody a").last.get_attribute("href"))
    await page.goto(f"{origin}/notes?keyword={quote('露营')}")
    note = str(await page.locator("a.main-cell").last.get_attribute("href"))
    return [
        Scene("overview", "/"),
        Scene("overview-no-match", "/?q=nothing"),
        Scene("menu", "/", _click(".bar summary"), size="phone"),
        Scene("alerts", "/alerts"),
        Scene("sites", "/sites"),
        *_list_first_site(sitemap),
        *_list_site_scenes("/sites/docs.example", execution),
        Scene("look-up", f"{own}/lookup?url={quote(sitemap.replace('sitemap.xml', PAGE), safe='')}"),
        Scene("notes", f"/notes?q={quote('咖啡')}"),
        Scene("notes-export", "/notes", _click("main details.menu summary")),
        Scene("notes-no-match", "/notes?q=nothing"),
        Scene("note", note),
        Scene("note-delete", "/notes", _delete_note),
        Scene("candidates", "/candidates"),
        Scene("keywords", "/keywords"),
        Scene("keywords-error", "/keywords", _watch_nothing),
        Scene("keyword-remove", "/keywords", _click("main .row-actions a")),
        Scene("cookies", "/cookies"),
        Scene("cookies-form", "/cookies", _click("main details summary")),
        Scene("executions", "/executions"),
        Scene("workers", "/workers"),
        Scene("settings", "/settings"),
        Scene("api", "/docs"),
        Scene("not-found", "/sites/unknown.example"),
        Scene("bad-address", "/sites?from=x"),
        Scene("form-expired", "/sites/blog.example", _send_stale_form),
    ]


def _list_first_site(sitemap: str) -> Sequence[Scene]:
    new = f"/sites/new?sitemap={quote(sitemap, safe='')}"
    return [
        Scene("first-site", "/sites/new"),
        Scene("first-site-no-url", "/sites/new?sitemap=example"),
        Scene("first-site-bad-sitemap", f"/sites/new?sitemap={quote(sitemap + '.gone', safe='')}"),
        Scene("first-site-key", new),
        Scene("first-site-key-missing", f"{new}&key=7f3c9a4e51b84d0fa6c2e8d17b90f35c&check=true"),
        Scene("first-site-channels", f"{new}&key=7f3c9a4e51b84d0fa6c2e8d17b90f35c&skip=true"),
    ]


def _list_site_scenes(site: str, execution: str) -> Sequence[Scene]:
    return [
        Scene("site", site),
        Scene("site-run", site, _click("main details.menu summary")),
        Scene("running", site, _wait_for_progress),
        Scene("broken", "/sites/shop.example"),
        Scene("paused", "/sites/blog.example", _pause_again),
        Scene("site-executions", f"{site}/executions"),
        Scene("execution", execution),
        Scene("failed", "/sites/archive.example/failed"),
        Scene("failed-none", "/sites/blog.example/failed"),
        Scene("site-settings", f"{site}/settings"),
        Scene("site-settings-error", f"{site}/settings", _save_wrong_schedule),
        Scene("look-up-refused", f"{site}/lookup?url=https%3A%2F%2Fother.example%2F"),
        Scene("check", f"{site}/check"),
        Scene("dry-run", f"{site}/dry-run"),
        Scene("forget", f"{site}/forget/confirm?since=2026-01-01T00:00:00Z"),
        Scene("remove", f"{site}/remove/confirm"),
    ]


STRANGER = (Scene("sign-in", "/sign-in"), Scene("sign-in-wrong", "/sign-in", lambda page: _sign_in_wrongly(page)))
VIEWER = (
    Scene("viewer-overview", "/"),
    Scene("viewer-site", "/sites/docs.example"),
    Scene("viewer-forbidden", "/settings"),
)
EMPTY = tuple(
    Scene(f"empty-{name or 'overview'}", f"/{name}")
    for name in ("", "alerts", "sites", "notes", "candidates", "keywords", "cookies", "executions")
)


async def _find_own_site(page: Page, origin: str) -> str:
    """The page of the site whose id is its host, which the sandbox serves."""
    await page.goto(f"{origin}/sites?q=127.0.0.1")
    return str(await page.locator("a.main-cell").first.get_attribute("href"))


def _click(selector: str) -> Act:
    async def click(page: Page) -> None:
        await page.locator(selector).first.click()

    return click


async def _wait_for_progress(page: Page) -> None:
    """Until an execution is at work, and its progress has moved."""
    for _ in range(240):
        if await page.locator("[data-stream]").count():
            await page.wait_for_timeout(1_500)
            if await page.locator("[data-stream]").count():
                return
        await page.wait_for_timeout(500)
        await page.reload()


async def _pause_again(page: Page) -> None:
    """Resumed and paused: the page says so, and the site is as it was."""
    for action in ("resume", "pause"):
        await page.locator(f'form[action$="/{action}"] button').click()
        await page.wait_for_load_state()


async def _delete_note(page: Page) -> None:
    await page.locator("a.main-cell").first.click()
    await page.locator('a[href^="/notes/delete/confirm"]').click()


async def _watch_nothing(page: Page) -> None:
    """A keyword that cannot be searched for: there is no feed."""
    await page.locator("main details summary").first.click()
    await page.locator("#field-platform").select_option("web")
    await page.locator("#field-keyword").fill("coffee")
    await page.locator("main form button.primary").first.click()


async def _save_wrong_schedule(page: Page) -> None:
    await page.locator("#field-schedule").fill("0 25 * * *")
    await page.locator('main form[action$="/settings"] button.primary').click()


async def _send_stale_form(page: Page) -> None:
    await page.evaluate("document.querySelectorAll('[name=form_key]').forEach((key) => { key.value = 'stale' })")
    await page.locator('form[action$="/resume"] button').click()


async def _sign_in_wrongly(page: Page) -> None:
    await page.locator("#token").fill("a-token-that-nobody-made")
    await page.locator("main form button.primary").click()
