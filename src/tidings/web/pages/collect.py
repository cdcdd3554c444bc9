"""Pages of collect: candidates that failed, and cookies. A cookie's value is never shown."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidings.collect.crawl.cookies.states import CookieStatus
from tidings.collect.crawl.platforms.registry import list_platforms
from tidings.collect.status.overview import CollectionSummary, read_collection
from tidings.collect.status.queries import list_failed, list_pauses
from tidings.collect.tables import CandidateStatus
from tidings.collect.write.cookies import CookieError, make_cookie
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.web.pages.view.charts import draw_stack
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.forms import FormState, read_form
from tidings.web.pages.view.questions import Question, ask
from tidings.web.pages.view.rendering import PageMessage
from tidings.web.pages.view.routing import Dashboard, make_page_router, require_scope

FUNNEL: Final = (
    CandidateStatus.PENDING,
    CandidateStatus.PROCESSING,
    CandidateStatus.COLLECTED,
    CandidateStatus.FAILED,
)

_MOST_FAILED: Final = 50
_TONES: Final = {
    CookieStatus.ACTIVE: ("ok", "ok"),
    CookieStatus.COOLING: ("overdue", "warn"),
    CookieStatus.INVALID: ("broken", "bad"),
    CookieStatus.BANNED: ("broken", "bad"),
}


def make_collect_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router()
    _add_candidates(router, dashboard)
    _add_cookies(router, dashboard)
    return router


def name_platform(platform: str, formats: Formats) -> str:
    """The platform's common name; a platform of a package keeps its own name."""
    key = f"platform.{platform}"
    return formats.texts(key) if formats.texts.has(key) else platform


def name_error(code: str | None, formats: Formats) -> str:
    """What this error code of collect means; empty without one."""
    key = f"collect_error.{code}"
    return formats.texts(key) if formats.texts.has(key) else code or ""


def describe_collection(summary: CollectionSummary, formats: Formats, *, mirrored: bool) -> dict[str, Any] | None:
    """Collection for the overview; None if there are no keywords and no data."""
    if summary.is_empty:
        return None
    parts = {
        platform: [(status.value, int(getattr(of, status.value))) for status in FUNNEL]
        for platform, of in summary.platforms.items()
    }
    most = max((sum(number for _, number in of) for of in parts.values()), default=1)
    rows = [
        {
            "name": name_platform(platform, formats),
            "counts": parts[platform],
            "stack": draw_stack(parts[platform], most=most),
            "cookies": of.cookies,
            "usable": of.usable,
        }
        for platform, of in summary.platforms.items()
    ]
    texts = formats.texts
    watched = texts("overview.watched_of", n=formats.number(summary.watched), total=formats.number(summary.keywords))
    figures = [
        {"name": texts("overview.success_rate"), "value": formats.percent(summary.success_rate)},
        {"name": texts("overview.watched"), "value": watched},
        {"name": texts("overview.last_discovery"), "value": formats.ago(summary.last_search_at)},
    ]
    if mirrored:
        figures.append({"name": texts("overview.mirror"), "value": _describe_lag(summary, formats)})
    return {"rows": rows, "figures": figures}


def _describe_lag(summary: CollectionSummary, formats: Formats) -> str:
    """How far the mirror is behind."""
    if not summary.mirror_rows or summary.mirror_since is None:
        return formats.texts("overview.mirror_even")
    age = formats.span(max(formats.now - summary.mirror_since, timedelta(0)))
    return formats.texts.count("overview.mirror_behind", summary.mirror_rows, span=age)


def _add_candidates(router: APIRouter, dashboard: Dashboard) -> None:
    installation, renderer = dashboard.installation, dashboard.renderer

    @router.get("/candidates")
    async def show_candidates(request: Request, platform: str = "") -> Response:
        require_scope(request, Scope.WORKFLOW)
        formats = renderer.formats(request)
        summary = await read_collection(installation.database, clock=installation.clock)
        async with installation.database.read() as connection:
            pauses = await list_pauses(connection)
            failed = await list_failed(connection, platform=platform or None, limit=_MOST_FAILED)
        return await dashboard.render(
            request,
            "candidates.html",
            totals=_sum_up(summary),
            is_empty=summary.is_empty,
            pauses=[
                {
                    "platform": each.platform,
                    "name": name_platform(each.platform, formats),
                    "message": formats.say(each.message),
                    "until": formats.clock_time(each.until),
                }
                for each in pauses
            ],
            platform=platform,
            platforms=[(each, name_platform(each, formats)) for each in summary.platforms],
            failed=[
                {
                    "title": each.title or each.note_id,
                    "note_id": each.note_id,
                    "platform_id": each.platform,
                    "url": each.note_url,
                    "platform": name_platform(each.platform, formats),
                    "error": name_error(each.code, formats),
                    "message": formats.say(each.message),
                    "retries": each.retry_count,
                    "at": formats.ago(each.failed_at),
                }
                for each in failed
            ],
        )

    @router.post("/candidates/resume")
    async def resume_platform(request: Request) -> Response:
        require_scope(request, Scope.WORKFLOW)
        form = await read_form(request)
        await installation.collect.writer.pauses.resume(form.get("platform"))
        installation.wake()
        return renderer.redirect("/candidates", PageMessage("platform_resumed"))

    @router.post("/candidates/retry")
    async def retry_candidates(request: Request) -> Response:
        require_scope(request, Scope.WORKFLOW)
        form = await read_form(request)
        chosen = [form.get("note_id")] if form.has("note_id") else None
        count = await installation.collect.writer.corrections.requeue(form.get("platform") or None, note_ids=chosen)
        installation.wake()
        return renderer.redirect("/candidates", PageMessage("retried", values={"n": f"{count:,}"}))


