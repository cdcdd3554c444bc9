"""A listening socket on 127.0.0.1 for one stand-in. It adds the time of arrival to each request, reports lost
connections, and can drop all connections at once.
"""

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import cast

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

ADDRESS = "127.0.0.1"

_LONGEST_LINE = 64 * 1024
_LARGEST_BODY = 64 * 1024 * 1024
_BACKLOG = 1024
# Of Linux's `struct tcp_info`: its length, and where it has the milliseconds since the last data came.
_TCP_INFO_LENGTH = 104
_LAST_DATA_AT = 52


class Listener(web.Server):
    """One server. `listen` and `stop` are called once each."""

    def __init__(
        self,
        handler: Callable[["TimedRequest"], Awaitable[web.StreamResponse]],
        *,
        on_lost: Callable[[web.RequestHandler], None],
    ) -> None:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await handler(cast("TimedRequest", request))

        super().__init__(handle, request_factory=TimedRequest, access_log=None, max_line_size=_LONGEST_LINE)
        self._on_lost = on_lost
        self._runner = web.ServerRunner(self, shutdown_timeout=0.1)

    async def listen(self, port: int) -> int:
        """Returns the port. Raises OSError if it is taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, ADDRESS, port, backlog=_BACKLOG)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            raise
        return int(self._runner.addresses[0][1])

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._on_lost(handler)

    async def drop_connections(self) -> None:
        """Stop listening, and abort open connections without waiting."""
        for site in self._runner.sites:
            await site.stop()
        for connection in self.connections:
            # `close` would wait for a client that never reads its answer.
            if connection.transport is not None:
                connection.transport.abort()

    async def stop(self) -> None:
        await self._runner.cleanup()
        # The event loop closes an aborted socket in its next iteration.
        await asyncio.sleep(0)


class TimedRequest(web.BaseRequest):
    """A request with the time of its arrival. The handler starts one iteration of the event loop later."""

    def __init__(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> None:
        self.at = time.monotonic()
        self.received_at = self.at - _find_wait(protocol)
        self.wall = datetime.now(UTC)
        loop = asyncio.get_running_loop()
        super().__init__(message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_BODY)


def _find_wait(protocol: web.RequestHandler) -> float:
    """For how many seconds the bytes have been waiting to be read. 0 where the system does not tell."""
    transport = protocol.transport
    connection = None if transport is None else transport.get_extra_info("socket")
    option = getattr(socket, "TCP_INFO", None)
    if connection is None or option is None:
        return 0.0
    info = connection.getsockopt(socket.IPPROTO_TCP, option, _TCP_INFO_LENGTH)
    if len(info) < _LAST_DATA_AT + 4:
        return 0.0
    return float(struct.unpack_from("I", info, _LAST_DATA_AT)[0]) / 1000
