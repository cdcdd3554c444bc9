"""Renders pages: the Jinja2 environment, the frame around every page, preferences, and messages after a form."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tidings.core.alerts.translation import Translator
from tidings.core.clock import Clock
from tidings.core.secrets.scopes import Grant, Scope
from tidings.core.secrets.sessions import WebSession
from tidings.web.middleware.auth import GRANT, SESSION
from tidings.web.pages.view.formats import Formats, find_zone
from tidings.web.pages.view.texts import PageLanguage, Texts, choose_language, load_texts

# No inline script or style, nothing from elsewhere, no frame, forms go home only.
PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGES: Final = Path(__file__).parents[1]
STATIC: Final = PAGES / "static"
ASSET_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
THEMES: Final = ("auto", "light", "dark")

_MESSAGE_COOKIE: Final = "message"
_YEAR: Final = 365 * 24 * 3600


class Assets:
    """The static files. Their addresses hold a hash of all of them, so browsers may keep them for ever."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        whole = hashlib.sha256(b"".join(self._files.values()))
        self.version = whole.hexdigest()[:12]

    def locate(self, name: str) -> str:
        if name not in self._files:
            raise KeyError(name)
        return f"/static/{self.version}/{name}"

    def read(self, name: str) -> bytes | None:
        return self._files.get(name)


@dataclass(frozen=True, slots=True)
class PageMessage:
    """A message above the page after a form was submitted: a key of the catalogue and its values."""

    # `message.{key}.title`, and if it exists `message.{key}.text`.
    key: str
    tone: str = "ok"
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrameCounts:
    """Numbers beside the navigation's links."""

    open_alerts: int = 0
    sites: int | None = None


@dataclass(frozen=True, slots=True)
class MenuLink:
    """A page in the navigation. Its name is the text `nav.{name}`."""

    name: str
    href: str
    icon: str
    # The scopes besides admin that see it.
    scopes: Sequence[Scope] = ()


# By group; the first one, without a name, is about all sites.
_MENU: Final[Mapping[str, Sequence[MenuLink]]] = {
    "": (MenuLink("overview", "/", "home", (Scope.VIEWER,)), MenuLink("alerts", "/alerts", "bell", (Scope.VIEWER,))),
    "announce": (MenuLink("sites", "/sites", "globe", (Scope.VIEWER,)),),
    "collect": (
        MenuLink("notes", "/notes", "note", (Scope.WORKFLOW,)),
        MenuLink("candidates", "/candidates", "inbox", (Scope.WORKFLOW,)),
        MenuLink("keywords", "/keywords", "lines", (Scope.WORKFLOW,)),
        MenuLink("cookies", "/cookies", "cookie"),
    ),
    "system": (
        MenuLink("executions", "/executions", "history"),
        MenuLink("workers", "/workers", "chip"),
        MenuLink("settings", "/settings", "sliders"),
        MenuLink("api", "/docs", "api", tuple(Scope)),
    ),
}


class PageRenderer:
    """Renders templates for a request: its language, theme, time zone, session and message."""

    def __init__(self, *, clock: Clock, default_language: PageLanguage, translator: Translator) -> None:
        self._clock = clock
        self._translator = translator
        self._default_language = default_language
        self.assets = Assets()
        self._environment = Environment(
            loader=FileSystemLoader(PAGES / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals |= {"asset": self.assets.locate, "locate_site": locate_site}

    def find_home(self, request: Request) -> str:
        """The first page that this session may open."""
        return next(iter(_list_menu(request).values()))[0].href

    def texts(self, request: Request) -> Texts:
        cookie, accept = request.cookies.get("language"), request.headers.get("accept-language")
        return load_texts(choose_language(cookie, accept, default=self._default_language))

    def formats(self, request: Request) -> Formats:
        zone = find_zone(unquote(request.cookies.get("tz", "")))
        return Formats(self.texts(request), zone, self._clock.now(), self._translator)

    def render(
        self,
        request: Request,
        template: str,
        *,
        status: int = 200,
        counts: FrameCounts | None = None,
        **values: Any,
    ) -> HTMLResponse:
        """A page. `counts` are the frame's numbers; a page outside the frame, such as sign-in, has none."""
        formats, counts = self.formats(request), counts or FrameCounts()
        session: WebSession | None = request.scope.get(SESSION)
        grant: Grant | None = request.scope.get(GRANT)
        theme = request.cookies.get("theme", "auto")
        html = self._environment.get_template(template).render(
            t=formats.texts,
            f=formats,
            lang="zh-CN" if formats.is_chinese else "en",
            language=formats.texts.language.value,
            theme=theme if theme in THEMES else "auto",
            here=_read_target(request),
            signed_in=session is not None,
            may_change=grant is not None and grant.scope is not Scope.VIEWER,
            form_key="" if session is None else session.form_key,
            menu=_list_menu(request),
            path=request.scope["path"],
            counts=counts,
            message=self._read_message(request, formats.texts),
            **values,
        )
        response = HTMLResponse(html, status, headers={"Content-Security-Policy": PAGE_POLICY})
        if _MESSAGE_COOKIE in request.cookies:
            response.delete_cookie(_MESSAGE_COOKIE)
        return response

    def redirect(self, to: str, message: PageMessage | None = None) -> Response:
        """Answer a form: the browser loads `to`, which shows the message once."""
        response = RedirectResponse(to, status_code=303)
        if message is not None:
            document = {"key": message.key, "tone": message.tone, "values": dict(message.values)}
            response.set_cookie(
                _MESSAGE_COOKIE,
                quote(json.dumps(document, ensure_ascii=False)),
                max_age=60,
                httponly=True,
                samesite="strict",
            )
        return response

    def _read_message(self, request: Request, texts: Texts) -> dict[str, str] | None:
        try:
            document = json.loads(unquote(request.cookies.get(_MESSAGE_COOKIE, "")))
            key, values = f"message.{document['key']}", {str(k): str(v) for k, v in document["values"].items()}
            title, text = texts(f"{key}.title", **values), texts.find(f"{key}.text", **values)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        undo = texts.find(f"message.undo.{document['key']}")
        return {"tone": str(document.get("tone", "ok")), "title": title, "text": text, "undo": undo}


def set_preference(response: Response, name: str, value: str) -> None:
    """Store a person's choice of language or theme for a year."""
    response.set_cookie(name, value, max_age=_YEAR, samesite="lax")


def locate_site(site_id: str) -> str:
    """The address of a site's page; an id may hold a port."""
    return f"/sites/{quote(site_id, safe='')}"


def check_local(path: str) -> str:
    """The path, if it leads to this service; else the overview. `//host` and `/\\host` lead elsewhere."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_local else "/"


def _read_target(request: Request) -> str:
    """The page to which the forms of language and theme return. An answer to a form has no URL of its own."""
    if request.method != "GET":
        return "/"
    query = request.scope["query_string"].decode("latin-1")
    path = quote(request.scope["path"], safe="/:@!$&'()*+,;=~-._")
    return f"{path}?{query}" if query else path


def _list_menu(request: Request) -> dict[str, list[MenuLink]]:
    """The groups and links that this session's scope may see."""
    grant: Grant | None = request.scope.get(GRANT)
    if grant is None:
        return {}
    menu = {
        group: [link for link in links if grant.allows(link.scopes)]
        for group, links in _MENU.items()
        if group or grant.group is None
    }
    return {group: links for group, links in menu.items() if links}
