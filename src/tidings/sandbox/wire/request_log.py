"""The requests of a stand-in: one `Recorded` per request, in order of arrival, with its URLs, its answer and the number
of requests in flight. Tests wait for requests here.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One request."""

    # When its head was read, in seconds of the monotonic clock.
    at: float
    # When its bytes came to this machine, to a few milliseconds: a busy process reads them later.
    received_at: float
    # Arrival, UTC.
    wall: datetime
    method: str
    path: str
    query: str
    # Secrets in headers and query are masked.
    headers: Mapping[str, str]
    # Requests in flight at its arrival, itself included. The log counts them.
    in_flight: int = 0
    # The URLs that it submits or asks for.
    urls: tuple[str, ...] = ()
    # Its other fields, by the names of the protocol.
    fields: Mapping[str, object] = field(default_factory=dict)
    # The status of the answer. None until there is one.
    status: int | None = None

    def describe(self) -> dict[str, object]:
        """The request as JSON."""
        return {
            "at": self.at,
            "receivedAt": self.received_at,
            "wall": self.wall.isoformat(),
            "method": self.method,
            "path": self.path,
            "query": self.query,
            "headers": dict(self.headers),
            "inFlight": self.in_flight,
            "urls": list(self.urls),
            "fields": dict(self.fields),
            "status": self.status,
        }


class RequestLog:
    """All requests of one stand-in.

    A request is in flight from its arrival until just before its last bytes are sent. A client that waits for each
    answer thus never has two in flight.
    """

    def __init__(self) -> None:
        self.max_in_flight = 0
        self._requests: list[Recorded] = []
        self._in_flight: set[int] = set()
        self._complete = 0
        self._changed = asyncio.Condition()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def requests(self) -> Sequence[Recorded]:
        return self._requests

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def arrive(self, recorded: Recorded) -> int:
        """Record a request whose head was read. Returns its number."""
        number = len(self._requests)
        self._in_flight.add(number)
        self._idle.clear()
        self.max_in_flight = max(self.max_in_flight, len(self._in_flight))
        self._requests.append(replace(recorded, in_flight=len(self._in_flight)))
        return number

    async def complete(self, number: int, *, urls: tuple[str, ...], fields: Mapping[str, object]) -> Recorded:
        """Record the content of a request that was read to its end, and wake the waiting tests."""
        entry = self._replace(number, replace(self._requests[number], urls=urls, fields=fields))
        self._complete += 1
        async with self._changed:
            self._changed.notify_all()
        return entry

    def answer(self, number: int, *, status: int) -> Recorded:
        return self._replace(number, replace(self._requests[number], status=status))

    def leave(self, number: int) -> None:
        """The request is no longer in flight: its answer is about to end, or its connection is lost."""
        self._in_flight.discard(number)
        if not self._in_flight:
            self._idle.set()

    async def wait_for(self, count: int, *, timeout: timedelta) -> None:
        """Wait until `count` requests were read to their ends. Raises TimeoutError."""
        try:
            async with asyncio.timeout(timeout.total_seconds()), self._changed:
                await self._changed.wait_for(lambda: self._complete >= count)
        except TimeoutError:
            raise TimeoutError(f"{self._complete} of {count} requests came within {timeout}") from None

    async def wait_until_idle(self, *, timeout: timedelta) -> None:
        """Wait until no request is in flight. Raises TimeoutError."""
        async with asyncio.timeout(timeout.total_seconds()):
            await self._idle.wait()

    def _replace(self, number: int, entry: Recorded) -> Recorded:
        self._requests[number] = entry
        return entry
