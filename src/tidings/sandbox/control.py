"""Controls a running sandbox over HTTP, below /__sandbox/ on the port of the site. It shows the recorded requests, sets
and clears faults of every stand-in, changes pages and records of Feishu, and ends sessions of a platform. Control
requests are not recorded.

    ValueError
    └── ControlError    an invalid control request
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from tidings.sandbox.engines.indexnow import SandboxEngine
from tidings.sandbox.feishu.bitable import SandboxBitable
from tidings.sandbox.feishu.tables import RefusalError
from tidings.sandbox.media.platform import SandboxMedia
from tidings.sandbox.site.site import SandboxSite
from tidings.sandbox.wire.faults import FaultError, parse_fault
from tidings.sandbox.wire.stand_in import CONTROL_PREFIX, StandIn

_MOST_ADDED = 10_000_000


class ControlError(ValueError):
    """An invalid control request."""


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
                return web.json_response(self._change_pages(await _read_object(request)))
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

    def _change_pages(self, changes: Mapping[str, object]) -> dict[str, object]:
        if unknown := changes.keys() - {"change", "add", "remove"}:
            raise ControlError(f"unknown: {', '.join(sorted(unknown))}")
        change, remove = _read_numbers(changes, "change"), _read_numbers(changes, "remove")
        if missing := [number for number in (*change, *remove) if number not in self._site.pages]:
            raise ControlError(f"the site has no page {missing[0]}")
        added = self._site.add(_read_count(changes))
        self._site.change_many(change)
        for number in remove:
            self._site.remove(number)
        return {"pages": len(self._site.pages), "added": list(added[:1]) + list(added[-1:])}


async def _steer(method: str, stand_in: StandIn[Any], request: web.BaseRequest) -> web.StreamResponse:
    """Set a fault (POST), clear all (DELETE), or list the faults that have a name (GET)."""
    if method == "GET":
        return web.json_response({"named": sorted(stand_in.named_faults)})
    if method == "POST":
        stand_in.misbehave(parse_fault(await _read_object(request), named=stand_in.named_faults))
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
            return web.json_response(stand_in.edit_records(name, **_read_edits(await _read_object(request))))
        case "GET", SandboxBitable(), ["tables", name]:
            return web.json_response(stand_in.edit_records(name))
        case "POST", SandboxMedia(), ["posts"]:
            _change_posts(stand_in, await _read_object(request))
            return web.Response(status=204)
        case "POST", SandboxMedia(), ["log-out"]:
            stand_in.log_out_all()
            return web.Response(status=204)
        case "DELETE", SandboxMedia(), ["log-out"]:
            stand_in.log_in_again()
            return web.Response(status=204)
    return web.json_response({"error": "no such control"}, status=404)


def _change_posts(platform: SandboxMedia, changes: Mapping[str, object]) -> None:
    """Edit title or text of posts by their numbers, let all counts grow, and remove posts."""
    edits, grown, removed = changes.get("edit", {}), changes.get("grow", 0), _read_numbers(changes, "remove")
    texts = list(edits.values()) if isinstance(edits, dict) else [None]
    is_text = all(isinstance(each, dict) and {*each} <= {"title", "text"} for each in texts)
    if not is_text or type(grown) is not int or changes.keys() - {"edit", "grow", "remove"}:
        raise ControlError('the body is {"edit": {NUMBER: {"title", "text"}}, "grow": COUNT, "remove": [NUMBER]}')
    assert isinstance(edits, dict)  # noqa: S101 - it was checked above
    known = {str(post.number) for post in platform.library}
    if unknown := {*edits, *map(str, removed)} - known:
        raise ControlError(f"there is no post {min(unknown)}")
    for number, fields in edits.items():
        platform.library.edit(int(number), **{name: str(value) for name, value in fields.items()})
    platform.library.grow(grown)
    for number in removed:
        platform.library.remove(number)


def _read_edits(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Records to add, to change by their ids, and to remove."""
    kinds = {"add": list, "change": dict, "remove": list}
    for name, value in changes.items():
        if name not in kinds or not isinstance(value, kinds[name]):
            raise ControlError('the body is {"add": [FIELDS], "change": {ID: FIELDS}, "remove": [ID]}')
    rows = [*changes.get("add", []), *changes.get("change", {}).values()]
    if not all(isinstance(row, dict) for row in rows):
        raise ControlError("a record is an object of fields")
    return dict(changes)


async def _read_object(request: web.BaseRequest) -> dict[str, object]:
    try:
        document = json.loads(await request.read())
    except ValueError:
        raise ControlError("the body is not JSON") from None
    if not isinstance(document, dict):
        raise ControlError("the body must be a JSON object")
    return document


def _read_numbers(changes: Mapping[str, object], name: str) -> Sequence[int]:
    numbers = changes.get(name, [])
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise ControlError(f"{name} must be a list of page numbers")
    return list(dict.fromkeys(numbers))


def _read_count(changes: Mapping[str, object]) -> int:
    count = changes.get("add", 0)
    if type(count) is not int or not 0 <= count <= _MOST_ADDED:
        raise ControlError(f"add must be a number from 0 to {_MOST_ADDED}")
    return count
