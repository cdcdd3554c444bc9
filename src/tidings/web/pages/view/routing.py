"""The common part of all page routes: services, one request for a page, problems as pages, and the frame's numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidings.announce.overview import count_fleet
from tidings.announce.site.site import Site
from tidings.collect.crawl.crawler import Crawler
from tidings.core.logs.request_id import current_request_id
from tidings.core.secrets.scopes import Grant, Scope
from tidings.core.secrets.sessions import Sessions, WebSession
from tidings.web.errors import DAMAGED, INTERNAL, UNAVAILABLE, Problem, problem
from tidings.web.middleware.auth import GRANT, SESSION
from tidings.web.pages.view.formats import Formats
from tidings.web.pages.view.forms import FormState, FormValues, read_open_form
from tidings.web.pages.view.rendering import FrameCounts, PageMessage, PageRenderer
from tidings.web.pages.view.texts import Texts
from tidings.web.routes.announce.site_lookup import refuse_unknown_site
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
    DAMAGED.code: "damaged",
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
    """The services that pages call, and the renderer. The application keeps it in its state."""

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

    async def render_problem(self, request: Request, shown: Problem) -> Response:
        """A problem as a page: what happened, what was kept, what to do."""
        texts, grant = self.renderer.texts(request), request.scope.get(GRANT)
        name = _TEXTS.get(shown.code) or ("not_found" if shown.status == 404 else "")
        # At a fault of the server, the database may be away.
        counts = await self.count(request) if shown.status < 500 else FrameCounts()
        values = {
            "title": texts(f"problem.{name}.title") if name else texts("problem.title"),
            "text": texts(f"problem.{name}.text", scope=grant.scope.value if grant else "")
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


class PageView:
    """One request for a page of a session that may see it: the services, the formats, and the answer."""

    def __init__(self, request: Request, *scopes: Scope) -> None:
        """Raises a 403 problem unless the session has one of these scopes or is an admin's."""
        self.request = request
        self.dashboard: Dashboard = request.app.state.dashboard
        self.installation: Installation = self.dashboard.installation
        self.grant: Grant = request.scope[GRANT]
        self.formats: Formats = self.dashboard.renderer.formats(request)
        self.texts: Texts = self.formats.texts
        if not self.grant.allows(scopes):
            problem(403, "scope_missing", f"this token is for {self.grant.scope}")

    @property
    def may_change(self) -> bool:
        return self.grant.scope is not Scope.VIEWER

    def refuse_group(self) -> None:
        """Raises a 403 problem for a viewer of one group, where a page is about all sites."""
        if self.grant.group is not None:
            problem(403, "scope_missing", f"this token is for the group {self.grant.group}")

    async def read_form(self) -> FormValues:
        """The submitted form. Raises a 403 problem unless it carries this session's form key."""
        form = await read_open_form(self.request)
        session: WebSession | None = self.request.scope.get(SESSION)
        if session is None or not session.accepts(form.get("form_key")):
            problem(403, "form_key_wrong", "this form does not belong to your session; load the page again and repeat")
        return form

    async def require_site(self, site_id: str) -> Site:
        """The site of this id. Raises a 404 problem."""
        site = await self.installation.sites.find(site_id)
        if site is None:
            refuse_unknown_site()
        return self.installation.know(site)

    async def render(
        self, template: str, *, status: int = 200, counts: FrameCounts | None = None, **values: Any
    ) -> Response:
        """A page within the frame. `counts`: the frame's numbers, where the page knows them already."""
        counts = counts or await self.dashboard.count(self.request)
        return self.dashboard.renderer.render(self.request, template, status=status, counts=counts, **values)

    async def ask(
        self,
        key: str,
        values: Mapping[str, str],
        *,
        list_name: str,
        action: str,
        hidden: Mapping[str, str],
        back: str = "",
        name: str = "",
        is_typed: bool = False,
    ) -> Response:
        """The confirmation page of an action that cannot be undone; it works without script.

        `key`: of its texts, `confirm.{key}.title`, `.text` and `.button`, which show the values. `list_name`: the list
        that its subject belongs to. `action`: where the form is sent, with the fields `hidden`. `back` and `name`: the
        page of the subject, if it has one. `is_typed`: the name has to be typed, where the button is not enough.
        """
        asked: dict[str, Any] = {
            "key": key,
            "list_name": list_name,
            "action": action,
            "hidden": hidden,
            "back": back,
            "name": name,
        }
        return await self.render("confirm.html", **asked, is_typed=is_typed, values=values, form=FormState())

    def redirect(self, to: str, message: PageMessage | None = None) -> Response:
        """Answer a form: the browser loads `to`, which shows the message once."""
        return self.dashboard.renderer.redirect(to, message)


def make_link(path: str, query: Mapping[str, object]) -> str:
    """The path with the query's fields that are not empty."""
    fields = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(fields)}" if fields else path


def make_page_router() -> APIRouter:
    """A router whose routes are not part of the API's description."""
    return APIRouter(include_in_schema=False)
