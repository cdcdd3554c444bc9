"""Requests at a steady rate, whatever the answers take: each is sent when its time has come, and its latency counts
from then. A generator that waited for answers would send less just when the server is slow, and never see it.
"""

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.measurement import SubjectError

_LONGEST_SECONDS = 30.0
# The server closes a connection that has been idle for five.
_LONGEST_IDLE_SECONDS = 2.0

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long the answers took, in milliseconds."""

    values: Sequence[float] = field(repr=False)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.values, n=100)[98]


class Load:
    """Sends GET requests to one server, on as many kept connections as there are requests at once."""

    def __init__(self, port: int, *, token: str) -> None:
        self._port = port
        self._token = token
        # The last one used is the first to be used again; each with the time since when it is idle.
        self._idle: list[tuple[_Connection, float]] = []

    async def send(self, targets: Sequence[str], *, rate: float) -> Latencies:
        """One request for each target. Raises SubjectError where an answer is not 200."""
        loop = asyncio.get_running_loop()
        begin = loop.time() + 0.05
        tasks = []
        for number, target in enumerate(targets):
            due = begin + number / rate
            await asyncio.sleep(due - loop.time())
            tasks.append(asyncio.create_task(self._ask(target, due=due)))
        return Latencies([await task for task in tasks])

    async def close(self) -> None:
        for (_, writer), _ in self._idle:
            writer.close()
        self._idle.clear()

    async def _ask(self, target: str, *, due: float) -> float:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_LONGEST_SECONDS):
            reader, writer = connection = await self._connect()
            writer.write(
                f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._token}\r\n\r\n".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head[:16]:
                raise SubjectError(f"{target} was answered {head.splitlines()[0]!r}")
            await reader.readexactly(_read_length(head))
        self._idle.append((connection, loop.time()))
        return (loop.time() - due) * 1000

    async def _connect(self) -> _Connection:
        if self._idle and asyncio.get_running_loop().time() - self._idle[-1][1] < _LONGEST_IDLE_SECONDS:
            return self._idle.pop()[0]
        await self.close()
        return await asyncio.open_connection("127.0.0.1", self._port)


def _read_length(head: bytes) -> int:
    lines = head.lower().splitlines()
    return next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
