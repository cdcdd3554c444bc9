"""Controls a running sandbox over HTTP, below /__sandbox/ on the port of the site. It shows the recorded requests, sets
and clears faults of every stand-in, changes pages and records of Feishu, and ends sessions of a platform. Control
requests are not recorded.

    ValueError
    └── ControlError    an invalid control request
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from aiohttp import web
from pydantic import BaseModel, Field, RootModel, ValidationError

from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.feishu.bitable import SandboxBitable
from tidings.sandbox.feishu.tables import RefusalError
from tidings.sandbox.media.platform import SandboxMedia
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import FaultError, describe_errors, parse_fault
from tidings.sandbox.wire.stand_in import CONTROL_PREFIX, StandIn

_MOST_ADDED = 10_000_000


class ControlError(ValueError):
    """An invalid control request."""


class _PageChanges(BaseModel, strict=True, extra="forbid"):
    """Numbers of pages of the site, and how many to add."""

    change: list[int] = []
    add: Annotated[int, Field(ge=0, le=_MOST_ADDED)] = 0
    remove: list[int] = []


class _PostChanges(BaseModel, strict=True, extra="forbid"):
    """New titles and texts of posts by their numbers, what all counts grow by, and posts that go."""

    edit: dict[int, dict[Literal["title", "text"], str]] = {}
    grow: int = 0
    remove: list[int] = []


class _RecordChanges(BaseModel, strict=True, extra="forbid"):
    """Records to add, to change by their ids, and to remove."""

    add: list[dict[str, Any]] = []
    change: dict[str, dict[str, Any]] = {}
    remove: list[str] = []


class _FaultRequest(RootModel[dict[str, Any]]):
    """The fields of a fault."""


Changes = TypeVar("Changes", bound=BaseModel)


class Control:
    """Answers the control requests of one sandbox. `others` are further stand-ins, by the names in their addresses."""

    def __init__(
        self, *, site: SandboxSite, engines: Mapping[str, SandboxEngine], others: Mapping[str, StandIn[Any]]
    ) -> None:
        self._site = site
        self._engines = engines
        self._others = others

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._route(request)
        except (ControlError, FaultError) as error:
            return web.json_response({"error": str(error)}, status=400)
        except RefusalError as error:
            return web.json_response({"error": f"{error.message} ({error.code})"}, status=400)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.method, request.path.removeprefix(CONTROL_PREFIX).split("/"):
            case "GET", ["record"]:
                return web.json_response(self.describe(full=request.query.get("full") == "1"))
            case "POST", ["pages"]:
                return web.json_response(self._change_pages(await _read(request, _PageChanges)))
            case method, ["site", "faults"]:
                return await _steer(method, self._site, request)
            case method, ["engines", name, "faults"] if name in self._engines:
                return await _steer(method, self._engines[name], request)
            case method, [name, "faults"] if name in self._others:
                return await _steer(method, self._others[name], request)
            case method, [name, *rest] if name in self._others:
                return await _change(method, self._others[name], rest, request)
        return web.json_response({"error": "no such control"}, status=404)

    def describe(self, *, full: bool) -> dict[str, object]:
        engines = {name: engine.describe(full=full) for name, engine in self._engines.items()}
        others = {name: stand_in.describe(full=full) for name, stand_in in self._others.items()}
        return {"site": self._site.describe(full=full), "engines": engines, **others}

    def _change_pages(self, changes: _PageChanges) -> dict[str, object]:
        if missing := [number for number in (*changes.change, *changes.remove) if number not in self._site.pages]:
            raise ControlError(f"the site has no page {missing[0]}")
        added = self._site.add(changes.add)
        self._site.change_many(changes.change)
        for number in dict.fromkeys(changes.remove):
            self._site.remove(number)
        return {"pages": len(self._site.pages), "added": list(added[:1]) + list(added[-1:])}


async def _steer(method: str, stand_in: StandIn[Any], request: web.BaseRequest) -> web.StreamResponse:
    """Set a fault (POST), clear all (DELETE), or list the faults that have a name (GET)."""
    if method == "GET":
        return web.json_response({"named": sorted(stand_in.named_faults)})
    if method == "POST":
        stand_in.misbehave(parse_fault((await _read(request, _FaultRequest)).root, named=stand_in.named_faults))
    elif method == "DELETE":
        stand_in.recover()
    else:
        return web.json_response({"error": "GET the names, POST a fault, or DELETE all"}, status=405)
    return web.Response(status=204)


async def _change(
    method: str, stand_in: StandIn[Any], path: Sequence[str], request: web.BaseRequest
) -> web.StreamResponse:
    """What people do there: change records of Feishu or posts of a platform, or log out of it."""
    match method, stand_in, path:
        case "POST", SandboxBitable(), ["tables", name]:
            edits = await _read(request, _RecordChanges)
            return web.json_response(stand_in.edit_records(name, **edits.model_dump()))
        case "GET", SandboxBitable(), ["tables", name]:
            return web.json_response(stand_in.edit_records(name))
        case "POST", SandboxMedia(), ["posts"]:
            _change_posts(stand_in, await _read(request, _PostChanges))
            return web.Response(status=204)
        case "POST", SandboxMedia(), ["log-out"]:
            stand_in.log_out_all()
            return web.Response(status=204)
        case "DELETE", SandboxMedia(), ["log-out"]:
            stand_in.log_in_again()
            return web.Response(status=204)
    return web.json_response({"error": "no such control"}, status=404)


def _change_posts(platform: SandboxMedia, changes: _PostChanges) -> None:
    """Edit title or text of posts by their numbers, let all counts grow, and remove posts."""
    known = {post.number for post in platform.library}
    if unknown := {*changes.edit, *changes.remove} - known:
        raise ControlError(f"there is no post {min(unknown)}")
    for number, texts in changes.edit.items():
        platform.library.edit(number, **texts)
    platform.library.grow(changes.grow)
    for number in changes.remove:
        platform.library.remove(number)


async def _read(request: web.BaseRequest, kind: type[Changes]) -> Changes:
    try:
        return kind.model_validate_json(await request.read())
    except ValidationError as error:
        raise ControlError(describe_errors(error)) from None
