"""Alerts: those that are open, with what to do, and those that have ended."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidings.core.secrets.scopes import Scope
from tidings.web.pages.overview import describe_alert, name_level, title_alert
from tidings.web.pages.view.routing import Dashboard, make_page_router, refuse_group, require_scope

_MOST = 100


def make_alerts_router(dashboard: Dashboard) -> APIRouter:
    router = make_page_router(dashboard)

    @router.get("/alerts")
    async def show_alerts(request: Request) -> Response:
        refuse_group(require_scope(request, Scope.VIEWER))
        formats = dashboard.renderer.formats(request)
        found = await dashboard.installation.alerts.list_open(limit=_MOST)
        shown = [describe_alert(each, formats) for each in found]
        past = [
            {
                "level": name_level(each.kind),
                "title": title_alert(each.kind, each.subject, formats),
                "text": formats.say(each.reason),
                "lasted": formats.span(each.ended_at - each.since),
                "at": each.ended_at,
            }
            for each in await dashboard.installation.alerts.list_past(limit=_MOST)
        ]
        return await dashboard.render(request, "alerts.html", alerts=shown, past=past)

    return router
