"""The API's description: /openapi.json for programs, and /docs, a list of its operations, for people.

The page is rendered here, without a script and without a request to another host: FastAPI's own page loads its
script from a CDN. `docs/api.md` explains the API.
"""

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from typing import Annotated, Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse

from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import Json, list_inputs, list_operations, list_scopes
from tidings.web.middleware.auth import require

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}"
    "td,th{text-align:left;vertical-align:top;padding:.2rem 1rem .2rem 0}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'; base-uri 'none'"


def make_docs_router() -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/openapi.json", summary="This API as OpenAPI", response_class=JSONResponse)
    async def read_description(request: Request, _grant: Annotated[Grant, require(*Scope)]) -> JSONResponse:
        return JSONResponse(request.app.openapi())

    @router.get("/docs", summary="This API as a page", response_class=HTMLResponse)
    async def read_page(request: Request, _grant: Annotated[Grant, require(*Scope)]) -> HTMLResponse:
        return HTMLResponse(_render_page(request.app.openapi()), headers={"Content-Security-Policy": _POLICY})

    return router


def _render_page(document: Json) -> str:
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    rows = [["operation", "what it does", "parameters and fields", "token"], *_list_rows(document)]
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f'</head><body><h1>{title}</h1><p><a href="/openapi.json">/openapi.json</a> describes every field.</p>'
        f"<table>{lines}</table></body></html>"
    )


def _list_rows(document: Json) -> Iterator[list[str]]:
    for path, method, operation in list_operations(document):
        scopes = dict.fromkeys([Scope.ADMIN, *list_scopes(operation)])
        yield [
            f"{method.upper()} {path}",
            ". ".join(filter(None, (operation["summary"], operation.get("description")))),
            ", ".join(list_inputs(document, operation)),
            " or ".join(scopes) if operation.get("security") else "none",
        ]
