"""A bound on the head of an answer. aiohttp reads interim answers, such as `100 Continue`, until the time limit, as
fast as a server sends them. Here the connection ends after a maximum of bytes without a final answer.
"""

import asyncio
from typing import Final

import aiohttp
from aiohttp.connector import Connection

from tidings.core.net.failures import EndlessHeadError

# Bytes of all interim answers and headers. The chunk that ends the head may be longer: it holds a part of the body.
LONGEST_HEAD: Final = 64 * 1024


class BoundedResponse(aiohttp.ClientResponse):
    """An answer with a bounded head. Raises EndlessHeadError."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        transport = connection.transport
        if transport is None:
            return await super().start(connection)
        reader = transport.get_protocol()
        counter = _HeadCounter(transport, reader)
        transport.set_protocol(counter)
        try:
            return await super().start(connection)
        except aiohttp.ClientError:
            if counter.is_exceeded:
                raise EndlessHeadError from None
            raise
        finally:
            if not transport.is_closing():
                transport.set_protocol(reader)


class _HeadCounter(asyncio.Protocol):
    """Stands between a connection and its reader while the head is read, and counts."""

    def __init__(self, transport: asyncio.Transport, reader: asyncio.BaseProtocol) -> None:
        self.is_exceeded = False
        self._transport = transport
        self._reader = reader
        self._received = 0

    def data_received(self, data: bytes) -> None:
        if self._received > LONGEST_HEAD:
            self.is_exceeded = True
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
