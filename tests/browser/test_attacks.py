"""Attacks on the dashboard, in a browser: foreign text runs nothing, other sites move nothing, no frame holds it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import quote

import pytest
from aiohttp import web
from playwright.async_api import Dialog

from tests.browser.conftest import MARKS, Visit
from tests.browser.test_dashboard import add_site, sign_in
from tests.web.pages.test_notes_pages import NOTE, store
from tests.web.stage import ADMIN
from tidings.announce.execution.alerts import AnnounceAlert
from tidings.collect.notes import Author
from tidings.core.alerts.events import Alert
from tidings.sandbox.wire.faults import Fault

pytestmark = MARKS

# Each would call `alert`, which opens a dialog.
ATTACK = (
    '"><script>alert(1)</script><img src=x onerror=alert(1)><svg onload=alert(1)>'
    "<a href='javascript:alert(1)' autofocus onfocus=alert(1)>{{7*7}}</a>"
)


@asynccontextmanager
async def serve_page(html: str) -> AsyncIterator[str]:
    """A page of another site, on another host name of this machine."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://localhost:{port}/"
    finally:
        await runner.cleanup()


async def plant(visit: Visit) -> list[str]:
    """Put the attack wherever a site, an engine, a platform or a person can write; returns the pages that show it."""
    api, installation = visit.api, visit.api.installation
    api.engine.misbehave(Fault(status=422, body=ATTACK, matching="/0000003/"))
    site = await add_site(visit)
    await api.run()
    await installation.collect.keywords.add("bilibili", ATTACK[:100])
    evil = replace(
        NOTE,
        note_id="evil",
        title=ATTACK,
        text=ATTACK,
        author=Author(author_id="1", name=ATTACK),
        tags=(ATTACK,),
        place=ATTACK,
        images=(ATTACK, "javascript:alert(1)"),
        url="javascript:alert(1)",
    )
    await store(installation, evil, failed=ATTACK)
    async with installation.database.write() as connection:
        for subject in (ATTACK, "over"):
            alert = Alert(kind=AnnounceAlert.NO_URLS, subject=subject, reason=ATTACK, action=ATTACK)
            await installation.alerts.raise_alert(connection, alert)
    async with installation.database.write() as connection:
        await installation.alerts.resolve_alert(connection, AnnounceAlert.NO_URLS, "over")
    query = quote(ATTACK, safe="")
    return [
        *("/", "/alerts", "/keywords", "/candidates", "/notes", "/notes?q=script", "/notes/bilibili/evil"),
        *("/sites?q=%3Cscript%3Ealert(1)", "/notes?q=%3Cscript%3Ealert(1)", f"/sites/new?sitemap={query}"),
        *(site, f"{site}/failed", f"{site}/lookup?url={query}", f"{site}/settings", "/executions"),
    ]


async def test_text_of_others_runs_nothing(visit: Visit) -> None:
    """XSS in every text that a site, engine, platform or person can set: no dialog, no element, no error."""
    await sign_in(visit)
    dialogs: list[str] = []

    async def refuse(dialog: Dialog) -> None:
        dialogs.append(visit.page.url)
        await dialog.dismiss()

    visit.page.on("dialog", refuse)
    shown = 0
    for path in await plant(visit):
        await visit.open(path)
        planted = "main script, main img, main svg[onload], [onfocus], a[href^=javascript]"
        assert await visit.page.locator(planted).count() == 0, path
        shown += "alert(1)" in await visit.page.content()
    assert dialogs == []
    assert shown > 8
    # The sitemap's address is refused with 400, which a browser reports; nothing else.
    visit.errors[:] = [each for each in visit.errors if "status of 400" not in each]


async def test_a_form_of_another_site_changes_nothing(visit: Visit) -> None:
    """CSRF: the strict cookie does not travel, and without the form key nothing happens."""
    await sign_in(visit)
    path = await add_site(visit)
    forged = (
        f'<form method="post" action="{visit.origin}{path}/pause"><input name="form_key" value="x"></form>'
        "<script>document.forms[0].submit()</script>"
    )
    async with serve_page(forged) as elsewhere:
        await visit.page.goto(elsewhere)
        await visit.page.wait_for_url(f"{visit.origin}/**")
    visit.errors.clear()
    assert (await visit.api.read(f"/status?site={path.removeprefix('/sites/')}"))["status"] == "running"


async def test_a_link_cannot_trigger_a_run(visit: Visit) -> None:
    """CSRF: GET /trigger with the session's cookie is refused."""
    await sign_in(visit)
    await add_site(visit)
    answer = await visit.page.goto(f"{visit.origin}/trigger")
    assert answer is not None
    assert answer.status == 403
    assert visit.api.engine.requests == []
    visit.errors.clear()


async def test_nobody_frames_the_dashboard(visit: Visit) -> None:
    """Clickjacking: the browser refuses to show our page within another site's, and says why."""
    await sign_in(visit)
    async with serve_page(f'<iframe src="{visit.origin}/sign-in" id="f"></iframe>') as elsewhere:
        await visit.page.goto(elsewhere)
        assert await visit.page.frames[-1].locator("#token").count() == 0
        assert any("frame-ancestors" in each for each in visit.errors)
    visit.errors.clear()


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example/", "/\\\\evil.example", "javascript:alert(1)"]
)
async def test_sign_in_leads_only_home(visit: Visit, target: str) -> None:
    """Open redirect: after signing in, the browser is on our own overview."""
    await visit.open(f"/sign-in?next={quote(target, safe='')}")
    await visit.page.get_by_label("Token").fill(ADMIN)
    await visit.page.get_by_role("button", name="Sign in").click()
    await visit.page.wait_for_url(f"{visit.origin}/")


async def test_a_planted_session_is_worth_nothing(visit: Visit) -> None:
    """Session fixation: signing in makes a new id, which no script can read."""
    await visit.page.context.add_cookies([{"name": "tidings-session", "value": "planted", "url": visit.origin}])
    await sign_in(visit)
    [cookie] = [each for each in await visit.page.context.cookies() if each["name"] == "tidings-session"]
    assert cookie["value"] != "planted"
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert "tidings-session" not in await visit.page.evaluate("document.cookie")
