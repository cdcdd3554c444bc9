"""Sign-in, sign-out, language and theme, and static files."""

from typing import Final
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import Response

from tidings.core.secrets.scopes import Scope
from tidings.core.secrets.secret import Secret
from tidings.core.secrets.sessions import LIFETIME, WebSession
from tidings.web.errors import problem
from tidings.web.middleware.auth import SESSION, SIGN_IN, Authenticator, comes_from_elsewhere, is_host_bound
from tidings.web.pages.view.forms import read_open_form
from tidings.web.pages.view.rendering import ASSET_TYPES, THEMES, Assets, PageRenderer, check_local, set_preference
from tidings.web.pages.view.routing import Dashboard, PageView, make_page_router
from tidings.web.pages.view.texts import PageLanguage

router = make_page_router()

# Marks the first page after a right token: if the session's cookie is missing there, the browser did not keep it.
_SIGNED_IN: Final = "signed_in"


@router.get("/sign-in")
async def show_sign_in(request: Request, next: str = "/", signed_in: bool = False) -> Response:  # noqa: A002 - the query's name
    renderer: PageRenderer = request.app.state.dashboard.renderer
    back, texts = check_local(next), renderer.texts(request)
    if request.scope.get(SESSION) is not None:
        return renderer.redirect(back)
    shown = {name: texts(f"sign_in.no_cookie.{name}") for name in ("title", "text")} if signed_in else None
    # A link of another site brings no strict cookie, so who is signed in looks like a stranger.
    again = f"{SIGN_IN}?{urlencode({'next': back})}" if comes_from_elsewhere(request) else ""
    return renderer.render(request, "sign_in.html", next=back, problem=shown, again=again)


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    dashboard: Dashboard = request.app.state.dashboard
    authenticator: Authenticator = request.app.state.authenticator
    form, renderer, texts = await read_open_form(request), dashboard.renderer, dashboard.renderer.texts(request)
    back, token = check_local(form.get("next", "/")), form.get("token")
    caller = authenticator.find_caller(request.scope)
    wait = authenticator.tries.find_wait(caller)
    if wait is None and await authenticator.identify(token) is not None:
        session_id = await dashboard.sessions.open(Secret(token))
        response = renderer.redirect(f"{SIGN_IN}?{urlencode({'next': back, _SIGNED_IN: 'true'})}")
        name, age = authenticator.name_session_cookie(request.scope), round(LIFETIME.total_seconds())
        secure = is_host_bound(name)
        response.set_cookie(name, session_id.reveal(), max_age=age, httponly=True, secure=secure, samesite="strict")
        return response
    wait = wait if wait is not None else authenticator.tries.add(caller)
    key = "sign_in.wrong" if wait is None else "sign_in.too_many"
    shown = {"title": texts(f"{key}.title"), "text": texts(f"{key}.text", seconds=wait)}
    status = 401 if wait is None else 429
    return renderer.render(request, "sign_in.html", status=status, next=back, problem=shown, again="")


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    view = PageView(request, *Scope)
    await view.read_form()
    session: WebSession = request.scope[SESSION]
    await view.dashboard.sessions.close(session)
    response = view.redirect(SIGN_IN)
    name = request.app.state.authenticator.name_session_cookie(request.scope)
    response.delete_cookie(name, secure=is_host_bound(name), httponly=True, samesite="strict")
    return response


@router.post("/preferences")
async def set_preferences(request: Request) -> Response:
    form, renderer = await read_open_form(request), request.app.state.dashboard.renderer
    response: Response = renderer.redirect(check_local(form.get("back", "/")))
    if form.get("language") in set(PageLanguage):
        set_preference(response, "language", form.get("language"))
    if form.get("theme") in THEMES:
        set_preference(response, "theme", form.get("theme"))
    return response


@router.get("/static/{version}/{name}")
async def read_asset(request: Request, version: str, name: str) -> Response:
    assets: Assets = request.app.state.dashboard.renderer.assets
    content = assets.read(name) if version == assets.version else None
    if content is None:
        problem(404, "unknown_file", "there is no such file")
    kind = ASSET_TYPES[name.rpartition(".")[2]]
    return Response(content, media_type=kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})
