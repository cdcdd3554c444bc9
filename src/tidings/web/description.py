"""The API's description (OpenAPI), made once from the routes, and queries about the inputs of a route. FastAPI makes
the document. This module adds the parts that FastAPI does not know: one form of problems, the scopes, and no 422,
because bad input is answered with 400. Under the paths of `envelope.ENVELOPED` every answer is an envelope, and there
bad input is a 422.

    ValueError
    └── UnguardedRouteError   a route does not say who may use it
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from tidings.collect.crawl.envelope import Envelope
from tidings.web.envelope import is_enveloped

Json = Mapping[str, Any]

SCHEMA_PATH: Final = "#/components/schemas/"
PROBLEM_TYPE: Final = "application/problem+json"
# Programs use these paths; all others are pages.
API_PATHS: Final = (
    "/api/",
    "/hooks/",
    "/workflow/",
    "/crawler/",
    "/metrics",
    "/status",
    "/trigger",
    "/openapi.json",
    "/health/",
)

_MEANINGS: Final = {
    400: "The input breaks a rule; `errors` names each field.",
    401: "There is no valid token.",
    403: "The token's scope does not cover this.",
    404: "It does not exist.",
    408: "The body came too slowly.",
    409: "The present state does not allow it.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "Too many wrong tokens.",
    500: "The server failed; its log says why, under the request id.",
    502: "The platform failed; the code says how.",
    503: "Not possible now; try again later.",
    504: "The platform did not answer in time.",
}
_BAD_INPUT: Final = "The input breaks a rule; the message names the field."
OF_EVERY_ROUTE: Final = (400, 408, 413, 415, 500)
OF_GUARDED_ROUTES: Final = (401, 403, 429)


class UnguardedRouteError(ValueError):
    """A route does not say who may use it."""

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"{method.upper()} {path} must depend on auth.require")


def problem_answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that answers with these problems, besides those that every route has."""
    content = {PROBLEM_TYPE: {"schema": {"$ref": f"{SCHEMA_PATH}Problem"}}}
    return {status: {"description": _MEANINGS[status], "content": content} for status in statuses}


class ApiRouter(APIRouter):
    """A router of the API. Each operation has the name of its function, and `problems` beside its own."""

    def __init__(self, *, problems: Iterable[int] = (*OF_EVERY_ROUTE, *OF_GUARDED_ROUTES), **options: Any) -> None:
        answers = problem_answers(*problems)
        super().__init__(generate_unique_id_function=lambda route: route.name, responses=answers, **options)


def finish_description(document: dict[str, Any], *, problem: type) -> None:
    """Remove FastAPI's 422 and add the shapes of problems."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    _add_schema(schemas, "Problem", problem)
    for path, _, operation in list_operations(document):
        operation["responses"].pop("422", None)
        if is_enveloped(path):
            _add_schema(schemas, "Failure", Envelope[None])
            operation["responses"] = dict(_envelop_answers(operation["responses"]))


def _add_schema(schemas: dict[str, Any], name: str, shape: type) -> None:
    schema = TypeAdapter(shape).json_schema(ref_template=f"{SCHEMA_PATH}{{model}}")
    schemas |= schema.pop("$defs", {})
    schemas[name] = schema


def _envelop_answers(answers: Json) -> Iterator[tuple[str, Json]]:
    """The same answers, with problems as failures in the envelope and the 400 as a 422."""
    content = {"application/json": {"schema": {"$ref": f"{SCHEMA_PATH}Failure"}}}
    for status, answer in answers.items():
        if PROBLEM_TYPE not in answer.get("content", {}):
            yield status, answer
        elif status == "400":
            yield "422", {"description": _BAD_INPUT, "content": content}
        else:
            yield status, {**answer, "content": content}


def list_operations(document: Json) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method in lower case, operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def check_guarded(document: Json, *, open_paths: frozenset[str]) -> None:
    """Raises UnguardedRouteError if a route neither is open nor names its scopes."""
    for path, method, operation in list_operations(document):
        if path not in open_paths and not operation.get("security"):
            raise UnguardedRouteError(method, path)


def list_scopes(operation: Json) -> list[str]:
    """The scopes that open this operation, beside admin."""
    return [scope for need in operation.get("security", []) for scopes in need.values() for scope in scopes]


def list_query(operation: Json) -> dict[str, bool]:
    """The query parameters' names, and whether each may be given several times."""
    return {
        each["name"]: any(schema.get("type") == "array" for schema in each["schema"].get("anyOf", [each["schema"]]))
        for each in operation.get("parameters", [])
        if each["in"] == "query"
    }


def list_inputs(document: Json, operation: Json) -> list[str]:
    """The names of all parameters and of the JSON body's fields."""
    return [each["name"] for each in operation.get("parameters", [])] + _list_fields(document, operation)


def list_body_fields(request: Request) -> list[str]:
    """The fields that the JSON body of this request's route may have."""
    operation = find_operation(request)
    return [] if operation is None else _list_fields(request.app.openapi(), operation)


def find_operation(request: Request) -> dict[str, Any] | None:
    """The description of the route that serves this request."""
    app, route = request.app, request.scope.get("route")
    if not isinstance(app, FastAPI) or not isinstance(route, APIRoute):
        return None
    path: dict[str, dict[str, Any]] = app.openapi()["paths"].get(route.path_format, {})
    return path.get(request.method.lower())


def _list_fields(document: Json, operation: Json) -> list[str]:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].removeprefix(SCHEMA_PATH)]
    return list(schema.get("properties", {}))
