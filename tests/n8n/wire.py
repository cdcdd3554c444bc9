"""What lies between n8n and Tidings: it hands on every question and every answer as it came, but for an answer that a
test wants lost or changed on its way."""

import io
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from aiohttp import ClientSession, web

LARGEST = 64 * 1024 * 1024
_HANDED_ON = ("Authorization", "Content-Type", "X-Request-ID")

Change = Callable[[Any], None]


class Wire:
    """Leads to Tidings at `target`. `asked` are the paths of all questions, in their order."""

    def __init__(self, client: ClientSession) -> None:
        self.target = ""
        self.asked: list[str] = []
        self._client = client
        self._losses: Counter[str] = Counter()
        self._changes: dict[str, Change] = {}

    def lose(self, *paths: str) -> None:
        """The next answer from each of these paths does not arrive; what was asked is done all the same."""
        self._losses.update(paths)

    def change(self, path: str, change: Change) -> None:
        """Every answer from this path arrives as `change` leaves it."""
        self._changes[path] = change

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path
        self.asked.append(path)
        headers = {name: request.headers[name] for name in _HANDED_ON if name in request.headers}
        # Not the bytes themselves: aiohttp would warn about a large body.
        body = io.BytesIO(await request.read())
        async with self._client.request(request.method, self.target + path, data=body, headers=headers) as answer:
            status, said = answer.status, await answer.read()
        if self._losses[path] and request.transport is not None:
            self._losses[path] -= 1
            request.transport.close()
        if path in self._changes:
            document = json.loads(said)
            self._changes[path](document)
            said = json.dumps(document).encode()
        return web.Response(status=status, body=said, content_type="application/json")


@asynccontextmanager
async def open_wire(base_url: str, client: ClientSession) -> AsyncIterator[Wire]:
    """A wire that begins at this address."""
    wire = Wire(client)
    app = web.Application(client_max_size=LARGEST)
    app.router.add_route("*", "/{path:.*}", wire.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", urlsplit(base_url).port).start()
        yield wire
    finally:
        await runner.cleanup()