async def _check_cookie(dashboard: Dashboard, name: str) -> PageMessage:
    """Ask the platform who is logged in with this cookie; reads no note."""
    check = await dashboard.crawler.check_cookie(name)
    if check is None:
        return PageMessage("cookie_unknown", "bad", {"name": name})
    if check.session is None:
        return PageMessage(
            "cookie_unchecked", "warn", {"name": name, "error": check.error.message if check.error else ""}
        )
    if not check.session.is_logged_in:
        return PageMessage("cookie_logged_out", "bad", {"name": name})
    account = check.session.account_name or check.session.account_id or "–"
    return PageMessage("cookie_logged_in", values={"name": name, "account": account})


def _sum_up(summary: CollectionSummary) -> Sequence[tuple[str, int]]:
    return [(name.value, sum(getattr(of, name.value) for of in summary.platforms.values())) for name in FUNNEL]


def _add_cookies(router: APIRouter, dashboard: Dashboard) -> None:
    cookies, renderer = dashboard.installation.collect.cookies, dashboard.renderer

    async def show(request: Request, *, form: FormState | None = None, status: int = 200) -> Response:
        formats = renderer.formats(request)
        rows = [
            {
                "name": each.name,
                "platform": name_platform(each.platform, formats),
                "status": each.state.status,
                "look": _TONES[each.state.status],
                "used": each.state.daily_used,
                "limit": each.daily_limit,
                "priority": each.priority,
                "errors": each.state.total_errors,
                "cooling": each.state.cooling_until,
                "last": formats.ago(each.last_used_at),
            }
            for each in await cookies.list_all()
        ]
        return await dashboard.render(
            request,
            "cookies.html",
            status=status,
            rows=rows,
            platforms=[(each, name_platform(each, formats)) for each in list_platforms() if each != "web"],
            form=form or FormState(),
        )

    @router.get("/cookies")
    async def show_cookies(request: Request) -> Response:
        require_scope(request)
        return await show(request)

    @router.post("/cookies")
    async def add_cookie(request: Request) -> Response:
        require_scope(request)
        form, texts = await read_form(request), renderer.texts(request)
        try:
            secret = Secret(form.get("cookie"))
            dashboard.installation.redactor.add(secret)
            await cookies.add(make_cookie(form.get("name"), platform=form.get("platform"), secret=secret))
        except CookieError as error:
            values = {name: form.get(name) for name in ("name", "platform")}
            said = renderer.formats(request).explain(str(error))
            state = FormState(values, {"cookie": said}, {"cookie": texts("cookies.cookie")}, lost_secret=True)
            return await show(request, form=state, status=400)
        return renderer.redirect("/cookies", PageMessage("cookie_added", values={"name": form.get("name")}))

    @router.get("/cookies/remove/confirm")
    async def ask_removal(request: Request, name: str) -> Response:
        require_scope(request)
        question = Question(
            key="remove_cookie",
            values={"name": name},
            action="/cookies/remove",
            list_href="/cookies",
            list_key="nav.cookies",
            hidden={"name": name},
        )
        return await ask(dashboard, request, question)

    @router.post("/cookies/{action}")
    async def change_cookie(request: Request, action: str) -> Response:
        require_scope(request)
        form = await read_form(request)
        if action == "check":
            return renderer.redirect("/cookies", await _check_cookie(dashboard, form.get("name")))
        if action == "enable":
            await cookies.enable(form.get("name"))
        elif action == "remove":
            await cookies.remove(form.get("name"))
        return renderer.redirect("/cookies", PageMessage("saved"))
