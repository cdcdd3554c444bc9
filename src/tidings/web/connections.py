"""Limits on connections: how long a client may take, and how many connections there may be at once.

Uvicorn keeps a connection whose client sends or reads nothing for ever. A few hundred of them would use up the files
that this process may open, and no further client would get an answer. So time limits end them. If there are too many,
the one that has waited longest for its client is closed for a new one.
"""

import asyncio
import errno
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum, auto
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidings.core.logs.logger import get_logger

SLOWEST_HEAD: Final = timedelta(seconds=10)
# The time without reading anything of a pending answer. It is long, because the system's buffer empties in large steps.
SLOWEST_READ: Final = timedelta(minutes=1)
# Connections that wait for `accept`. asyncio accepts this many at once, and logs an error for each that fails.
BACKLOG: Final = 128
# Bytes of a head, or of the line before a chunk, that may come in pieces; as many as uvicorn allows.
_LARGEST_HEAD: Final = 64 * 1024
# Chunks of a body that are smaller than this many bytes, and the most of them. A million of one byte would occupy the
# event loop for four seconds.
SMALL_CHUNK: Final = 512
MOST_SMALL_CHUNKS: Final = 4_096
# Small chunks that a connection may parse before the other connections have their turn. They take about as long as a
# whole request does.
SMALL_CHUNKS_A_TURN: Final = 128

_MOST_CONNECTIONS: Final = 4_096
_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_QUIET_SECONDS: Final = 60.0

_log = get_logger(__name__)


class ConnectionLimit:
    """The connections of one server that wait for their client, the oldest first."""

    def __init__(
        self, most: int, *, slowest_head: timedelta = SLOWEST_HEAD, slowest_read: timedelta = SLOWEST_READ
    ) -> None:
        self.most = most
        self.slowest_head = slowest_head
        self.slowest_read = slowest_read
        self.waiting: dict[LimitedProtocol, None] = {}

    def make_room(self, count: int) -> bool:
        """If there are too many connections, end the one that has waited longest. False if none waits."""
        if count <= self.most:
            return True
        oldest = next(iter(self.waiting), None)
        if oldest is not None:
            oldest.give_up()
        return oldest is not None


class _ChunkLimit(h11.Connection):
    """Refuses a body of very many small chunks, and stops after the small chunks of one turn."""

    # Small chunks that this turn may still parse.
    left = SMALL_CHUNKS_A_TURN
    _small_chunks = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if not self.left:
            return h11.NEED_DATA
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._small_chunks = 0
        elif isinstance(event, h11.Data) and event.chunk_start and len(event.data) < SMALL_CHUNK:
            self.left -= 1
            self._small_chunks += 1
            if self._small_chunks > MOST_SMALL_CHUNKS:
                raise h11.RemoteProtocolError("a body of too many small chunks")
        return event


class _Awaited(Enum):
    """The part of a request or answer for which a connection waits."""

    # The service works on an answer.
    NOTHING = auto()
    # The rest of a request's head.
    HEAD = auto()
    # The rest of a request's body. `middleware.input` limits its time.
    BODY = auto()
    # That it reads an answer.
    READING = auto()
    # The next request on a kept connection. Uvicorn limits its time.
    NEXT = auto()


class LimitedProtocol(H11Protocol):
    """Uvicorn's protocol with time limits. `limit` is set by `make_protocol`."""

    limit: ConnectionLimit

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        self.conn = self._chunks = _ChunkLimit(h11.SERVER, _LARGEST_HEAD)
        self._awaited = _Awaited.NOTHING
        self._timer: asyncio.TimerHandle | None = None
        # Bytes of an answer that the client had not read when the timer began.
        self._unread = 0
        # Writing pauses as soon as the system's buffer is full, because the client does not read.
        transport.set_write_buffer_limits(high=0)
        super().connection_made(transport)
        if not self.limit.make_room(len(self.connections)):
            transport.abort()
            return
        self._wait_for(_Awaited.HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._wait_for(_Awaited.NOTHING)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for(self._find_awaited(between=_Awaited.HEAD))

    def handle_events(self) -> None:
        self._chunks.left = SMALL_CHUNKS_A_TURN
        super().handle_events()
        if not self._chunks.left and not self.transport.is_closing():
            self.transport.pause_reading()
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Parse the next small chunks of what came before."""
        if self.transport.is_closing():
            return
        if not self.flow.read_paused:
            self.transport.resume_reading()
        self.handle_events()
        self._wait_for(self._find_awaited(between=_Awaited.HEAD))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        has_more = self.conn.trailing_data[0]
        self._wait_for(self._find_awaited(between=_Awaited.HEAD if has_more else _Awaited.NEXT))

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP. A request that they belong to gets no other answer."""
        if self.cycle is not None:
            self.cycle.disconnected = True
        super().send_400_response(msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for(_Awaited.READING)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._wait_for(self._find_awaited(between=_Awaited.NEXT))

    def give_up(self) -> None:
        self._wait_for(_Awaited.NOTHING)
        self.transport.abort()

    def _find_awaited(self, *, between: _Awaited) -> _Awaited:
        """`between`: the state between two requests."""
        if self.flow.write_paused:
            return _Awaited.READING
        if self.cycle is None or self.cycle.response_complete:
            return between
        return _Awaited.BODY if self.cycle.more_body else _Awaited.NOTHING

    def _wait_for(self, awaited: _Awaited) -> None:
        # Another byte of the same part changes neither the time limit nor the order.
        if awaited is self._awaited:
            return
        self._awaited = awaited
        self.limit.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if awaited is not _Awaited.NOTHING:
            self.limit.waiting[self] = None
        if awaited is _Awaited.HEAD:
            self._timer = self.loop.call_later(self.limit.slowest_head.total_seconds(), self.give_up)
        elif awaited is _Awaited.READING:
            self._expect_reading()

    def check_reading(self) -> None:
        """End the connection unless the client has read something since the last look, however large the answer is."""
        unread = self.transport.get_write_buffer_size()
        if unread < self._unread:
            self._expect_reading()
        else:
            self.give_up()

    def _expect_reading(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._timer = self.loop.call_later(self.limit.slowest_read.total_seconds(), self.check_reading)


def make_protocol(limit: ConnectionLimit) -> type[LimitedProtocol]:
    """Make a subclass with this limit, because Uvicorn takes a class."""
    return type("ServerProtocol", (LimitedProtocol,), {"limit": limit})


def choose_most_connections(files: int) -> int:
    """The limit of connections. A quarter of the files is kept for our own requests, the database and child
    processes."""
    return min(_MOST_CONNECTIONS, files * 3 // 4)


class AcceptErrors:
    """Handles errors of the event loop. For connections that could not be accepted, it logs one line a minute."""

    def __init__(self) -> None:
        self._quiet_until = 0.0
        self._unlogged = 0

    def handle(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _NO_FILES):
            loop.default_exception_handler(dict(context))
            return
        self._unlogged += 1
        if loop.time() >= self._quiet_until:
            _log.error("connection.not_accepted", reason=error.strerror, count=self._unlogged)
            self._quiet_until, self._unlogged = loop.time() + _QUIET_SECONDS, 0
