"""Serves the application on a socket until the stop signal. The calling command handles process signals."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

from tidings.core.file_limit import raise_file_limit
from tidings.core.stop import Stop
from tidings.web.connections import (
    BACKLOG,
    AcceptErrors,
    ConnectionLimit,
    choose_most_connections,
    make_protocol,
)

# The whole shutdown has ten seconds; this is its first part.
_GRACE_SECONDS: Final = 5
_TICK_SECONDS: Final = 1
# A name may resolve to addresses of a family that this machine does not support.
_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})

Listening = Callable[[str, int], None]


async def serve(
    app: FastAPI,
    *,
    host: str,
    port: int,
    stop: Stop,
    on_listening: Listening = lambda host, port: None,
    limit: ConnectionLimit | None = None,
) -> None:
    """Answer requests until `stop`, then finish open requests within ten seconds.

    Calls `on_listening` with the host and the port in use once it accepts requests. Raises OSError if the port is
    taken. `limit`: by default as many connections as the system's limit of files allows.
    """
    limit = limit or ConnectionLimit(choose_most_connections(raise_file_limit()))
    asyncio.get_running_loop().set_exception_handler(AcceptErrors().handle)
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(each)) for each in bind_sockets(host, port=port)]
        actual = sockets[0].getsockname()[1]
        server = _Server(_make_config(app, limit), on_started=lambda: on_listening(host, actual))
        async with _ended_by(stop, server):
            await server.serve(sockets=sockets)


def bind_sockets(host: str, *, port: int) -> list[socket.socket]:
    """A socket for each address of this host, all with one port; a free port if it is 0. Raises OSError."""
    found = _find_addresses(host, port)
    bound: list[socket.socket] = []
    missing: OSError | None = None
    for family, address in dict.fromkeys((each[0], each[4]) for each in found):
        try:
            bound.append(_bind_socket(family, (address[0], port, *address[2:])))
        except OSError as error:
            if error.errno not in _NOT_HERE:
                for each in bound:
                    each.close()
                raise
            missing = error
        else:
            port = bound[-1].getsockname()[1]
    if missing is not None and not bound:
        raise missing
    return bound


def _find_addresses(host: str, port: int) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        reason = "this host has no address here; check --host and TIDINGS_HOST"
        raise OSError(errno.EADDRNOTAVAIL, reason, host) from None


def _bind_socket(family: int, address: tuple[str | int, ...]) -> socket.socket:
    # asyncio switches off Nagle's delay, 40 ms per answer, only for a socket that is declared as TCP.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        error.filename = f"{address[0]} port {address[1]}"
        raise
    return made


def _make_config(app: FastAPI, limit: ConnectionLimit) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=make_protocol(limit),
        backlog=BACKLOG,
        ws="none",
        lifespan="off",
        log_config=None,
        # Its warnings are about invalid HTTP requests, of which any client can send thousands.
        log_level="error",
        access_log=False,
        # `middleware.callers` reads X-Forwarded-For, and believes only the configured proxies.
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


class _Server(uvicorn.Server):
    """Uvicorn without its handlers of process signals."""

    def __init__(self, config: uvicorn.Config, *, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._ended = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._ended.set()

    async def main_loop(self) -> None:
        """Uvicorn's loop wakes ten times a second. Once is enough for the Date header, and `end` ends this loop at
        once."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._ended.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    def close_listeners(self) -> None:
        for each in getattr(self, "servers", ()):
            each.close()


@asynccontextmanager
async def _ended_by(stop: Stop, server: _Server) -> AsyncIterator[None]:
    async def end() -> None:
        await stop.wait()
        server.end()

    ending = asyncio.create_task(end())
    try:
        yield
    finally:
        server.close_listeners()
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
