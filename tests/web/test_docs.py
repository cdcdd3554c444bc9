"""The description: true, stable, and a page whose curl lines work."""

import html
import re
import shlex
from typing import Annotated, Any

import pytest
from fastapi import APIRouter

from tests.web.conftest import StageMaker
from tests.web.stage import ADMIN, Stage
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import UnguardedRouteError
from tidings.web.middleware.auth import require

HOSTILE = "<img src=x onerror=alert(1)>"
BASE = "http://tidings.test"


def list_operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["operationId"]: each for methods in document["paths"].values() for each in methods.values()}


async def test_every_route_describes_its_problems_and_its_token(stage: Stage) -> None:
    """Issue 4: one shape for all, no 422, the scopes by name, ids as readable as the functions' names."""
    document = (await stage.ask("GET", "/openapi.json")).json
    operations = list_operations(document)
    assert operations.keys() >= {"read_thing", "make_thing", "remove_thing", "read_liveness", "read_metrics"}
    for name, operation in operations.items():
        is_open = name in {"read_liveness", "read_readiness"}
        common = {"400", "408", "413", "415", "500"}
        assert operation["responses"].keys() >= (common if is_open else common | {"401", "403", "429"}), name
        assert "422" not in operation["responses"]
        assert bool(operation.get("security")) != is_open
        content = operation["responses"]["400"]["content"]
        assert content == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    assert operations["read_thing"]["security"] == [{"token": ["crawl"]}]
    assert "404" in operations["read_thing"]["responses"]
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert {"Problem", "Thing"} <= document["components"]["schemas"].keys()
    assert not {name for name in document["components"]["schemas"] if "Validation" in name}


async def test_every_reference_of_the_description_leads_somewhere(stage: Stage) -> None:
    """Issue 4: a generator of clients can read it."""
    text = (await stage.ask("GET", "/openapi.json")).body.decode()
    schemas = (await stage.ask("GET", "/openapi.json")).json["components"]["schemas"]
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert named
    assert named <= schemas.keys()


def read_curl(line: str) -> tuple[str, str, list[tuple[str, str]], bytes | None]:
    """Method, target, headers and body of a curl line, as a shell and curl would read it."""
    words = shlex.split(line.replace("$TIDINGS_TOKEN", ADMIN))
    assert words.pop(0) == "curl"
    method, headers, body, targets = "GET", [], None, []
    while words:
        match words.pop(0):
            case "-X":
                method = words.pop(0)
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers.append((name, value))
            case "-d":
                body = words.pop(0).encode()
            case target:
                targets.append(target)
    [target] = targets
    return method, target.removeprefix(BASE), headers, body


async def test_every_curl_line_of_the_page_works(stage: Stage) -> None:
    """Issue 4: as it stands there, with a token in the shell's TIDINGS_TOKEN."""
    page = (await stage.ask("GET", "/docs")).body.decode()
    lines = [html.unescape(line) for line in re.findall(r"<pre>(.*?)</pre>", page)]
    assert len(lines) == len(list_operations((await stage.ask("GET", "/openapi.json")).json))
    statuses = {}
    for line in lines:
        method, target, headers, body = read_curl(line)
        if target in {"/events", "/broken-stream"}:
            continue
        answer = await stage.ask(method, target, token=None, headers=headers, body=body)
        statuses[f"{method} {target}"] = answer.status
    assert statuses.pop("GET /busy") == 409
    assert statuses.pop("GET /fail") == 500
    assert set(statuses.values()) == {200, 201, 204}, statuses


async def test_the_page_has_no_script_and_shows_hostile_text_as_text(make_stage: StageMaker) -> None:
    """Attack cases "Dashboard": a strict policy, and its style known by hash."""
    router = APIRouter()

    @router.get("/hostile", summary=HOSTILE, description=HOSTILE, dependencies=[require()])
    async def read_hostile(parameter: str = HOSTILE) -> str:
        return parameter

    stage = make_stage(routers=[router])
    answer = await stage.ask("GET", "/docs", headers=[("Host", f"x{HOSTILE}")])
    page = answer.body.decode()
    assert HOSTILE not in page
    assert html.escape(HOSTILE) in page
    assert "<script" not in page
    assert "style=" not in page
    policy = answer.headers["content-security-policy"]
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[\w+/=]+'; frame-ancestors 'none'; base-uri 'none'", policy
    )


async def test_a_route_that_does_not_say_who_may_use_it_is_not_served(make_stage: StageMaker) -> None:
    """Design 8: forgetting it ends the start, not the secrecy."""
    router = APIRouter()

    @router.get("/forgotten")
    async def forget() -> str:
        return "open"

    with pytest.raises(UnguardedRouteError, match="GET /forgotten"):
        make_stage(routers=[router])


async def test_scopes_of_a_whole_router_are_enough(make_stage: StageMaker) -> None:
    """Design 8: named once for all its routes; the grant is there for those that ask."""
    router = APIRouter(dependencies=[require(Scope.WORKFLOW)])

    @router.get("/whose")
    async def read_whose(grant: Annotated[Grant, require(Scope.WORKFLOW)]) -> str:
        return grant.name

    stage = make_stage(routers=[router])
    assert (await stage.ask("GET", "/whose")).json == "settings"
    assert (await stage.ask("GET", "/whose", token="for metrics")).status == 403
