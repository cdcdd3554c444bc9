"""The common part of all page routes: services, problems as pages, and the frame's numbers."""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidings.announce.overview import count_fleet
from tidings.announce.site.site import Site
from tidings.collect.crawl.crawler import Crawler
from tidings.core.logs.request_id import current_request_id
from tidings.core.secrets.scopes import Grant, Scope
from tidings.core.secrets.sessions import Sessions
from tidings.web.errors import INTERNAL, UNAVAILABLE, Problem, problem
from tidings.web.middleware.auth import GRANT
from tidings.web.pages.view.rendering import FrameCounts, PageRenderer
from tidings.wiring.installation import Installation

# Codes of problems that have a text of their own, in both languages.
_TEXTS: Final = {
    "invalid_input": "bad_address",
    "since_unreadable": "bad_since",
    "scope_missing": "forbidden",
    "form_key_wrong": "form_expired",
    "cross_site": "cross_site",
    "token_missing": "signed_out",
    "from_environment": "from_environment",
    "method_not_allowed": "not_found",
    UNAVAILABLE.code: "unavailable",
    INTERNAL.code: "internal",
}


# What the page of a problem offers besides the way home.
_WAYS_OUT: Final = {
    "forbidden": "switch",
    "signed_out": "sign_in",
    "unavailable": "reload",
    "bad_address": "plain",
}


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
        if grant is None or not grant.allows((Scope.VIEWER,)):
            return FrameCounts()
        counts = await count_fleet(self.installation.database, group=grant.group)
        return FrameCounts(open_alerts=counts.open_alerts if grant.group is None else 0, sites=counts.sites)

    async def render(self, request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
        """A page within the frame."""
        return self.renderer.render(request, template, status=status, counts=await self.count(request), **values)

    async def render_problem(self, request: Request, shown: Problem) -> Response:
        """A problem as a page: what happened, what was kept, what to do."""
        texts = self.renderer.texts(request)
        name = _TEXTS.get(shown.code) or ("not_found" if shown.status == 404 else "")
        if shown.status < 500 and GRANT in request.scope:
            counts = await self.count(request)
        else:
            # The database may be away.
            counts = FrameCounts()
        values = {
            "title": texts(f"problem.{name}.title") if name else texts("problem.title"),
            "text": texts(f"problem.{name}.text", scope=_name_scope(request))
            if name
            else self.renderer.formats(request).explain(shown.detail),
            "advice": texts(f"problem.{name}.advice") if name else "",
            "way_out": _WAYS_OUT.get(name, ""),
            "is_ours": shown.status >= 500,
            "request_id": current_request_id(),
        }
        answer = self.renderer.render(request, "problem.html", status=shown.status, counts=counts, problem=values)
        answer.headers.update(shown.headers)
        return answer

    async def require_site(self, site_id: str) -> Site:
        """The site of this id. Raises a 404 problem."""
        site = await self.installation.sites.find(site_id)
        if site is None:
            problem(404, "unknown_site", "there is no site of this id")
        return self.installation.know(site)


def _name_scope(request: Request) -> str:
    grant: Grant | None = request.scope.get(GRANT)
    return "" if grant is None else grant.scope.value


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


def make_page_router() -> APIRouter:
    """A router whose routes are not part of the API's description."""
    return APIRouter(include_in_schema=False)
