"""A bound on what a server sends beside the body of its answer. aiohttp reads interim answers, such as `100 Continue`,
and the sizes and extensions of chunks for as long as a server sends them, at full speed and until the time is up. Here
the connection ends once too many bytes came without an answer, or without its body.
"""

import asyncio
from typing import Final

import aiohttp
from aiohttp.connector import Connection

from tidings.core.net.failures import EndlessHeadError, EndlessOverheadError

# Bytes of all interim answers and headers. The chunk that ends the head may be longer: it holds a part of the body.
LONGEST_HEAD: Final = 64 * 1024
# On the wire, for each byte of the body. A chunk of one byte takes six.
_MOST_PER_BYTE: Final = 8


class BoundedResponse(aiohttp.ClientResponse):
    """An answer with a bound. Raises EndlessHeadError, and its body EndlessOverheadError."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        transport = connection.transport
        if transport is None:
            return await super().start(connection)
        counter = _find_counter(transport)
        counter.begin()
        try:
            response = await super().start(connection)
        except aiohttp.ClientError:
            if counter.is_exceeded:
                raise EndlessHeadError from None
            raise
        counter.body = self.content
        return response


def _find_counter(transport: asyncio.Transport) -> "_ByteCounter":
    """The counter of a connection; it stays as long as the connection is kept."""
    protocol = transport.get_protocol()
    if isinstance(protocol, _ByteCounter):
        return protocol
    counter = _ByteCounter(transport, protocol)
    transport.set_protocol(counter)
    return counter


class _ByteCounter(asyncio.Protocol):
    """Stands between a connection and its reader, and counts."""

    def __init__(self, transport: asyncio.Transport, reader: asyncio.BaseProtocol) -> None:
        self._transport = transport
        self._reader = reader
        self.begin()

    def begin(self) -> None:
        """Another answer follows."""
        self.is_exceeded = False
        self.body: aiohttp.StreamReader | None = None
        self._received = 0

    def data_received(self, data: bytes) -> None:
        read = 0 if self.body is None else self.body.total_bytes
        if self._received > LONGEST_HEAD + _MOST_PER_BYTE * read:
            self.is_exceeded = True
            if self.body is not None:
                self.body.set_exception(EndlessOverheadError())
            self._transport.abort()
        elif isinstance(self._reader, asyncio.Protocol):
            self._received += len(data)
            self._reader.data_received(data)

    def eof_received(self) -> bool | None:
        return self._reader.eof_received() if isinstance(self._reader, asyncio.Protocol) else None

    def connection_lost(self, error: Exception | None) -> None:
        self._reader.connection_lost(error)

    def pause_writing(self) -> None:
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        self._reader.resume_writing()
