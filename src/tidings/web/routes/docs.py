"""The API's description for programs (/openapi.json) and for people (/docs): one page made here, without a script."""

import base64
import hashlib
import json
import shlex
from collections.abc import Iterator
from html import escape
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse

from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import Json, find_body_schema, list_choices, list_operations, list_scopes, resolve
from tidings.web.middleware.auth import require

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "pre{background:#8882;padding:.7rem;overflow-x:auto}td,th{text-align:left;padding:.1rem 1rem .1rem 0}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'; base-uri 'none'"
_ANY_TOKEN: Final = require(*Scope)


def make_docs_router() -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/openapi.json", summary="This API as OpenAPI", response_class=JSONResponse)
    async def read_description(request: Request, _grant: Annotated[Grant, _ANY_TOKEN]) -> JSONResponse:
        return JSONResponse(request.app.openapi())

    @router.get("/docs", summary="This API as a page", response_class=HTMLResponse)
    async def read_page(request: Request, _grant: Annotated[Grant, _ANY_TOKEN]) -> HTMLResponse:
        page = render_page(request.app.openapi(), base=str(request.base_url).rstrip("/"))
        return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY})

    return router


def render_page(document: Json, *, base: str) -> str:
    """Every operation with its parameters, its answers, and a curl line that works."""
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    parts = [_render_operation(document, *each, base=base) for each in list_operations(document)]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"</head><body><h1>{title}</h1>{''.join(parts)}</body></html>"
    )


def _render_operation(document: Json, path: str, method: str, operation: Json, *, base: str) -> str:
    scopes = " or ".join(dict.fromkeys(["admin", *list_scopes(operation)]))
    token = f"Token: {scopes}." if operation.get("security") else "Open to everybody."
    description = operation.get("description", "")
    return (
        f'<section id="{escape(operation["operationId"])}">'
        f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
        f"<p>{escape(operation.get('summary', ''))}. {escape(token)}</p>"
        + (f"<p>{escape(description)}</p>" if description else "")
        + _render_table(["parameter", "in", "allowed"], _list_inputs(document, operation))
        + f"<pre>{escape(make_curl(document, path, method, operation, base=base))}</pre>"
        + _render_table(["status", "meaning"], _list_answers(operation))
        + "</section>"
    )


def _render_table(heads: list[str], rows: Iterator[list[str]]) -> str:
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f"<th>{head}</th>" for head in heads)
    return f"<table><tr>{head}</tr>{lines}</table>" if lines else ""


def _list_inputs(document: Json, operation: Json) -> Iterator[list[str]]:
    for each in operation.get("parameters", []):
        yield [_mark_needed(each["name"], each.get("required", False)), each["in"], _say_allowed(each["schema"])]
    body = find_body_schema(document, operation) or {}
    for name, schema in body.get("properties", {}).items():
        allowed = _say_allowed(resolve(document, schema))
        yield [_mark_needed(name, name in body.get("required", [])), "body", allowed]


def _mark_needed(name: str, needed: bool) -> str:
    return f"{name} (required)" if needed else name


def _list_answers(operation: Json) -> Iterator[list[str]]:
    for status, answer in sorted(operation["responses"].items()):
        yield [status, answer["description"]]


def _say_allowed(schema: Json) -> str:
    """`integer, 1 to 366, default 7`."""
    choices = [each for each in list_choices(schema) if each.get("type") != "null"]
    first = choices[0] if choices else schema
    words = [" | ".join(map(str, first["enum"])) if "enum" in first else str(first.get("type", "value"))]
    if "minimum" in first or "maximum" in first:
        words.append(f"{first.get('minimum', '…')} to {first.get('maximum', '…')}")
    if schema.get("default") is not None:
        words.append(f"default {schema['default']}")
    if description := schema.get("description"):
        words.append(description)
    return ", ".join(words)


def make_curl(document: Json, path: str, method: str, operation: Json, *, base: str) -> str:
    """A line for a shell in which TIDINGS_TOKEN holds a token."""
    parameters = operation.get("parameters", [])
    target = path
    for each in parameters:
        if each["in"] == "path":
            target = target.replace(f"{{{each['name']}}}", quote(str(_show(document, each)), safe=""))
    query = [(each["name"], _show(document, each)) for each in parameters if each["in"] == "query" and _is_shown(each)]
    url = f"{base}{target}{'?' + urlencode(query) if query else ''}"
    words = ["curl", *([] if method == "get" else ["-X", method.upper()]), shlex.quote(url)]
    if operation.get("security"):
        # In double quotes: the shell has to put the token in.
        words += ["-H", '"Authorization: Bearer $TIDINGS_TOKEN"']
    body = find_body_schema(document, operation)
    if body is not None:
        words += ["-H", "'Content-Type: application/json'", "-d", shlex.quote(json.dumps(make_example(document, body)))]
    return " ".join(words)


def _is_shown(parameter: Json) -> bool:
    return bool(parameter.get("required")) or "example" in parameter or bool(parameter["schema"].get("examples"))


def _show(document: Json, parameter: Json) -> Any:
    return parameter["example"] if "example" in parameter else make_example(document, parameter["schema"])


def make_example(document: Json, schema: Json) -> Any:
    """A value that fits: the schema's own example, or the plainest there is. Fields without need are left out."""
    schema = resolve(document, schema)
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("example", "const", "default"):
        if schema.get(key) is not None:
            return schema[key]
    if (choice := list_choices(schema)[0]) is not schema:
        return make_example(document, choice)
    match schema.get("type"):
        case "object":
            return {
                name: make_example(document, each)
                for name, each in schema.get("properties", {}).items()
                if name in schema.get("required", []) or resolve(document, each).get("examples")
            }
        case "array":
            return [make_example(document, schema["items"])]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
    return "example"
