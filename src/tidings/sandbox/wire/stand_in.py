"""What every stand-in is: one HTTP server on 127.0.0.1 that records each request, calls the hooks, misbehaves on
request and closes at once, whatever hangs on it. What a stand-in answers is its own file's business."""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, Protocol, Self, TypeVar

from aiohttp import web

from tidings.sandbox.wire.answers import SandboxAnswer, answer_fault, close_connection, reset_connection, send_answer
from tidings.sandbox.wire.faults import Fault, FaultKind, Faults
from tidings.sandbox.wire.listener import ADDRESS, Listener, TimedRequest
from tidings.sandbox.wire.request_log import Recorded, RequestLog

CONTROL_PREFIX = "/__sandbox/"

Hook = Callable[[Recorded], Awaitable[None] | None]
Control = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Asked(Protocol):
    """What a request says: the URLs it is about, and its other fields."""

    @property
    def urls(self) -> tuple[str, ...]: ...

    @property
    def fields(self) -> Mapping[str, object]: ...


@dataclass(frozen=True, slots=True, eq=False)
class SandboxExchange:
    """One request on its way to an answer."""

    request: web.BaseRequest
    number: int
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[object] | None = field(default_factory=asyncio.current_task)


A = TypeVar("A", bound=Asked)


class StandIn(ABC, Generic[A]):
    """A server on its own port (0: any that is free, kept over a restart). Subclasses say what a request tells
    (`read_request`), what it gets (`judge`) and what follows from that (`settle`)."""

    def __init__(self, name: str, *, port: int = 0) -> None:
        self.name = name
        self.on_request: Hook | None = None
        self.on_answer: Hook | None = None
        self.control: Control | None = None
        self._port = port
        self._log = RequestLog()
        self._faults = Faults()
        self._open: dict[web.RequestHandler, SandboxExchange] = {}
        self._listener: Listener | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self, *, port: int | None = None) -> None:
        """Listen; raises OSError where the port is taken."""
        if self._listener is not None:
            raise RuntimeError(f"{self.name} is already listening")
        listener = Listener(self._handle, on_lost=self._note_lost)
        self._port = await listener.listen(self._port if port is None else port)
        self._listener = listener

    async def close(self) -> None:
        """Stop listening and drop every connection at once, with whatever is waiting on it."""
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
    def requests(self) -> Sequence[Recorded]:
        """Every request so far, in order of arrival."""
        return self._log.requests

    @property
    def in_flight(self) -> int:
        return self._log.in_flight

    @property
    def max_in_flight(self) -> int:
        return self._log.max_in_flight

    async def wait_for_requests(self, count: int, *, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Return once `count` requests have arrived with their bodies; raises TimeoutError."""
        await self._log.wait_for(count, timeout=timeout)

    async def wait_until_idle(self, *, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Return once no request is in flight; raises TimeoutError."""
        await self._log.wait_until_idle(timeout=timeout)

    def misbehave(self, fault: Fault) -> None:
        self._faults.arm(fault)

    def recover(self) -> None:
        """Clear all faults; what already hangs goes on hanging."""
        self._faults.clear()

    def describe(self, *, full: bool = False) -> dict[str, object]:
        """What was asked of this stand-in, as JSON can carry it; `full` has each request."""
        counts: dict[str, object] = {"requests": len(self.requests), "maxInFlight": self.max_in_flight}
        return counts | ({"record": [entry.describe() for entry in self.requests]} if full else {})

    @abstractmethod
    def read_request(self, request: web.BaseRequest, body: bytes) -> A:
        """What is asked, as far as it can be read."""

    @abstractmethod
    async def judge(self, exchange: SandboxExchange, asked: A) -> SandboxAnswer:
        """What the real one would answer."""

    def settle(self, recorded: Recorded, *, status: int) -> None:
        """Note what a judgement means; called even where its answer will never be sent."""

    async def _handle(self, request: TimedRequest) -> web.StreamResponse:
        if self.control is not None and request.path.startswith(CONTROL_PREFIX):
            return await self.control(request)
        exchange = SandboxExchange(request, self._enter(request))
        self._open[request.protocol] = exchange
        try:
            return await self._serve(exchange)
        except (ConnectionError, web.RequestPayloadError):
            return web.Response()  # the client is gone: nobody will see this
        finally:
            self._leave(exchange)
            del self._open[request.protocol]

    async def _serve(self, exchange: SandboxExchange) -> web.StreamResponse:
        asked = self.read_request(exchange.request, await exchange.request.read())
        recorded = await self._log.complete(exchange.number, urls=asked.urls, fields=asked.fields)
        await _call(self.on_request, recorded)
        fault = self._faults.strike(path=recorded.path, urls=recorded.urls)
        if fault is not None and fault.latency:
            await asyncio.sleep(fault.latency.total_seconds())
        if fault is not None and fault.kind in (FaultKind.HANG, FaultKind.RESET):
            return await self._refuse_to_answer(exchange, fault)
        return await self._answer(exchange, asked, fault)

    async def _answer(self, exchange: SandboxExchange, asked: A, fault: Fault | None) -> web.StreamResponse:
        scripted = fault is not None and fault.kind is FaultKind.STATUS
        answer = answer_fault(fault) if fault is not None and scripted else await self.judge(exchange, asked)
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
        path, _, query = request.raw_path.partition("?")
        return self._log.arrive(
            at=request.at, wall=request.wall, method=request.method, path=path, query=query, headers=request.headers
        )

    def _leave(self, exchange: SandboxExchange) -> None:
        self._log.leave(exchange.number)

    async def _cancel_exchanges(self) -> None:
        # A hook may close the stand-in it is called by: that one must not wait for itself.
        spared = (None, asyncio.current_task())
        tasks = [exchange.task for exchange in self._open.values() if exchange.task not in spared]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _note_lost(self, connection: web.RequestHandler) -> None:
        exchange = self._open.get(connection)
        if exchange is not None:
            exchange.lost.set()
            self._leave(exchange)


async def _call(hook: Hook | None, recorded: Recorded) -> None:
    outcome = hook(recorded) if hook is not None else None
    if inspect.isawaitable(outcome):
        await outcome
