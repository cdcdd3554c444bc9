"""Limits on connections: how long a request's head may take, and how many connections there may be at once.

Uvicorn keeps a connection that sends nothing for ever. A few hundred of them would use up the files that this process
may open, and then nobody is answered.
"""

import asyncio
import errno
import resource
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from tidings.core.logs.logger import get_logger

SLOWEST_HEAD: Final = timedelta(seconds=10)
# Connections that wait for `accept`. asyncio accepts as many in one go, and logs an error for each if it cannot.
BACKLOG: Final = 128

_WANTED_FILES: Final = 65_536
# macOS refuses more, even below its hard limit.
_OPEN_MAX: Final = 10_240
_MOST_CONNECTIONS: Final = 4_096
_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_QUIET_SECONDS: Final = 60.0

_log = get_logger(__name__)


class ConnectionLimit:
    """The connections of one server that wait for a request's head, the oldest first."""

    def __init__(self, most: int, *, slowest_head: timedelta = SLOWEST_HEAD) -> None:
        self.most = most
        self.slowest_head = slowest_head
        self.waiting: dict[LimitedProtocol, None] = {}

    def make_room(self, count: int) -> bool:
        """If there are too many connections, end the one that has waited longest for a head. False if there is none."""
        if count <= self.most:
            return True
        oldest = next(iter(self.waiting), None)
        if oldest is not None:
            oldest.give_up()
        return oldest is not None


class LimitedProtocol(H11Protocol):
    """Uvicorn's protocol with a time limit for the head. `limit` is set by `make_protocol`."""

    limit: ConnectionLimit

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        self._head_timer: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        if not self.limit.make_room(len(self.connections)):
            transport.abort()
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Between two requests uvicorn's own timer runs; the first byte of the next one ends that.
        if self.cycle is None or self.cycle.response_complete:
            self._expect_head()
        else:
            self._end_waiting()

    def give_up(self) -> None:
        self._end_waiting()
        self.transport.abort()

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self.limit.waiting[self] = None
            self._head_timer = self.loop.call_later(self.limit.slowest_head.total_seconds(), self.give_up)

    def _end_waiting(self) -> None:
        self.limit.waiting.pop(self, None)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def make_protocol(limit: ConnectionLimit) -> type[LimitedProtocol]:
    """Uvicorn takes a class."""
    return type("ServerProtocol", (LimitedProtocol,), {"limit": limit})


def raise_file_limit() -> int:
    """Raise the number of files that this process may open, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (_WANTED_FILES, _OPEN_MAX):
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
                return most
    return _WANTED_FILES if soft == resource.RLIM_INFINITY else soft


def choose_most_connections(files: int) -> int:
    """A quarter of the files is for our own requests, the database and child processes."""
    return min(_MOST_CONNECTIONS, files * 3 // 4)


class AcceptErrors:
    """Handles errors of the event loop. Of connections that could not be accepted it logs one line a minute."""

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
