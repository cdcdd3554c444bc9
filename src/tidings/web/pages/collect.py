"""Pages of collect: candidates that failed, and cookies. A cookie's value is never shown."""

from typing import Final

from fastapi import Request
from fastapi.responses import Response

from tidings.collect.crawl.cookies.states import CookieStatus
from tidings.collect.crawl.platforms.registry import list_platforms
from tidings.collect.errors import CrawlError
from tidings.collect.pasted_cookie import CookieError
from tidings.collect.status.overview import CollectionSummary, read_collection
from tidings.collect.status.queries import list_failed, list_pauses
from tidings.collect.write.cookies import make_cookie
from tidings.core.secrets.master_key import KeyRingError
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.web.pages.view.charts import Stack, draw_stack
from tidings.web.pages.view.forms import FormState
from tidings.web.pages.view.rendering import PageMessage
from tidings.web.pages.view.routing import PageView, make_page_router

router = make_page_router()

# Statuses of candidates in the order of their way.
FUNNEL: Final = ("pending", "processing", "collected", "failed")

_MOST_FAILED: Final = 50
# Icon and tone of a cookie's badge.
_LOOKS: Final = {
    CookieStatus.ACTIVE: ("ok", "ok"),
    CookieStatus.COOLING: ("overdue", "warn"),
    CookieStatus.INVALID: ("broken", "bad"),
    CookieStatus.BANNED: ("broken", "bad"),
    CookieStatus.UNREADABLE: ("broken", "bad"),
}


def draw_funnels(summary: CollectionSummary) -> dict[str, Stack]:
    """A row of the funnel for each platform, all on one scale."""
    parts = {
        platform: [(name, int(getattr(of, name))) for name in FUNNEL] for platform, of in summary.platforms.items()
    }
    most = max((sum(number for _, number in of) for of in parts.values()), default=1)
    return {platform: draw_stack(of, most=most) for platform, of in parts.items()}


@router.get("/candidates")
async def show_candidates(request: Request, platform: str = "") -> Response:
    view = PageView(request, Scope.WORKFLOW)
    installation = view.installation
    summary = await read_collection(installation.database, clock=installation.clock)
    async with installation.database.read() as connection:
        pauses = await list_pauses(connection)
        failed = await list_failed(connection, platform=platform or None, limit=_MOST_FAILED)
    totals = [(name, sum(getattr(of, name) for of in summary.platforms.values())) for name in FUNNEL]
    return await view.render(
        "candidates.html", totals=totals, summary=summary, pauses=pauses, platform=platform, failed=failed
    )


@router.post("/candidates/resume")
async def resume_platform(request: Request) -> Response:
    view = PageView(request, Scope.WORKFLOW)
    form = await view.read_form()
    await view.installation.collect.writer.pauses.resume(form.get("platform"))
    view.installation.wake()
    return view.redirect("/candidates", PageMessage("platform_resumed"))


@router.post("/candidates/retry")
async def retry_candidates(request: Request) -> Response:
    view = PageView(request, Scope.WORKFLOW)
    form = await view.read_form()
    chosen = [form.get("note_id")] if form.has("note_id") else None
    corrections = view.installation.collect.writer.corrections
    count = await corrections.requeue(form.get("platform") or None, note_ids=chosen)
    view.installation.wake()
    return view.redirect("/candidates", PageMessage("retried", values={"n": f"{count:,}"}))


@router.get("/cookies")
async def show_cookies(request: Request) -> Response:
    return await _show_cookies(PageView(request), FormState())


@router.post("/cookies")
async def add_cookie(request: Request) -> Response:
    view = PageView(request)
    form = await view.read_form()
    try:
        secret = Secret(form.get("cookie"))
        view.installation.redactor.add(secret)
        new = make_cookie(form.get("name"), platform=form.get("platform"), secret=secret)
        await view.installation.collect.cookies.add(new)
    except CookieError as error:
        values = {name: form.get(name) for name in ("name", "platform")}
        said = view.formats.explain(str(error))
        state = FormState(values, {"cookie": said}, {"cookie": view.texts("cookies.cookie")}, lost_secret=True)
        return await _show_cookies(view, state, status=400)
    return view.redirect("/cookies", PageMessage("cookie_added", values={"name": form.get("name")}))


@router.get("/cookies/remove/confirm")
async def ask_cookie_removal(request: Request, name: str) -> Response:
    view = PageView(request)
    named = {"name": name}
    return await view.ask("remove_cookie", named, list_name="cookies", action="/cookies/remove", hidden=named)


@router.post("/cookies/{action}")
async def change_cookie(request: Request, action: str) -> Response:
    view = PageView(request)
    cookies, name = view.installation.collect.cookies, (await view.read_form()).get("name")
    if action == "check":
        return view.redirect("/cookies", await _check_cookie(view, name))
    if action == "enable":
        await cookies.enable(name)
    elif action == "remove":
        await cookies.remove(name)
    return view.redirect("/cookies", PageMessage("saved"))


async def _show_cookies(view: PageView, form: FormState, *, status: int = 200) -> Response:
    rows = await view.installation.collect.cookies.list_all()
    platforms = [name for name in list_platforms() if name != "web"]
    return await view.render("cookies.html", status=status, rows=rows, looks=_LOOKS, platforms=platforms, form=form)


async def _check_cookie(view: PageView, name: str) -> PageMessage:
    """Ask the platform who is logged in with this cookie; reads no note."""
    try:
        check = await view.dashboard.crawler.check_cookie(name)
    except KeyRingError:
        return PageMessage("cookie_unreadable", "bad", {"name": name})
    except CrawlError as error:
        return PageMessage("cookie_unchecked", "warn", {"name": name, "error": view.formats.explain(error.message)})
    if check is None:
        return PageMessage("cookie_unknown", "bad", {"name": name})
    if check.session is None:
        said = view.formats.explain(check.error.message) if check.error else ""
        return PageMessage("cookie_unchecked", "warn", {"name": name, "error": said})
    if not check.session.is_logged_in:
        return PageMessage("cookie_logged_out", "bad", {"name": name})
    account = check.session.account_name or check.session.account_id or "–"
    return PageMessage("cookie_logged_in", values={"name": name, "account": account})
