"""An answer as a value, sending it whole, slowly or in part, and breaking a connection as real ones break."""

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from aiohttp import web

from tidings.sandbox.wire.faults import Fault, FaultKind

HTML = "text/html; charset=utf-8"

_PIECE = 256 * 1024
_CONTENT_TYPES = {
    ".xml": "application/xml",
    ".txt": "text/plain; charset=utf-8",
    ".gz": "application/gzip",
    ".json": "application/json",
}


@dataclass(frozen=True, slots=True)
class SandboxAnswer:
    """One answer of a stand-in."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "text/plain; charset=utf-8"

    def all_headers(self) -> dict[str, str]:
        named = {name.lower() for name in self.headers}
        return dict(self.headers) if "content-type" in named else {"Content-Type": self.content_type, **self.headers}


def answer_json(document: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> SandboxAnswer:
    body = json.dumps(document).encode()
    return SandboxAnswer(status, body, headers or {}, "application/json; charset=utf-8")


def guess_content_type(path: str) -> str:
    """The content type of a file, by the end of its path."""
    return next((kind for suffix, kind in _CONTENT_TYPES.items() if path.endswith(suffix)), HTML)


def answer_fault(fault: Fault) -> SandboxAnswer:
    """The answer of a fault of the kind STATUS."""
    kind = "application/json; charset=utf-8" if fault.body.startswith("{") else "text/plain; charset=utf-8"
    return SandboxAnswer(fault.status, fault.body.encode(), fault.headers, kind)


async def send_answer(
    request: web.BaseRequest, answer: SandboxAnswer, *, fault: Fault | None, on_last: Callable[[], None]
) -> web.StreamResponse:
    """Send an answer with this fault. Calls `on_last` just before the last bytes."""
    kind = fault.kind if fault is not None else None
    if request.method == "HEAD" or (kind not in (FaultKind.DRIP, FaultKind.TRUNCATE) and len(answer.body) <= _PIECE):
        on_last()
        return web.Response(status=answer.status, headers=answer.all_headers(), body=answer.body)
    response = web.StreamResponse(status=answer.status, headers=answer.all_headers())
    response.content_length = len(answer.body)
    await response.prepare(request)
    if fault is not None and kind is FaultKind.DRIP:
        await _write(response, answer.body, piece=fault.drip_bytes, pause=fault.drip_pause, on_last=on_last)
    elif kind is FaultKind.TRUNCATE:
        await _write(response, answer.body[: len(answer.body) // 2], on_last=on_last)
        close_connection(request)
    else:
        await _write(response, answer.body, on_last=on_last)
    return response


async def _write(
    response: web.StreamResponse,
    body: bytes,
    *,
    piece: int = _PIECE,
    pause: timedelta = timedelta(0),
    on_last: Callable[[], None],
) -> None:
    view = memoryview(body)
    for start in range(0, len(body), piece):
        if start and pause:
            await asyncio.sleep(pause.total_seconds())
        if start + piece >= len(body):
            on_last()
        await response.write(view[start : start + piece])


def reset_connection(request: web.BaseRequest) -> None:
    """Close the connection with RST (connection reset by peer)."""
    if request.transport is None:
        return
    # With a linger time of zero, the kernel sends RST instead of FIN.
    request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.transport.abort()


def close_connection(request: web.BaseRequest) -> None:
    """Close the connection with FIN, after the bytes written so far."""
    if request.transport is not None:
        request.transport.close()
