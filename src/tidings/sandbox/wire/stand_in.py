"""The base of every stand-in: an HTTP server on 127.0.0.1 that records requests, calls hooks and shows faults. It
closes at once, even if clients wait. Each stand-in decides its own answers.
"""

import asyncio
import inspect
import json
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Protocol, Self, TypeVar

from aiohttp import web
from multidict import CIMultiDict

from tidings.sandbox.wire.answers import (
    SandboxAnswer,
    answer_fault,
    close_connection,
    guess_content_type,
    reset_connection,
    send_answer,
)
from tidings.sandbox.wire.faults import ArmedFault, Fault, FaultKind, strike
from tidings.sandbox.wire.listener import ADDRESS, Listener, TimedRequest
from tidings.sandbox.wire.request_log import Recorded, RequestLog

CONTROL_PREFIX = "/__sandbox/"
# What a log shows in the place of a secret.
MASK = "***"

Hook = Callable[[Recorded], Awaitable[None] | None]
Now = Callable[[], datetime]
ControlHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def read_utc() -> datetime:
    return datetime.now(UTC)


class Asked(Protocol):
    """The content of a request: its URLs and its other fields."""

    @property
    def urls(self) -> tuple[str, ...]: ...

    @property
    def fields(self) -> Mapping[str, object]: ...


@dataclass(frozen=True, slots=True)
class Visit:
    """A request to a web site."""

    # The one URL that was asked for.
    urls: tuple[str, ...]
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class SandboxExchange:
    """One request until its answer."""

    request: web.BaseRequest
    number: int
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[object] | None = field(default_factory=asyncio.current_task)


Content = TypeVar("Content", bound=Asked)


