"""An application with a few routes that stand for the real ones, and two ways to talk to it: within this process, and
over a socket.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import FastAPI, Query, Response
from fastapi.sse import EventSourceResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.datastructures import Headers

from tidings.core.secrets.scopes import Grant, Scope
from tidings.core.secrets.secret import Secret
from tidings.core.secrets.tokens import Tokens
from tidings.core.stop import Stop
from tidings.web.connections import ConnectionLimit
from tidings.web.description import ApiRouter, problem_answers
from tidings.web.errors import Problem, problem
from tidings.web.middleware.auth import require
from tidings.web.server import serve

SOON = 20.0
CANARY = "canary-4f9c1b7e-secret"
FIXED = {
    Scope.ADMIN: Secret("the admin's own"),
    Scope.CRAWL: Secret("for crawling"),
    Scope.WORKFLOW: Secret("for the workflow"),
    Scope.METRICS: Secret("for metrics"),
}
ADMIN = FIXED[Scope.ADMIN].reveal()
# More than the system keeps for a client that does not read.
LARGE = b"x" * 16_000_000


class BusyError(Exception):
    """Stands for an exception of a pipeline."""


BUSY_ROW = (BusyError, lambda error: Problem(409, "busy", str(error)))


class Thing(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=50, examples=["one"])
    kind: Literal["small", "large"] = "small"
    count: int = Field(default=1, ge=1, le=10)
    tags: list[str] = []
    key: str | None = None

    @model_validator(mode="after")
    def check_key(self) -> "Thing":
        if self.kind == "large" and self.key is None:
            raise ValueError("key is required when kind is large")
        return self


def make_router() -> ApiRouter:
    """One route for each thing that the foundation has to do."""
    router = ApiRouter()

    @router.get("/things/{name}", summary="Read a thing", responses=problem_answers(404))
    async def read_thing(
        name: Annotated[str, Field(examples=["one"])],
        grant: Annotated[Grant, require(Scope.CRAWL)],
        days: Annotated[int, Query(ge=1, le=366)] = 7,
    ) -> dict[str, str | int]:
        if name == "missing":
            problem(404, "unknown_thing", "there is no such thing")
        return {"name": name, "days": days, "scope": grant.scope}

    @router.post("/things", summary="Make a thing", status_code=201)
    async def make_thing(thing: Thing, _grant: Annotated[Grant, require()]) -> Thing:
        return thing

    @router.delete("/things/{name}", summary="Remove a thing", status_code=204)
    async def remove_thing(name: str, _grant: Annotated[Grant, require()]) -> Response:
        return Response(status_code=204)

    @router.get("/trigger", summary="Start a site")
    async def trigger(site: int, grant: Annotated[Grant, require(Scope.SITE, changes_state=True)]) -> dict[str, int]:
        if not grant.allows_site(site):
            problem(403, "other_site", "this token is for another site")
        return {"site": site}

    return router


def make_odd_router() -> ApiRouter:
    """Routes that fail, and routes that do not end."""
    router = ApiRouter(dependencies=[require()])

    @router.get("/busy", responses=problem_answers(409))
    async def be_busy() -> None:
        raise BusyError("it is busy")

    @router.get("/fail")
    async def fail() -> None:
        raise RuntimeError(f"broken by {CANARY}")

    @router.post("/api/echo")
    async def echo(document: dict[str, str]) -> dict[str, str]:
        return document

    @router.get("/large")
    async def send_large() -> Response:
        return Response(LARGE)

    @router.get("/events", response_class=EventSourceResponse)
    async def stream_events() -> AsyncIterator[dict[str, int]]:
        yield {"number": 1}
        await asyncio.Event().wait()

    @router.get("/broken-stream", response_class=EventSourceResponse)
    async def break_stream() -> AsyncIterator[dict[str, int]]:
        yield {"number": 1}
        raise RuntimeError(f"broken by {CANARY}")

    return router


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Headers
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Stage:
    """The application and what belongs to it."""

    app: FastAPI
    stop: Stop
    tokens: Tokens

    async def ask(
        self,
        method: str,
        target: str,
        *,
        token: str | None = ADMIN,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        peer: str = "192.0.2.1",
    ) -> Answer:
        """One request, without a socket. A body is sent as JSON unless the headers say otherwise."""
        sent = [(name.lower(), value) for name, value in headers]
        if token is not None:
            sent.append(("authorization", f"Bearer {token}"))
        if body is not None:
            sent.append(("content-length", str(len(body))))
            if "content-type" not in dict(sent):
                sent.append(("content-type", "application/json"))
        return await asyncio.wait_for(_exchange(self.app, method, target, sent, body or b"", peer), SOON)


async def _exchange(
    app: FastAPI, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes, peer: str
) -> Answer:
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        "client": (peer, 50_000),
        "server": ("tidings.test", 80),
    }
    requests = [{"type": "http.request", "body": body, "more_body": False}]
    answers: list[Any] = []

    async def receive() -> Any:
        if not requests:
            await asyncio.Event().wait()
        return requests.pop()

    async def send(message: Any) -> None:
        answers.append(message)

    await app(scope, receive, send)
    return Answer(
        answers[0]["status"],
        Headers(raw=answers[0]["headers"]),
        b"".join(each.get("body", b"") for each in answers[1:]),
    )


@asynccontextmanager
async def listen(stop: Stop, run: Callable[..., Coroutine[Any, Any, None]]) -> AsyncIterator[int]:
    """Runs a server on a free port of 127.0.0.1, which is what this gives; stops it at the end."""
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        run(host="127.0.0.1", port=0, on_listening=lambda _host, port: listening.set_result(port))
    )
    try:
        either: set[asyncio.Future[Any]] = {listening, serving}
        await asyncio.wait(either, timeout=SOON, return_when=asyncio.FIRST_COMPLETED)
        yield listening.result()
    finally:
        stop.request("the test is over")
        await asyncio.wait_for(serving, SOON)


def run_server(stage: Stage, *, limit: ConnectionLimit | None = None) -> AbstractAsyncContextManager[int]:
    """Serves the stage on a free port."""
    return listen(stage.stop, partial(serve, stage.app, stop=stage.stop, limit=limit))


async def send_raw(port: int, *pieces: bytes) -> bytes:
    """Everything that the server answers to these bytes until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
        return await asyncio.wait_for(reader.read(), SOON)
    finally:
        writer.close()
