"""What every page route shares: its services, errors as pages, and the frame's numbers."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute

from tidings.announce.site.site import Site
from tidings.collect.crawl.crawler import Crawler
from tidings.core.logs.request_id import current_request_id
from tidings.core.secrets.scopes import Grant, Scope
from tidings.core.secrets.sessions import Sessions
from tidings.web.errors import Problem, ProblemError, problem
from tidings.web.middleware.auth import GRANT
from tidings.web.pages.view.rendering import FrameCounts, PageRenderer
from tidings.wiring.installation import Installation

_BAD_ADDRESS: Final = Problem(400, "bad_address", "")
# Codes of problems that have a text of their own, in both languages.
_TEXTS: Final = {"bad_address": "bad_address", "scope_missing": "forbidden", "form_key_wrong": "form_expired"}


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The services that pages call, and the renderer."""

    installation: Installation
    sessions: Sessions
    renderer: PageRenderer
    # Asks a platform who is logged in with a cookie.
    crawler: Crawler

    async def count(self, request: Request) -> FrameCounts:
        """The numbers beside the navigation's links, as far as this session may know them."""
        grant: Grant | None = request.scope.get(GRANT)
        if grant is not None and grant.group is not None:
            return FrameCounts(sites=await self.installation.sites.count(group=grant.group))
        return FrameCounts(
            open_alerts=await self.installation.alerts.count_open(), sites=await self.installation.sites.count()
        )

    async def render(self, request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
        """A page within the frame."""
        return self.renderer.render(request, template, status=status, counts=await self.count(request), **values)

    async def require_site(self, site_id: str) -> Site:
        """The site of this id. Raises a 404 problem."""
        site = await self.installation.sites.find(site_id)
        if site is None:
            problem(404, "unknown_site", "there is no site of this id")
        return self.installation.know(site)


def locate_site(site_id: str) -> str:
    """The address of a site's page; an id may hold a port."""
    return f"/sites/{quote(site_id, safe='')}"


def require_scope(request: Request, *scopes: Scope) -> Grant:
    """The session's grant. Raises a 403 problem unless it has one of these scopes or is an admin's."""
    grant: Grant = request.scope[GRANT]
    if not grant.allows(scopes):
        problem(403, "scope_missing", f"this token is for {grant.scope}")
    return grant


def refuse_group(grant: Grant) -> None:
    """Raises a 403 problem for a viewer of one group, where a page is about all sites."""
    if grant.group is not None:
        problem(403, "scope_missing", f"this token is for the group {grant.group}")


def make_page_router(dashboard: Dashboard) -> APIRouter:
    """A router whose problems are pages, and whose routes are not part of the API's description."""

    class PageRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_page(request: Request) -> Response:
                try:
                    return await handle(request)
                except ProblemError as error:
                    return await _render_problem(dashboard, request, error.problem)
                except RequestValidationError:
                    return await _render_problem(dashboard, request, _BAD_ADDRESS)

            return handle_page

    return APIRouter(route_class=PageRoute, include_in_schema=False)


async def _render_problem(dashboard: Dashboard, request: Request, shown: Problem) -> Response:
    texts = dashboard.renderer.texts(request)
    name = _TEXTS.get(shown.code) or ("not_found" if shown.status == 404 else "")
    values = {
        "title": texts(f"problem.{name}.title") if name else texts("problem.title"),
        "text": texts(f"problem.{name}.text") if name else shown.detail,
        "advice": texts(f"problem.{name}.advice") if name else "",
        "is_forbidden": name == "forbidden",
        "request_id": current_request_id(),
    }
    return await dashboard.render(request, "problem.html", status=shown.status, problem=values)
