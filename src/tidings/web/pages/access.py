"""Sign-in, sign-out, language and theme, and static files."""

from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tidings.core.net.addresses import Network
from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.core.secrets.sessions import LIFETIME, WebSession
from tidings.web.errors import problem
from tidings.web.middleware.auth import (
    SESSION,
    SIGN_IN,
    Authenticator,
    comes_from_elsewhere,
    is_host_bound,
    name_session_cookie,
)
from tidings.web.middleware.callers import WrongTries, find_caller, is_secure
from tidings.web.pages.view.forms import read_open_form
from tidings.web.pages.view.rendering import ASSET_TYPES, THEMES, PageRenderer, check_local, set_preference
from tidings.web.pages.view.routing import Dashboard, PageView, make_page_router
from tidings.web.pages.view.texts import PageLanguage

# Marks the first page after a right token: if the session's cookie is missing there, the browser did not keep it.
_SIGNED_IN: Final = "signed_in"


def make_access_router(
    dashboard: Dashboard, *, authenticator: Authenticator, tries: WrongTries, trusted_proxies: Sequence[Network]
) -> APIRouter:
    router = make_page_router()
    renderer = dashboard.renderer

    def name_cookie(request: Request) -> str:
        return name_session_cookie(secure=is_secure(request.scope, trusted_proxies=trusted_proxies))

    @router.get("/sign-in")
    async def show_sign_in(request: Request, next: str = "/", signed_in: bool = False) -> Response:  # noqa: A002 - the query's name
        back, texts = check_local(next), renderer.texts(request)
        if request.scope.get(SESSION) is not None:
            return renderer.redirect(back)
        shown = {name: texts(f"sign_in.no_cookie.{name}") for name in ("title", "text")} if signed_in else None
        # A link of another site brings no strict cookie, so who is signed in looks like a stranger.
        again = f"{SIGN_IN}?{urlencode({'next': back})}" if comes_from_elsewhere(request) else ""
        return renderer.render(request, "sign_in.html", next=back, problem=shown, again=again)

    @router.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        form = await read_open_form(request)
        back, token = check_local(form.get("next", "/")), form.get("token")
        caller = find_caller(request.scope, trusted_proxies=trusted_proxies)
        texts = renderer.texts(request)
        wait = tries.find_wait(caller)
        if wait is None and await authenticator.identify(token) is not None:
            session_id = await dashboard.sessions.open(Secret(token))
            response = renderer.redirect(f"{SIGN_IN}?{urlencode({'next': back, _SIGNED_IN: 'true'})}")
            _set_session_cookie(response, name_cookie(request), session_id)
            return response
        wait = wait if wait is not None else tries.add(caller)
        key = "sign_in.wrong" if wait is None else "sign_in.too_many"
        shown = {"title": texts(f"{key}.title"), "text": texts(f"{key}.text", seconds=wait)}
        status = 401 if wait is None else 429
        return renderer.render(request, "sign_in.html", status=status, next=back, problem=shown, again="")

    _add_sign_out(router, dashboard, name_cookie)
    _add_preferences(router, renderer)
    _add_assets(router, renderer)
    return router


def _add_sign_out(router: APIRouter, dashboard: Dashboard, name_cookie: Callable[[Request], str]) -> None:
    @router.post("/sign-out")
    async def sign_out(request: Request) -> Response:
        await PageView(request, *Scope).read_form()
        session: WebSession = request.scope[SESSION]
        await dashboard.sessions.close(session)
        response = dashboard.renderer.redirect(SIGN_IN)
        name = name_cookie(request)
        response.delete_cookie(name, secure=is_host_bound(name), httponly=True, samesite="strict")
        return response


def _add_preferences(router: APIRouter, renderer: PageRenderer) -> None:
    @router.post("/preferences")
    async def set_preferences(request: Request) -> Response:
        form = await read_open_form(request)
        response = renderer.redirect(check_local(form.get("back", "/")))
        if form.get("language") in set(PageLanguage):
            set_preference(response, "language", form.get("language"))
        if form.get("theme") in THEMES:
            set_preference(response, "theme", form.get("theme"))
        return response


def _add_assets(router: APIRouter, renderer: PageRenderer) -> None:
    @router.get("/static/{version}/{name}")
    async def read_asset(version: str, name: str) -> Response:
        content = renderer.assets.read(name) if version == renderer.assets.version else None
        if content is None:
            problem(404, "unknown_file", "there is no such file")
        kind = ASSET_TYPES[name.rpartition(".")[2]]
        return Response(content, media_type=kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})


def _set_session_cookie(response: Response, name: str, session_id: Secret) -> None:
    response.set_cookie(
        name,
        session_id.reveal(),
        max_age=round(LIFETIME.total_seconds()),
        httponly=True,
        secure=is_host_bound(name),
        samesite="strict",
    )
