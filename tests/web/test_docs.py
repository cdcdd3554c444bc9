"""The API's description is true and stable."""

import re
from typing import Annotated, Any

import pytest

from tests.web.conftest import StageMaker
from tests.web.stage import Stage
from tidings.core.secrets.scopes import Grant, Scope
from tidings.web.description import ApiRouter, UnguardedRouteError
from tidings.web.middleware.auth import require


def list_operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["operationId"]: each for methods in document["paths"].values() for each in methods.values()}


async def test_every_route_describes_its_problems_and_its_token(stage: Stage) -> None:
    """One shape for all, no 422, the scopes by name, ids as readable as the functions' names."""
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
    """A generator of clients can read it."""
    text = (await stage.ask("GET", "/openapi.json")).body.decode()
    schemas = (await stage.ask("GET", "/openapi.json")).json["components"]["schemas"]
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert named
    assert named <= schemas.keys()


async def test_a_route_that_does_not_say_who_may_use_it_is_not_served(make_stage: StageMaker) -> None:
    """Design 8: forgetting it ends the start, not the secrecy."""
    router = ApiRouter()

    @router.get("/forgotten")
    async def forget() -> str:
        return "open"

    with pytest.raises(UnguardedRouteError, match="GET /forgotten"):
        make_stage(routers=[router])


async def test_scopes_of_a_whole_router_are_enough(make_stage: StageMaker) -> None:
    """Design 8: named once for all its routes; the grant is there for those that ask."""
    router = ApiRouter(dependencies=[require(Scope.WORKFLOW)])

    @router.get("/whose")
    async def read_whose(grant: Annotated[Grant, require(Scope.WORKFLOW)]) -> str:
        return grant.name

    stage = make_stage(routers=[router])
    assert (await stage.ask("GET", "/whose")).json == "settings"
    assert (await stage.ask("GET", "/whose", token="for metrics")).status == 403