class StandIn(ABC, Generic[Content]):
    """A server on a port of its own, which it keeps over a restart. `now` is its clock.

    Subclasses read a request (`read_request`), choose its answer (`judge`) and change their state (`settle`).
    """

    def __init__(self, name: str, *, now: Now = read_utc) -> None:
        self.name = name
        self.on_request: Hook | None = None
        self.on_answer: Hook | None = None
        self.control: ControlHandler | None = None
        self._now = now
        self._port = 0
        self._log = RequestLog()
        self._faults: list[ArmedFault] = []
        self._served: dict[str, SandboxAnswer] = {}
        self._open: dict[web.RequestHandler, SandboxExchange] = {}
        self._listener: Listener | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self, *, port: int | None = None) -> None:
        """Start to listen, at first on `port` or else on a free one. Raises OSError if the port is taken."""
        if self._listener is not None:
            raise RuntimeError(f"{self.name} is already listening")
        listener = Listener(self._handle, on_lost=self._record_lost)
        self._port = await listener.listen(self._port if port is None else port)
        self._listener = listener

    async def close(self) -> None:
        """Stop listening and drop every connection at once."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        await listener.drop_connections()
        await self._cancel_exchanges()
        await listener.stop()

    @property
    def port(self) -> int:
        if self._port == 0:
            raise RuntimeError(f"{self.name} has no port before it is started")
        return self._port

    @property
    def host(self) -> str:
        return f"{ADDRESS}:{self.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    @property
    def address(self) -> str:
        """The URL that clients are given."""
        return self.origin

    @property
    def requests(self) -> Sequence[Recorded]:
        """All requests so far, in order of arrival."""
        return self._log.requests

    @property
    def in_flight(self) -> int:
        return self._log.in_flight

    @property
    def max_in_flight(self) -> int:
        return self._log.max_in_flight

    async def wait_for_requests(self, count: int, *, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Wait until `count` requests have arrived with their bodies. Raises TimeoutError."""
        await self._log.wait_for(count, timeout=timeout)

    async def wait_until_idle(self, *, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Wait until no request is in flight. Raises TimeoutError."""
        await self._log.wait_until_idle(timeout=timeout)

    @property
    def named_faults(self) -> dict[str, Fault]:
        """The faults that the stand-in's own module defines, such as a platform's refusals, by their names."""
        known = vars(sys.modules[type(self).__module__])
        return {name.lower(): value for name, value in known.items() if isinstance(value, Fault)}

    def misbehave(self, fault: Fault) -> None:
        self._faults.append(ArmedFault(fault))

    def recover(self) -> None:
        """Clear all faults. A request that hangs already goes on hanging."""
        self._faults.clear()

    def describe(self, *, full: bool = False) -> dict[str, object]:
        """The recorded requests as JSON: their number, and with `full` each of them."""
        counts: dict[str, object] = {"requests": len(self.requests), "maxInFlight": self.max_in_flight}
        return counts | ({"record": [entry.describe() for entry in self.requests]} if full else {})

    def serve(
        self,
        path: str,
        body: bytes | str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> None:
        """Answer `path` with exactly this from now on."""
        raw = body.encode() if isinstance(body, str) else body
        self._served[path] = SandboxAnswer(status, raw, headers or {}, content_type or guess_content_type(path))

    def restore(self, path: str) -> None:
        """Undo `serve`."""
        self._served.pop(path, None)

    def mask_path(self, raw_path: str) -> str:
        """Path and query as they are recorded, without secrets."""
        return raw_path

    def mask_header(self, name: str, value: str) -> str:
        """The value of a header as it is recorded, without secrets."""
        return value

    @abstractmethod
    def read_request(self, request: web.BaseRequest, body: bytes) -> Content:
        """The content of a request, as far as it can be read."""

    @abstractmethod
    async def judge(self, exchange: SandboxExchange, asked: Content) -> SandboxAnswer:
        """The answer that the real service would give."""

    def settle(self, recorded: Recorded, *, status: int) -> None:
        """Change the state after an answer was chosen. Also called when a fault keeps the answer from being sent."""

    async def _handle(self, request: TimedRequest) -> web.StreamResponse:
        if self.control is not None and request.path.startswith(CONTROL_PREFIX):
            return await self.control(request)
        exchange = SandboxExchange(request, self._enter(request))
        self._open[request.protocol] = exchange
        try:
            return await self._serve(exchange)
        except (ConnectionError, web.RequestPayloadError):
            return web.Response()  # The client is gone.
        finally:
            self._leave(exchange)
            del self._open[request.protocol]

    async def _serve(self, exchange: SandboxExchange) -> web.StreamResponse:
        asked = self.read_request(exchange.request, await exchange.request.read())
        recorded = await self._log.complete(exchange.number, urls=asked.urls, fields=asked.fields)
        await _call(self.on_request, recorded)
        fault = strike(self._faults, path=recorded.path, urls=recorded.urls)
        if fault is not None and fault.latency:
            await asyncio.sleep(fault.latency.total_seconds())
        if fault is not None and fault.kind in (FaultKind.HANG, FaultKind.RESET):
            return await self._refuse_to_answer(exchange, fault)
        return await self._answer(exchange, asked, fault)

    async def _answer(self, exchange: SandboxExchange, asked: Content, fault: Fault | None) -> web.StreamResponse:
        scripted = fault is not None and fault.kind is FaultKind.STATUS
        if fault is not None and scripted:
            answer = answer_fault(fault)
        elif (served := self._served.get(exchange.request.raw_path.partition("?")[0])) is not None:
            answer = served
        else:
            answer = await self.judge(exchange, asked)
        self.settle(self.requests[exchange.number], status=answer.status)
        silent = fault is not None and fault.kind is FaultKind.RESET_AFTER_ACCEPTING
        if not silent and not exchange.lost.is_set():
            self._log.answer(exchange.number, status=answer.status)
        await _call(self.on_answer, self.requests[exchange.number])
        if silent:
            self._leave(exchange)
            close_connection(exchange.request)
            return web.Response()
        return await send_answer(exchange.request, answer, fault=fault, on_last=lambda: self._leave(exchange))

    async def _refuse_to_answer(self, exchange: SandboxExchange, fault: Fault) -> web.StreamResponse:
        if fault.kind is FaultKind.HANG:
            await exchange.lost.wait()
        else:
            self._leave(exchange)
            reset_connection(exchange.request)
        return web.Response()

    def _enter(self, request: TimedRequest) -> int:
        path, _, query = self.mask_path(request.raw_path).partition("?")
        headers = CIMultiDict((name, self.mask_header(name, value)) for name, value in request.headers.items())
        recorded = Recorded(
            at=request.at,
            received_at=request.received_at,
            wall=request.wall,
            method=request.method,
            path=path,
            query=query,
            headers=headers,
        )
        return self._log.arrive(recorded)

    def _leave(self, exchange: SandboxExchange) -> None:
        self._log.leave(exchange.number)

    async def _cancel_exchanges(self) -> None:
        # A hook may close its own stand-in, which must not wait for itself.
        spared = (None, asyncio.current_task())
        tasks = [exchange.task for exchange in self._open.values() if exchange.task not in spared]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _record_lost(self, connection: web.RequestHandler) -> None:
        exchange = self._open.get(connection)
        if exchange is not None:
            exchange.lost.set()
            self._leave(exchange)


def describe_accepted(accepted: Counter[str], *, full: bool) -> dict[str, object]:
    """The URLs that an engine took as JSON: their numbers, and with `full` how often it took each."""
    counts: dict[str, object] = {
        "acceptedUrls": len(accepted),
        "acceptances": accepted.total(),
        "acceptedTwice": sum(times > 1 for times in accepted.values()),
    }
    return counts | ({"accepted": dict(accepted)} if full else {})


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; empty for anything else."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


async def _call(hook: Hook | None, recorded: Recorded) -> None:
    outcome = hook(recorded) if hook is not None else None
    if inspect.isawaitable(outcome):
        await outcome
