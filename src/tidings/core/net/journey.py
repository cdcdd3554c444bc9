"""One fetch of the guarded client over all its redirects: its time limit, its connection, and its failures."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic
from types import SimpleNamespace

import aiohttp

from tidings.core.net.addresses import Url
from tidings.core.net.failures import (
    FAILURES,
    FetchError,
    FetchTimeoutError,
    NetworkError,
    PrivateAddressError,
    RefusedError,
    explain_failure,
)
from tidings.core.net.resolver import ForbiddenAddressError


class Journey:
    """One fetch over all its redirects: the time left, the current URL, and whether a connection was made.

    Only waiting for the server counts, not the caller's work between two chunks.
    """

    def __init__(
        self, url: Url, *, timeout: timedelta, url_limit: int, before_sending: Callable[[], Awaitable[None]] | None
    ) -> None:
        self.url = url
        self.url_limit = url_limit
        self.connected = False
        # Whether the last connection had been used before.
        self.reused = False
        # Whether a chunk of the present request was sent.
        self.has_begun = False
        self._before_sending = before_sending
        # The caller's error in `before_sending`, for which the request was not sent.
        self._given_up: Exception | None = None
        self._timeout = timeout
        self._left = timeout.total_seconds()
        self._running: asyncio.Timeout | None = None

    @asynccontextmanager
    async def wait(self) -> AsyncIterator[None]:
        """Count the time that the block takes, and raise its failures as FetchError."""
        started = monotonic()
        try:
            async with asyncio.timeout(self._left) as self._running:
                yield
        except FAILURES as failure:
            raise self._given_up or self._translate(failure) from None
        finally:
            self._left -= monotonic() - started

    async def prepare_sending(self) -> None:
        """Called with an open connection, before the bytes are sent: the caller may delay them. That does not count as
        time."""
        if self._before_sending is None or self._running is None:
            return
        started, ends_at = monotonic(), self._running.when()
        self._running.reschedule(None)
        try:
            await self._before_sending()
        except Exception as error:
            # aiohttp treats an error while it sends a body as one of the connection.
            self._given_up = error
            raise
        waited = monotonic() - started
        self._left += waited
        self._running.reschedule(None if ends_at is None else ends_at + waited)

    def refuse(self, rule: str) -> RefusedError:
        return RefusedError(self.url, rule)

    def _translate(self, failure: BaseException) -> FetchError:
        if isinstance(failure, ForbiddenAddressError):
            return PrivateAddressError(self.url, str(failure))
        if isinstance(failure, TimeoutError):
            reason = f"no complete answer in {self._timeout.total_seconds():g} s"
            return FetchTimeoutError(self.url, reason, sent=self.connected)
        if isinstance(failure, ValueError) and not isinstance(failure, OSError):
            return self.refuse("the request cannot be written as HTTP")
        return NetworkError(self.url, explain_failure(failure), sent=self.connected)


def trace_connections() -> aiohttp.TraceConfig:
    """Callbacks that report connection events to a request's journey."""
    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(_record_connection)
    trace.on_connection_reuseconn.append(_record_reuse)
    # In spite of their names, aiohttp calls them before it writes the head or a chunk. It sends the head with the first
    # chunk, which may be one iteration of the event loop later.
    trace.on_request_headers_sent.append(_begin_sending)
    trace.on_request_chunk_sent.append(_send_chunk)
    return trace


async def _record_connection(session: aiohttp.ClientSession, context: SimpleNamespace, params: object) -> None:
    journey: Journey = context.trace_request_ctx
    journey.connected = True
    journey.reused = False


async def _record_reuse(session: aiohttp.ClientSession, context: SimpleNamespace, params: object) -> None:
    journey: Journey = context.trace_request_ctx
    journey.connected = journey.reused = True


async def _begin_sending(session: aiohttp.ClientSession, context: SimpleNamespace, params: object) -> None:
    journey: Journey = context.trace_request_ctx
    journey.has_begun = False
    await journey.prepare_sending()


async def _send_chunk(session: aiohttp.ClientSession, context: SimpleNamespace, params: object) -> None:
    journey: Journey = context.trace_request_ctx
    if not journey.has_begun:
        journey.has_begun = True
        await journey.prepare_sending()
